//! Waiting for something that announces itself by no event a test could block on.

use std::time::{Duration, Instant};

/// Asks until the answer is there. Panics with `what` when it is not there in time, so that a hang
/// shows up as a sentence and not as a killed runner.
pub fn within<T>(patience: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `within` for a condition and with a patience that no healthy machine exhausts.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    within(Duration::from_secs(20), what, || holds().then_some(()));
}
