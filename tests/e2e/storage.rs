//! A disk that fills: first what takes locks stops, then, if nothing helps, the process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leasehold_harness::{Client, Disk, ask, eventually, json, with};

use crate::configured;

const MIB: u64 = 1 << 20;

#[test]
fn below_the_reserve_nothing_is_granted_and_everything_that_ends_something_goes_on() {
    let disk = Disk::mount(64 * MIB);
    let server = configured().flag("--reserve-bytes", 8 * MIB).inside(disk.path()).start();
    let mut client = server.client();
    let held = client.acquire(&ask("held", "a", 60_000)).token();
    let kept = client.acquire(&ask("kept", "a", 60_000)).token();
    let short = client.acquire(&ask("short", "a", 3_000)).token();
    let lease = client.open_lease("a", 60_000);
    let mut waiter = server.client();
    waiter.begin_acquire(&with(ask("held", "b", 60_000), json!({"wait_ms": 60_000})));
    eventually("somebody waits", || client.queue_length("held") == 1);

    // Below the reserve, but not below its half, where the node itself gives it up.
    disk.fill(6 * MIB);
    let mut refused = None;
    eventually("acquires are refused", || {
        let answer = client.acquire(&ask("new", "a", 500));
        refused = (answer.status != 200 && answer.status != 409).then_some(answer);
        refused.is_some()
    });
    let problem = refused.expect("an answer").problem(503, "storage_full");
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    let opened = client.post("/v1/leases", &json!({"client_id": "a", "ttl_ms": 60_000}));
    opened.problem(503, "storage_full");

    client.renew("held", held).ok();
    client.keep_alive(&lease).ok();
    // A new TTL is a log entry, unlike a plain renewal.
    let longer = json!({"resource": "held", "token": held, "ttl_ms": 70_000});
    client.post("/v1/renew-lock", &longer).ok();
    client.let_go("kept", kept);
    client.let_go("held", held);
    assert_eq!(waiter.finish().ok()["client_id"], "b", "a release hands over");
    eventually("what nobody renews expires", || client.lock("short")["state"] == "free");
    assert_eq!(client.renew("short", short).problem(410, "grant_ended")["how"], "expired");
    client.acquire(&ask("late", "a", 60_000)).problem(503, "storage_full");
    assert_eq!(client.metric("leasehold_storage_full"), 1);
    assert_eq!(client.get("/readyz").status, 200, "it is in use, so nobody may turn away");

    disk.clear();
    eventually("acquires work again", || client.acquire(&ask("late", "a", 60_000)).status == 200);
    client.acquire(&ask("later", "a", 60_000)).token();
}

/// A repeat takes no lock that is not taken already, and it is how a client finds out whether an
/// answer that got lost was a grant.
#[test]
fn below_the_reserve_a_repeated_request_still_finds_its_grant() {
    let disk = Disk::mount(64 * MIB);
    let server = configured().flag("--reserve-bytes", 8 * MIB).inside(disk.path()).start();
    let mut client = server.client();
    let named = with(ask("named", "a", 60_000), json!({"request_id": "1"}));
    let token = client.acquire(&named).token();
    disk.fill(6 * MIB);
    eventually("acquires are refused", || client.acquire(&ask("new", "a", 500)).status == 503);
    assert_eq!(client.acquire(&named).token(), token);
    client.let_go("named", token);
}

/// What the clients of the full disk know for certain.
#[derive(Default)]
struct Known {
    held: BTreeMap<String, u64>,
    released: BTreeMap<String, u64>,
}

impl Known {
    /// One round of everything that writes. The error is the connection's: the process is gone.
    fn round(&mut self, client: &mut Client, i: u64) -> std::io::Result<()> {
        let name = format!("more/{i}");
        let answer = client.try_post("/v1/acquire-lock", &ask(&name, "a", 600_000))?;
        match answer.status {
            200 => drop(self.held.insert(name, answer.token())),
            _ => drop(answer.problem_of_any_kind()),
        }
        // A new TTL each time is a log entry each time, however few grants are left.
        let (name, token) = self.held.first_key_value().expect("more than are released");
        let ttl_ms = 600_000 + i % 2;
        let longer = json!({"resource": name, "token": token, "ttl_ms": ttl_ms});
        client.try_post("/v1/renew-lock", &longer)?;
        if i.is_multiple_of(10) && self.held.len() > 100 {
            let (name, token) = self.held.pop_last().expect("a hundred");
            // From here on it is not known to be held, and only an answer makes it released.
            let body = json!({"resource": name, "token": token});
            let answer = client.try_post("/v1/release-lock", &body)?;
            if answer.status == 200 {
                self.released.insert(name, token);
            }
        }
        Ok(())
    }
}

#[test]
fn a_disk_that_is_really_full_ends_the_process_and_takes_back_nothing_that_was_answered() {
    let disk = Disk::mount(32 * MIB);
    let mut server = configured().flag("--reserve-bytes", MIB).inside(disk.path()).start();
    let mut client = server.client();
    let mut known = Known::default();
    for i in 0..300 {
        let name = format!("first/{i}");
        let token = client.acquire(&ask(&name, "a", 600_000)).token();
        known.held.insert(name, token);
    }

    let started = Instant::now();
    let mut rounds = 0;
    let gone = loop {
        // Again and again, for the reserve that the node gives up is taken as well.
        disk.fill(0);
        match known.round(&mut client, rounds) {
            Ok(()) => rounds += 1,
            Err(error) => break error,
        }
        let took = started.elapsed();
        assert!(took < Duration::from_secs(120), "{rounds} rounds on a full disk in {took:?}");
    };
    let status = server.finish_stop(Duration::from_secs(20));
    assert_eq!(status.code(), Some(74), "{status} after {rounds} rounds and {gone}");

    disk.clear();
    server.restart();
    let mut client = server.client();
    for (name, token) in &known.held {
        assert_eq!(client.holders(name), [*token], "{name} was granted");
    }
    for (name, token) in &known.released {
        assert_eq!(client.holders(name), [0; 0], "{name} was released");
        assert_eq!(client.release(name, *token).ok()["reason"], "already_released");
    }
    let newest = known.held.values().chain(known.released.values()).max();
    let token = client.acquire(&ask("afterwards", "a", 60_000)).token();
    assert!(Some(&token) > newest, "{token} is not above {newest:?}");
}
