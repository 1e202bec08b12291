//! Tokens around the numbers at which storage that keeps them in too small a place goes wrong.

use super::count::Count;
use super::lane::{Lane, holder, own};
use super::store::Session;
use super::turn::{read, seal, write};
use crate::error::Error;

/// An older token and the newer one after it, the lowest first:
///
/// - one digit more, which text compares the wrong way round: `"9" > "10"`;
/// - past a smallint, an integer, and an unsigned one of 32 bits;
/// - past 2^24, from where a real has no odd numbers;
/// - next to 2^53, where all that prints fewer than sixteen digits prints the same. A hundred are
///   left above for whoever cleans up with a token.
const CROSSINGS: [(u64, u64); 21] = [
    (9, 10),
    (99, 100),
    (999, 1_000),
    (9_999, 10_000),
    (32_767, 32_768),
    (65_535, 65_536),
    (99_999, 100_000),
    (999_999, 1_000_000),
    (9_999_999, 10_000_000),
    (16_777_216, 16_777_217),
    (99_999_999, 100_000_000),
    (999_999_999, 1_000_000_000),
    (2_147_483_647, 2_147_483_648),
    (4_294_967_295, 4_294_967_296),
    (9_999_999_999, 10_000_000_000),
    (99_999_999_999, 100_000_000_000),
    (999_999_999_999, 1_000_000_000_000),
    (9_999_999_999_999, 10_000_000_000_000),
    (99_999_999_999_999, 100_000_000_000_000),
    (999_999_999_999_999, 1_000_000_000_000_000),
    (9_007_199_254_740_890, 9_007_199_254_740_891),
];

/// A resource that takes tokens of every width. It is worn out afterwards, as no token is left
/// above: so never one that somebody has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) resource: String,
    /// The highest token that was given out.
    pub(crate) token: u64,
    crossings: &'static [(u64, u64)],
}

impl Walk {
    /// Tokens above `token` alone.
    pub(crate) fn new(resource: String, token: u64) -> Self {
        let below = CROSSINGS.partition_point(|&(older, _)| older <= token);
        Self { resource, token, crossings: CROSSINGS.split_at(below).1 }
    }

    /// How many rounds it takes.
    pub(crate) fn rounds(&self) -> u64 {
        self.crossings.len() as u64
    }
}

impl<S: Session> Lane<S> {
    /// The older holder has the lower token of a crossing and is paused. The newer one has the
    /// higher, seals, reads and writes; then the older one wakes up and writes.
    pub(super) async fn widths(&mut self, number: u64, count: &mut Count) -> Result<(), Error> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(&(t, u)) = self.walk.crossings.get(at) else { return Ok(()) };
        self.walk.token = u;
        let (old, new) = (holder(&self.walk.resource, t), holder(&self.walk.resource, u));
        let first = number == 0;
        let sealed = seal(&mut self.older, old, count).await;
        own(bearable(sealed, first, &mut self.older, count).await?, count);
        let before = read(&mut self.older, old, count).await?;
        let sealed = seal(&mut self.newer, new, count).await;
        own(bearable(sealed, first, &mut self.newer, count).await?, count);
        let seen = read(&mut self.newer, new, count).await?;
        let written = write(&mut self.newer, new, seen + 1, count).await;
        let accepted = own(bearable(written, first, &mut self.newer, count).await?, count);
        let written = write(&mut self.older, old, before + 1, count).await;
        let stale = bearable(written, first, &mut self.older, count).await?;
        let after = read(&mut self.newer, new, count).await?;
        count.balance(accepted, before, after);
        count.through = u64::from(stale).max(count.through);
        if count.denied > 0 || count.through > 0 {
            count.wrong = 1;
            count.crossing = Some((t, u));
        }
        Ok(())
    }
}

/// What the store does not take after it took a smaller token, it does not take for the token's
/// size: an integer that is out of range is no fault of the statement.
async fn bearable(
    outcome: Result<bool, Error>,
    first: bool,
    session: &mut impl Session,
    count: &mut Count,
) -> Result<bool, Error> {
    match outcome {
        Err(Error::Refused(why)) if !first => {
            session.abandon().await?;
            count.refusal.get_or_insert(why);
            Ok(false)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossings_rise_and_leave_tokens_above() {
        let mut highest = 0;
        for (older, newer) in CROSSINGS {
            assert!(highest < older && older < newer, "{older} {newer}");
            highest = newer;
        }
        assert!(highest + 100 < 1 << 53);
        for digits in 1..=15 {
            let wider = 10_u64.pow(digits);
            assert!(CROSSINGS.contains(&(wider - 1, wider)), "{wider}");
        }
        for bits in [15, 16, 31, 32] {
            assert!(CROSSINGS.contains(&((1 << bits) - 1, 1 << bits)), "2^{bits}");
        }
    }

    #[test]
    fn a_walk_begins_above_what_was_seen() {
        let rounds = |token| Walk::new("a".to_owned(), token).rounds();
        assert_eq!(rounds(0), CROSSINGS.len() as u64);
        assert_eq!(rounds(9), rounds(0) - 1);
        assert_eq!(rounds(1 << 53), 0);
        assert_eq!(Walk::default().rounds(), 0);
    }
}
