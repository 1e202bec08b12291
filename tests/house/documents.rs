//! Documents that name what is there, in words that mean something to a stranger.

use std::path::Path;

use crate::files::{all, root, text};

/// The documents that describe the repository as it is now.
const MAPS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

/// What looks like a path in a text: something in backticks that starts with a folder of ours.
fn paths(text: &str) -> Vec<String> {
    let folders: Vec<String> = std::fs::read_dir(root())
        .expect("the repository can be read")
        .filter_map(|entry| entry.expect("it can be listed").file_name().into_string().ok())
        .collect();
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let quoted = line.split('`').skip(1).step_by(2);
        let linked = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for word in quoted.chain(linked) {
            let plain = !word.contains([' ', '*', '<', '{', '$', ':', '|', '(']);
            let first = word.trim_start_matches("./").split('/').next().unwrap_or_default();
            let ours = word.contains('/') && folders.iter().any(|folder| folder == first);
            let file = !word.contains('/') && word.ends_with(".md");
            if plain && (ours || file) {
                found.push(word.trim_start_matches("./").trim_end_matches('/').to_owned());
            }
        }
    }
    found
}

#[test]
fn every_path_named_in_the_maps_exists() {
    for map in MAPS {
        let text = text(Path::new(map));
        assert!(!text.is_empty(), "{map} is missing");
        for path in paths(&text) {
            assert!(root().join(&path).exists(), "{map} names {path}, which does not exist");
        }
    }
}

#[test]
fn paths_are_found_in_a_text_and_other_quotes_are_not() {
    let text = "See `tests/house/main.rs`, [the list](README.md#top), `server/`, `GET /v1/lock`,\n\
                `invoice/42`, `server/*/src`.\n```sh\ncat `tests/nothing`\n```\n";
    assert_eq!(paths(text), ["tests/house/main.rs", "server", "README.md"]);
}

/// Reminders belong into the tracker, where somebody looks; the machine of whoever wrote a line is
/// nobody's business. Written in halves, as this file is read as well.
fn forbidden() -> Vec<String> {
    let halves = [
        ("TO", "DO"),
        ("FIX", "ME"),
        ("XX", "X"),
        ("HA", "CK"),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("crates", ".io"),
        ("static.", "rust-lang.org"),
        ("pypi", ".org"),
        ("registry.", "npmjs"),
        ("deb.", "debian.org"),
    ];
    halves.iter().map(|(one, two)| format!("{one}{two}")).collect()
}

#[test]
fn no_file_holds_a_word_that_must_not_be_published() {
    let words = forbidden();
    let mut found = Vec::new();
    for path in all() {
        // Written by tools, which name registries as they must.
        let generated = path
            .file_name()
            .is_some_and(|name| name == "Cargo.lock" || name == "package-lock.json");
        if generated {
            continue;
        }
        for (number, line) in text(&path).lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for path in all() {
        if path.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let text = text(&path);
        let first = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
        assert!(first.starts_with("//!"), "{} begins without a word about itself", path.display());
    }
}
