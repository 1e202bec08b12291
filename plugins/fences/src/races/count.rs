//! What came of the rounds of a race.

use std::ops::AddAssign;

/// Figures of one race; they add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) rounds: u64,
    pub(crate) writes: u64,
    pub(crate) refused: u64,
    /// Transactions that the store wanted once more.
    pub(crate) retries: u64,
    /// Stale writes that were accepted, and accepted writes that are gone.
    pub(crate) through: u64,
    /// Stale writes that were accepted after a newer holder's write: nothing compares the token.
    pub(crate) unchecked: u64,
    /// Writes of the holder itself that were refused.
    pub(crate) denied: u64,
    /// Crossings between two widths of tokens that went wrong.
    pub(crate) wrong: u64,
    /// The older and the newer token of the first of them.
    pub(crate) crossing: Option<(u64, u64)>,
    /// How a refusal looks.
    pub(crate) refusal: Option<String>,
}

impl Count {
    /// Counts a write, and passes on whether it was accepted.
    pub(crate) fn writes(&mut self, accepted: bool) -> bool {
        self.writes += 1;
        self.refused += u64::from(!accepted);
        accepted
    }

    /// Counts what is missing when `accepted` writes of one each made `before` into `after`.
    pub(crate) fn balance(&mut self, accepted: u64, before: i64, after: i64) {
        let missing = i64::try_from(accepted).unwrap_or(i64::MAX) - (after - before);
        self.through += missing.unsigned_abs();
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.writes += other.writes;
        self.refused += other.refused;
        self.retries += other.retries;
        self.through += other.through;
        self.unchecked += other.unchecked;
        self.denied += other.denied;
        self.wrong += other.wrong;
        if self.crossing.is_none() {
            self.crossing = other.crossing;
            // The refusal that goes with it.
            self.refusal = other.refusal.or(self.refusal.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_in_either_direction_got_through() {
        let lost = |accepted, before, after| {
            let mut count = Count::default();
            count.balance(accepted, before, after);
            count.through
        };
        assert_eq!(lost(3, 10, 13), 0);
        assert_eq!(lost(3, 10, 11), 2);
        assert_eq!(lost(0, 10, 11), 1, "a refused write that took effect is one as well");
    }
}
