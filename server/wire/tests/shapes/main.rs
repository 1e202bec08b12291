//! Every shape has a file that shows it. A change of a shape is a change of its file, which a
//! reviewer sees. `LEASEHOLD_REWRITE=1 cargo test -p leasehold-wire` writes the files anew.

mod operators;
mod readers;

use leasehold_wire::batch::{RawOperation, Verb};
use leasehold_wire::health::HealthStatus;
use leasehold_wire::*;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::path::Path;

const AT: Time = Time(1_700_000_000_123);
const LEASE: HexId = HexId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

/// Writes as the file says, and reads what the file says.
fn check<T: Serialize + Deserialize<'static> + PartialEq + Debug>(name: &str, shape: &T) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
    let written = serde_json::to_string_pretty(shape).expect("shapes can be written") + "\n";
    if std::env::var_os("LEASEHOLD_REWRITE").is_some() {
        std::fs::write(&path, &written).expect("the golden file can be written");
    }
    let golden: &'static str = std::fs::read_to_string(&path)
        .expect("the golden file is there; LEASEHOLD_REWRITE=1 writes it")
        .leak(); // Requests borrow from the text that they were read from.
    assert_eq!(written, golden, "{name} changed; LEASEHOLD_REWRITE=1 accepts the change");
    let read: T = serde_json::from_str(golden).expect("the golden file can be read");
    assert_eq!(&read, shape, "{name} is read as it was written");
}

fn metadata() -> Metadata<'static> {
    Metadata(vec![("build".into(), "1492".into()), ("host".into(), "web-7".into())])
}

fn holder() -> Holder<'static> {
    Holder {
        client_id: "w1".into(),
        token: 33,
        mode: Mode::Exclusive,
        granted_at: AT,
        expires_in_ms: Some(9_500),
        draining: false,
        metadata: None,
    }
}

fn grant() -> Grant<'static> {
    Grant {
        resource: "invoice/42".into(),
        token: 34,
        lease_id: LEASE,
        client_id: "w1".into(),
        mode: Mode::Exclusive,
        ttl_ms: 10_000,
        expires_in_ms: 9_990,
        valid_for_ms: 9_900,
        granted_at: AT,
        waited_ms: 0,
        policies: vec![],
    }
}

fn acquire() -> Acquire<'static> {
    Acquire {
        resource: "invoice/42".into(),
        client_id: "w1".into(),
        ttl_ms: Some(10_000),
        lease_id: None,
        mode: Mode::Exclusive,
        wait_ms: 0,
        request_id: None,
        claim_ms: None,
        keep_place: false,
        holding: vec![],
        metadata: None,
    }
}

fn draining_grant() -> DrainingGrant<'static> {
    DrainingGrant {
        resource: "invoice/43".into(),
        token: 13,
        expires_in_ms: 4_000,
        valid_for_ms: 3_900,
    }
}

fn ended_grant() -> EndedGrant<'static> {
    EndedGrant { resource: "invoice/41".into(), token: 12, how: "forced".into(), ended_at: AT }
}

fn raw(op: Verb) -> RawOperation<'static> {
    RawOperation {
        op,
        resource: "invoice/42".into(),
        client_id: None,
        token: None,
        ttl_ms: None,
        lease_id: None,
        mode: None,
        request_id: None,
        claim_ms: None,
        holding: None,
        metadata: None,
    }
}

fn usage() -> Usage<'static> {
    Usage { name: "queue-max".into(), used: 2, max: 256 }
}

#[test]
fn acquire_and_its_answer() {
    check("acquire_least", &acquire());
    check(
        "acquire_most",
        &Acquire {
            ttl_ms: None,
            lease_id: Some(LEASE.to_string().into()),
            mode: Mode::Shared,
            wait_ms: 5_000,
            request_id: Some("r-1".into()),
            claim_ms: Some(1_000),
            keep_place: true,
            holding: vec![Holding { resource: "invoice/41".into(), token: 12 }],
            metadata: Some(metadata()),
            ..acquire()
        },
    );
    check("grant", &grant());
    let verdict =
        PolicyVerdict { name: "hours".into(), version: "3".into(), verdict: "adjust".into() };
    check("grant_with_policies", &Grant { policies: vec![verdict], waited_ms: 1_250, ..grant() });
}

