//! Numbers that the service gives out.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The number of a grant. Strictly increasing, never issued twice, always below 2^53 so that
    /// every JSON reader sees its exact digits.
    ///
    /// Source: the sequencer of Chubby (Burrows 2006), "fencing token" after Kleppmann 2016.
    Token(u64)
}
number! {
    /// A place in a line. Increasing, so a smaller number arrived earlier.
    TicketId(u64)
}
number! {
    /// Counts the changes of the state, one a change.
    Revision(u64)
}

impl Token {
    /// No token reaches this: the largest integer that a JSON number keeps exactly is one less.
    pub const LIMIT: u64 = 1 << 53;
}

impl TicketId {
    /// No ticket reaches this, at a million a second for a hundred thousand years.
    pub const LIMIT: u64 = 1 << 62;
}

/// The name of a cluster: 128 random bits, made once by whoever founds or restores it. Two clusters
/// never share one, so nothing of one is taken for something of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The secret name of a lease: 128 random bits, made by whoever proposes the command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Debug output ends up in logs, where the whole id would let a reader act as its owner.
impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({:08x}..)", self.0 >> 96)
    }
}

impl LeaseId {
    /// Reads the 32 hexadecimal digits that [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits =
            text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}
