//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as this process may, since systems start processes with a low one that
/// is meant for others. Answers what it is now; nothing if there is none.
///
/// Whoever serves connections calls it once, before the first of them.
pub fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        assert_eq!(raise_limit(), getrlimit(Resource::Nofile).maximum);
        assert_eq!(raise_limit(), getrlimit(Resource::Nofile).current);
    }
}
