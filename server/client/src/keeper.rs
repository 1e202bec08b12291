//! Renewal in the background, until belief ends.

use crate::belief::Belief;
use crate::call::{Call, Done};
use crate::client::Client;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::failure::Failure;
use crate::timer;
use crate::validity::Lost;
use crate::wire::{Code, DrainingGrant, EndedGrant, Problem};
use std::time::Duration;

/// Something that has to be renewed, and those who want to know how that goes.
pub(crate) trait Kept: Send + Sync + 'static {
    /// The belief that ends the renewals when it ends.
    fn belief(&self) -> &Belief;
    /// What a renewal says, out of the answer.
    fn read(&self, done: Done) -> Result<Confirmed, Error>;
    /// A renewal was confirmed.
    fn confirm(&self, confirmed: &Confirmed);
    /// A renewal was not.
    fn doubt(&self);
    /// The service says that it has ended.
    fn end(&self, why: &Lost);
}

/// A renewal that the service confirmed.
#[derive(Debug)]
pub(crate) struct Confirmed {
    pub(crate) sent: BootInstant,
    pub(crate) valid_for: Duration,
    pub(crate) ended_grants: Vec<EndedGrant<'static>>,
    pub(crate) draining_grants: Vec<DrainingGrant<'static>>,
}

/// Renews at a third of the TTL, at once if `claimed`; repeats what is not confirmed until the
/// validity is over.
pub(crate) async fn keep(
    client: Client,
    kept: impl Kept,
    renewal: Call,
    ttl: Duration,
    claimed: bool,
) {
    let mut due = if claimed { BootInstant::now() } else { next(kept.belief(), ttl, None) };
    let mut failures = 0;
    loop {
        tokio::select! {
            _ = kept.belief().lost() => return,
            () = timer::sleep_until(due) => {}
        }
        let sent = BootInstant::now();
        let limit = patience(kept.belief(), ttl);
        let attempt = client.once(&renewal, client.patience(&renewal, failures), limit);
        let outcome = tokio::select! {
            _ = kept.belief().lost() => return,
            outcome = attempt => outcome,
        };
        match settle(&kept, outcome) {
            Step::Confirmed => {
                failures = 0;
                due = next(kept.belief(), ttl, Some(sent));
            }
            Step::Failed(failure) => {
                kept.doubt();
                failures += 1;
                let pause = client.pause(&failure, failures).min(longest_pause(&failure, ttl));
                due = BootInstant::now().saturating_add(pause);
            }
            Step::Over => return,
        }
    }
}

enum Step {
    Confirmed,
    Failed(Failure),
    Over,
}

fn settle(kept: &impl Kept, outcome: Result<Done, Failure>) -> Step {
    let failure = match outcome {
        Ok(done) => match kept.read(done) {
            Ok(confirmed) => {
                kept.confirm(&confirmed);
                return Step::Confirmed;
            }
            Err(error) => Failure::Nonsense(error.to_string()),
        },
        Err(failure) => failure,
    };
    match &failure {
        Failure::Refused(problem) if has_ended(problem.code) => {
            kept.end(&ended(problem));
            Step::Over
        }
        Failure::Refused(problem) if is_draining(problem) => {
            // It stands until its deadline, and no renewal moves that any more.
            kept.doubt();
            Step::Over
        }
        _ => Step::Failed(failure),
    }
}

const fn has_ended(code: Code) -> bool {
    matches!(code, Code::GrantEnded | Code::LeaseEnded | Code::NotHolder | Code::NotFound)
}

fn is_draining(problem: &Problem<'_>) -> bool {
    problem.code == Code::Conflict && problem.reason.as_deref() == Some("draining")
}

fn ended(problem: &Problem<'_>) -> Lost {
    Lost::Ended { code: problem.code, how: problem.how.as_deref().map(str::to_owned) }
}

/// When two thirds of the TTL are left, a little earlier at random so that what was granted
/// together is not renewed together; never right after the last renewal, however slow answers are.
fn next(belief: &Belief, ttl: Duration, last: Option<BootInstant>) -> BootInstant {
    let early = (ttl / 20).mul_f64(fastrand::f64());
    let due = belief.valid_until().saturating_sub(ttl / 3 * 2 + early);
    last.map_or(due, |last| due.max(last.saturating_add(ttl / 10)))
}

/// How long one renewal may take: short enough for several before the validity is over.
fn patience(belief: &Belief, ttl: Duration) -> Duration {
    (ttl / 6).max(Duration::from_millis(100)).min(belief.remaining())
}

/// A pause must leave room for further renewals, unless the service itself asked for it.
fn longest_pause(failure: &Failure, ttl: Duration) -> Duration {
    failure.retry_after().unwrap_or_default() + ttl / 10
}
