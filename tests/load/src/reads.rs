//! Every list, lookup and page on a node with very many locks beside one with few: the answers are
//! equally long, so their times should be alike.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use leasehold_harness::encode;
use serde_json::{Value, json};

use crate::connection::Connection;
use crate::figures::median;

/// Locks of one client in a domain of its own; as many again in the domain that has no name.
const PROBES: usize = 100;
/// Those of them that somebody waits for.
const CONTENDED: usize = 20;
/// How often all reads are gone through: what the machine does meanwhile falls on all of them.
const BLOCKS: usize = 15;
/// How often each read is timed on each node every time.
const ROUNDS: usize = 40;
/// Long enough for all reads; the waits must not be over before.
const WAIT_MS: u64 = 60_000;
const TTL_MS: u64 = 86_400_000;

/// A node with what the reads look for.
struct Node {
    connection: Connection,
    asks: Vec<(&'static str, Ask)>,
    /// Each is one request that waits.
    _waiters: Vec<Connection>,
}

/// One read, the same on both nodes but for cursors and ids.
enum Ask {
    Get(String),
    Post(&'static str, String),
}

/// What the asks name that only the node knows.
struct Known {
    locks_cursor: String,
    leases_cursor: String,
    lease: String,
    token: u64,
    granted_at: String,
}

/// Times all reads on both nodes, prints the ratios, and gives the largest.
pub(crate) async fn compare(full: SocketAddr, few: SocketAddr) -> anyhow::Result<f64> {
    let (mut full, mut few) = (Node::prepare(full).await?, Node::prepare(few).await?);
    let mut blocks: Vec<Vec<Block>> = full.asks.iter().map(|_| Vec::new()).collect();
    for _ in 0..BLOCKS {
        for (at, blocks) in blocks.iter_mut().enumerate() {
            blocks.push(Block::time(&mut full, &mut few, at).await?);
        }
    }
    for node in [&mut full, &mut few] {
        let left = node.contended().await?;
        ensure!(left == CONTENDED, "only {left} locks were waited for until the end");
    }
    let mut largest: f64 = 0.0;
    for ((name, _), blocks) in full.asks.iter().zip(&blocks) {
        let middle = |pick: fn(&Block) -> f64| median(blocks.iter().map(pick));
        let ratio = middle(|block| block.full / block.few);
        let (on_full, on_few) = (middle(|b| b.full) * 1_000.0, middle(|b| b.few) * 1_000.0);
        println!("{name:<28} {on_full:>7.3} ms, {on_few:>7.3} ms among few: {ratio:.2}");
        largest = largest.max(ratio);
    }
    Ok(largest)
}

/// The middle times of one read on both nodes, in seconds, taken at the same time.
struct Block {
    full: f64,
    few: f64,
}

impl Block {
    async fn time(full: &mut Node, few: &mut Node, at: usize) -> anyhow::Result<Self> {
        let (mut on_full, mut on_few) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let mut pair = [(&mut *full, &mut on_full), (&mut *few, &mut on_few)];
            pair.rotate_left(round % 2);
            for (node, times) in pair {
                times.push(node.time(at).await?.as_secs_f64());
            }
        }
        Ok(Self { full: median(on_full.into_iter()), few: median(on_few.into_iter()) })
    }
}

fn probe(i: usize) -> String {
    format!("probe/lock-{i:03}")
}

/// The reads, each with its name: whatever may be asked belongs here.
fn asks(known: &Known) -> Vec<(&'static str, Ask)> {
    let get = |path: &str| Ask::Get(format!("/v1/{path}"));
    let (locks_cursor, leases_cursor) = (encode(&known.locks_cursor), encode(&known.leases_cursor));
    let check = json!({"resource": probe(50), "token": known.token});
    vec![
        ("locks", get("locks")),
        ("locks, from the middle", get(&format!("locks?cursor={locks_cursor}"))),
        ("locks, prefix", get("locks?prefix=probe/")),
        ("locks, domain", get("locks?domain=probe")),
        ("locks, domain without a name", get("locks?domain=default")),
        ("locks, client", get("locks?client_id=probe")),
        ("locks, client and domain", get("locks?client_id=probe&domain=probe")),
        ("locks, contended", get("locks?state=contended")),
        ("lock", get("lock?resource=probe/lock-050")),
        ("lock, contended", get("lock?resource=probe/lock-007")),
        ("lock, free", get("lock?resource=nobody/has-this")),
        ("leases", get("leases")),
        ("leases, from the middle", get(&format!("leases?cursor={leases_cursor}"))),
        ("leases, client", get("leases?client_id=probe")),
        ("lease", get(&format!("leases/{}", known.lease))),
        ("clients", get("clients")),
        ("clients, one label", get("clients?client_id=probe")),
        ("why, holds", get("lock/why?resource=probe/lock-050&client_id=probe")),
        ("why, waits", get("lock/why?resource=probe/lock-007&client_id=waiter")),
        ("grants", get("grants")),
        ("grants, resource", get("grants?resource=probe/lock-050")),
        ("grants, client", get("grants?client_id=probe")),
        ("grants, token", get(&format!("grants?token={}", known.token))),
        ("grants, valid then", get(&format!("grants?at={}", encode(&known.granted_at)))),
        ("grants, valid long ago", get("grants?at=2020-01-01T00:00:00Z")),
        ("audit", get("audit")),
        ("domains", get("domains")),
        ("stats", get("stats")),
        ("attention", get("attention")),
        ("fence check", Ask::Post("/v1/fence/check", check.to_string())),
    ]
}

impl Node {
    async fn prepare(addr: SocketAddr) -> anyhow::Result<Self> {
        let connection = Connection::open(addr).await?;
        let mut node = Self { connection, asks: Vec::new(), _waiters: Vec::new() };
        let mut known = node.fill().await?;
        (known.locks_cursor, known.leases_cursor) =
            (node.middle("/v1/locks").await?, node.middle("/v1/leases").await?);
        for i in 0..CONTENDED {
            let mut waiter = Connection::open(addr).await?;
            let body = json!({
                "resource": probe(i), "client_id": "waiter", "ttl_ms": TTL_MS, "wait_ms": WAIT_MS,
            });
            waiter.begin("/v1/acquire-lock", body.to_string().as_bytes()).await?;
            node._waiters.push(waiter);
        }
        let started = Instant::now();
        while node.contended().await? < CONTENDED {
            ensure!(started.elapsed() < Duration::from_secs(30), "not all stand in line");
        }
        node.asks = asks(&known);
        Ok(node)
    }

