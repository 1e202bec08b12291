//! A node, its backup, and what becomes of both.

use super::frame::Framer;
use super::read::{BackupError, check};
use super::*;
use crate::answer::{Call, Failure};
use crate::config::NodeConfig;
use crate::membership::MembershipError;
use crate::metrics::Metrics;
use crate::node::tests::acquire;
use crate::node::{Node, StartError};
use crate::open::OpenError;
use crate::open::support::Dice;
use crate::peers::tests::{self as peers, Cluster};
use crate::watch::{WatchFilter, Watched};
use leasehold_core::command::{Basis, Caller, EndedHow, GrantRef};
use leasehold_core::outcome::Refusal;
use leasehold_core::{RequestId, Token};
use openraft::async_runtime::WatchReceiver as _;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const JUMP: u64 = 1 << 40;

/// A node that leads: it grants from here on.
async fn start(dir: &Path) -> Node {
    let node = try_start(dir).await.expect("the node starts");
    while node.check_leading().is_err() {
        crate::runtime::sleep(std::time::Duration::from_millis(5)).await;
    }
    node
}

/// Stops it and lets go of its files.
async fn stop(node: Node) {
    node.shutdown().await;
}

async fn try_start(dir: &Path) -> Result<Node, StartError> {
    let config = NodeConfig { reserve_bytes: 0, ..NodeConfig::new(1, dir.to_owned()) };
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
    Node::start(config, metrics).await
}

/// Takes a lock for `ttl_ms`; answers its token.
async fn take(node: &Node, resource: &str, ttl_ms: u64) -> Result<u64, Failure> {
    let basis = Basis::Single { lease: node.new_lease_id(), ttl_ms };
    let asked = leasehold_core::command::Acquire { basis, ..acquire(node, resource) };
    node.acquire(Call::now(), asked, 0).await.map(|granted| granted.grant.token.0)
}

async fn give_back(node: &Node, resource: &str, token: u64) {
    let asked = acquire(node, resource);
    let caller = Caller { principal: asked.owner.principal, client: Some(asked.owner.client) };
    let grant = GrantRef { resource: asked.resource, token: Token(token), caller };
    node.release(Call::now(), grant).await.expect("it is ours");
}

/// Some locks, of which every third is given back.
async fn work(node: &Node, locks: u64) -> u64 {
    let mut newest = 0;
    for n in 0..locks {
        let resource = format!("busy/{n}");
        newest = take(node, &resource, 600_000).await.expect("it is free");
        if n % 3 == 0 {
            give_back(node, &resource, newest).await;
        }
    }
    newest
}

async fn bytes_of(node: &Node) -> Vec<u8> {
    let mut backup = node.backup(Call::now()).await.expect("nobody else takes one");
    let mut bytes = Vec::new();
    while let Some(some) = backup.next().await.expect("the node goes on") {
        bytes.extend(some);
    }
    bytes
}

fn settings(file: &Path, dir: &Path) -> RestoreSettings {
    RestoreSettings {
        file: file.to_owned(),
        dir: dir.to_owned(),
        node: 1,
        floor: TokenFloor::Auto { seen: 0 },
        hold_ms: Some(0),
    }
}

/// A backup of a node with some locks, and the newest token in it.
async fn small_backup(home: &Path) -> (PathBuf, Vec<u8>, u64) {
    let node = start(&home.join("first")).await;
    let newest = work(&node, 7).await;
    let bytes = bytes_of(&node).await;
    stop(node).await;
    let file = home.join("backup");
    fs::write(&file, &bytes).expect("writable");
    (file, bytes, newest)
}

/// A later instant of the wall clock: what it was taken from may go on between a restore and the
/// first start.
async fn later_ms() -> u64 {
    let before = crate::runtime::wall_clock_ms();
    while crate::runtime::wall_clock_ms() <= before {
        crate::runtime::sleep(std::time::Duration::from_millis(1)).await;
    }
    crate::runtime::wall_clock_ms()
}

