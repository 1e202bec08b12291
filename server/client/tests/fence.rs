//! What both fences promise, and what it is worth when writers race.

#![allow(clippy::print_stdout, reason = "counts are part of what is shown")]

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_client::fence::{Fence, MemoryFence, Options, Pass, Refused, Usage};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const R: &str = "invoice/42";

fn impatient() -> Options {
    Options::new().wait_max(Duration::ZERO)
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Refused>) -> &'static str {
    outcome.expect_err("refused").code()
}

#[tokio::test]
async fn a_stale_token_is_refused_and_an_equal_one_passes_side_by_side() {
    let fence = MemoryFence::with_options(impatient());
    let passes = join_all((0..1000).map(|_| fence.admit(R, 34, Usage::Many))).await;
    let passes: Vec<Pass> = passes.into_iter().map(|pass| pass.expect("equal")).collect();
    assert_eq!((fence.stats().in_flight, fence.stats().passes), (1000, 1000));
    assert_eq!((passes[0].resource(), passes[0].token()), (R, 34));
    let stale = fence.admit(R, 33, Usage::Many).await.expect_err("stale");
    assert!(matches!(&stale, Refused::Stale { resource, token: 33, highest: 34 } if resource == R));
    assert_eq!(code(fence.seal(R, 33).await), "stale_token");
    assert_eq!(fence.highest(R).await.expect("read"), Some(34));
    assert_eq!(fence.highest("other").await.expect("read"), None);
    drop(passes);
    assert_eq!((fence.stats().in_flight, fence.stats().resources_busy), (0, 0));
    assert_eq!(fence.stats().stale, 2);
}

#[tokio::test]
async fn a_seal_answers_t_max_as_it_was() {
    let fence = MemoryFence::new();
    assert_eq!(fence.seal(R, 33).await.expect("new"), None);
    assert_eq!(fence.seal(R, 33).await.expect("equal"), Some(33));
    assert_eq!(fence.seal(R, 34).await.expect("newer"), Some(33));
    assert_eq!(code(fence.admit(R, 33, Usage::Many).await), "stale_token");
    assert_eq!(code(fence.admit("", 33, Usage::Many).await), "invalid_request");
    assert_eq!(code(fence.admit(R, 0, Usage::Many).await), "invalid_request");
    assert_eq!(code(fence.highest("a\nb").await), "invalid_request");
}

#[tokio::test]
async fn a_newer_token_waits_for_older_writes_and_is_overtaken_while_it_waits() {
    let fence = MemoryFence::new();
    let first = fence.admit(R, 34, Usage::Many).await.expect("new");
    let mut second = Box::pin(fence.admit(R, 35, Usage::Many));
    assert!((&mut second).now_or_never().is_none(), "34 is in flight");
    // It is recorded: the older one is refused at once, and cannot starve it.
    assert_eq!(code(fence.admit(R, 34, Usage::Many).await), "stale_token");
    let mut third = Box::pin(fence.admit(R, 36, Usage::Many));
    assert!((&mut third).now_or_never().is_none(), "34 is in flight");
    // 35 hears of 36 while 34 is still in flight.
    let refused = second.now_or_never().expect("decided");
    assert!(matches!(refused, Err(Refused::Stale { token: 35, highest: 36, .. })));
    assert_eq!(fence.stats().waiting, 1);
    drop(first);
    let pass = third.now_or_never().expect("nothing older").expect("the newest");
    assert_eq!(fence.stats().waiting, 0);
    drop(pass);
    assert_eq!(fence.stats().resources_busy, 0);
}

#[tokio::test]
async fn a_wait_that_is_dropped_leaves_its_token_and_nothing_else() {
    let fence = MemoryFence::new();
    let first = fence.admit(R, 34, Usage::Many).await.expect("new");
    for _ in 0..100 {
        let mut second = Box::pin(fence.admit(R, 35, Usage::Once));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(fence.stats().waiting, 1);
    }
    assert_eq!((fence.stats().waiting, fence.stats().in_flight), (0, 1));
    assert_eq!(fence.highest(R).await.expect("read"), Some(35));
    drop(first);
    assert_eq!(fence.stats().resources_busy, 0);
    drop(fence.admit(R, 35, Usage::Once).await.expect("not used by those that were dropped"));
}

