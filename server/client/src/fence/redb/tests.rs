//! Disks that lose power, are full, or fail.

use super::watched::Watched;
use super::*;
use ::redb::{BackendError, StorageBackend};
use parking_lot::Mutex;
use std::io;
use std::ops::Bound;

const R: &str = "invoice/42";

/// A disk that knows what it would have after a loss of power.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Image>>);

#[derive(Debug, Default)]
struct Image {
    /// As the processes see it.
    seen: Vec<u8>,
    /// As of the last sync.
    durable: Vec<u8>,
    full: bool,
    no_sync: bool,
}

impl Disk {
    /// A disk with a new fence.
    fn new() -> Self {
        let disk = Self::default();
        let db = ::redb::Database::builder().create_with_backend(disk.clone()).expect("made");
        let txn = db.begin_write().expect("begun");
        tables::Tables::open(&txn).expect("made").format().expect("written");
        txn.commit().expect("committed");
        disk
    }

    /// What is left when the power fails.
    fn after_a_loss_of_power(&self) -> Self {
        let durable = self.0.lock().durable.clone();
        Self(Arc::new(Mutex::new(Image { seen: durable.clone(), durable, ..Image::default() })))
    }

    fn fence(&self) -> RedbFence {
        let sync_failed = Arc::new(AtomicBool::new(false));
        let (disk, failed) = (self.clone(), Arc::clone(&sync_failed));
        let opener: Opener = Box::new(move || {
            let backend = Watched { backend: disk.clone(), sync_failed: Arc::clone(&failed) };
            file::open(Path::new("disk"), backend)
        });
        RedbFence::start(Path::new("disk"), Options::new(), opener, sync_failed).expect("opens")
    }

    fn fill(&self, full: bool) {
        self.0.lock().full = full;
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let image = self.0.lock();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = image.seen.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().seen.resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut image = self.0.lock();
        if image.no_sync {
            return Err(io::Error::other("the disk is gone"));
        }
        image.durable = image.seen.clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut image = self.0.lock();
        if image.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        image.seen[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }
}

#[tokio::test]
async fn what_was_let_through_is_known_after_a_loss_of_power() {
    let disk = Disk::new();
    let fence = disk.fence();
    for token in 1..=50 {
        match token % 3 {
            0 => drop(fence.seal(R, token).await.expect("newer")),
            1 => drop(fence.admit(R, token, Usage::Many).await.expect("newer")),
            _ => drop(fence.admit(R, token, Usage::Once).await.expect("newer")),
        }
        let after = disk.after_a_loss_of_power().fence();
        assert!(!after.was_closed_cleanly());
        assert_eq!(after.highest(R).await.expect("read"), Some(token));
        if token % 3 == 2 {
            let again = after.admit(R, token, Usage::Once).await.expect_err("used");
            assert_eq!(again.code(), "token_used");
        }
    }
}

#[tokio::test]
async fn a_full_disk_lets_no_new_token_through_and_is_got_over() {
    let disk = Disk::new();
    let fence = disk.fence();
    let pass = fence.admit(R, 34, Usage::Many).await.expect("new");
    disk.fill(true);
    for _ in 0..3 {
        let refused = fence.admit(R, 35, Usage::Many).await.expect_err("full");
        assert_eq!(refused.code(), "fence_storage_failed");
    }
    // Nobody else suffers: the token that is known writes on, as nothing newer was recorded.
    drop(fence.admit(R, 34, Usage::Many).await.expect("equal"));
    assert_eq!(disk.after_a_loss_of_power().fence().highest(R).await.expect("read"), Some(34));

    disk.fill(false);
    drop(pass);
    drop(fence.admit(R, 35, Usage::Many).await.expect("there is room again"));
    assert_eq!(disk.after_a_loss_of_power().fence().highest(R).await.expect("read"), Some(35));
    let stats = fence.stats();
    assert_eq!((stats.failed, stats.waiting, stats.resources_busy), (3, 0, 0));
}

#[tokio::test]
async fn after_a_failed_sync_no_token_is_let_through_any_more() {
    let disk = Disk::new();
    let fence = disk.fence();
    fence.seal(R, 34).await.expect("new");
    // Keeps what is known of the resource in memory.
    let _pass = fence.admit(R, 34, Usage::Many).await.expect("equal");
    disk.0.lock().no_sync = true;
    fence.seal(R, 35).await.expect_err("not durable");
    disk.0.lock().no_sync = false;
    // The kernel may show 35 now, and the disk not have it, or have it and be read by another.
    for token in [34, 35, 36] {
        let refused = fence.admit(R, token, Usage::Many).await.expect_err("who knows");
        assert_eq!(refused.code(), "fence_storage_failed");
    }
    assert!(fence.close().await.is_err());
}

#[tokio::test]
async fn calls_that_wait_for_the_disk_when_it_is_closed_are_answered() {
    let fence = Disk::new().fence();
    let pass = fence.admit(R, 34, Usage::Many).await.expect("new");
    let other = fence.clone();
    let waits = tokio::spawn(async move { other.admit(R, 35, Usage::Many).await.map(drop) });
    while fence.highest(R).await.expect("read") != Some(35) {
        tokio::task::yield_now().await;
    }
    assert!(matches!(fence.close().await, Err(CloseError::Unclean { in_flight: 1 })));
    let refused = waits.await.expect("ran").expect_err("closed");
    assert_eq!(refused.code(), "fence_storage_failed");
    drop(pass);
    assert_eq!(fence.stats().resources_busy, 0);
}

#[tokio::test]
async fn the_highest_of_all_is_known_of_whatever_resource_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        let options = Options::new().resources_max(2);
        RedbFence::open(dir.path().join("fence"), options).expect("opens")
    };
    let fence = open();
    assert_eq!(fence.highest_of_all().await.expect("read"), None);
    for (resource, token) in [("a", 3), ("b", 9), ("c", 5), ("b", 11)] {
        fence.seal(resource, token).await.expect("newer");
    }
    fence.seal("d", 7).await.expect("newer");
    assert_eq!(fence.highest_of_all().await.expect("read"), Some(11));
    drop(fence);
    let fence = open();
    assert_eq!(fence.highest_of_all().await.expect("read"), Some(11));
    fence.close().await.expect("nothing is in flight");
    fence.highest_of_all().await.expect_err("it is closed");
}
