//! The paused worker, told from the lock to the store, as the README shows it.