#[test]
fn renew_and_its_answer() {
    let least = Renew { resource: "invoice/42".into(), token: 34, client_id: None, ttl_ms: None };
    check("renew_least", &least);
    check("renew_most", &Renew { client_id: Some("w1".into()), ttl_ms: Some(20_000), ..least });
    let renewed = Renewed {
        expires_in_ms: 10_000,
        valid_for_ms: 9_990,
        ended_grants: vec![],
        draining_grants: vec![],
    };
    check("renewed", &renewed);
    check(
        "renewed_with_losses",
        &Renewed {
            ended_grants: vec![ended_grant()],
            draining_grants: vec![draining_grant()],
            ..renewed
        },
    );
}

#[test]
fn release_and_its_answer() {
    let least = Release { resource: "invoice/42".into(), token: 34, client_id: None };
    check("release_least", &least);
    check("release_most", &Release { client_id: Some("w1".into()), ..least });
    check("released", &Released { released: true, reason: None });
    let again = Released { released: false, reason: Some(NotReleased::AlreadyReleased) };
    check("released_before", &again);
}

#[test]
fn cancel_wait_and_fence_check_and_their_answers() {
    check("cancel_wait", &CancelWait { client_id: "w1".into(), request_id: "r-1".into() });
    check("wait_cancelled", &WaitCancelled { cancelled: true });
    check("fence_check", &FenceCheck { resource: "invoice/42".into(), token: 33 });
    check("fence_checked", &FenceChecked { current: false, highest_token: Some(34) });
    check("fence_checked_unknown", &FenceChecked { current: false, highest_token: None });
}

#[test]
fn batch_and_its_answer() {
    let acquire = RawOperation {
        client_id: Some("w1".into()),
        ttl_ms: Some(10_000),
        mode: Some(Mode::Shared),
        ..raw(Verb::Acquire)
    };
    let renew = RawOperation { token: Some(33), ttl_ms: Some(20_000), ..raw(Verb::Renew) };
    let release = RawOperation { token: Some(34), ..raw(Verb::Release) };
    check("batch", &Batch { operations: vec![acquire, renew, release] });
    let renewed = Renewed {
        expires_in_ms: 10_000,
        valid_for_ms: 9_990,
        ended_grants: vec![],
        draining_grants: vec![],
    };
    let problem = Problem::new(409, Code::Held, "somebody else holds the lock");
    check(
        "batch_results",
        &BatchResults {
            results: vec![
                BatchResult { status: 200, grant: Some(grant()), ..BatchResult::default() },
                BatchResult { status: 200, renewed: Some(renewed), ..BatchResult::default() },
                BatchResult {
                    status: 200,
                    released: Some(Released { released: true, reason: None }),
                    ..BatchResult::default()
                },
                BatchResult {
                    status: 409,
                    problem: Some(Box::new(problem)),
                    ..BatchResult::default()
                },
            ],
        },
    );
}

#[test]
fn a_problem_with_every_field() {
    let mut problem = Problem::new(409, Code::Held, "somebody else holds the lock");
    check("problem_least", &problem);
    problem.trace_id = Some("4bf92f3577b34da6a3ce929d0e0e4736".into());
    problem.field = Some("ttl_ms".into());
    problem.allowed = Some("500 to 86400000".into());
    problem.min = Some(500);
    problem.max = Some(86_400_000);
    problem.expected = Some("application/json".into());
    problem.policy = Some("hours".into());
    problem.version = Some("3".into());
    problem.reason_code = Some("closed".into());
    problem.reason = Some("closed at night".into());
    problem.domain = Some("invoice".into());
    problem.holders = Some(vec![holder()]);
    problem.holders_total = Some(1);
    problem.queue_length = Some(2);
    problem.waited_ms = Some(5_000);
    problem.position = Some(2);
    problem.cycle = Some(vec![CycleStep { client_id: "w1".into(), resource: "invoice/42".into() }]);
    problem.how = Some("expired".into());
    problem.ended_at = Some(AT);
    problem.token = Some(33);
    problem.current = Some("7".into());
    problem.request_id = Some("r-1".into());
    problem.retry_after_ms = Some(1_000);
    check("problem_most", &problem);
}

#[test]
fn every_code_reads_as_it_is_written() {
    let codes: Vec<Code> = Code::ALL.to_vec();
    check("codes", &codes);
    for code in codes {
        assert_eq!(serde_json::to_string(&code).expect("written"), format!("\"{code}\""));
        assert_eq!(code.urn(), format!("urn:leasehold:problem:{code}"));
        assert!(!code.title().is_empty());
    }
}
