//! Names that clients choose, each checked once when it enters.
//!
//! A value of one of these types is the proof that its text was checked, so nothing behind the
//! rim looks again. The text is shared (`Arc`), because one name stands in a lock, its grant,
//! its events and its history at the same time.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// The text has no bytes at all.
    Empty,
    /// The text has more bytes than the kind of name allows.
    TooLong {
        /// The largest length, in bytes of UTF-8.
        max_bytes: usize,
    },
    /// The text has a control character (C0, DEL or C1).
    ControlCharacter {
        /// Where it starts, in bytes from the start.
        at_byte: usize,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "must not be empty"),
            Self::TooLong { max_bytes } => {
                write!(f, "must have at most {max_bytes} bytes of UTF-8")
            }
            Self::ControlCharacter { at_byte } => {
                write!(f, "must not contain control characters (one is at byte {at_byte})")
            }
        }
    }
}

impl std::error::Error for NameError {}

fn checked(text: &str, max_bytes: usize) -> Result<Arc<str>, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > max_bytes {
        return Err(NameError::TooLong { max_bytes });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at_byte, _)) => Err(NameError::ControlCharacter { at_byte }),
        None => Ok(Arc::from(text)),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest name of this kind, in bytes of UTF-8.
            pub const MAX_BYTES: usize = $max;

            /// Checks a text once.
            ///
            /// # Errors
            /// [`NameError`] says what is wrong with the text.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                checked(text, Self::MAX_BYTES).map(Self)
            }

            /// The text, exactly as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// What is locked, e.g. `payments/invoice/42`. Compared byte by byte; a slash is content.
    ResourceName, 512
}
name! {
    /// The label a client gives itself.
    ClientId, 256
}
name! {
    /// Who the service knows the client to be, from its credential.
    Principal, 256
}
name! {
    /// What makes a request safe to repeat.
    RequestId, 128
}

/// So that a sorted map of names can be entered at any text.
impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The domain of resources without a slash, or with nothing before it.
pub const DEFAULT_DOMAIN: &str = "default";

impl ResourceName {
    /// The unit of isolation: what stands before the first slash.
    #[must_use]
    pub fn domain(&self) -> &str {
        match self.0.split_once('/') {
            Some((domain, _)) if !domain.is_empty() => domain,
            _ => DEFAULT_DOMAIN,
        }
    }
}

/// Whom a lease belongs to: the same label under two principals is two owners.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Who the service knows the client to be.
    pub principal: Principal,
    /// The label the client gave itself.
    pub client: ClientId,
}

impl Owner {
    /// Sorts before every owner with this label, since no principal is empty. Only for looking
    /// where they begin.
    pub(crate) fn first_of(client: &ClientId) -> Self {
        Self { principal: Principal(Arc::from("")), client: client.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_bytes_and_nothing_is_interpreted() {
        for text in ["a", "a/../b", "%2F", "//", "é", "e\u{301}", "\u{a0}", "🔒", " "] {
            assert_eq!(ResourceName::parse(text).expect("legal name").as_str(), text);
        }
    }

    #[test]
    fn the_domain_is_what_stands_before_the_first_slash() {
        for (name, domain) in [
            ("a/b/c", "a"),
            ("a", "default"),
            ("/a", "default"),
            ("a/", "a"),
            ("default/x", "default"),
        ] {
            assert_eq!(ResourceName::parse(name).expect("legal name").domain(), domain);
        }
    }

    #[test]
    fn the_error_says_what_is_wrong() {
        assert_eq!(ResourceName::parse(""), Err(NameError::Empty));
        assert_eq!(
            ResourceName::parse(&"x".repeat(513)),
            Err(NameError::TooLong { max_bytes: 512 })
        );
        for (text, at_byte) in [("a\0", 1), ("\u{7f}", 0), ("é\n", 2), ("\u{85}", 0)] {
            assert_eq!(ResourceName::parse(text), Err(NameError::ControlCharacter { at_byte }));
        }
        assert!(ResourceName::parse(&"x".repeat(512)).is_ok());
    }
}
