//! Data that cannot be trusted is refused and left as it is, for somebody who can repair it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_harness::{Server, ask};

use crate::server;

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn read(dir: &Path) -> Files {
    let mut files = Files::new();
    for entry in fs::read_dir(dir).expect("the data directory is there") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            files.extend(read(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).expect("it can be read"));
        }
    }
    files
}

/// A stopped server with some data.
fn stopped() -> Server {
    let mut server = server();
    let mut client = server.client();
    for i in 0..200 {
        client.acquire(&ask(&format!("r{i}"), "a", 60_000)).token();
    }
    server.kill9();
    server
}

type Harm = fn(&mut Vec<u8>);

fn harms() -> [(&'static str, Harm); 4] {
    [
        ("cut to half", |bytes| bytes.truncate(bytes.len() / 2)),
        ("cut to a few bytes", |bytes| bytes.truncate(100)),
        ("a flipped beginning", |bytes| bytes[..16].iter_mut().for_each(|byte| *byte ^= 0xff)),
        ("written over", |bytes| bytes.fill(0xa5)),
    ]
}

#[test]
fn a_harmed_data_file_is_refused_by_name_and_left_untouched() {
    let mut server = stopped();
    let whole = read(server.data_dir());
    let data = |path: &&PathBuf| path.extension().is_some_and(|ext| ext == "redb");
    assert!(whole.keys().filter(data).count() > 0, "nothing to harm: {:?}", whole.keys());

    for path in whole.keys().filter(data) {
        for (harm, inflict) in harms() {
            let mut bytes = whole[path].clone();
            inflict(&mut bytes);
            fs::write(path, &bytes).expect("the file can be harmed");
            let harmed = read(server.data_dir());

            let told = format!("{} {harm}", path.display());
            let refused = server.try_restart().expect_err(&told);
            assert!(refused.status.code().is_some_and(|code| code != 0), "{told}: {refused:?}");
            assert!(!refused.output.contains("panicked"), "{told}: {refused:?}");
            let name = path.file_name().expect("a file has a name").to_string_lossy();
            assert!(refused.output.contains(&*name), "{told}: {refused:?}");
            assert!(read(server.data_dir()) == harmed, "{told}: something was changed");
            fs::write(path, &whole[path]).expect("the file can be restored");
        }
    }

    // The harm was the reason, not the test: the same data, whole, is served.
    server.restart();
    assert_eq!(server.client().lock("r199")["state"], "held");
}

#[test]
fn a_data_directory_that_cannot_be_one_is_refused() {
    let mut server = stopped();
    let dir = server.data_dir().to_owned();
    fs::remove_dir_all(&dir).expect("the data can be removed");
    fs::write(&dir, "not a directory").expect("a file can be written");
    let refused = server.try_restart().expect_err("a file is no directory");
    assert!(refused.output.contains(&*dir.to_string_lossy()), "{refused:?}");
    assert_eq!(fs::read(&dir).expect("it is still there"), b"not a directory");
}
