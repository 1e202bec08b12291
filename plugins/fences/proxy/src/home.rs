//! The data directory: who this proxy is, across restarts, and the fence's file.

use crate::start_error::StartError;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

const CLIENT_ID: &str = "client-id";
const REQUEST_ID: &str = "request-id";
const SUSPECT_BELOW: &str = "suspect-below";
const LOCK: &str = "lock";
const PLACE: &str = "place";
const TENURE: &str = "tenure";
const CLUSTER: &str = "cluster";
const FENCE: &str = "fence.redb";
/// What is not there before a start has the file of the fence.
const FROM_LATER: [&str; 5] = [FENCE, PLACE, LOCK, REQUEST_ID, TENURE];
/// Locked by the process that works on the directory.
const IN_USE: &str = "in-use";
/// A line is short; a larger file is another file.
const LINE_BYTES_MAX: u64 = 4096;
/// Behind a request whose grant nobody has used.
const UNUSED: &str = "unused";

/// A request for the lock, as it has to be repeated: with other times it is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastRequest {
    pub(crate) id: String,
    pub(crate) ttl: Duration,
    /// How long its writes may settle, if it told that.
    pub(crate) settle: Option<Duration>,
    /// Whoever made it heard of no grant, and has ended since or made another one.
    pub(crate) unused: bool,
}

/// A data directory with a name, for one process alone.
#[derive(Debug, Clone)]
pub struct Home {
    dir: PathBuf,
    client_id: String,
    new: bool,
    /// Until the last clone is gone.
    _in_use: Arc<File>,
}

impl Home {
    /// Makes the directory and its name if they are not there. `label` is for people, and the name
    /// goes on with something that no other directory has.
    ///
    /// # Errors
    /// [`StartError::Held`] if another process works on the directory, and [`StartError::Home`],
    /// which names the file.
    pub fn open(dir: &Path, label: &str) -> Result<Self, StartError> {
        fs::create_dir_all(dir).map_err(|error| StartError::Home(named(dir, &error)))?;
        // Before anything is written: of two that start at once only one gives the name.
        let in_use = claim(dir)?;
        Self::claimed(dir, label, in_use).map_err(StartError::Home)
    }

    fn claimed(dir: &Path, label: &str, in_use: File) -> io::Result<Self> {
        let path = dir.join(CLIENT_ID);
        let known = read(&path)?;
        let place = place(dir)?;
        // Left by a start that came to nothing before it had made the file of the fence.
        let bare = FROM_LATER.iter().all(|file| !dir.join(file).exists());
        let in_place = bare || (place.is_some() && read(&dir.join(PLACE))? == place);
        let new = known.is_none() || (in_place && read(&dir.join(TENURE))?.is_none());
        if known.is_some() && !in_place {
            tracing::warn!(
                data_dir = %dir.display(),
                "the file of the fence is not the one that was here: this directory is a copy, was \
                 restored, or is incomplete; it is taken for another one from now on"
            );
        }
        let client_id = match known.filter(|_| in_place) {
            Some(client_id) => client_id,
            None => {
                let unique = leasehold_client::new_request_id().map_err(io::Error::other)?;
                let client_id = format!("{label}/fence-proxy-{}", &unique[..8]);
                write(&path, &client_id)?;
                client_id
            }
        };
        Ok(Self { dir: dir.to_owned(), client_id, new, _in_use: Arc::new(in_use) })
    }

