use leasehold_client::fence::{Fence, MemoryFence, Options, Pass, Refused, Stats, Usage};
use std::path::Path;
use std::time::Duration;
#[derive(Debug)]
pub(crate) struct RedbFence(MemoryFence);
impl RedbFence {
    pub(crate) fn open(_: &Path, options: Options) -> Result<Self, std::io::Error> {
        Ok(Self(MemoryFence::with_options(options)))
    }
    pub(crate) fn was_closed_cleanly(&self) -> bool {
        true
    }
    pub(crate) fn hold_newer_for(&self, _: Duration) {}
    pub(crate) async fn close(&self) -> Result<(), std::io::Error> {
        Ok(())
    }
    pub(crate) fn stats(&self) -> Stats {
        self.0.stats()
    }
}
impl Fence for RedbFence {
    async fn seal(&self, r: &str, t: u64) -> Result<Option<u64>, Refused> {
        self.0.seal(r, t).await
    }
    async fn admit(&self, r: &str, t: u64, u: Usage) -> Result<Pass, Refused> {
        self.0.admit(r, t, u).await
    }
    async fn highest(&self, r: &str) -> Result<Option<u64>, Refused> {
        self.0.highest(r).await
    }
}
