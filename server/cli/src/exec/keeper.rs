//! Keeps the lock while the job runs: renews at a third of the TTL and tells what came of it.

use super::ask::Ask;
use leasehold_client::{BootInstant, Client, Error};
use leasehold_wire::Code;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// After a renewal that nobody confirmed, the next one is tried this soon.
const AGAIN: Duration = Duration::from_millis(50);
/// How long one renewal may take while no server can be reached. The pauses between the attempts
/// of one grow, and a service that comes back has to be found at once.
const UNREACHED: Duration = Duration::from_millis(400);

/// What a renewal told.
#[derive(Debug)]
pub(crate) enum News {
    /// The lock is valid until this instant.
    Renewed(BootInstant),
    /// It was not confirmed; why.
    Uncertain(String),
    /// An operator wants it back: it is not renewed any more. The last news.
    Draining,
    /// The service says that it has ended. The last news.
    Ended(String),
}

/// Which grant to keep.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) client: Client,
    pub(crate) ask: Ask,
    pub(crate) token: u64,
    /// When the request left that the last answer belongs to.
    pub(crate) sent: BootInstant,
}

/// How long one renewal may take before it counts as unconfirmed: as long as the next one is
/// away, so that a service that hangs is noticed with a third of the TTL left.
pub(crate) fn patience(ttl: Duration) -> Duration {
    let third = Duration::from_millis(crate::args::ms(ttl) / 3);
    third.clamp(Duration::from_millis(100), Duration::from_secs(5))
}

/// Renews until there is nothing left to renew or nobody listens. While `paused`, it does not:
/// the lock is for work, and the job does none.
pub(crate) async fn keep(
    mut kept: Kept,
    mut paused: watch::Receiver<bool>,
    news: mpsc::Sender<News>,
) {
    let patience = patience(kept.ask.ttl);
    let mut budget = patience;
    loop {
        let due = kept.sent.saturating_add(kept.ask.ttl / 3);
        sleep(due.saturating_since(BootInstant::now())).await;
        if paused.wait_for(|paused| !*paused).await.is_err() {
            return;
        }
        let client = kept.client.with_budget(budget);
        let (told, pause) = match client.renew(&kept.ask.resource, kept.token, None).await {
            Ok(answer) => {
                kept.sent = answer.sent;
                budget = patience;
                let valid_for = Duration::from_millis(answer.valid_for_ms);
                (News::Renewed(answer.sent.saturating_add(valid_for)), Duration::ZERO)
            }
            Err(error) => {
                budget = budget_after(&error, patience);
                (judged(&error), pause_after(&error, patience))
            }
        };
        let last = matches!(told, News::Draining | News::Ended(_));
        if news.send(told).await.is_err() || last {
            return;
        }
        sleep(pause).await;
    }
}

/// How long the renewal after this failure may take.
fn budget_after(error: &Error, patience: Duration) -> Duration {
    match error {
        Error::Unavailable { problem: None, .. } => patience.min(UNREACHED),
        _ => patience,
    }
}

/// When it is tried. As late as the service asks for, but not later than the next one would be due
/// if all were well: that many it has to bear.
fn pause_after(error: &Error, patience: Duration) -> Duration {
    error.retry_after().unwrap_or_default().min(patience).max(AGAIN)
}

fn judged(error: &Error) -> News {
    let draining = |reason: Option<&str>| reason == Some("draining");
    match error {
        Error::Ended(_) => News::Ended(error.to_string()),
        Error::Problem(problem)
            if problem.code == Code::Conflict && draining(problem.reason.as_deref()) =>
        {
            News::Draining
        }
        _ => News::Uncertain(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_wire::Problem;

    #[test]
    fn only_the_service_itself_ends_a_lock() {
        let ended = Error::from(Problem::new(410, Code::GrantEnded, "it expired"));
        assert!(matches!(judged(&ended), News::Ended(why) if why == "it expired"));
        let draining = Problem { reason: Some("draining".into()), ..conflict() };
        assert!(matches!(judged(&draining.into()), News::Draining));
        for other in [conflict(), Problem::new(503, Code::NoLeader, "no leader")] {
            assert!(matches!(judged(&other.into()), News::Uncertain(_)));
        }
    }

    #[test]
    fn a_service_that_is_busy_is_left_alone_and_one_that_is_away_is_looked_for_often() {
        let patience = Duration::from_secs(3);
        for (asked, pause) in [(None, AGAIN), (Some(700), Duration::from_millis(700))] {
            let busy = Problem::new(503, Code::NoLeader, "no leader");
            let busy = Error::from(Problem { retry_after_ms: asked, ..busy });
            assert_eq!(pause_after(&busy, patience), pause);
            assert_eq!(budget_after(&busy, patience), patience);
        }
        let later = Problem::new(503, Code::NoLeader, "no leader");
        let later = Error::from(Problem { retry_after_ms: Some(3_600_000), ..later });
        assert_eq!(pause_after(&later, patience), patience);
        let away = Error::Unavailable { detail: "connection refused".to_owned(), problem: None };
        assert_eq!(budget_after(&away, patience), UNREACHED);
        assert_eq!(pause_after(&away, patience), AGAIN);
    }

    fn conflict() -> Problem<'static> {
        Problem::new(409, Code::Conflict, "conflict")
    }

    #[test]
    fn a_service_that_hangs_is_noticed_with_time_left() {
        for (ttl_ms, patience_ms) in [(500, 166), (10_000, 3_333), (60_000, 5_000), (200, 100)] {
            let patience = patience(Duration::from_millis(ttl_ms));
            assert_eq!(patience.as_millis(), patience_ms);
        }
    }
}
