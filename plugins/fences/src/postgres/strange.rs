//! What is in the schema of the kit or on its tables and not of its making, and what of the kit is gone.
//!
//! The one may run with the rights of whoever uses the kit, or reach the tokens past its calls; without
//! the other the tokens are lost, or every call fails. So no command reads a table or makes a call before
//! it has looked for both, in the catalog alone.

use super::connect::rows;
use super::scripts::STRANGE;
use crate::error::Error;
use crate::report::{Finding, Severity};
use tokio_postgres::Client;

/// One such thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strange {
    what: String,
    /// The statement that sets it right, if there is one.
    undo: Option<String>,
    /// Whether installing makes anew what should be there.
    mended: bool,
    /// Whether it is what should be there and is not.
    gone: bool,
}

impl Strange {
    fn told(&self) -> String {
        let how = if self.gone { "is gone" } else { "is not of the kit's making" };
        format!("{} {how}", self.what)
    }

    fn advice(&self) -> String {
        let advice = "look at what is there, and set it right; what a newer kit has made, its own \
                      `leasehold fence` knows";
        let lost = "bring it back from a backup, with its rows; or run `leasehold fence remove \
                    --forget-tokens` and install again: whoever held a lock before can write then";
        match &self.undo {
            _ if self.mended => "run `leasehold fence install`, which makes it anew".to_owned(),
            Some(undo) => undo.clone(),
            None if self.gone => lost.to_owned(),
            None => advice.to_owned(),
        }
    }

    /// As status has it. Where the advice is SQL, it runs as it is.
    pub(super) fn finding(&self) -> Finding {
        let code = if self.gone { "fence_incomplete" } else { "fence_strange" };
        Finding::new(Severity::Hole, code, self.told(), self.advice())
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
        let [what, undo, mended, gone] = row.try_into().ok()?;
        let yes = |told: Option<String>| told.as_deref() == Some("t");
        Some(Strange { what: what?, undo, mended: yes(mended), gone: yes(gone) })
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
