//! The words of a scenario: a line of text becomes a command.
//!
//! ```text
//! acquire R by=A [as=P] (lease=ID ttl=N | on=ID) [shared] [wait] [req=ID] [prio=N] [claim=N]
//!         [keep] [cap=N] [holding=R#T,R#T] [meta=k:v,k:v]
//! release R T [by=A]           renew R T ttl=N [by=A]      force R T drain|now   revoke L
//! open ID by=A ttl=N [meta=..] end ID [by=A]               continue ID
//! cancel REQ by=A              detach TICKET N             leave TICKET N HOW
//! expire ID ID ..              drained T                   passon T N
//! trim ended=N history=N       limits k=N ..               domain D queue_max=N|none [if=N|absent]
//! confirm ID T,T               level N                     unhold
//! ```
//!
//! Whoever has no `as=` is of the principal `dev`. What a leader decides from its memory carries
//! the present term unless `term=N` says another.

use leasehold_core::command::{
    Acquire, Action, Administer, Basis, Caller, ClusterChange, Command, Expected, ForceWhen,
    GrantRef, Holding, LeftHow, Metadata, Mode, OpenLease, Stage,
};
use leasehold_core::limits::{DomainLimits, Limits};
use leasehold_core::name::{ClientId, Owner, Principal, RequestId, ResourceName};
use leasehold_core::{ClusterId, LeaseId, Restore, Revision, TicketId, Token};
use std::sync::Arc;

/// What stands on a line: words in order, and `key=value` pairs.
struct Words<'a> {
    plain: Vec<&'a str>,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let (pairs, plain): (Vec<&str>, Vec<&str>) =
            line.split_whitespace().partition(|word| word.contains('='));
        Self { plain, pairs: pairs.into_iter().filter_map(|word| word.split_once('=')).collect() }
    }

    fn at(&self, index: usize) -> &'a str {
        self.plain
            .get(index)
            .unwrap_or_else(|| panic!("word {index} is missing in {:?}", self.plain))
    }

    fn has(&self, word: &str) -> bool {
        self.plain.contains(&word)
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key).map(number)
    }

    fn owner(&self) -> Owner {
        let client = self.get("by").expect("by= names the client");
        Owner {
            principal: Principal::parse(self.get("as").unwrap_or("dev")).expect("legal principal"),
            client: ClientId::parse(client).expect("legal client"),
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            principal: Principal::parse(self.get("as").unwrap_or("dev")).expect("legal principal"),
            client: self.get("by").map(|client| ClientId::parse(client).expect("legal client")),
        }
    }

    fn grant(&self) -> GrantRef {
        GrantRef {
            resource: resource(self.at(1)),
            token: Token(number(self.at(2))),
            caller: self.caller(),
        }
    }

    fn metadata(&self) -> Option<Metadata> {
        let pairs = self.get("meta")?.split(',').filter_map(|pair| pair.split_once(':'));
        Some(pairs.map(|(key, value)| (Arc::from(key), Arc::from(value))).collect())
    }
}

/// Reads `ID floor=N [hold=N]`.
pub(crate) fn restore(rest: &str, now_ms: u64) -> Restore {
    let words = Words::of(rest);
    Restore {
        cluster: cluster(words.at(0)),
        token_floor: words.number("floor").expect("floor="),
        now_ms,
        hold_ms: words.number("hold"),
    }
}

/// Reads one command. `limits` are those in force, of which `limits k=v` changes some.
pub(crate) fn parse(line: &str, term: u64, limits: &Limits) -> Command {
    let words = Words::of(line);
    let term = words.number("term").unwrap_or(term);
    match words.at(0) {
        "acquire" => Command::Acquire(Box::new(acquire(&words))),
        "release" => Command::Release(words.grant()),
        "renew" => {
            Command::Renew { grant: words.grant(), ttl_ms: words.number("ttl").expect("ttl=") }
        }
        "open" => Command::OpenLease(OpenLease {
            lease: lease(words.at(1)),
            owner: words.owner(),
            ttl_ms: words.number("ttl").expect("ttl="),
            metadata: words.metadata(),
        }),
        "end" => Command::EndLease { lease: lease(words.at(1)), caller: words.caller() },
        "cancel" => Command::CancelWait { owner: words.owner(), request_id: request(words.at(1)) },
        "force" => order(Action::ForceRelease {
            resource: resource(words.at(1)),
            token: Token(number(words.at(2))),
            when: if words.has("now") { ForceWhen::Now } else { ForceWhen::Drain },
        }),
        "revoke" => order(Action::RevokeLease { lease: lease(words.at(1)) }),
        "expire" => {
            Command::Expire { leases: words.plain[1..].iter().map(|id| lease(id)).collect(), term }
        }
        "drained" => Command::EndDrained { token: Token(number(words.at(1))), term },
        "passon" => Command::PassOn {
            token: Token(number(words.at(1))),
            attachment: number(words.at(2)),
            term,
        },
        "detach" => {
            Command::Detach { ticket: ticket(words.at(1)), attachment: number(words.at(2)), term }
        }
        "leave" => Command::Leave {
            ticket: ticket(words.at(1)),
            attachment: number(words.at(2)),
            how: left(words.at(3)),
            term,
        },
        "continue" => Command::Continue { lease: lease(words.at(1)) },
        "trim" => Command::Trim {
            ended_before_ms: words.number("ended").unwrap_or(0),
            history_before_ms: words.number("history").unwrap_or(0),
        },
        "found" => Command::Found {
            cluster: cluster(words.at(1)),
            limits: Box::new(changed(limits, &words.pairs)),
        },
        "limits" => Command::SetLimits(Box::new(changed(limits, &words.pairs))),
        "domain" => order(Action::SetDomain {
            domain: Arc::from(words.at(1)),
            limits: domain_limits(&words),
            expected: expected(&words),
        }),
        "cluster" => order(Action::ChangeCluster {
            change: cluster_change(words.at(1), words.at(2)),
            stage: if words.has("refused") { Stage::Refused } else { Stage::Begun },
        }),
        "unhold" => Command::EndHold { term },
        "confirm" => Command::ConfirmEnded {
            lease: lease(words.at(1)),
            tokens: words.at(2).split(',').map(|token| Token(number(token))).collect(),
        },
        "level" => Command::RaiseLevel { to: number(words.at(1)) },
        other => panic!("no such command: {other:?} in {line:?}"),
    }
}

