//! Changes to the cluster that were not made. The sentence is the node's own; programs have a word.

use super::{outcome_unknown, retry, soon, with_field};
use crate::fault::Fault;
use leasehold_node::{MembershipError, TransferError};
use leasehold_wire::{Code, Problem};

/// When a change that is on its way may be over, or a learner has caught up further.
const CHANGED_MS: u64 = 1_000;

impl From<MembershipError> for Fault {
    fn from(error: MembershipError) -> Self {
        membership(&error).into()
    }
}

/// The problem that a refused change of the members is.
pub(crate) fn membership(error: &MembershipError) -> Problem<'static> {
    use MembershipError as E;
    let conflict = |reason: &'static str| conflict(reason, error);
    match error {
        E::NotLeading { .. } => {
            soon(Code::NoLeader, "the leader changed; the members were not changed")
        }
        E::ShuttingDown => soon(Code::ShuttingDown, "the node is stopping"),
        E::OutcomeUnknown => Problem { detail: error.to_string().into(), ..outcome_unknown(None) },
        E::NoSuchNode { .. } => {
            with_field("id", Problem::new(404, Code::NotFound, error.to_string()))
        }
        E::InProgress { .. } => retry(CHANGED_MS, conflict("in_progress")),
        E::Behind { .. } => retry(CHANGED_MS, conflict("behind")),
        E::NotHeardOf { .. } => retry(CHANGED_MS, conflict("not_heard_of")),
        E::Alone => conflict("no_peer_address"),
        E::Unreachable { .. } => with_field("peer_addr", conflict("unreachable")),
        E::OtherNode { .. } => with_field("id", conflict("other_node")),
        E::Unwelcome { .. } => conflict("unwelcome"),
        E::NotEmpty { .. } => conflict("not_empty"),
        E::IdRetired { .. } => with_field("id", conflict("id_retired")),
        E::IdTaken { .. } => with_field("id", conflict("id_taken")),
        E::AddressTaken { .. } => with_field("peer_addr", conflict("address_taken")),
        E::Advertises { .. } => with_field("peer_addr", conflict("advertises")),
        E::TooMany { .. } => conflict("too_many"),
        E::LastVoter { .. } => with_field("id", conflict("last_voter")),
        E::QuorumAtRisk { .. } => conflict("quorum_at_risk"),
        E::Refused { .. } => conflict("refused"),
    }
}

impl From<TransferError> for Fault {
    fn from(error: TransferError) -> Self {
        transfer(&error).into()
    }
}

/// The problem that a transfer of the leadership is that was not made.
pub(crate) fn transfer(error: &TransferError) -> Problem<'static> {
    use TransferError as E;
    let conflict = |reason: &'static str| conflict(reason, error);
    match error {
        E::NotLeader { .. } => soon(Code::NoLeader, "the leader changed; nothing was done"),
        E::Stopping => soon(Code::ShuttingDown, "the node is stopping"),
        E::Unknown { .. } => with_field("to", Problem::new(404, Code::NotFound, error.to_string())),
        E::Learner { .. } => with_field("to", conflict("learner")),
        E::Silent { .. } => with_field("to", conflict("unreachable")),
        E::Behind { .. } => retry(CHANGED_MS, with_field("to", conflict("behind"))),
        E::Nobody => conflict("nobody"),
        E::UnderWay => retry(CHANGED_MS, conflict("in_progress")),
        E::NotDone { .. } => retry(CHANGED_MS, conflict("not_done")),
        E::Another { .. } => with_field("to", conflict("another_leads")),
    }
}

