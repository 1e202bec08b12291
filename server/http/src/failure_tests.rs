//! Every failure beside the status, code and fields that it becomes.

use super::*;
use leasehold_core::command::{EndedHow, Mode};
use leasehold_core::outcome::{Grant, GrantRecord};
use leasehold_core::{ClientId, LeaseId, Owner, Principal, RequestId, ResourceName};
use std::sync::Arc;

fn owner() -> Arc<Owner> {
    Arc::new(Owner {
        principal: Principal::parse("anonymous").expect("legal"),
        client: ClientId::parse("w1").expect("legal"),
    })
}

fn grant() -> Arc<Grant> {
    Arc::new(Grant {
        token: Token(33),
        resource: ResourceName::parse("invoice/42").expect("legal"),
        owner: owner(),
        lease: LeaseId(0xfeed),
        single: true,
        mode: Mode::Exclusive,
        ticket: None,
        attachment: 0,
        request_id: None,
        asked_at_ms: 1,
        granted_at_ms: 2,
        claim_ms: None,
        ttl_cap_ms: None,
        policies: None,
        metadata: None,
        draining: false,
    })
}

fn holder() -> Holder {
    Holder { grant: grant(), expires_in_ms: Some(9) }
}

/// All that a problem says beyond its status and code, as JSON without what is always there.
fn fields(problem: &Problem<'static>) -> String {
    let serde_json::Value::Object(mut all) = serde_json::to_value(problem).expect("a shape") else {
        panic!("a problem is an object")
    };
    for common in ["type", "title", "status", "code", "detail"] {
        assert!(all.remove(common).is_some(), "{common} is always there");
    }
    serde_json::to_string(&all).expect("JSON").replace('"', "")
}

fn check(failure: Failure, status: u16, code: Code, expected: &str) {
    let problem = problem(failure);
    assert_eq!((problem.status, problem.code), (status, code), "{}", problem.detail);
    let fields = fields(&problem);
    assert_eq!(fields, expected, "{code}");
    assert!(!fields.contains("feed"), "a lease's id is never shown: {fields}");
}

const HOLDER: &str =
    "{client_id:w1,expires_in_ms:9,granted_at:1970-01-01T00:00:00.002Z,mode:exclusive,token:33}";

#[test]
fn what_the_node_cannot_decide() {
    let id = RequestId::parse("r-1").expect("legal");
    let soon = "{retry_after_ms:1000}";
    check(Failure::NoLeader, 503, Code::NoLeader, "{retry_after_ms:250}");
    check(Failure::NotReady, 503, Code::NotReady, soon);
    check(Failure::Overloaded, 503, Code::Overloaded, soon);
    check(Failure::ShuttingDown, 503, Code::ShuttingDown, soon);
    let later = "{retry_after_ms:5000}";
    check(Failure::StorageFull, 503, Code::StorageFull, later);
    check(Failure::AboveLevel { needs: 2, level: 1 }, 503, Code::NotReady, later);
    check(Failure::DeadlinePassed, 408, Code::RequestTimeout, "{}");
    check(Failure::AnswerTooLarge, 400, Code::InvalidRequest, "{field:limit}");
    check(Failure::Internal("disk".into()), 500, Code::Internal, "{}");
    check(Failure::OutcomeUnknown { request_id: None }, 503, Code::OutcomeUnknown, soon);
    check(
        Failure::OutcomeUnknown { request_id: Some(id) },
        503,
        Code::OutcomeUnknown,
        "{request_id:r-1,retry_after_ms:1000}",
    );
}

#[test]
fn a_lock_that_is_not_to_be_had() {
    check(
        Failure::Held { holders: vec![holder()], holders_total: 1, queue_length: 2 },
        409,
        Code::Held,
        &format!("{{holders:[{HOLDER}],holders_total:1,queue_length:2}}"),
    );
    let timeout = WaitTimeout {
        waited_ms: 500,
        position: 2,
        holders: vec![holder()],
        holders_total: 1,
        queue_length: 3,
    };
    check(
        Failure::WaitTimeout(Box::new(timeout)),
        409,
        Code::WaitTimeout,
        &format!("{{holders:[{HOLDER}],holders_total:1,position:2,queue_length:3,waited_ms:500}}"),
    );
    let blockers = Blockers { holders: vec![grant()], holders_total: 1, queue_length: 0 };
    check(
        Failure::Refused(Refusal::Held(blockers)),
        409,
        Code::Held,
        &format!(
            "{{holders:[{}],holders_total:1,queue_length:0}}",
            HOLDER.replace("expires_in_ms:9,", "")
        ),
    );
    let step = CycleStep { owner: owner(), resource: grant().resource.clone() };
    check(
        Failure::Refused(Refusal::WouldDeadlock { cycle: vec![step] }),
        409,
        Code::WouldDeadlock,
        "{cycle:[{client_id:w1,resource:invoice/42}]}",
    );
}

