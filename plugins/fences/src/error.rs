//! What goes wrong on the way to a store, and in it.

/// Why something could not be done with a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense: an address, a statement, a certificate file.
    #[error("{0}")]
    Usage(String),
    /// The store cannot be reached, or went away.
    #[error("{0}")]
    Unreachable(String),
    /// The store answered, and does not do it.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// A word that stays the same, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Unreachable(_) => "store_unavailable",
            Self::Refused(_) => "store_refused",
        }
    }

    /// The same error, with what was being done in front.
    #[must_use]
    pub(crate) fn during(self, what: &str) -> Self {
        match self {
            Self::Usage(why) => Self::Usage(format!("{what}: {why}")),
            Self::Unreachable(why) => Self::Unreachable(format!("{what}: {why}")),
            Self::Refused(why) => Self::Refused(format!("{what}: {why}")),
        }
    }
}

/// An error with its causes, as one line: the outermost alone often says only that there was one.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        cause = inner.source();
    }
    told
}
