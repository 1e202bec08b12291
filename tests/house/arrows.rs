//! Who may name whom. An arrow that is wrong is cheap to refuse on the day it appears and dear to
//! turn around a year later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::files::root;

/// The dependencies that ship, by the folder of the package that names them.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// For each package of ours by folder: the packages of ours that it may name. Whoever adds a
/// package says here where it stands.
const OURS: &[(&str, &[&str])] = &[
    ("server/core", &[]),
    ("server/wire", &[]),
    ("server/gate", &["leasehold-core"]),
    ("server/node", &["leasehold-core"]),
    (
        "server/http",
        &[
            "leasehold-core",
            "leasehold-gate",
            "leasehold-node",
            "leasehold-policy-host",
            "leasehold-wire",
        ],
    ),
    ("server/client", &["leasehold-wire"]),
    ("server/client/fake", &["leasehold-wire"]),
    (
        "server/cli",
        &["leasehold-client", "leasehold-fence-proxy", "leasehold-fences", "leasehold-wire"],
    ),
    ("web", &["leasehold-wire"]),
    ("plugins/fences", &[]),
    ("plugins/fences/proxy", &["leasehold-client"]),
    ("plugins/host", &["leasehold-core"]),
    ("plugins/sdk", &[]),
    ("tests/harness", &[]),
    ("tests/load", &["leasehold-client", "leasehold-harness"]),
    ("tests/next", &["leasehold", "leasehold-cli", "leasehold-core", "leasehold-node"]),
];

/// Packages of others that are named in a few places only, so that they can be replaced there.
const KEPT: &[(&str, &[&str])] = &[
    ("openraft", &["server/node"]),
    ("redb", &["server/node", "server/client", "plugins/fences"]),
    ("actix-web", &["server/http", "web", "tests/load"]),
    ("actix-http", &["server/http", "web"]),
    ("wasmtime", &["plugins/host"]),
    ("askama", &["web"]),
];

fn arrows() -> Arrows {
    packages().iter().map(|package| (folder(package), shipped(package))).collect()
}

fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

/// One that is not finished may change what it means with every release.
#[test]
fn what_is_not_finished_is_pinned() {
    let packages = packages();
    let dependencies = packages
        .iter()
        .flat_map(|package| package["dependencies"].as_array().expect("a list of dependencies"));
    let mut pinned = BTreeSet::new();
    for one in dependencies {
        let (name, wanted) = (one["name"].as_str(), one["req"].as_str().expect("a requirement"));
        if wanted.contains('-') {
            assert!(wanted.starts_with('='), "{name:?} is not pinned: {wanted}");
            pinned.extend(name);
        }
    }
    assert!(pinned.contains("openraft"), "an alpha as long as there is nothing else: {pinned:?}");
}

fn folder(package: &Value) -> String {
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    let folder = manifest.parent().and_then(|dir| dir.strip_prefix(root()).ok());
    folder.expect("it is below the root").to_string_lossy().into_owned()
}

/// What tests need is left out: it ships to nobody, and a test may look from anywhere.
fn shipped(package: &Value) -> BTreeSet<String> {
    let dependencies = package["dependencies"].as_array().expect("a list of dependencies");
    dependencies
        .iter()
        .filter(|one| one["kind"] != "dev")
        .map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn packages_name_only_those_below_them() {
    for (folder, named) in arrows() {
        // The root wires everybody together: it alone may name all.
        if folder.is_empty() {
            continue;
        }
        let allowed = OURS.iter().find(|(known, _)| *known == folder);
        let (_, allowed) =
            allowed.unwrap_or_else(|| panic!("{folder} has no place in the house yet"));
        for name in named.iter().filter(|name| name.starts_with("leasehold")) {
            assert!(allowed.contains(&name.as_str()), "{folder} must not name {name}");
        }
    }
}

#[test]
fn what_is_to_stay_replaceable_is_named_in_its_places_only() {
    for (folder, named) in arrows() {
        for (name, places) in KEPT {
            let within = places.iter().any(|place| Path::new(&folder).starts_with(place));
            assert!(within || !named.contains(*name), "{folder} must not name {name}");
        }
    }
}

#[test]
fn the_pure_packages_depend_on_nothing_that_has_effects() {
    let arrows = arrows();
    assert_eq!(arrows["server/core"], BTreeSet::new(), "the core needs the standard library only");
    let wire = BTreeSet::from(["schemars", "serde", "serde_json"].map(str::to_owned));
    assert!(
        arrows["server/wire"].is_subset(&wire),
        "the wire needs serde, and what describes its shapes"
    );
}