fn acquire(words: &Words<'_>) -> Acquire {
    let basis = match words.get("on") {
        Some(id) => Basis::Explicit { lease: lease(id) },
        None => Basis::Single {
            lease: lease(words.get("lease").expect("lease= or on=")),
            ttl_ms: words.number("ttl").unwrap_or(10_000),
        },
    };
    let holding = words.get("holding").into_iter().flat_map(|all| all.split(','));
    Acquire {
        resource: resource(words.at(1)),
        owner: words.owner(),
        basis,
        mode: if words.has("shared") { Mode::Shared } else { Mode::Exclusive },
        wait: words.has("wait"),
        request_id: words.get("req").map(request),
        claim_ms: words.number("claim"),
        keep_place: words.has("keep"),
        holding: holding.filter_map(|one| one.split_once('#')).map(held).collect(),
        metadata: words.metadata(),
        priority: words.number("prio").unwrap_or(0),
        ttl_cap_ms: words.number("cap"),
        policies: None,
    }
}

fn held((name, token): (&str, &str)) -> Holding {
    Holding { resource: resource(name), token: Token(number(token)) }
}

/// What an operator of the tests does.
pub(crate) fn order(action: Action) -> Command {
    Command::Administer(Box::new(Administer {
        by: Principal::parse("ops").expect("legal principal"),
        source: Arc::from("10.0.0.7:4711"),
        reason: Arc::from("stuck"),
        action,
    }))
}

fn expected(words: &Words<'_>) -> Expected {
    match words.get("if") {
        None => Expected::Any,
        Some("absent") => Expected::Absent,
        Some(version) => Expected::Version(Revision(number(version))),
    }
}

fn domain_limits(words: &Words<'_>) -> Option<DomainLimits> {
    if words.has("none") {
        return None;
    }
    Some(DomainLimits { queue_max: words.number("queue_max") })
}

/// The limits with some of them changed.
pub(crate) fn changed(limits: &Limits, pairs: &[(&str, &str)]) -> Limits {
    let mut new = limits.clone();
    for (name, value) in pairs {
        match *name {
            "ttl_min" => new.ttl_min_ms = number(value),
            "ttl_max" => new.ttl_max_ms = number(value),
            "queue_max" => new.queue_max = number(value),
            "client_tickets_max" => new.client_tickets_max = number(value),
            "tickets_max" => new.tickets_max = number(value),
            "grants_max" => new.grants_max = number(value),
            "leases_max" => new.leases_max = number(value),
            "lease_items_max" => new.lease_items_max = number(value),
            "metadata_bytes_max" => new.metadata_bytes_max = number(value),
            "client_ended_max" => new.client_ended_max = number(value),
            "ended_max" => new.ended_max = number(value),
            "piece_max" => new.piece_max = number(value),
            "walk_max" => new.walk_max = number(value),
            "overtaken_max" => new.overtaken_max = number(value),
            other => panic!("no such limit: {other:?}"),
        }
    }
    new
}

fn left(word: &str) -> LeftHow {
    match word {
        "timed_out" => LeftHow::TimedOut,
        "disconnected" => LeftHow::Disconnected,
        "cancelled" => LeftHow::Cancelled,
        other => panic!("nobody leaves like {other:?}"),
    }
}

/// Reads a number; digits may be grouped by underscores.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> T {
    text.replace('_', "").parse().unwrap_or_else(|_| panic!("not a number: {text:?}"))
}

fn cluster(text: &str) -> ClusterId {
    let id = u128::from_str_radix(text, 16);
    ClusterId(id.unwrap_or_else(|_| panic!("not a cluster id: {text:?}")))
}

fn lease(text: &str) -> LeaseId {
    LeaseId(u128::from_str_radix(text, 16).unwrap_or_else(|_| panic!("not a lease id: {text:?}")))
}

fn ticket(text: &str) -> TicketId {
    TicketId(number(text))
}

fn request(text: &str) -> RequestId {
    RequestId::parse(text).expect("legal request id")
}

fn resource(text: &str) -> ResourceName {
    ResourceName::parse(text).expect("legal name")
}

fn cluster_change(what: &str, node: &str) -> ClusterChange {
    match what {
        "add" => ClusterChange::Add { node: number(node) },
        "promote" => ClusterChange::Promote { node: number(node) },
        "remove" => ClusterChange::Remove { node: number(node) },
        "transfer" => ClusterChange::Transfer { node: (node != "any").then(|| number(node)) },
        other => panic!("no change of a cluster: {other}"),
    }
}
