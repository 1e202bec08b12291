//! Tells the program from which commit it is built, where that is known.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    println!("cargo::rerun-if-changed=.git/logs/HEAD");
    let given = std::env::var("BUILD_COMMIT").ok();
    if let Some(commit) = given.or_else(from_git) {
        println!("cargo::rustc-env=BUILD_COMMIT={commit}");
    }
}

/// Nothing outside of a working copy, as in a package of the sources.
fn from_git() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}
