//! Holders that do not wait for each other.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_harness::Random;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Answer, Connection, DATA, FENCE, beaten, fenced, fenced_in_memory};

/// Rounds of seal, read and write, all holders together.
const ROUNDS: u64 = 10_000;

/// Holders that race, each on a connection of its own: few, so that some get through unharmed.
const HOLDERS: u64 = 4;

/// Connections that seal at the same moment.
const SEALERS: u64 = 32;

/// Connections that share one token.
const WRITERS: usize = 8;

/// A write has left the old holder, and its last byte arrives after the new holder has sealed.
#[tokio::test]
async fn a_stale_write_that_is_already_on_the_wire_is_refused() {
    let (server, mut redis) = fenced().await;
    redis.set(33, "old").await.expect("the old holder writes");
    let mut wire = TcpStream::connect(server.addr()).expect("a connection");
    wire.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit can be set");
    let words = ["FCALL", "leasehold_set", "2", FENCE, DATA, "33", "late"];
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    let (sent, held_back) = request.as_bytes().split_at(request.len() - 3);
    wire.write_all(sent).expect("most of it is sent");

    assert_eq!(redis.seal(34).await, Ok(Some(33)));
    assert_eq!(redis.data().await.as_deref(), Some("old"));
    wire.write_all(held_back).expect("the rest arrives");

    let expected = "-STALETOKEN {\"code\":\"stale_token\",\"resource\":\"invoice/42\",\
                    \"token\":33,\"highest_token\":34}\r\n";
    let mut answer = vec![0; expected.len()];
    wire.read_exact(&mut answer).expect("it is answered");
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    assert_eq!(redis.data().await.as_deref(), Some("old"), "what the new holder read still holds");
}

/// Both lie in the sockets of a server that does nothing. It may take either first; what the new
/// holder then reads must include the write, or the write must have been refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_and_a_seal_that_arrive_together_agree_on_who_was_first() {
    let (server, mut redis) = fenced_in_memory().await;
    let mut late = Connection::open(&server).await;
    redis.seal(1).await.expect("a first holder");
    let (mut before, mut after) = (0, 0);
    for old in 1..200 {
        server.freeze();
        let write = async { late.set(old, &format!("from {old}")).await };
        let read = async {
            redis.seal(old + 1).await.expect("the newest token");
            redis.data().await
        };
        let thaw = async {
            tokio::task::yield_now().await;
            server.thaw();
        };
        let (written, seen, ()) = tokio::join!(write, read, thaw);
        if written.is_ok() {
            assert_eq!(seen, Some(format!("from {old}")), "the new holder read too early");
            before += 1;
        } else {
            beaten(written, "STALETOKEN", old, old + 1);
            assert_ne!(seen, Some(format!("from {old}")));
            after += 1;
        }
    }
    report(&format!("write before seal: {before}, after it and refused: {after}"));
}