    /// The fence has its file here now.
    pub(crate) fn settle_in(&self) -> io::Result<()> {
        match place(&self.dir)? {
            Some(place) => write(&self.dir.join(PLACE), &place),
            None => Err(io::ErrorKind::NotFound.into()),
        }
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

    /// Whether no proxy has stood before an upstream with it.
    pub(crate) fn is_new(&self) -> bool {
        self.new
    }

    pub(crate) fn fence(&self) -> PathBuf {
        self.dir.join(FENCE)
    }

    /// The request for the lock that was made last.
    pub(crate) fn last_request(&self) -> io::Result<Option<LastRequest>> {
        let path = self.dir.join(REQUEST_ID);
        let Some(text) = read(&path)? else { return Ok(None) };
        let millis = |text: &str| match text.parse() {
            Ok(millis) => Ok(Duration::from_millis(millis)),
            Err(_) => Err(no_id(&path)),
        };
        let words: Vec<_> = text.split(' ').collect();
        let (id, ttl, settle, unused) = match words[..] {
            [id, ttl] => (id, ttl, None, false),
            [id, ttl, settle] => (id, ttl, Some(settle), false),
            [id, ttl, settle, UNUSED] => (id, ttl, Some(settle), true),
            _ => return Err(no_id(&path)),
        };
        let (id, settle) = (id.to_owned(), settle.map(millis).transpose()?);
        Ok(Some(LastRequest { id, ttl: millis(ttl)?, settle, unused }))
    }

    /// Remembers a request before it is made.
    pub(crate) fn set_last_request(&self, request: &LastRequest) -> io::Result<()> {
        let mut text = format!("{} {}", request.id, request.ttl.as_millis());
        if let Some(settle) = request.settle {
            text = format!("{text} {}", settle.as_millis());
            if request.unused {
                text = format!("{text} {UNUSED}");
            }
        }
        write(&self.dir.join(REQUEST_ID), &text)
    }

    /// Nothing of the last request is left to be found: the next start asks anew.
    pub(crate) fn forget(&self) {
        if let Err(error) = self.forget_last_request() {
            tracing::warn!(%error, "the next start looks for a grant that is not there");
        }
    }

    /// Nobody goes on under the grant of this request, if it gets one.
    pub(crate) fn disown(&self, request: LastRequest) {
        if let Err(error) = self.set_last_request(&LastRequest { unused: true, ..request }) {
            tracing::warn!(%error, "the next start takes a grant of this one for one in use");
        }
    }

    fn forget_last_request(&self) -> io::Result<()> {
        let path = self.dir.join(REQUEST_ID);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(&path, &error)),
            _ => Ok(()),
        }
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
        token(&self.dir.join(SUSPECT_BELOW))
    }

    /// The grant of the lock under which this directory was used last; 0 if none is known.
    pub(crate) fn last_tenure(&self) -> io::Result<u64> {
        token(&self.dir.join(TENURE))
    }

    pub(crate) fn set_last_tenure(&self, token: u64) -> io::Result<()> {
        write(&self.dir.join(TENURE), &token.to_string())
    }

    /// The service that the grant of that tenure was of, once one is known.
    pub(crate) fn cluster(&self) -> io::Result<Option<String>> {
        read(&self.dir.join(CLUSTER))
    }

    pub(crate) fn set_cluster(&self, cluster: &str) -> io::Result<()> {
        write(&self.dir.join(CLUSTER), cluster)
    }

    /// Remembers it for all later starts, beside what was suspect before: it never goes down, since
    /// a service that gives out lower tokens says nothing about higher ones.
    pub(crate) fn suspect_also_below(&self, token: u64) -> io::Result<()> {
        if token <= self.suspect_below()? {
            return Ok(());
        }
        write(&self.dir.join(SUSPECT_BELOW), &token.to_string())
    }
}

/// The directory for this process, or who has it.
fn claim(dir: &Path) -> Result<File, StartError> {
    let path = dir.join(IN_USE);
    let failed = |error| StartError::Home(named(&path, &error));
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(failed(error)),
        Err(TryLockError::WouldBlock) => {
            let name = read(&dir.join(CLIENT_ID)).ok().flatten();
            Err(StartError::in_use(name.as_deref(), dir))
        }
    }
}

/// What tells the file of the fence from a copy of it; nothing if there is none.
fn place(dir: &Path) -> io::Result<Option<String>> {
    let path = dir.join(FENCE);
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(&path, &error)),
        Ok(meta) => {
            // Not every file system knows it, but one that does goes on knowing it.
            let made = meta.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
            Ok(Some(format!("{} {}", meta.ino(), made.unwrap_or_default().as_nanos())))
        }
    }
}

