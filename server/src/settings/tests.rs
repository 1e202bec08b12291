//! Settings from their texts to what they mean.

use super::raw::replicated;
use super::*;
use leasehold_core::Limits;
use leasehold_node::{NodeConfig, QueueSettings};
use std::path::PathBuf;

fn raw(args: &[&str], environment: &[(&str, &str)]) -> Raw {
    let args = ["leasehold", "serve"].iter().chain(args);
    let matches = crate::args::command().try_get_matches_from(args).expect("flags that exist");
    let given = matches.subcommand_matches("serve").expect("the serve command").clone();
    let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Raw::gather(&given, environment)
}

#[test]
fn defaults_are_complete_and_equal_to_those_of_the_parts() {
    let settings = raw(&[], &[]).resolve().expect("defaults are right");
    assert_eq!(settings.node.limits, Limits::default());
    let (queue, expected) = (settings.node.queue, QueueSettings::default());
    assert_eq!(
        (queue.queue_max, queue.batch_max, queue.in_flight_max),
        (expected.queue_max, expected.batch_max, expected.in_flight_max)
    );
    let node = NodeConfig::new(1, PathBuf::from("./leasehold-data"));
    assert_eq!(
        (settings.node.reserve_bytes, settings.node.snapshot_log_bytes),
        (node.reserve_bytes, node.snapshot_log_bytes)
    );
}

#[test]
fn flags_go_before_the_environment_and_that_before_a_file() {
    let dir = std::env::temp_dir().join(format!("leasehold-settings-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let file = dir.join("leasehold.toml");
    std::fs::write(&file, "queue_max = 1\nwaiters_max = 2\ngrants_max = 3\n").expect("a file");
    let raw = raw(
        &["--config", file.to_str().expect("a plain path"), "--queue-max", "10"],
        &[
            ("LEASEHOLD_QUEUE_MAX", "20"),
            ("LEASEHOLD_WAITERS_MAX", "21"),
            ("LEASEHOLD_SERVER", "x"),
            ("LEASEHOLD_FENCE_PROXY_LISTEN", "x"),
        ],
    );
    let limits = raw.resolve().expect("no mistakes").node.limits;
    assert_eq!((limits.queue_max, limits.tickets_max, limits.grants_max), (10, 21, 3));
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
}

#[test]
fn all_mistakes_are_told_at_once_and_with_their_origin() {
    let mistakes =
        raw(&["--queue-max", "many", "--listen", "here"], &[("LEASEHOLD_TTL_MIN_MS", "5")])
            .resolve()
            .expect_err("three mistakes");
    let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().any(|one| one.contains("ttl_min_ms (LEASEHOLD_TTL_MIN_MS)")), "{told:?}");
}

#[test]
fn what_the_cluster_has_counts_and_is_told_as_such() {
    let raw = raw(&["--queue-max", "10"], &[]);
    let shown = raw.shown(&Limits { queue_max: 10, tickets_max: 7, ..Limits::default() });
    let told = |name: &str| {
        let setting = shown.iter().find(|one| one.name == name).expect("it is shown");
        (setting.value.clone().into_owned(), setting.origin.clone().into_owned())
    };
    assert_eq!(told("queue_max"), ("10".to_owned(), "flag".to_owned()));
    assert_eq!(told("waiters_max"), ("7".to_owned(), "cluster".to_owned()));
    assert_eq!(told("drain_ms"), ("10000".to_owned(), "default".to_owned()));
    let marked = KEYS.iter().filter(|key| key.help.ends_with("(new cluster)"));
    let marked: std::collections::BTreeSet<_> = marked.map(|key| key.name).collect();
    assert_eq!(marked, replicated(&Limits::default()).map(|(name, _)| name).into());
}

#[test]
fn unknown_keys_are_mistakes() {
    assert!(raw(&[], &[("LEASEHOLD_QUEUE_MAXX", "1")]).resolve().is_err());
}

#[test]
fn a_node_that_joins_is_reached_by_others_and_founds_nothing() {
    let join = &["--join", "http://10.0.0.1:7070", "--join", "http://10.0.0.2:7070"][..];
    let listen = &["--peer-listen", "10.0.0.4:7071"][..];
    let settings = raw(&[join, listen].concat(), &[]).resolve().expect("no mistakes");
    assert_eq!(settings.join, ["http://10.0.0.1:7070", "http://10.0.0.2:7070"]);
    let wrong = |args: &[&[&str]]| raw(&args.concat(), &[]).resolve().expect_err("a mistake");
    for (args, said) in [
        (&[join][..], "it needs peer_listen"),
        (&[join, listen, &["--peers", "1=10.0.0.1:7071"]], "not both"),
        (&[listen, &["--join", "10.0.0.1:7070"]], "is not like http://"),
        (&[&["--peer-listen", "0.0.0.0:7071"]], "no address at which others reach"),
        (&[&["--peer-listen", "10.0.0.1:0"]], "no address at which others reach"),
    ] {
        let mistakes = wrong(args);
        assert!(mistakes.len() == 1 && mistakes[0].0.contains(said), "{said}: {mistakes:?}");
    }
    let elsewhere = ["--peer-listen", "0.0.0.0:7071", "--advertise-peer", "node-4:7071"];
    raw(&elsewhere, &[]).resolve().expect("others are told of a name");
}