/// Every seal that was taken tells which token it took over from, so the answers must form one
/// chain from the first to the highest.
#[tokio::test(flavor = "multi_thread")]
async fn seals_at_once_from_many_connections_form_one_chain() {
    let (server, mut redis) = fenced_in_memory().await;
    let barrier = Arc::new(Barrier::new(SEALERS as usize));
    let mut connections = Vec::new();
    for _ in 0..SEALERS {
        connections.push(Connection::open(&server).await);
    }
    for round in 0..50 {
        let first = round * SEALERS + 1;
        let before = redis.highest().await;
        let mut seals = JoinSet::new();
        for (offset, mut connection) in (0..).zip(connections.drain(..)) {
            let barrier = barrier.clone();
            seals.spawn(async move {
                barrier.wait().await;
                let answer = connection.seal(first + offset).await;
                (first + offset, answer, connection)
            });
        }
        let mut taken = Vec::new();
        while let Some(done) = seals.join_next().await {
            let (token, answer, connection) = done.expect("it does not panic");
            connections.push(connection);
            match answer {
                Ok(previous) => taken.push((token, previous)),
                Err(error) => assert_eq!(error.code(), Some("STALETOKEN"), "{error}"),
            }
        }
        taken.sort_unstable();
        let mut expected = before;
        for (token, previous) in taken {
            assert_eq!(previous, expected, "{token} took over from the one before it");
            expected = Some(token);
        }
        assert_eq!(expected, Some(first + SEALERS - 1), "the highest is always taken");
        assert_eq!(redis.highest().await, expected);
        // Whoever is slow in one round starts elsewhere in the next.
        connections.rotate_left(round as usize % SEALERS as usize);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_seals_of_one_token_at_once_both_pass() {
    let (server, mut redis) = fenced_in_memory().await;
    let mut other = Connection::open(&server).await;
    for token in 1..500 {
        let (one, two) = tokio::join!(redis.seal(token), other.seal(token));
        let mut answers = [one.expect("it passes"), two.expect("it passes")];
        answers.sort_unstable();
        let before = (token > 1).then(|| token - 1);
        assert_eq!(answers, [before, Some(token)], "one of them was first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_may_write_once_does_so_once_from_many_connections() {
    let (server, mut redis) = fenced_in_memory().await;
    let mut connections = Vec::new();
    for _ in 0..WRITERS {
        connections.push(Connection::open(&server).await);
    }
    for token in 1..200_u64 {
        let text = token.to_string();
        let mut writes = JoinSet::new();
        for mut connection in connections.drain(..) {
            let text = text.clone();
            writes.spawn(async move {
                let args = ["once", &text, "INCR"];
                let answer = connection.call::<u64>("leasehold_call", &[FENCE, DATA], &args).await;
                (answer, connection)
            });
        }
        let mut passed = 0;
        while let Some(done) = writes.join_next().await {
            let (answer, connection) = done.expect("it does not panic");
            connections.push(connection);
            match answer {
                Ok(count) => {
                    assert_eq!(count, token);
                    passed += 1;
                }
                refused => beaten(refused, "TOKENUSED", token, token),
            }
        }
        assert_eq!(passed, 1, "{token}");
    }
    assert_eq!(redis.data().await.as_deref(), Some("199"));
}

/// How a holder treats its storage.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    /// As it should be.
    SealReadWrite,
    /// The wrong order: what it has read may have been overtaken when it seals.
    ReadSealWrite,
    /// No library.
    Plain,
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_before_reading_no_update_is_lost() {
    let race = race(Manner::SealReadWrite).await;
    assert!(race.refused > 0, "nobody was ever overtaken: {race:?}");
    assert!(race.accepted > 0, "nobody ever got through: {race:?}");
    assert_eq!(race.lost(), 0, "{race:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_after_reading_updates_are_lost() {
    assert!(race(Manner::ReadSealWrite).await.lost() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_library_updates_are_lost() {
    assert!(race(Manner::Plain).await.lost() > 0);
}

/// What a race came to.
#[derive(Debug)]
struct Race {
    /// Writes that Redis acknowledged, each of which added 1 to what its holder had read.
    accepted: u64,
    refused: u64,
    /// What the counter says.
    value: u64,
}

impl Race {
    fn lost(&self) -> u64 {
        self.accepted.checked_sub(self.value).expect("nobody adds more than 1")
    }
}

/// Holders that all believe to hold the lock, as after pauses of any length: each takes the next
/// token, and none waits for the one before.
async fn race(manner: Manner) -> Race {
    let (server, mut redis) = fenced_in_memory().await;
    let seed = Random::seed_from_environment();
    let tokens = Arc::new(AtomicU64::new(0));
    let mut holders = JoinSet::new();
    for holder in 0..HOLDERS {
        let connection = Connection::open(&server).await;
        holders.spawn(hold(connection, manner, tokens.clone(), Random::new(seed + holder)));
    }
    let mut race = Race { accepted: 0, refused: 0, value: 0 };
    while let Some(done) = holders.join_next().await {
        let (accepted, refused) = done.expect("it does not panic");
        race.accepted += accepted;
        race.refused += refused;
    }
    assert_eq!(race.accepted + race.refused, ROUNDS);
    race.value = redis.data().await.map_or(0, |text| text.parse().expect("a number"));
    report(&format!(
        "{manner:?}: {ROUNDS} rounds, {} accepted, {} refused, {} lost",
        race.accepted,
        race.refused,
        race.lost()
    ));
    race
}

/// The share of one holder: how many of its writes were accepted and refused.
async fn hold(
    mut redis: Connection,
    manner: Manner,
    tokens: Arc<AtomicU64>,
    mut random: Random,
) -> (u64, u64) {
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..ROUNDS / HOLDERS {
        let token = tokens.fetch_add(1, Ordering::Relaxed) + 1;
        match one_round(&mut redis, manner, token, &mut random).await {
            Ok(()) => accepted += 1,
            Err(error) if error.code() == Some("STALETOKEN") => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (accepted, refused)
}

/// Adds 1 to what it reads.
async fn one_round(
    redis: &mut Connection,
    manner: Manner,
    token: u64,
    random: &mut Random,
) -> Answer<()> {
    if manner == Manner::SealReadWrite {
        redis.seal(token).await?;
    }
    let read: u64 = redis.data().await.map_or(0, |text| text.parse().expect("a number"));
    if random.chance(20) {
        // As long as a turn of the others, or several.
        for _ in 0..random.below(8) {
            redis.run::<()>(&["PING"]).await?;
        }
    }
    let next = (read + 1).to_string();
    match manner {
        Manner::SealReadWrite => redis.set(token, &next).await,
        Manner::ReadSealWrite => {
            redis.seal(token).await?;
            redis.set(token, &next).await
        }
        Manner::Plain => redis.run(&["SET", DATA, &next]).await,
    }
}

/// Shown by the runner when asked to: these counts are what the test is about.
#[allow(clippy::print_stderr)]
fn report(counts: &str) {
    eprintln!("{counts}");
}
