//! What must be true when all is healed and nobody works any more.

use std::time::{Duration, Instant};

use leasehold_harness::{
    Book, Client, Cluster, History, Roaming, Value, ask, encode, json, with, within,
};

use super::load::{END, PREFIX};
use super::trial::PATIENCE;

/// All of them run in the end.
const NODES: usize = 3;
/// Fewer grants than this would show nothing.
const GRANTS_MIN: usize = 50;

/// No lease is immortal: what nobody renews ends.
#[track_caller]
pub(super) fn everything_ends(cluster: &Cluster) {
    let held = format!("/v1/locks?state=held&prefix={PREFIX}");
    let waited = format!("/v1/locks?state=contended&prefix={PREFIX}");
    within(PATIENCE, "all that was held or waited for has ended", || {
        let mut client = patient(cluster, cluster.leader())?;
        let none = |page: Value| page["items"].as_array().is_some_and(Vec::is_empty);
        (none(get(&mut client, &held)?) && none(get(&mut client, &waited)?)).then_some(())
    });
}

/// Leaves a mark that a watcher recognizes.
#[track_caller]
pub(super) fn mark_the_end(book: &Book) {
    let mut client = Roaming::by(book.clone());
    let asked = with(ask(END, "last", 60_000), json!({"request_id": "last"}));
    let token = client.post("/v1/acquire-lock", &asked, PATIENCE).expect("an answer").token();
    let body = json!({"resource": END, "token": token});
    client.post("/v1/release-lock", &body, PATIENCE).expect("an answer").ok();
}

/// Judges what the clients and the watcher saw, and what the nodes say.
#[track_caller]
pub(super) fn judge(cluster: &Cluster, history: &History, told: &[Value]) {
    let resources = history.resources();
    let states = agreed(cluster, "states", |client| state(client, &resources));
    let records = agreed(cluster, "records", records);
    let newest = |resource: &str| {
        let lock = states.iter().find(|state| state["resource"] == resource);
        lock.and_then(|lock| lock["last_token"].as_u64()).unwrap_or(u64::MAX)
    };
    for (resource, token, _) in history.must_be_released() {
        if token > newest(&resource) {
            history.broken(format!("{resource}: {token} is not known any more"));
        }
    }
    history.judge_record(&records);
    history.judge_events(told, &records);
    metrics_agree(cluster);
    assert_eq!(history.breaches(), []);
    assert!(history.grants() >= GRANTS_MIN, "{} grants in all", history.grants());
}

/// What each node measures is what it lists, once the lists show something to count.
#[track_caller]
fn metrics_agree(cluster: &Cluster) {
    let mut client = Roaming::by(cluster.book());
    for kept in ["end/1", "end/2"] {
        let asked = with(ask(kept, "last", 600_000), json!({"request_id": kept}));
        client.post("/v1/acquire-lock", &asked, PATIENCE).expect("an answer").token();
    }
    for id in cluster.up() {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let counted = patient(cluster, id).and_then(|mut client| counted(&mut client));
            let differs = |counts: &Vec<(_, u64, u64)>| counts.iter().any(|(_, a, b)| a != b);
            if counted.as_ref().is_some_and(|counts| !differs(counts)) {
                break;
            }
            let now = Instant::now();
            assert!(
                now < deadline,
                "node {id}, names with what is listed and measured: {counted:?}"
            );
        }
    }
}

/// Names of metrics, with what a node lists and what it measures. Nothing before it has all that
/// was kept for this.
fn counted(client: &mut Client) -> Option<Vec<(&'static str, u64, u64)>> {
    // Before the lists, and as old as the last look of the node: so they agree once nothing changes.
    let measured = client.try_call("GET", "/metrics", &[], b"").ok()?;
    let locks = get(client, "/v1/locks?limit=1000&consistency=stale")?;
    let locks = locks["items"].as_array()?;
    let sum = |field: &str| locks.iter().filter_map(|lock| lock[field].as_u64()).sum::<u64>();
    let leases = get(client, "/v1/leases?limit=1&consistency=stale")?["total"].as_u64()?;
    let ended = records(client)?.iter().filter(|record| !record["how"].is_null()).count() as u64;
    let listed = [
        ("leasehold_locks", locks.len() as u64),
        ("leasehold_grants", sum("holders_total")),
        ("leasehold_waiters", sum("queue_length")),
        ("leasehold_leases", leases),
        ("leasehold_history_records", ended),
        ("leasehold_state_diverged", 0),
    ];
    (locks.len() >= 2).then(|| {
        listed.iter().map(|(name, listed)| (*name, *listed, measured.metric(name))).collect()
    })
}

/// What all nodes say alike.
#[track_caller]
fn agreed(
    cluster: &Cluster,
    what: &str,
    ask: impl Fn(&mut Client) -> Option<Vec<Value>>,
) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ids = cluster.up().into_iter();
        let mut said: Vec<_> = ids.filter_map(|id| ask(&mut patient(cluster, id)?)).collect();
        let differ = differences(&said);
        if said.len() == NODES && differ.is_empty() {
            return said.swap_remove(0);
        }
        let answered = said.len();
        assert!(
            Instant::now() < deadline,
            "{answered} nodes tell {what}, and differ in {differ:#?}"
        );
    }
}

/// Some of what one says and another does not.
fn differences(said: &[Vec<Value>]) -> Vec<&Value> {
    let everywhere = |one: &&Value| said.iter().all(|all| all.contains(one));
    said.iter().flatten().filter(|one| !everywhere(one)).take(20).collect()
}

/// What a node itself has, beginning with the locks one by one.
fn state(client: &mut Client, resources: &[String]) -> Option<Vec<Value>> {
    let mut state = Vec::new();
    for resource in resources {
        let path = format!("/v1/lock?resource={}&consistency=stale", encode(resource));
        state.push(get(client, &path)?);
    }
    state.push(get(client, "/v1/locks?limit=1000&consistency=stale")?);
    // What the leader knows of, asked through this node.
    for path in ["/v1/locks?limit=1000", "/v1/leases", "/v1/clients"] {
        state.push(get(client, path)?);
    }
    Some(state)
}

/// All grants that a node has on record.
fn records(client: &mut Client) -> Option<Vec<Value>> {
    let mut records = Vec::new();
    let mut path = "/v1/grants?limit=1000".to_owned();
    loop {
        let mut page = get(client, &path)?;
        records.append(page["items"].as_array_mut()?);
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/grants?limit=1000&cursor={}", encode(cursor)),
            None => return Some(records),
        }
    }
}

fn patient(cluster: &Cluster, id: u64) -> Option<Client> {
    let client = Client::try_new(cluster.node(id).addr()).ok()?;
    client.patient_for(Duration::from_secs(20)).ok()
}

fn get(client: &mut Client, path: &str) -> Option<Value> {
    let answer = client.try_call("GET", path, &[], b"").ok()?;
    (answer.status == 200).then(|| answer.json())
}