fn token(path: &Path) -> io::Result<u64> {
    let text = read(path)?.unwrap_or_else(|| "0".to_owned());
    text.parse().map_err(|_| no_id(path))
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
        let name = |dir: &tempfile::TempDir| {
            fs::write(dir.path().join(FENCE), "").expect("written");
            let home = Home::open(dir.path(), "me").expect("a home");
            home.settle_in().expect("written");
            home.client_id().to_owned()
        };
        assert_eq!(name(&one), name(&one));
        assert_ne!(name(&one), name(&two));
        assert!(name(&one).starts_with("me/fence-proxy-"));
    }

    #[test]
    fn of_two_that_start_at_once_one_gives_the_name() {
        let dir = tempfile::tempdir().expect("a dir");
        let home = Home::open(dir.path(), "me").expect("a home");
        let refused = Home::open(dir.path(), "me").expect_err("it is in use");
        assert!(
            matches!(&refused, StartError::Held { detail } if detail.contains(home.client_id()))
        );
        let written = fs::read_to_string(dir.path().join(CLIENT_ID)).expect("it is there");
        assert_eq!(written.trim(), home.client_id());
        // Whoever speaks for it keeps it.
        let clone = home.clone();
        drop(home);
        assert!(Home::open(dir.path(), "me").is_err());
        drop(clone);
        Home::open(dir.path(), "me").expect("nobody has it");
    }

    #[test]
    fn a_copy_and_a_directory_without_its_fence_are_other_directories() {
        let dir = tempfile::tempdir().expect("a dir");
        let fence = dir.path().join(FENCE);
        let open = || Home::open(dir.path(), "me").expect("a home");
        let known = || {
            let home = open();
            (home.is_new(), home.client_id().to_owned())
        };
        fs::write(&fence, "").expect("written");
        let home = open();
        home.settle_in().expect("written");
        let name = home.client_id().to_owned();
        assert!(home.is_new());
        drop(home);
        assert_eq!(known(), (true, name.clone()));
        open().set_last_tenure(7).expect("written");
        assert_eq!(known(), (false, name.clone()));
        // Under another name first, so that the copy cannot get the same place.
        fs::copy(&fence, dir.path().join("copy")).expect("copied");
        fs::rename(dir.path().join("copy"), &fence).expect("renamed");
        let copy = open();
        assert!(!copy.is_new() && copy.client_id() != name);
        copy.settle_in().expect("written");
        let name = copy.client_id().to_owned();
        drop(copy);
        fs::remove_file(&fence).expect("removed");
        assert_ne!(known().1, name);
    }

    #[test]
    fn what_a_start_left_that_came_to_nothing_is_no_copy() {
        let dir = tempfile::tempdir().expect("a dir");
        let name = Home::open(dir.path(), "me").expect("a home").client_id().to_owned();
        let home = Home::open(dir.path(), "me").expect("a home");
        assert_eq!((home.is_new(), home.client_id()), (true, &*name));
        // Nor is what was left after the fence had its file.
        fs::write(dir.path().join(FENCE), "").expect("written");
        home.settle_in().expect("written");
        drop(home);
        let home = Home::open(dir.path(), "me").expect("a home");
        assert_eq!((home.is_new(), home.client_id()), (true, &*name));
        drop(home);
        // A file of a fence that is not known to be its own is another matter.
        fs::remove_file(dir.path().join(PLACE)).expect("removed");
        let home = Home::open(dir.path(), "me").expect("a home");
        assert!(!home.is_new() && home.client_id() != name);
    }

    #[test]
    fn the_last_request_is_remembered() {
        let dir = tempfile::tempdir().expect("a dir");
        let home = Home::open(dir.path(), "me").expect("a home");
        assert_eq!(home.last_request().expect("read"), None);
        let request = |id: &str, seconds| LastRequest {
            id: id.to_owned(),
            ttl: Duration::from_secs(seconds),
            settle: (id != "one").then_some(Duration::from_millis(seconds)),
            unused: id == "three",
        };
        home.set_last_request(&request("one", 1)).expect("written");
        assert_eq!(home.last_request().expect("read"), Some(request("one", 1)));
        home.set_last_request(&request("two", 2)).expect("written");
        assert_eq!(home.last_request().expect("read"), Some(request("two", 2)));
        home.set_last_request(&request("three", 3)).expect("written");
        assert_eq!(home.last_request().expect("read"), Some(request("three", 3)));
        for _ in 0..2 {
            home.forget_last_request().expect("removed");
            assert_eq!(home.last_request().expect("read"), None);
        }
        for content in ["two", "two 2s", "two -1", "two 2 x", "two 2 3 4"] {
            fs::write(dir.path().join(REQUEST_ID), content).expect("written");
            assert!(home.last_request().is_err(), "{content}");
        }
    }

    #[test]
    fn what_was_suspect_stays_so() {
        let dir = tempfile::tempdir().expect("a dir");
        let home = Home::open(dir.path(), "me").expect("a home");
        for (token, known) in [(0, 0), (7, 7), (4, 7), (9, 9)] {
            home.suspect_also_below(token).expect("written");
            assert_eq!(home.suspect_below().expect("read"), known);
        }
        fs::write(dir.path().join(SUSPECT_BELOW), "nine").expect("written");
        assert!(home.suspect_also_below(10).is_err());
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
