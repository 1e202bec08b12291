//! The data directory: who this proxy is, across restarts, and the fence's file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

const CLIENT_ID: &str = "client-id";
const REQUEST_ID: &str = "request-id";
const SUSPECT_BELOW: &str = "suspect-below";
const LOCK: &str = "lock";
/// A line is short; a larger file is another file.
const LINE_BYTES_MAX: u64 = 4096;

/// A request for the lock, as it has to be repeated: with another TTL it is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastRequest {
    pub(crate) id: String,
    pub(crate) ttl: Duration,
}

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
    pub(crate) fn last_request(&self) -> io::Result<Option<LastRequest>> {
        let path = self.dir.join(REQUEST_ID);
        let Some(text) = read(&path)? else { return Ok(None) };
        let (id, ttl_ms) = text.split_once(' ').ok_or_else(|| no_id(&path))?;
        let ttl = Duration::from_millis(ttl_ms.parse().map_err(|_| no_id(&path))?);
        Ok(Some(LastRequest { id: id.to_owned(), ttl }))
    }

    /// Remembers a request before it is made.
    pub(crate) fn set_last_request(&self, request: &LastRequest) -> io::Result<()> {
        let text = format!("{} {}", request.id, request.ttl.as_millis());
        write(&self.dir.join(REQUEST_ID), &text)
    }

    /// The lock that this directory is for, once one is.
    pub(crate) fn lock(&self) -> io::Result<Option<String>> {
        read(&self.dir.join(LOCK))
    }

    /// The tokens in it are those that one upstream has seen.
    pub(crate) fn set_lock(&self, lock: &str) -> io::Result<()> {
        write(&self.dir.join(LOCK), lock)
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
        Ok(meta) if meta.len() > LINE_BYTES_MAX => return Err(no_id(path)),
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
        assert_eq!(home.last_request().expect("read"), None);
        let request = |id: &str, seconds| LastRequest {
            id: id.to_owned(),
            ttl: Duration::from_secs(seconds),
        };
        home.set_last_request(&request("one", 1)).expect("written");
        home.set_last_request(&request("two", 2)).expect("written");
        assert_eq!(home.last_request().expect("read"), Some(request("two", 2)));
        for content in ["two", "two 2s", "two -1"] {
            fs::write(dir.path().join(REQUEST_ID), content).expect("written");
            assert!(home.last_request().is_err(), "{content}");
        }
    }

    #[test]
    fn files_of_others_are_not_taken_for_ours() {
        let dir = tempfile::tempdir().expect("a dir");
        for content in [&b""[..], b"\xff\xfe", b"a\0b", &[b'x'; 5000]] {
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