/// What was asked for does not fit the cluster as it is.
fn conflict(reason: &'static str, error: &dyn std::error::Error) -> Problem<'static> {
    let problem = Problem::new(409, Code::Conflict, error.to_string());
    Problem { reason: Some(reason.into()), ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MembershipError as E;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    /// What an operator can mend is a conflict that says how, and in one word what it is.
    #[test]
    fn a_change_that_does_not_fit_says_why_in_a_word_and_in_a_sentence() {
        let (id, address, cause) = (4, || text("a:1"), || text("refused"));
        for (error, reason, field) in [
            (E::Alone, "no_peer_address", None),
            (E::InProgress { change: text("adding node 4") }, "in_progress", None),
            (
                E::Unreachable { address: address(), cause: cause() },
                "unreachable",
                Some("peer_addr"),
            ),
            (E::OtherNode { address: address(), id, found: 5 }, "other_node", Some("id")),
            (E::Unwelcome { address: address(), id, cause: cause() }, "unwelcome", None),
            (E::NotEmpty { address: address(), id }, "not_empty", None),
            (E::IdRetired { id }, "id_retired", Some("id")),
            (E::IdTaken { id, address: address() }, "id_taken", Some("id")),
            (E::AddressTaken { address: address(), by: 2 }, "address_taken", Some("peer_addr")),
            (
                E::Advertises { id, advertised: address(), cause: cause() },
                "advertises",
                Some("peer_addr"),
            ),
            (E::TooMany { max: 31 }, "too_many", None),
            (E::Behind { id, entries: 900 }, "behind", None),
            (E::NotHeardOf { id }, "not_heard_of", None),
            (E::LastVoter { id }, "last_voter", Some("id")),
            (E::QuorumAtRisk { voters: 2, needed: 2, silent: vec![3] }, "quorum_at_risk", None),
            (E::Refused { cause: cause() }, "refused", None),
        ] {
            let problem = membership(&error);
            assert_eq!((problem.status, problem.code), (409, Code::Conflict), "{error:?}");
            assert_eq!(problem.reason.as_deref(), Some(reason));
            assert_eq!(problem.field.as_deref(), field, "{error:?}");
            assert_eq!(problem.detail, error.to_string());
            let passes = matches!(reason, "in_progress" | "behind" | "not_heard_of");
            assert_eq!(problem.retry_after_ms.is_some(), passes, "{error:?}");
        }
    }

    #[test]
    fn a_transfer_that_was_not_made_says_why_in_a_word_and_in_a_sentence() {
        use TransferError as E;
        for (error, status, code, reason) in [
            (E::NotLeader { leader: None }, 503, Code::NoLeader, None),
            (E::Stopping, 503, Code::ShuttingDown, None),
            (E::Unknown { id: 4 }, 404, Code::NotFound, None),
            (E::Learner { id: 4 }, 409, Code::Conflict, Some("learner")),
            (E::Silent { id: 4 }, 409, Code::Conflict, Some("unreachable")),
            (E::Behind { id: 4, entries: 9_000 }, 409, Code::Conflict, Some("behind")),
            (E::Nobody, 409, Code::Conflict, Some("nobody")),
            (E::UnderWay, 409, Code::Conflict, Some("in_progress")),
            (E::NotDone { id: 4, within_ms: 800 }, 409, Code::Conflict, Some("not_done")),
            (E::Another { id: 4, leader: 2 }, 409, Code::Conflict, Some("another_leads")),
        ] {
            let problem = transfer(&error);
            assert_eq!((problem.status, problem.code), (status, code), "{error:?}");
            assert_eq!(problem.reason.as_deref(), reason, "{error:?}");
        }
    }

    #[test]
    fn the_others_have_codes_of_their_own() {
        for (error, status, code) in [
            (E::NotLeading { leader: Some(2) }, 503, Code::NoLeader),
            (E::ShuttingDown, 503, Code::ShuttingDown),
            (E::OutcomeUnknown, 503, Code::OutcomeUnknown),
            (E::NoSuchNode { id: 4 }, 404, Code::NotFound),
        ] {
            let problem = membership(&error);
            assert_eq!((problem.status, problem.code), (status, code), "{error:?}");
        }
    }
}