#[tokio::test]
async fn what_waits_is_bounded_in_time_and_in_number() {
    let fence = MemoryFence::with_options(impatient());
    let pass = fence.admit(R, 34, Usage::Many).await.expect("new");
    let refused = fence.admit(R, 35, Usage::Many).await.expect_err("in flight");
    assert_eq!(refused.code(), "older_in_flight");
    assert!(refused.retry_after().expect("told") > Duration::ZERO);
    assert_eq!(fence.highest(R).await.expect("read"), Some(35));
    drop(pass);
    drop(fence.admit(R, 35, Usage::Many).await.expect("its turn"));
    assert_eq!(fence.stats().timed_out, 1);

    let fence = MemoryFence::with_options(Options::new().waiting_max(1));
    let pass = fence.admit(R, 34, Usage::Many).await.expect("new");
    let mut second = Box::pin(fence.seal(R, 35));
    assert!((&mut second).now_or_never().is_none());
    // What has nothing to wait for takes nobody's place.
    let other = fence.admit("other", 36, Usage::Many).await.expect("nothing older");
    assert_eq!((fence.stats().waiting, fence.stats().recording), (1, 0));
    assert_eq!(code(fence.admit("other", 37, Usage::Many).await), "fence_full");
    // Nor is it recorded, so that whoever is at work goes on.
    assert_eq!(fence.highest("other").await.expect("read"), Some(36));
    assert_eq!((fence.stats().full, fence.stats().waiting_max), (1, 1));
    drop((pass, other));
    assert_eq!(second.now_or_never().expect("decided").expect("sealed"), Some(34));
    drop(fence.admit("other", 37, Usage::Many).await.expect("room again"));

    let fence = MemoryFence::with_options(Options::new().recording_max(0));
    assert_eq!(code(fence.admit(R, 34, Usage::Many).await), "fence_full");
    assert_eq!((fence.stats().full, fence.stats().recording_max), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_strict_writes_with_one_token_one_passes() {
    let fence = MemoryFence::new();
    for token in 1..=200 {
        let calls = (0..8).map(|_| {
            let fence = fence.clone();
            tokio::spawn(async move { fence.admit(R, token, Usage::Once).await.map(drop) })
        });
        let outcomes: Vec<_> =
            join_all(calls).await.into_iter().map(|call| call.expect("ran")).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "token {token}");
        assert!(outcomes.into_iter().filter_map(Result::err).all(|e| e.code() == "token_used"));
    }
    assert_eq!(fence.stats().used, 1400);
}

#[tokio::test]
async fn the_lowest_tokens_are_folded_into_one_floor() {
    let fence = MemoryFence::with_options(Options::new().resources_max(3));
    for token in 1..=10 {
        fence.seal(&format!("r{token}"), token).await.expect("newer than all");
    }
    let stats = fence.stats();
    assert_eq!((stats.resources, stats.folded, stats.floor), (3, 7, 7));
    assert_eq!(fence.highest("r1").await.expect("read"), Some(7));
    assert_eq!(fence.highest("never seen").await.expect("read"), Some(7));
    assert_eq!(code(fence.admit("r6", 6, Usage::Many).await), "stale_token");
    assert_eq!(code(fence.admit("r7", 7, Usage::Once).await), "token_used");
    drop(fence.admit("r10", 10, Usage::Many).await.expect("kept apart"));
}

/// What a call does, on one of three resources.
#[derive(Debug, Clone)]
enum Act {
    Admit { resource: usize, token: u64, once: bool },
    Seal { resource: usize, token: u64 },
    Drop { pass: usize },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3usize, 1..12u64, any::<bool>())
            .prop_map(|(resource, token, once)| Act::Admit { resource, token, once }),
        1 => (0..3usize, 1..12u64).prop_map(|(resource, token)| Act::Seal { resource, token }),
        3 => (0..8usize).prop_map(|pass| Act::Drop { pass }),
    ]
}

/// The rule, said again in the plainest way.
#[derive(Debug, Default)]
struct Model {
    highest: HashMap<usize, u64>,
    used: HashMap<usize, u64>,
    flying: Vec<(usize, u64)>,
}

impl Model {
    fn call(&mut self, resource: usize, token: u64, once: bool) -> &'static str {
        let highest = self.highest.entry(resource).or_default();
        if token < *highest {
            return "stale_token";
        }
        if once && self.used.get(&resource).is_some_and(|used| *used >= token) {
            return "token_used";
        }
        *highest = token;
        if self.flying.iter().any(|(at, older)| *at == resource && *older < token) {
            return "older_in_flight";
        }
        if once {
            self.used.insert(resource, token);
        }
        "passed"
    }
}

