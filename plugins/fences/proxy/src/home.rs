//! The data directory: who this proxy is, across restarts, and the fence's file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

const CLIENT_ID: &str = "client-id";
const REQUEST_ID: &str = "request-id";
const SUSPECT_BELOW: &str = "suspect-below";
/// An id is short; a larger file is another file.
const ID_BYTES_MAX: u64 = 256;

/// A data directory with a name.
#[derive(Debug, Clone)]
pub struct Home {
    dir: PathBuf,
    client_id: String,
    new: bool,
}

impl Home {
    /// Makes the directory and its name if they are not there. `label` is for people, and the name
    /// goes on with something that no other directory has.
    ///
    /// # Errors
    /// Names the file.
    pub fn open(dir: &Path, label: &str) -> io::Result<Self> {
        fs::create_dir_all(dir).map_err(|error| named(dir, &error))?;
        let path = dir.join(CLIENT_ID);
        let known = read(&path)?;
        let new = known.is_none();
        let client_id = match known {
            Some(client_id) => client_id,
            None => {
                let unique = leasehold_client::new_request_id().map_err(io::Error::other)?;
                let client_id = format!("{label}/fence-proxy-{}", &unique[..8]);
                write(&path, &client_id)?;
                client_id
            }
        };
        Ok(Self { dir: dir.to_owned(), client_id, new })
    }

    /// Under which the service knows the proxy on this directory, after every restart.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether no proxy has been on it before.
    pub(crate) fn is_new(&self) -> bool {
        self.new
    }

    pub(crate) fn fence(&self) -> PathBuf {
        self.dir.join("fence.redb")
    }

    /// The request for the lock that was made last.
    pub(crate) fn request_id(&self) -> io::Result<Option<String>> {
        read(&self.dir.join(REQUEST_ID))
    }

    /// Remembers a request before it is made.
    pub(crate) fn set_request_id(&self, request_id: &str) -> io::Result<()> {
        write(&self.dir.join(REQUEST_ID), request_id)
    }

    /// Tokens below this one may have been overtaken behind the back of this directory.
    pub(crate) fn suspect_below(&self) -> io::Result<u64> {
        let path = self.dir.join(SUSPECT_BELOW);
        let text = read(&path)?.unwrap_or_else(|| "0".to_owned());
        text.parse().map_err(|_| no_id(&path))
    }

    /// Remembers it for all later starts.
    pub(crate) fn set_suspect_below(&self, token: u64) -> io::Result<()> {
        write(&self.dir.join(SUSPECT_BELOW), &token.to_string())
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(path, &error)),
        Ok(meta) if meta.len() > ID_BYTES_MAX => return Err(no_id(path)),
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).map_err(|error| named(path, &error))?;
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(no_id(path));
    }
    Ok(Some(text.to_owned()))
}

/// Whole or not at all, also when the machine stops on the way.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = (|| {
        let mut file = File::create(&new)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    })();
    written.map_err(|error| named(path, &error))
}

fn no_id(path: &Path) -> io::Error {
    named(path, &io::Error::other("this is no id that a proxy has written"))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_name_and_no_other_has_it() {
        let (one, two) = (tempfile::tempdir().expect("a dir"), tempfile::tempdir().expect("a dir"));
        let open = |dir: &tempfile::TempDir| Home::open(dir.path(), "me").expect("a home");
        assert_eq!(open(&one).client_id(), open(&one).client_id());
        assert_ne!(open(&one).client_id(), open(&two).client_id());
        assert!(open(&one).client_id().starts_with("me/fence-proxy-"));
    }

    #[test]
    fn the_last_request_is_remembered() {
        let dir = tempfile::tempdir().expect("a dir");
        let home = Home::open(dir.path(), "me").expect("a home");
        assert_eq!(home.request_id().expect("read"), None);
        home.set_request_id("one").expect("written");
        home.set_request_id("two").expect("written");
        assert_eq!(home.request_id().expect("read").as_deref(), Some("two"));
    }

    #[test]
    fn files_of_others_are_not_taken_for_ours() {
        let dir = tempfile::tempdir().expect("a dir");
        for content in [&b""[..], b"\xff\xfe", b"a\0b", &[b'x'; 300]] {
            fs::write(dir.path().join(CLIENT_ID), content).expect("written");
            let error = Home::open(dir.path(), "me").expect_err("refused");
            assert!(error.to_string().contains(CLIENT_ID), "{error}");
        }
        fs::remove_file(dir.path().join(CLIENT_ID)).expect("removed");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(Home::open(&file, "me").is_err());
    }
}