/// What a state that was brought back can say of the time before its first start: not that nothing
/// is missing.
async fn tells_nothing_whole_of_before(node: &Node, started_ms: u64) {
    let since_ms = node.grants_complete_since_ms();
    assert!((started_ms..=crate::runtime::wall_clock_ms()).contains(&since_ms), "{since_ms}");
    let highest = async |resource: &str| {
        let name = acquire(node, resource).resource;
        let checked = node.fence_check(Call::now(), name, Token(1)).await.expect("it leads");
        checked.value.highest_token.map(|token| token.0)
    };
    // One was given back, and one was live. Of either, a newer holder may be forgotten.
    assert_eq!((highest("busy/0").await, highest("busy/1").await), (None, None));
    let token = take(node, "busy/0", 60_000).await.expect("nobody holds it");
    assert_eq!(highest("busy/0").await, Some(token));
    later_ms().await;
    give_back(node, "busy/0", token).await;
    assert_eq!(highest("busy/0").await, Some(token));
}

async fn how_it_ended(node: &Node, token: u64) -> Option<EndedHow> {
    let record = node.record(Token(token)).await.expect("readable");
    record.map(|record| record.how)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_restored_holds_nothing_and_issues_no_token_twice() {
    let home = TempDir::new().expect("a directory");
    let node = start(&home.path().join("first")).await;
    let newest = work(&node, 20).await;
    let (cluster, at) = (node.cluster(), node.revision());
    let bytes = bytes_of(&node).await;
    // What comes after the backup is lost, but never comes again.
    let lost = take(&node, "late", 60_000).await.expect("it is free");
    let past = node.revision();
    stop(node).await;

    let (file, dir) = (home.path().join("backup"), home.path().join("second"));
    fs::write(&file, &bytes).expect("writable");
    let summary = check(bytes.as_slice()).expect("it is whole");
    assert_eq!((summary.last_token, summary.revision), (newest, at));
    assert_eq!(summary.bytes, bytes.len() as u64);
    assert_eq!(token_counter(&file).expect("it is whole"), newest);

    let restored = restore(&settings(&file, &dir)).expect("the directory is new");
    assert!(restored.token_floor >= newest + JUMP);
    assert_eq!((restored.grants, restored.hold_ms), (13, 0));

    let started_ms = later_ms().await;
    let node = start(&dir).await;
    assert_ne!(node.cluster(), cluster);
    assert_eq!(node.stats().await.expect("it leads").counts.grants, 0);
    assert_eq!(how_it_ended(&node, newest).await, Some(EndedHow::Restored));
    assert_eq!(how_it_ended(&node, 1).await, Some(EndedHow::Released));
    tells_nothing_whole_of_before(&node, started_ms).await;
    let token = take(&node, "busy/1", 60_000).await.expect("nobody holds it");
    assert!(token > restored.token_floor && token > lost);

    // Whoever watched before hears of a gap, also from a place that the backup does not know.
    for from in [at - 1, at, past] {
        let mut watch = node.watch(Call::now(), WatchFilter::All, Some(from)).await.expect("any");
        let mut told = watch.next().await.expect("it can be told");
        if let Watched::Changes(changes) = &told {
            assert!(changes.iter().all(|change| change.revision == from + 1 && from < at));
            told = watch.next().await.expect("it can be told");
        }
        assert!(matches!(told, Watched::Gap { to, .. } if to > at + JUMP), "{from}: {told:?}");
    }

    // It is a node like any other: it comes back, and can be backed up.
    let (upto, since_ms) = (node.revision(), node.grants_complete_since_ms());
    stop(node).await;
    later_ms().await;
    let node = start(&dir).await;
    assert_eq!((node.revision(), node.grants_complete_since_ms()), (upto, since_ms));
    check(bytes_of(&node).await.as_slice()).expect("it is whole");
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_while_somebody_may_still_believe() {
    let home = TempDir::new().expect("a directory");
    let node = start(&home.path().join("first")).await;
    take(&node, "a", 700).await.expect("it is free");
    take(&node, "b", 500).await.expect("it is free");
    let file = home.path().join("backup");
    fs::write(&file, bytes_of(&node).await).expect("writable");
    stop(node).await;

    let dir = home.path().join("second");
    let held = RestoreSettings { hold_ms: None, ..settings(&file, &dir) };
    assert_eq!(restore(&held).expect("the directory is new").hold_ms, 700);
    // Whoever leads next begins anew: nobody knows how much of it was over.
    let node = start(&dir).await;
    take(&node, "c", 60_000).await.expect_err("the hold has begun");
    stop(node).await;
    let before = crate::runtime::now();
    let node = start(&dir).await;
    let mut refused = 0;
    loop {
        match take(&node, "c", 60_000).await {
            Ok(_) => break,
            Err(Failure::Refused(Refusal::OnHold { hold_ms })) => {
                assert!(hold_ms <= 700);
                refused += 1;
                let ms = std::time::Duration::from_millis(hold_ms.max(1));
                crate::runtime::sleep(ms).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    // It began with the takeover, which came after this start.
    assert!(crate::runtime::since(before).as_millis() >= 700 && refused > 0);
    // The end is in the log: whoever starts again does not wait again.
    stop(node).await;
    let node = start(&dir).await;
    take(&node, "d", 60_000).await.expect("the hold is over");
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_joins_what_was_restored_claims_no_more_than_it() {
    let home = TempDir::new().expect("a directory");
    let mut cluster = Cluster::of(1).await;
    cluster.leader().await;
    work(&cluster.nodes[&1], 7).await;
    let file = home.path().join("backup");
    fs::write(&file, bytes_of(&cluster.nodes[&1]).await).expect("writable");
    cluster.stop(1).await;
    let dir = cluster.config(1).dir;
    fs::remove_dir_all(&dir).expect("it is stopped");
    restore(&settings(&file, &dir)).expect("the directory is new");
    let started_ms = later_ms().await;
    cluster.start_again().await;
    cluster.leader().await;

    let config = cluster.newcomer();
    let (id, new) = (config.id, peers::open(&config).await);
    let (first, address) = (&cluster.nodes[&1], cluster.founders[&id].clone());
    // It makes its own address known first.
    let adding = async {
        while let Err(why) = first.add_learner(id, &address).await {
            assert!(matches!(why, MembershipError::InProgress { .. }), "{why}");
            crate::runtime::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let (taken, ()) = tokio::join!(new.take_part(&config), adding);
    taken.expect("it is taken in");
    peers::caught_up(&new, first).await;
    let since_ms = new.grants_complete_since_ms();
    assert!(since_ms >= started_ms, "{since_ms} and {started_ms}");
    assert_eq!(since_ms, first.grants_complete_since_ms());
    assert_eq!(how_it_ended(&new, 1).await, Some(EndedHow::Released));
    cluster.nodes.insert(id, new);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_is_there_is_never_changed() {
    let home = TempDir::new().expect("a directory");
    let (file, _, newest) = small_backup(home.path()).await;
    let first = home.path().join("first");
    let before = fs::read(first.join("log.redb")).expect("readable");
    let refused = restore(&settings(&file, &first)).expect_err("it is not empty");
    assert!(matches!(refused, RestoreFailed::NotEmpty { .. }), "{refused}");
    assert_eq!(fs::read(first.join("log.redb")).expect("readable"), before);

    let dir = home.path().join("second");
    let floor = TokenFloor::At(newest - 1);
    let low = restore(&RestoreSettings { floor, ..settings(&file, &dir) }).expect_err("too low");
    assert!(low.to_string().contains("issued twice"), "{low}");
    assert!(!dir.exists(), "nothing is left of it");
    fs::create_dir(&dir).expect("a directory");
    fs::create_dir(dir.join("lost+found")).expect("what a file system brings along");
    let floor = TokenFloor::At(newest);
    let restored = restore(&RestoreSettings { floor, ..settings(&file, &dir) }).expect("empty");
    assert_eq!(restored.token_floor, newest);
    let seen = TokenFloor::Auto { seen: 1 << 50 };
    let third = home.path().join("third");
    let restored = restore(&RestoreSettings { floor: seen, ..settings(&file, &third) });
    assert_eq!(restored.expect("new").token_floor, 1 << 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_as_it_was_written_is_refused() {
    let home = TempDir::new().expect("a directory");
    let (file, bytes, _) = small_backup(home.path()).await;
    for len in 0..bytes.len() {
        let error = check(&bytes[..len]).expect_err("it is cut off");
        let expected = matches!(error, BackupError::CutOff { .. } | BackupError::NoBackup);
        assert!(expected, "{len}: {error}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        check(damaged.as_slice()).expect_err("a flipped bit");
    }
    let longer = [&bytes[..], b"x"].concat();
    check(longer.as_slice()).expect_err("something follows");
    let mut newer = bytes.clone();
    newer[16] = 2;
    let error = check(newer.as_slice()).expect_err("a later format");
    assert!(error.to_string().contains("format 2"), "{error}");
    let mut later = frames(&bytes);
    let mut head = crate::codec::decode_backup_head(&later[0].1).expect("a head");
    head.level = leasehold_core::Command::NEWEST + 1;
    later[0].1.clear();
    crate::codec::encode_backup_head(&head, &mut later[0].1);
    // What stands behind it may be in a form that nobody here can read.
    later[1].1.truncate(9);
    let error = check(sealed(&later).as_slice()).expect_err("of a later release");
    assert!(error.to_string().contains("start a newer release"), "{error}");
    assert!(matches!(check(&b"something else entirely"[..]), Err(BackupError::NoBackup)));

    let dir = home.path().join("second");
    fs::write(&file, &bytes[..bytes.len() - 1]).expect("writable");
    restore(&settings(&file, &dir)).expect_err("it is cut off");
    assert!(!dir.exists());
}

/// Frames of a backup: kinds and contents.
fn frames(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = super::frame::Frames::begin(bytes).expect("it is whole");
    let mut all = Vec::new();
    while frames.at() < bytes.len() as u64 {
        let (kind, content, _) = frames.next().expect("it is whole");
        all.push((kind, content));
    }
    all
}

/// The same with right sums around whatever is in them.
fn sealed(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let (mut framer, mut bytes) = Framer::begin();
    for (kind, content) in frames {
        let mut content = content.clone();
        if *kind == super::frame::END
            && let Ok(end) = crate::codec::decode_backup_end(&content)
        {
            content.clear();
            let end = BackupEnd { sum: framer.sum(), ..end };
            crate::codec::encode_backup_end(&end, &mut content);
        }
        bytes.extend(framer.frame(*kind, |out| out.extend_from_slice(&content)).expect("short"));
    }
    bytes
}

/// A sum that is right says nothing about what was summed.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_in_a_file_nothing_panics_and_nothing_is_left() {
    let home = TempDir::new().expect("a directory");
    let (file, bytes, _) = small_backup(home.path()).await;
    let whole = frames(&bytes);
    assert_eq!(sealed(&whole), bytes);
    let mut dice = Dice::new(7);
    let (mut refused, mut taken) = (0, 0);
    for round in 0..400 {
        let mut other = whole.clone();
        for _ in 0..=dice.below(3) {
            let at = usize::try_from(dice.below(other.len() as u64)).expect("small");
            match dice.below(8) {
                0 => drop(other.remove(at)),
                1 => other.insert(at, other[at].clone()),
                2 => other[at].0 = u8::try_from(dice.below(6)).expect("small"),
                3 => {
                    let len = other[at].1.len();
                    let keep = usize::try_from(dice.below(len as u64 + 1)).expect("small");
                    other[at].1.truncate(keep);
                }
                _ if other[at].1.is_empty() => {}
                _ => {
                    let byte = dice.below(other[at].1.len() as u64);
                    other[at].1[usize::try_from(byte).expect("small")] ^=
                        u8::try_from(1 + dice.below(255)).expect("a byte");
                }
            }
            if other.is_empty() {
                break;
            }
        }
        let other = sealed(&other);
        let read = check(other.as_slice());
        // What the reading lets through goes further than that, as far as it can.
        if read.is_ok() || round % 10 == 0 {
            fs::write(&file, &other).expect("writable");
            let dir = home.path().join(format!("round-{round}"));
            match restore(&settings(&file, &dir)) {
                Ok(_) => taken += 1,
                Err(_) => {
                    refused += 1;
                    assert!(!dir.exists(), "round {round}");
                }
            }
        }
    }
    assert!(refused > 20, "{refused} refused, {taken} taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_starts_on_a_directory_that_is_barred() {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("data");
    stop(start(&dir).await).await;
    let barrier = crate::open::directory::Barrier::put(&dir, "because of a test").expect("put");
    let refused = try_start(&dir).await.expect_err("it is barred");
    assert!(matches!(refused, StartError::Open(OpenError::Barred { .. })), "{refused}");
    assert!(refused.to_string().contains("because of a test"), "{refused}");
    barrier.lift().expect("lifted");
    stop(start(&dir).await).await;
}

async fn snapshot(node: &Node) {
    let raft = node.inner_raft();
    raft.trigger().snapshot().await.expect("raft runs");
    while raft.data_metrics().borrow_watched().snapshot.is_none() {
        crate::runtime::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_that_is_left_begins_a_cluster_of_its_own() {
    let home = TempDir::new().expect("a directory");
    let dir = home.path().join("data");
    let node = start(&dir).await;
    take(&node, "before the snapshot", 600_000).await.expect("it is free");
    snapshot(&node).await;
    let newest = work(&node, 20).await;
    let cluster = node.cluster();
    // As after a crash: much of it is in the log alone.
    let image = crate::node::tests::crash_image(&dir);
    stop(node).await;
    let dir = image.path();
    let before = fs::read(dir.join("log.redb")).expect("readable");

    let wanted = RecoverSettings {
        dir: dir.to_owned(),
        floor: TokenFloor::At(newest - 1),
        hold_ms: Some(0),
    };
    recover(&wanted).expect_err("the floor is too low");
    assert_eq!(fs::read(dir.join("log.redb")).expect("readable"), before);

    let auto = TokenFloor::Auto { seen: 0 };
    let recovered = recover(&RecoverSettings { floor: auto, ..wanted }).expect("it is stopped");
    assert_eq!((recovered.node, recovered.last_token, recovered.grants), (1, newest, 14));
    let kept = recovered.kept.expect("there were files");
    assert_eq!(fs::read(kept.join("log.redb")).expect("kept"), before);

    let started_ms = later_ms().await;
    let node = start(dir).await;
    assert_ne!(node.cluster(), cluster);
    assert_eq!(how_it_ended(&node, newest).await, Some(EndedHow::Restored));
    tells_nothing_whole_of_before(&node, started_ms).await;
    let token = take(&node, "busy/1", 60_000).await.expect("nobody holds it");
    assert!(token > newest + JUMP);
    stop(node).await;

    let newer = home.path().join("newer");
    let mut config = NodeConfig { reserve_bytes: 0, ..NodeConfig::new(1, newer.clone()) };
    config.commands = 2;
    let metrics = Metrics::new(&prometheus::Registry::new()).expect("a fresh registry");
    let node = Node::start(config, metrics).await.expect("it starts");
    while node.propose_version(2).await.is_err() {
        crate::runtime::sleep(std::time::Duration::from_millis(20)).await;
    }
    stop(node).await;
    let refused = recover(&RecoverSettings { dir: newer, floor: auto, hold_ms: None });
    let refused = refused.expect_err("a later release wrote it").to_string();
    assert!(refused.contains("Start a newer release"), "{refused}");

    let empty = home.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    let nothing = RecoverSettings { dir: empty, floor: auto, hold_ms: None };
    let refused = recover(&nothing).expect_err("there is nothing");
    assert!(matches!(refused, RestoreFailed::Nothing { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_backup_at_a_time_and_one_that_nobody_takes_ends() {
    let home = TempDir::new().expect("a directory");
    let node = start(&home.path().join("data")).await;
    let first = node.backup(Call::now()).await.expect("the first");
    let second = node.backup(Call::now()).await;
    assert!(matches!(second, Err(Failure::Overloaded)), "{second:?}");
    drop(first);
    // Its thread finds out with the next frame.
    while node.backup(Call::now()).await.is_err() {
        crate::runtime::yield_now().await;
    }
    stop(node).await;
}

/// More than one chunk and one piece can hold, and more than may be on its way at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_state_comes_back_whole() {
    let home = TempDir::new().expect("a directory");
    let node = start(&home.path().join("first")).await;
    let mut tokens = Vec::new();
    for round in 0..16 {
        let names: Vec<String> = (0..500).map(|n| format!("large/{round}/{n}")).collect();
        let taken = names.iter().map(|name| take(&node, name, 600_000));
        for (name, token) in names.iter().zip(futures_util::future::join_all(taken).await) {
            tokens.push((name.clone(), token.expect("it is free")));
        }
    }
    let given_back = tokens.iter().step_by(2).map(|(name, token)| give_back(&node, name, *token));
    futures_util::future::join_all(given_back).await;
    let bytes = bytes_of(&node).await;
    stop(node).await;
    let kinds: Vec<u8> = frames(&bytes).into_iter().map(|(kind, _)| kind).collect();
    let count = |kind| kinds.iter().filter(|one| **one == kind).count();
    let (chunks, pieces) = (count(super::frame::STATE), count(super::frame::HISTORY));
    assert!(chunks > 1 && pieces > 3, "{chunks} chunks, {pieces} pieces");

    let (file, dir) = (home.path().join("backup"), home.path().join("second"));
    fs::write(&file, &bytes).expect("writable");
    assert_eq!(restore(&settings(&file, &dir)).expect("new").grants, tokens.len() / 2);
    let node = start(&dir).await;
    for (nth, (_, token)) in tokens.iter().enumerate().step_by(37) {
        let how = if nth % 2 == 0 { EndedHow::Released } else { EndedHow::Restored };
        assert_eq!(how_it_ended(&node, *token).await, Some(how), "token {token}");
    }
    stop(node).await;
}

/// A request that was answered before the backup is told so afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_told_what_became_of_it() {
    let home = TempDir::new().expect("a directory");
    let node = start(&home.path().join("first")).await;
    let request_id = Some(RequestId::parse("once").expect("an id"));
    let asked = leasehold_core::command::Acquire { request_id, ..acquire(&node, "r") };
    let token = node.acquire(Call::now(), asked.clone(), 0).await.expect("free").grant.token;
    let file = home.path().join("backup");
    fs::write(&file, bytes_of(&node).await).expect("writable");
    stop(node).await;
    let dir = home.path().join("second");
    restore(&RestoreSettings { hold_ms: None, ..settings(&file, &dir) }).expect("new");
    let node = start(&dir).await;
    match node.acquire(Call::now(), asked, 0).await {
        Err(Failure::Refused(Refusal::RequestEnded { token: had, how, .. })) => {
            assert_eq!((had, how), (Some(token), EndedHow::Restored));
        }
        other => panic!("{other:?}"),
    }
    stop(node).await;
}