async fn follow(fence: &impl Fence, acts: &[Act]) {
    let mut model = Model::default();
    let mut passes = Vec::new();
    for act in acts {
        match *act {
            Act::Admit { resource, token, once } => {
                let usage = if once { Usage::Once } else { Usage::Many };
                let outcome = fence.admit(&resource.to_string(), token, usage).await;
                let said = outcome.as_ref().map_or_else(Refused::code, |_| "passed");
                assert_eq!(said, model.call(resource, token, once), "{act:?}");
                if let Ok(pass) = outcome {
                    passes.push(pass);
                    model.flying.push((resource, token));
                }
            }
            Act::Seal { resource, token } => {
                let before = model.highest.get(&resource).copied().filter(|highest| *highest > 0);
                let expected = model.call(resource, token, false);
                let outcome = fence.seal(&resource.to_string(), token).await;
                let said = outcome.as_ref().map_or_else(Refused::code, |_| "passed");
                assert_eq!(said, expected, "{act:?}");
                assert!(outcome.is_err() || outcome.ok() == Some(before), "{act:?}");
            }
            Act::Drop { pass } if pass < passes.len() => {
                drop(passes.swap_remove(pass));
                model.flying.swap_remove(pass);
            }
            Act::Drop { .. } => {}
        }
        for (resource, highest) in &model.highest {
            let seen = fence.highest(&resource.to_string()).await.expect("read");
            assert_eq!(seen.unwrap_or_default(), *highest, "{act:?}");
        }
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

proptest! {
    #[test]
    fn it_does_what_the_plain_rule_says(acts in prop::collection::vec(act(), 1..80)) {
        block_on(async {
            let fence = MemoryFence::with_options(impatient());
            follow(&fence, &acts).await;
            let stats = fence.stats();
            assert_eq!((stats.in_flight, stats.resources_busy, stats.waiting), (0, 0, 0));
        });
    }
}

/// A counter that takes time to change: read, pause, write. Writers that overlap lose updates.
#[derive(Default)]
struct Counter {
    value: Mutex<u64>,
    /// In flight, by token: never two tokens at one time.
    writing: Mutex<Vec<u64>>,
}

/// Races holders, each with a newer token than the one before and none waiting for another: the
/// moment at which each lease ends is the worst for its holder. Answers the updates that were
/// accepted, and what the counter says.
async fn race<F: Fence + Clone + 'static>(fence: Option<F>, rounds: u64) -> (u64, u64) {
    let counter = Arc::new(Counter::default());
    let mut accepted = 0;
    for first in (1..=rounds).step_by(8) {
        let holders = (first..(first + 8).min(rounds + 1))
            .map(|token| tokio::spawn(hold(fence.clone(), Arc::clone(&counter), token)));
        for holder in join_all(holders).await {
            accepted += u64::from(holder.expect("ran"));
        }
    }
    let value = *counter.value.lock();
    (accepted, value)
}

/// Seals, reads, and writes what it read and one more; says whether the write was accepted.
async fn hold<F: Fence>(fence: Option<F>, counter: Arc<Counter>, token: u64) -> bool {
    if let Some(fence) = &fence
        && fence.seal(R, token).await.is_err()
    {
        return false;
    }
    let read = *counter.value.lock();
    tokio::task::yield_now().await;
    let pass = match &fence {
        None => None,
        Some(fence) => match fence.admit(R, token, Usage::Many).await {
            Ok(pass) => Some(pass),
            Err(_) => return false,
        },
    };
    {
        let mut writing = counter.writing.lock();
        writing.push(token);
        assert!(pass.is_none() || writing.iter().all(|other| *other == token), "{writing:?}");
    }
    // A write that is on its way while others decide.
    tokio::task::yield_now().await;
    *counter.value.lock() = read + 1;
    counter.writing.lock().retain(|other| *other != token);
    drop(pass);
    true
}

const ROUNDS: u64 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost_with_the_fence_and_many_are_without() {
    let (accepted, value) = race(Some(MemoryFence::new()), ROUNDS).await;
    let (free, left) = race(None::<MemoryFence>, ROUNDS).await;
    let report = format!(
        "{ROUNDS} rounds: with the fence {accepted} accepted, {} lost; without it {free} accepted, {} lost",
        accepted - value,
        free - left,
    );
    println!("{report}");
    assert_eq!(accepted, value, "{report}");
    assert!(accepted >= ROUNDS / 8, "the newest of each race gets through: {report}");
    assert!(free > left, "a race that cannot lose proves nothing: {report}");
}

#[cfg(feature = "redb")]
#[path = "fence/on_disk.rs"]
mod on_disk;