#[test]
fn a_bound_that_is_reached() {
    for (bound, reason, retry) in [
        (Bound::Queue, "queue_full", ",retry_after_ms:1000"),
        (Bound::ClientTickets, "client", ",retry_after_ms:1000"),
        (Bound::LeaseItems, "capacity", ",retry_after_ms:1000"),
        (Bound::Tickets, "capacity", ",retry_after_ms:1000"),
        (Bound::Grants, "capacity", ",retry_after_ms:5000"),
        (Bound::Leases, "capacity", ",retry_after_ms:5000"),
        (Bound::Metadata, "capacity", ",retry_after_ms:5000"),
        (Bound::Tokens, "capacity", ""),
    ] {
        check(
            Failure::Refused(Refusal::Full { bound, max: 256, queue_length: 7 }),
            429,
            Code::Shed,
            &format!("{{max:256,queue_length:7,reason:{reason}{retry}}}"),
        );
    }
}

#[test]
fn a_grant_or_lease_that_is_gone() {
    let ended = "ended_at:1970-01-01T00:00:00.009Z,how:expired";
    let record = GrantRecord { grant: grant(), how: EndedHow::Expired, ended_at_ms: 9 };
    check(
        Failure::Gone(Gone::Known(Arc::new(record))),
        410,
        Code::GrantEnded,
        &format!("{{{ended},token:33}}"),
    );
    check(Failure::Gone(Gone::Forgotten), 410, Code::GrantEnded, "{}");
    check(Failure::Gone(Gone::Never { holders: vec![] }), 409, Code::NotHolder, "{holders:[]}");
    check(
        Failure::Gone(Gone::Never { holders: vec![holder()] }),
        409,
        Code::NotHolder,
        &format!("{{holders:[{HOLDER}]}}"),
    );
    let refusals = [
        (Refusal::NotLive, 410, Code::GrantEnded, "{}".to_owned()),
        (Refusal::NotHolder, 409, Code::NotHolder, "{}".to_owned()),
        (Refusal::Draining, 409, Code::Conflict, "{reason:draining}".to_owned()),
        (Refusal::LeaseUnknown, 404, Code::NotFound, "{field:lease_id}".to_owned()),
        (
            Refusal::RequestEnded {
                token: Some(Token(33)),
                how: EndedHow::Expired,
                ended_at_ms: 9,
            },
            410,
            Code::GrantEnded,
            format!("{{{ended},token:33}}"),
        ),
        (
            Refusal::RequestEnded { token: None, how: EndedHow::Expired, ended_at_ms: 9 },
            410,
            Code::GrantEnded,
            format!("{{{ended}}}"),
        ),
        (
            Refusal::LeaseEnded { how: Some(EndedHow::Expired), ended_at_ms: Some(9) },
            410,
            Code::LeaseEnded,
            format!("{{{ended}}}"),
        ),
        (
            Refusal::LeaseEnded { how: None, ended_at_ms: None },
            410,
            Code::LeaseEnded,
            "{}".to_owned(),
        ),
    ];
    for (refusal, status, code, expected) in refusals {
        check(Failure::Refused(refusal), status, code, &expected);
    }
}

#[test]
fn a_request_that_does_not_fit() {
    let refusals = [
        (
            Refusal::TtlOutOfRange { min_ms: 500, max_ms: 900 },
            400,
            Code::InvalidRequest,
            "{allowed:500 to 900,field:ttl_ms,max:900,min:500}",
        ),
        (
            Refusal::TtlAboveCap { cap_ms: 900 },
            403,
            Code::PolicyDenied,
            "{field:ttl_ms,max:900,reason_code:ttl_above_cap}",
        ),
        (Refusal::LeaseIsExplicit, 409, Code::Conflict, "{field:ttl_ms}"),
        (Refusal::LeaseIsSingle, 409, Code::Conflict, "{field:lease_id}"),
        (Refusal::NotOwner, 403, Code::Forbidden, "{field:lease_id}"),
        (Refusal::RequestReused, 422, Code::RequestIdReused, "{field:request_id}"),
        (Refusal::NotWaiting, 404, Code::NotFound, "{}"),
        (Refusal::OnHold { hold_ms: 900 }, 503, Code::NotReady, "{retry_after_ms:900}"),
        (Refusal::Void, 503, Code::NoLeader, "{retry_after_ms:250}"),
    ];
    for (refusal, status, code, expected) in refusals {
        check(Failure::Refused(refusal), status, code, expected);
    }
}

#[test]
fn what_went_wrong_inside_stays_inside() {
    let fault = Fault::from(Failure::Internal("secret path".to_owned()));
    assert_eq!(fault.internal.as_deref(), Some("secret path"));
    assert!(!serde_json::to_string(&fault.problem).expect("JSON").contains("secret"));
}
