//! Asking the service whether it ever issued a token, so that nobody can invent one.

use crate::metrics::Metrics;
use crate::problem::{Code, Problem};
use crate::settings::Limits;
use crate::shown::Shown;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use leasehold_client::Client;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

const AGAIN: Duration = Duration::from_secs(1);

/// How many good answers are kept in mind; beyond, all are asked about again.
const GOOD_MAX: usize = 10_000;

type Asked = BoxFuture<'static, Result<(), Problem>>;

#[derive(Debug)]
pub(crate) struct Checks {
    client: Client,
    on: bool,
    /// Another proxy stood before the upstream until a grant with this token: what was shown
    /// before may have been overtaken there, and the fence here does not know.
    suspect_below: AtomicU64,
    /// Of these, those that were asked about since then and are good, by their resources.
    good: Mutex<HashMap<String, u64>>,
    /// Until then another proxy may still let newer tokens through, and no answer stays good.
    distrust_until: Mutex<Option<Instant>>,
    places: Arc<Semaphore>,
    /// Those who ask the same at the same time share one answer.
    asked: Mutex<HashMap<Shown, WeakShared<Asked>>>,
    metrics: Arc<Metrics>,
    /// How long a question may wait for its turn, and then for its answer.
    within: Duration,
}

impl Checks {
    pub(crate) fn new(client: &Client, on: bool, limits: &Limits, metrics: &Arc<Metrics>) -> Self {
        Self {
            client: client.with_budget(limits.check_timeout),
            on,
            suspect_below: AtomicU64::new(0),
            good: Mutex::default(),
            distrust_until: Mutex::new(None),
            places: Arc::new(Semaphore::new(limits.checks_max)),
            within: limits.check_timeout,
            asked: Mutex::default(),
            metrics: Arc::clone(metrics),
        }
    }

    /// Trusts no token below this one before the service was asked about it once, whatever the
    /// fence knows.
    pub(crate) fn suspect_below(&self, token: u64) {
        let mut good = self.good.lock();
        if self.suspect_below.fetch_max(token, Ordering::AcqRel) < token {
            good.clear();
        }
    }

    /// Asks about every token that is shown within this time, and once more after it.
    pub(crate) fn distrust_for(&self, span: Duration) {
        let mut until = self.distrust_until.lock();
        // What was asked just before is answered within two more.
        *until = (*until).max(Instant::now().checked_add(span + 2 * self.within));
    }

    /// Whether the service has to be asked before this goes on, although the fence let it through.
    pub(crate) fn is_suspect(&self, shown: &Shown) -> bool {
        let below = self.suspect_below.load(Ordering::Acquire);
        let is_good = || self.good.lock().get(&shown.resource) == Some(&shown.token);
        self.on && shown.token < below && !is_good()
    }

