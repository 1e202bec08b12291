//! The rules between those who held one resource, by the instants of the clients themselves.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Window;

/// In token order, each window must be over before a later conflicting one begins. That says two
/// things at once: no two hold together, and tokens rise in the order in which clients held.
pub(super) fn judge(resource: &str, tokens: &BTreeMap<u64, Window>) -> Vec<String> {
    let mut found = Vec::new();
    let mut exclusive_end: Option<(u64, Instant)> = None;
    let mut any_end: Option<(u64, Instant)> = None;
    let mut asked_after: Option<(u64, Instant)> = None;
    for (&token, window) in tokens {
        let bound = if window.exclusive { any_end } else { exclusive_end };
        if let Some((earlier, end)) = bound
            && end > window.from
            && window.until > window.from
        {
            let overlap = end.min(window.until) - window.from;
            found.push(format!("{resource}: {earlier} and {token} overlap by {overlap:?}"));
        }
        // A grant asked for after another one was read is the later one, so its token is higher.
        if let Some((earlier, asked)) = asked_after
            && asked > window.from
        {
            found.push(format!("{resource}: {earlier} was asked for after {token} was read"));
        }
        if window.until > window.from {
            any_end = later(any_end, token, window.until);
            if window.exclusive {
                exclusive_end = later(exclusive_end, token, window.until);
            }
        }
        asked_after = later(asked_after, token, window.asked);
    }
    found
}

fn later(known: Option<(u64, Instant)>, token: u64, at: Instant) -> Option<(u64, Instant)> {
    known.filter(|(_, known)| *known >= at).or(Some((token, at)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::History;
    use super::super::tests::grant;
    use super::*;

    #[test]
    fn a_history_in_which_each_holder_ends_before_the_next_is_sound() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 1, start, 100));
        history.granted("b", &grant("r", 2, start + Duration::from_millis(100), 100));
        history.granted("c", &grant("s", 3, start, 100));
        assert_eq!(history.breaches(), []);
    }

    #[test]
    fn two_holders_at_once_are_a_breach() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 1, start, 100));
        history.granted("b", &grant("r", 2, start + Duration::from_millis(50), 100));
        assert_eq!(history.breaches().len(), 1);
    }

    #[test]
    fn readers_share_and_a_writer_among_them_is_a_breach() {
        let start = Instant::now();
        let history = History::default();
        let shared = |token| {
            let mut answer = grant("r", token, start, 100);
            let mut body = answer.json();
            body["mode"] = "shared".into();
            (answer.body, answer.headers) = (body.to_string().into_bytes(), Vec::new());
            answer
        };
        history.granted("a", &shared(1));
        history.granted("b", &shared(2));
        assert_eq!(history.breaches(), []);
        history.granted("c", &grant("r", 3, start + Duration::from_millis(50), 100));
        assert_eq!(history.breaches().len(), 1);
    }

    #[test]
    fn a_token_issued_twice_is_a_breach() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 1, start, 10));
        history.granted("b", &grant("r", 1, start + Duration::from_millis(50), 10));
        history.granted("c", &grant("s", 1, start, 10));
        assert_eq!(history.breaches().len(), 2);
    }

    #[test]
    fn a_token_lower_than_one_read_before_it_was_asked_for_is_a_breach() {
        let start = Instant::now();
        let history = History::default();
        history.granted("a", &grant("r", 2, start, 10));
        history.granted("b", &grant("r", 1, start + Duration::from_millis(50), 10));
        // Out of order in tokens, and for the same reason overlapping in token order.
        assert!(!history.breaches().is_empty());
    }

    /// The answer that was lost counts: a repeat asks again for what was asked for long ago.
    #[test]
    fn a_repeat_counts_from_the_first_time_it_was_asked() {
        let history = History::default();
        history.asking("a", "1");
        let start = Instant::now() + Duration::from_millis(1);
        history.granted("b", &grant("r", 2, start, 10));
        history.answered("a", "1", &grant("r", 1, start + Duration::from_millis(50), 0));
        assert_eq!(history.breaches(), []);
    }
}
