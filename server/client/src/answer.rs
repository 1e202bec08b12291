//! An answer, with what stands beside it.

use crate::clock::BootInstant;
use std::ops::Deref;

/// What the service answered. Reads like the shape itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The shape of the answer.
    pub value: T,
    /// When the request was sent that this is the answer to: what `valid_for_ms` counts from.
    pub sent: BootInstant,
    /// The revision that a linearizable answer saw: watch from it to miss nothing.
    pub revision: Option<String>,
    /// How old a stale answer is, in milliseconds, if the server can tell.
    pub age_ms: Option<u64>,
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Answer<T> {
    /// The same answer with another shape.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            value: change(self.value),
            sent: self.sent,
            revision: self.revision,
            age_ms: self.age_ms,
        }
    }
}