    fn distrusts(&self) -> bool {
        self.distrust_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Keeps in mind what the service said, as far as it stays true.
    fn remember(&self, shown: &Shown, asked_below: u64) {
        let mut good = self.good.lock();
        // Raised meanwhile: the answer may be older than what raised it.
        if shown.token < asked_below && self.suspect_below.load(Ordering::Acquire) == asked_below {
            if good.len() >= GOOD_MAX {
                good.clear();
            }
            good.insert(shown.resource.clone(), shown.token);
        }
    }

    /// Whether the service is asked at all.
    pub(crate) fn are_on(&self) -> bool {
        self.on
    }

    /// Whether the service has to be asked before this is let through. `highest` is what the
    /// fence has seen.
    pub(crate) fn is_new(&self, shown: &Shown, highest: Option<u64>) -> bool {
        let unseen = highest.is_none_or(|highest| shown.token > highest);
        self.on && (unseen || self.distrusts() || self.is_suspect(shown))
    }

    /// Good only if it is the highest token of its resource that the service has issued.
    pub(crate) async fn check(&self, shown: &Shown) -> Result<(), Problem> {
        if self.distrusts() {
            self.suspect_below(shown.token.saturating_add(1));
        }
        let trusted = !self.distrusts();
        let below = self.suspect_below.load(Ordering::Acquire);
        let asked = self.ask(shown);
        let verdict = asked.await;
        if trusted && verdict.is_ok() {
            self.remember(shown, below);
        }
        let mut all = self.asked.lock();
        if all
            .get(shown)
            .is_some_and(|asked| asked.upgrade().is_none_or(|asked| asked.peek().is_some()))
        {
            all.remove(shown);
        }
        verdict
    }

    fn ask(&self, shown: &Shown) -> Shared<Asked> {
        let mut all = self.asked.lock();
        if let Some(asked) = all.get(shown).and_then(WeakShared::upgrade)
            && asked.peek().is_none()
        {
            return asked;
        }
        // Those whose askers went away before the answer came.
        all.retain(|_, asked| asked.upgrade().is_some());
        let question = ask(
            self.client.clone(),
            Arc::clone(&self.places),
            self.within,
            shown.clone(),
            Arc::clone(&self.metrics),
        );
        let asked = question.boxed().shared();
        if let Some(weak) = asked.downgrade() {
            all.insert(shown.clone(), weak);
        }
        asked
    }
}

async fn ask(
    client: Client,
    places: Arc<Semaphore>,
    within: Duration,
    shown: Shown,
    metrics: Arc<Metrics>,
) -> Result<(), Problem> {
    // Never closed, so it is late or there.
    let verdict = match timeout(within, places.acquire_owned()).await {
        Err(_) => {
            let why = format!("too many others were asked about for {} ms", within.as_millis());
            Err(unavailable(&shown, &why).retry_after(AGAIN))
        }
        Ok(_place) => {
            let _asking = metrics.asking();
            match client.fence_check(&shown.resource, shown.token).await {
                Ok(checked) => judge(&shown, checked.highest_token),
                Err(error) => Err(unavailable(&shown, &error.to_string())
                    .retry_after(error.retry_after().unwrap_or(AGAIN))),
            }
        }
    };
    metrics.checked(verdict.as_ref().err().map(|problem| problem.code));
    verdict
}

fn unavailable(shown: &Shown, why: &str) -> Problem {
    let detail =
        format!("the service could not be asked about the token, and nothing was written: {why}");
    Problem::about(Code::CheckUnavailable, &shown.resource, shown.token, detail)
}

fn judge(shown: &Shown, highest: Option<u64>) -> Result<(), Problem> {
    match highest {
        Some(highest) if shown.token == highest => Ok(()),
        Some(highest) if shown.token < highest => {
            Err(Problem::stale(&shown.resource, shown.token, highest))
        }
        highest => {
            let (resource, token) = (&shown.resource, shown.token);
            let detail = match highest {
                Some(_) => format!("no exclusive grant of {resource} with token {token} is known"),
                None => format!(
                    "the service does not know token {token} to be the newest of {resource}: it \
                     gave out none with it, or may have lost a newer one, as by a restore"
                ),
            };
            let problem = Problem::about(Code::UnknownToken, &shown.resource, shown.token, detail);
            Err(Problem { highest_token: highest, ..problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use leasehold_client::wire::FenceChecked;
    use leasehold_client_fake::{Fake, Reply};

    #[test]
    fn only_the_highest_that_was_issued_is_good() {
        let shown = Shown { resource: "a".to_owned(), token: 34 };
        let judged = |highest| judge(&shown, highest).map_err(|problem| problem.code);
        assert_eq!(judged(Some(34)), Ok(()));
        assert_eq!(judged(Some(35)), Err(Code::StaleToken));
        assert_eq!(judged(Some(33)), Err(Code::UnknownToken));
        assert_eq!(judged(None), Err(Code::UnknownToken));
    }

    #[tokio::test]
    async fn those_who_ask_the_same_at_the_same_time_share_one_answer() {
        let service = Fake::start(|_| {
            let checked = FenceChecked { current: true, highest_token: Some(34) };
            Reply::json(200, &checked)
        });
        let service = service.await.expect("a port");
        let client = Client::new(service.url()).expect("a client");
        let limits = Limits::default();
        let metrics = Metrics::new(&limits).expect("metrics");
        let checks = Checks::new(&client, true, &limits, &metrics);
        let shown = |token| Shown { resource: "a".to_owned(), token };
        let (good, stale) = (shown(34), shown(33));
        let asked = (0..50).map(|_| checks.check(&good)).collect::<Vec<_>>();
        assert!(join_all(asked).await.iter().all(Result::is_ok));
        assert_eq!(service.received().len(), 1);
        assert_eq!(
            checks.check(&stale).await.map_err(|problem| problem.code),
            Err(Code::StaleToken)
        );
        assert!(checks.asked.lock().is_empty());
        // Nobody was told to remember the answer: that is for the fence.
        assert!(checks.check(&good).await.is_ok());
        assert_eq!(service.received().len(), 3);
    }

    #[test]
    fn what_another_directory_let_through_is_not_trusted() {
        let client = Client::new("http://127.0.0.1:1").expect("a client");
        let limits = Limits::default();
        let metrics = Metrics::new(&limits).expect("metrics");
        let checks = Checks::new(&client, true, &limits, &metrics);
        let shown = Shown { resource: "a".to_owned(), token: 34 };
        assert!(checks.is_new(&shown, None) && checks.is_new(&shown, Some(33)));
        assert!(!checks.is_new(&shown, Some(34)));
        checks.suspect_below(35);
        assert!(checks.is_new(&shown, Some(34)));
        checks.suspect_below(2);
        assert!(checks.is_new(&shown, Some(34)), "it never goes down");
    }

    async fn checks() -> (Fake, Checks) {
        let service = Fake::start(|_| {
            let checked = FenceChecked { current: true, highest_token: Some(34) };
            Reply::json(200, &checked)
        });
        let service = service.await.expect("a port");
        let client = Client::new(service.url()).expect("a client");
        let limits = Limits { check_timeout: Duration::from_secs(60), ..Limits::default() };
        let metrics = Metrics::new(&limits).expect("metrics");
        (service, Checks::new(&client, true, &limits, &metrics))
    }

    #[tokio::test]
    async fn a_token_from_before_is_asked_about_once() {
        let (_service, checks) = checks().await;
        let shown = |resource: &str, token| Shown { resource: resource.to_owned(), token };
        checks.suspect_below(100);
        let (good, stale) = (shown("a", 34), shown("b", 33));
        assert!(checks.is_new(&good, Some(34)) && checks.is_suspect(&good));
        assert!(checks.check(&good).await.is_ok() && checks.check(&stale).await.is_err());
        assert!(!checks.is_new(&good, Some(34)) && !checks.is_suspect(&good));
        // Not another one of the resource, nor one that is not good.
        assert!(checks.is_suspect(&shown("a", 33)) && checks.is_suspect(&stale));
        checks.suspect_below(100);
        assert!(!checks.is_suspect(&good));
        checks.suspect_below(101);
        assert!(checks.is_suspect(&good), "somebody else has been here since");
    }

    #[tokio::test]
    async fn no_answer_stays_good_while_another_proxy_may_go_on() {
        let (_service, checks) = checks().await;
        let shown = Shown { resource: "a".to_owned(), token: 34 };
        checks.distrust_for(Duration::ZERO);
        for _ in 0..2 {
            assert!(checks.is_new(&shown, Some(34)));
            assert!(checks.check(&shown).await.is_ok());
            assert!(checks.is_suspect(&shown), "it is asked about again before it goes on");
        }
    }
}
