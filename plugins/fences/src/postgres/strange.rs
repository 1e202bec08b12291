//! What is on the tables of the kit and not of its making.
//!
//! It may run with the rights of whoever uses the kit, or reach the tokens past its calls. So no command
//! reads a table or makes a call before it has looked for it, in the catalog alone.

use super::connect::rows;
use super::scripts::STRANGE;
use crate::error::Error;
use crate::report::{Finding, Severity};
use tokio_postgres::Client;

/// One such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strange {
    what: String,
    undo: Option<String>,
    /// Whether installing makes anew what should be there.
    mended: bool,
}

impl Strange {
    fn told(&self) -> String {
        format!("{} is not of the kit's making", self.what)
    }

    fn advice(&self) -> String {
        let advice = "look at what is there, and set it right; what a newer kit has made, its own \
                      `leasehold fence` knows";
        match &self.undo {
            _ if self.mended => "run `leasehold fence install`, which makes it anew".to_owned(),
            Some(undo) => undo.clone(),
            None => advice.to_owned(),
        }
    }

    /// As status has it. Where the advice is SQL, it runs as it is.
    pub(super) fn finding(&self) -> Finding {
        Finding::new(Severity::Hole, "fence_strange", self.told(), self.advice())
    }

    /// As a command has it that would run it.
    fn refusal(&self) -> Error {
        let (told, advice) = (self.told(), self.advice());
        Error::Refused(format!("{told}, so nothing is read or called; {advice}"))
    }
}

/// All there is of it.
///
/// # Errors
/// When the database cannot be asked.
pub(super) async fn all(client: &Client) -> Result<Vec<Strange>, Error> {
    let found = rows(client, STRANGE).await?.into_iter().filter_map(|row| {
        let [what, undo, mended] = row.try_into().ok()?;
        Some(Strange { what: what?, undo, mended: mended.as_deref() == Some("t") })
    });
    Ok(found.collect())
}

/// Why the tables are not to be read, nor the calls made, if there is a reason.
///
/// # Errors
/// When the database cannot be asked.
pub(super) async fn refusal(client: &Client) -> Result<Option<Error>, Error> {
    Ok(all(client).await?.first().map(Strange::refusal))
}