    async fn fill(&mut self) -> anyhow::Result<Known> {
        let mut known = None;
        for i in 0..PROBES {
            for resource in [format!("without-a-domain-{i:03}"), probe(i)] {
                let body = json!({"resource": resource, "client_id": "probe", "ttl_ms": TTL_MS});
                let body = body.to_string();
                let grant = self.connection.post("/v1/acquire-lock", body.as_bytes()).await?;
                let grant: Value = serde_json::from_slice(grant)?;
                let token = grant["token"].as_u64().context("a grant has a token")?;
                let lease = grant["lease_id"].as_str().context("a grant has a lease")?.to_owned();
                let (locks_cursor, leases_cursor) = (String::new(), String::new());
                let granted_at = grant["granted_at"].as_str().context("a grant has a time")?;
                let granted_at = granted_at.to_owned();
                let of_probe = Known { locks_cursor, leases_cursor, lease, token, granted_at };
                // The one that the check and the lookup of a lease ask about.
                known = if resource == probe(50) { Some(of_probe) } else { known };
            }
        }
        known.context("there is at least one probe")
    }

    /// A cursor in the middle of a list, found by turning its pages.
    async fn middle(&mut self, list: &str) -> anyhow::Result<String> {
        let first = self.page(&format!("{list}?limit=1")).await?;
        let total = first["total"].as_u64().context("a whole list has a total")?;
        let limit = (total / 10).clamp(1, 1_000);
        let mut cursor = String::new();
        for page in 0..total / 2 / limit {
            let after =
                if page == 0 { String::new() } else { format!("&cursor={}", encode(&cursor)) };
            let page = self.page(&format!("{list}?limit={limit}{after}")).await?;
            cursor = page["next_cursor"].as_str().context("the list goes on")?.to_owned();
        }
        Ok(cursor)
    }

    async fn contended(&mut self) -> anyhow::Result<usize> {
        let page = self.page("/v1/locks?state=contended").await?;
        Ok(page["items"].as_array().context("a page has items")?.len())
    }

    async fn page(&mut self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(self.connection.get(path).await?)?)
    }

    async fn time(&mut self, at: usize) -> anyhow::Result<Duration> {
        let started = Instant::now();
        match &self.asks[at].1 {
            Ask::Get(path) => self.connection.get(path).await?,
            Ask::Post(path, body) => self.connection.post(path, body.as_bytes()).await?,
        };
        Ok(started.elapsed())
    }
}
