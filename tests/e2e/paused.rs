//! Why a token exists: the worker that pauses for longer than its lease.

use std::time::Duration;

use leasehold_harness::{ask, json, within};

use crate::server;

#[test]
fn a_worker_that_pauses_past_its_lease_learns_that_its_token_is_not_current() {
    let server = server();
    let (mut a, mut b) = (server.client(), server.client());
    let current = |token: u64| {
        let check = json!({"resource": "invoice/42", "token": token});
        server.client().post("/v1/fence/check", &check).ok()
    };

    let old = a.acquire(&ask("invoice/42", "a", 500)).token();
    assert_eq!(current(old)["current"], true);

    // A does nothing now. B is let in as soon as A's lease has run out, and no sooner.
    b.acquire(&ask("invoice/42", "b", 10_000)).problem(409, "held");
    let new = within(Duration::from_secs(10), "b gets the lock", || {
        let answer = b.acquire(&ask("invoice/42", "b", 10_000));
        (answer.status == 200).then(|| answer.token())
    });

    assert!(new > old, "{new} must be higher than {old}");
    let check = current(old);
    assert_eq!((&check["current"], &check["highest_token"]), (&json!(false), &json!(new)));
    assert_eq!(current(new)["current"], true);
    let late = a.release("invoice/42", old).problem(410, "grant_ended");
    assert_eq!((&late["how"], &late["token"]), (&json!("expired"), &json!(old)));
}
