//! What a fence keeps of a resource, and how it may change: pure.
//!
//! | | |
//! | --- | --- |
//! | `token` | T_max |
//! | `used` | the newest token that wrote under [`Usage::Once`](super::Usage::Once) |
//! | `cleared` | the newest token before which no write of an older one can be in flight |
//!
//! `cleared` is what makes a crash safe. A token is recorded when it arrives and waits for older
//! writes afterwards; without it a restart would find T_max = 35 and let 35 pass, although it had
//! never been its turn.

use super::Refused;

/// The largest integer that every JSON reader gets right: the bound of tokens.
pub(super) const TOKEN_MAX: u64 = (1 << 53) - 1;

/// The longest resource, in bytes of UTF-8.
const RESOURCE_BYTES_MAX: usize = 512;

/// What is kept of one resource. All zero: nothing was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) token: u64,
    pub(super) used: u64,
    pub(super) cleared: u64,
}

/// A change that is durable before anything is let through because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) token: u64,
    /// No older write is in flight.
    pub(super) clear: bool,
    /// It is the one write of this token.
    pub(super) use_up: bool,
}

/// Why a change was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum No {
    Stale { highest: u64 },
    Used { highest: u64 },
}

impl Row {
    /// Of a resource without a row of its own. A row that was folded is not told from one that
    /// never was, so whatever is at the floor counts as used, and as not cleared.
    pub(super) const fn at_floor(floor: u64) -> Self {
        Self { token: floor, used: floor, cleared: 0 }
    }

    /// T_max, if any token was seen.
    pub(super) const fn highest(self) -> Option<u64> {
        if self.token == 0 { None } else { Some(self.token) }
    }

    /// The row after a change.
    pub(super) fn changed(self, change: Change) -> Result<Self, No> {
        let Change { token, clear, use_up } = change;
        if token < self.token {
            return Err(No::Stale { highest: self.token });
        }
        if use_up && token <= self.used {
            return Err(No::Used { highest: self.token });
        }
        Ok(Self {
            token,
            used: if use_up { token } else { self.used },
            cleared: if clear { token } else { self.cleared },
        })
    }

    /// What is known when two readings of one row meet in any order.
    pub(super) fn merged(self, other: Self) -> Self {
        Self {
            token: self.token.max(other.token),
            used: self.used.max(other.used),
            cleared: self.cleared.max(other.cleared),
        }
    }
}

impl No {
    pub(super) fn refused(self, resource: &str, token: u64) -> Refused {
        let resource = resource.to_owned();
        match self {
            Self::Stale { highest } => Refused::Stale { resource, token, highest },
            Self::Used { highest } => Refused::Used { resource, token, highest },
        }
    }
}

/// Checks a resource as the service does.
pub(super) fn check_resource(resource: &str) -> Result<(), Refused> {
    let detail = if resource.is_empty() {
        "the resource must not be empty".to_owned()
    } else if resource.len() > RESOURCE_BYTES_MAX {
        format!("the resource must have at most {RESOURCE_BYTES_MAX} bytes of UTF-8")
    } else if resource.chars().any(char::is_control) {
        "the resource must not contain control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(Refused::Invalid { detail })
}

/// Checks what a call names.
pub(super) fn check(resource: &str, token: u64) -> Result<(), Refused> {
    check_resource(resource)?;
    if (1..=TOKEN_MAX).contains(&token) {
        return Ok(());
    }
    let detail = format!("the token must be from 1 to {TOKEN_MAX}, and {token} is not");
    Err(Refused::Invalid { detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAISE: Change = Change { token: 34, clear: false, use_up: false };

    #[test]
    fn a_token_is_stale_below_t_max_only() {
        let row = Row { token: 34, used: 0, cleared: 34 };
        assert_eq!(row.changed(Change { token: 33, ..RAISE }), Err(No::Stale { highest: 34 }));
        assert_eq!(row.changed(RAISE), Ok(row));
        assert_eq!(row.changed(Change { token: 35, ..RAISE }), Ok(Row { token: 35, ..row }));
    }

    #[test]
    fn a_token_is_used_once() {
        let once = Change { use_up: true, ..RAISE };
        let row = Row::default().changed(once).expect("new");
        assert_eq!(row.changed(once), Err(No::Used { highest: 34 }));
        assert_eq!(row.changed(RAISE), Ok(row), "many writes are not stopped by one");
        assert!(row.changed(Change { token: 35, ..once }).is_ok());
    }

    #[test]
    fn at_the_floor_the_same_token_writes_on_and_a_strict_one_does_not() {
        let row = Row::at_floor(34);
        assert!(row.changed(RAISE).is_ok());
        assert!(row.changed(Change { use_up: true, ..RAISE }).is_err());
        assert!(row.changed(Change { token: 33, ..RAISE }).is_err());
        assert_eq!((Row::at_floor(0).highest(), row.highest()), (None, Some(34)));
    }

    #[test]
    fn what_no_service_issued_is_refused() {
        for token in [0, TOKEN_MAX + 1, u64::MAX] {
            assert_eq!(check("a", token).expect_err("no token").code(), "invalid_request");
        }
        for resource in ["", "a\nb", "\u{85}", &"x".repeat(513)] {
            assert_eq!(check(resource, 1).expect_err("no name").code(), "invalid_request");
        }
        check(&"x".repeat(512), 1).expect("legal");
        check("é/ 🔒", TOKEN_MAX).expect("legal");
    }
}
