//! The other half of a lock: storage that refuses a holder who was overtaken without noticing it.
//!
//! The rule: per resource, storage keeps the highest token that it has seen, T_max. A write with a
//! lower token is refused and changes nothing. For storage written in Rust this module has the
//! rule ready; the storage asks a [`Fence`] for a [`Pass`] before each write and drops it when the
//! write is over.
//!
//! ```
//! use leasehold_client::fence::{Fence, MemoryFence, Refused, Usage};
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//!
//! /// A store of texts whose writers hold locks of the same names.
//! struct Texts<F> {
//!     fence: F,
//!     texts: Mutex<HashMap<String, String>>,
//! }
//!
//! impl<F: Fence> Texts<F> {
//!     /// What a new holder does first: from here on nothing older is written, so what it reads
//!     /// stays what it read.
//!     async fn seal_and_read(&self, name: &str, token: u64) -> Result<Option<String>, Refused> {
//!         self.fence.seal(name, token).await?;
//!         Ok(self.texts.lock().unwrap().get(name).cloned())
//!     }
//!
//!     async fn write(&self, name: &str, token: u64, text: &str) -> Result<(), Refused> {
//!         let _pass = self.fence.admit(name, token, Usage::Many).await?;
//!         self.texts.lock().unwrap().insert(name.into(), text.into());
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Refused> {
//! let texts = Texts { fence: MemoryFence::new(), texts: Mutex::default() };
//! texts.write("a", 33, "first").await?;
//!
//! // The holder of 33 pauses, loses the lock, and wakes up when 34 has read.
//! assert_eq!(texts.seal_and_read("a", 34).await?.as_deref(), Some("first"));
//! let refused = texts.write("a", 33, "late").await.unwrap_err();
//! assert_eq!(
//!     refused.json(),
//!     r#"{"code":"stale_token","resource":"a","token":33,"highest_token":34}"#,
//! );
//! texts.write("a", 34, "second").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Seal before read
//!
//! T_max knows of token 34 only once storage has *seen* 34. A new holder that reads first and
//! writes later can be overtaken in between by a late write of the old holder, and overwrites it
//! blindly. So its first act is [`Fence::seal`], and then it reads.
//!
//! # Which one
//!
//! | storage | fence |
//! | --- | --- |
//! | forgets when the process ends | [`MemoryFence`] |
//! | keeps, and writes take time (files, another server) | `RedbFence`, feature `redb` |
//! | is itself in a redb file | `fence::redb::guard`, feature `redb`: check and write in one transaction |
//!
//! Two fences before one storage are no fence: each knows only what went through itself.
//!
//! # What waits, and what is refused
//!
//! A newer token is recorded when it arrives, durably; from then on older ones are refused, also
//! those that wait. Then it waits until the older passes are dropped, for at most
//! [`Options::wait_max`]. Equal tokens pass side by side. A call that is dropped while it waits
//! leaves nothing but its token.
//!
//! Only the tokens of exclusive grants fence. A shared grant is for reading: its token is neither
//! sealed nor admitted, for the next reader's would make it stale.
//!
//! # Bounds
//!
//! T_max is kept for [`Options::resources_max`] resources. Beyond, those with the lowest tokens
//! are folded into one floor, which is the T_max of every resource without one of its own. Tokens
//! grow over the whole cluster, so what is below the floor is older than everything that is kept
//! apart. The price: a holder whose token is below the floor is refused although nobody
//! overtook it, and takes the lock anew. [`Stats::folded`] says whether it came to that.
//!
//! | file | holds |
//! | --- | --- |
//! | `row` | what is kept of a resource, and the rule; pure |
//! | `line`, `engine` | passes, waiting, what is asked of the storage |
//! | [`MemoryFence`], `redb` | where rows are kept |
//! | [`Refused`], [`Options`], [`Stats`] | what is said, bounded and counted |

mod counts;
mod engine;
mod line;
mod memory;
mod options;
#[cfg(feature = "redb")]
pub mod redb;
mod refused;
mod row;

pub use line::Pass;
pub use memory::MemoryFence;
pub use options::{Options, Stats};
#[cfg(feature = "redb")]
pub use redb::RedbFence;
pub use refused::{Refused, StorageFault};

/// How often a token may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Usage {
    /// As often as its holder likes, side by side.
    #[default]
    Many,
    /// Once. A call that was let through, or was dropped when it nearly was, has used it.
    Once,
}

impl From<Usage> for line::Aim {
    fn from(usage: Usage) -> Self {
        match usage {
            Usage::Many => Self::Many,
            Usage::Once => Self::Once,
        }
    }
}

/// What stands before storage and lets no stale write through.
///
/// Its calls need a tokio runtime with time. See the [module](self) for when to use which.
pub trait Fence: Send + Sync {
    /// Records a token before its holder reads, and waits until the writes of older ones are
    /// over. Answers T_max as it was; nothing if no token was seen.
    ///
    /// # Errors
    /// [`Refused::Stale`] if a newer token was seen, also while this waits.
    fn seal(
        &self,
        resource: &str,
        token: u64,
    ) -> impl Future<Output = Result<Option<u64>, Refused>> + Send;

    /// Lets one write through. When this answers, T_max is durable and no older write is in
    /// flight; none is let through any more either.
    ///
    /// # Errors
    /// [`Refused::Stale`] if a newer token was seen, also while this waits. [`Refused::Used`]
    /// with [`Usage::Once`]. [`Refused::OlderInFlight`] and [`Refused::Full`] at the bounds.
    fn admit(
        &self,
        resource: &str,
        token: u64,
        usage: Usage,
    ) -> impl Future<Output = Result<Pass, Refused>> + Send;

    /// T_max of a resource, as far as this fence has seen it.
    ///
    /// # Errors
    /// [`Refused::Invalid`], and [`Refused::Storage`] if it cannot be read.
    fn highest(&self, resource: &str) -> impl Future<Output = Result<Option<u64>, Refused>> + Send;
}
