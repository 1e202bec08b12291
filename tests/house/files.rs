//! What there is to look at.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file that belongs to the repository, relative to its root, in order. What builds leave
/// behind and what version control keeps for itself is not part of it.
pub(crate) fn all() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(root(), &mut found);
    found.sort_unstable();
    found
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory of the repository can be read") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if ["target", ".git", "node_modules", "leasehold-data", "__pycache__"].contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path.strip_prefix(root()).expect("it is below the root").to_owned());
        }
    }
}

/// The text of a file; nothing if it is not text.
pub(crate) fn text(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}
