//! A small disk of a test's own, that it can fill without harming anybody else.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use tempfile::TempDir;

/// A mounted disk. It goes when this is dropped, so what lives on it must be dropped before.
#[derive(Debug)]
pub struct Disk {
    mount_point: TempDir,
}

impl Disk {
    /// Mounts one of this size. Panics when the machine does not allow that: a test that passed
    /// without its disk would prove nothing.
    #[track_caller]
    pub fn mount(bytes: u64) -> Self {
        let mount_point = TempDir::new().expect("a temporary directory can be made");
        let options = format!("size={bytes},mode=777");
        let args = ["-t", "tmpfs", "-o", &options, "leasehold-test"];
        let output = as_root("mount", &args, mount_point.path());
        assert!(
            output.status.success(),
            "this test mounts a tmpfs, for which it needs root, or sudo without a password: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self { mount_point }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// Bytes that can still be written.
    pub fn free(&self) -> u64 {
        let stat = statvfs(self.path()).expect("a mounted disk tells its size");
        stat.f_bavail * stat.f_frsize
    }

    /// Takes space until this much is left, or everything that can be had. Others may take and
    /// give back space meanwhile, so the outcome is near the goal and no promise.
    pub fn fill(&self, leave: u64) {
        let take = self.free().saturating_sub(leave);
        if take == 0 {
            return;
        }
        let path = self.path().join("filler");
        let file: File = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .expect("the disk can be written");
        let held = file.metadata().expect("an open file has metadata").len();
        // It fails only when another writer was faster, and then the disk is just as full.
        let _ = fallocate(&file, FallocateFlags::empty(), held, take);
    }

    /// Gives back all that `fill` took.
    pub fn clear(&self) {
        // There is nothing to give back when nothing was taken.
        let _ = std::fs::remove_file(self.path().join("filler"));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A process that is still dying keeps it busy: then it goes with that process.
        if !as_root("umount", &[], self.path()).status.success() {
            as_root("umount", &["--lazy"], self.path());
        }
    }
}

fn as_root(command: &str, args: &[&str], path: &Path) -> Output {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new(command)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--non-interactive", command]);
        sudo
    };
    command.args(args).arg(path).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}
