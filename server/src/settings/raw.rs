//! Texts as they were given, by file, environment or flag.

use super::{KEYS, Settings, resolve};
use clap::ArgMatches;
use leasehold_core::Limits;
use leasehold_wire::Setting;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A file.
    File(PathBuf),
    /// The environment.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "{name}"),
            Self::Flag => write!(f, "flag"),
        }
    }
}

/// Texts as they were given, each with its origin.
#[derive(Debug, Clone)]
pub struct Raw {
    pub(super) values: BTreeMap<&'static str, (String, Origin)>,
    mistakes: Vec<Mistake>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake(pub String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Raw {
    /// Gathers defaults, file, environment and flags, in this order. What cannot be read is a
    /// mistake that [`Raw::resolve`] reports with the others.
    #[must_use]
    pub fn gather(flags: &ArgMatches, environment: impl Iterator<Item = (String, String)>) -> Self {
        let defaults = KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Origin::Default)));
        let mut raw = Self { values: defaults.collect(), mistakes: Vec::new() };
        let mut mistakes = Vec::new();
        if let Some(path) = flags.get_one::<PathBuf>("config") {
            raw.take_file(path, &mut mistakes);
        }
        raw.take_environment(environment, &mut mistakes);
        for key in KEYS {
            if let Some(values) = flags.get_many::<String>(key.name) {
                let values: Vec<&str> = values.map(String::as_str).collect();
                raw.values.insert(key.name, (values.join(","), Origin::Flag));
            }
        }
        raw.mistakes = mistakes;
        raw
    }

    fn take_file(&mut self, path: &Path, mistakes: &mut Vec<Mistake>) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return mistakes.push(Mistake(format!("{}: {error}", path.display()))),
        };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => return mistakes.push(Mistake(format!("{}: {error}", path.display()))),
        };
        for (name, value) in table {
            let Some(key) = KEYS.iter().find(|key| key.name == name) else {
                mistakes.push(Mistake(format!("{}: unknown key `{name}`", path.display())));
                continue;
            };
            match plain(&value) {
                Some(text) => {
                    self.values.insert(key.name, (text, Origin::File(path.to_owned())));
                }
                None => mistakes.push(Mistake(format!(
                    "{}: `{name}` must be a string or a number",
                    path.display()
                ))),
            }
        }
    }

    fn take_environment(
        &mut self,
        environment: impl Iterator<Item = (String, String)>,
        mistakes: &mut Vec<Mistake>,
    ) {
        for (variable, value) in environment {
            let Some(name) = variable.strip_prefix("LEASEHOLD_") else { continue };
            // The client's own variables live under the same prefix, and those of the fence proxy.
            if matches!(name, "SERVER" | "CREDENTIAL" | "CREDENTIAL_FILE" | "LOG")
                || name.starts_with("FENCE_PROXY_")
            {
                continue;
            }
            match KEYS.iter().find(|key| key.name == name.to_ascii_lowercase()) {
                Some(key) => {
                    self.values.insert(key.name, (value, Origin::Environment(variable)));
                }
                None => mistakes.push(Mistake(format!("{variable}: there is no such setting"))),
            }
        }
    }

    /// Each setting with its value and origin, a line each.
    #[must_use]
    pub fn print(&self) -> String {
        let lines = KEYS.iter().map(|key| {
            let (value, origin) = &self.values[key.name];
            let number = value.parse::<i64>().ok().filter(|_| key.is_number());
            let value = number.map_or_else(|| toml::Value::from(&**value), toml::Value::from);
            // A path may hold anything, and a line of a comment ends where the line does.
            let origin = origin.to_string().replace(char::is_control, "?");
            format!("{} = {value}  # {origin}\n", key.name)
        });
        lines.collect()
    }

    /// Each setting as a running node tells it. Those that are replicated count as the cluster
    /// has them, whatever this node was given.
    #[must_use]
    pub fn shown(&self, in_force: &Limits) -> Vec<Setting<'static>> {
        let replicated = BTreeMap::from(replicated(in_force));
        let shown = KEYS.iter().map(|key| {
            let (given, origin) = &self.values[key.name];
            let cluster = replicated.get(key.name).map(ToString::to_string);
            let (value, origin) = match cluster.filter(|value| value != given.trim()) {
                Some(value) => (value, "cluster".to_owned()),
                None => (given.clone(), origin.to_string()),
            };
            Setting { name: key.name.into(), value: value.into(), origin: origin.into() }
        });
        shown.collect()
    }

    /// Checks every value.
    ///
    /// # Errors
    /// All mistakes, each with the setting's origin.
    pub fn resolve(&self) -> Result<Settings, Vec<Mistake>> {
        resolve::resolve(self, self.mistakes.clone())
    }
}

/// The settings that are part of the replicated state, by their keys.
pub(super) fn replicated(limits: &Limits) -> [(&'static str, u64); 18] {
    [
        ("ttl_min_ms", limits.ttl_min_ms),
        ("ttl_max_ms", limits.ttl_max_ms),
        ("queue_max", u64::from(limits.queue_max)),
        ("client_waiters_max", u64::from(limits.client_tickets_max)),
        ("waiters_max", limits.tickets_max),
        ("grants_max", limits.grants_max),
        ("leases_max", limits.leases_max),
        ("lease_grants_max", u64::from(limits.lease_items_max)),
        ("metadata_max_bytes", limits.metadata_bytes_max),
        ("client_remembered_max", u64::from(limits.client_ended_max)),
        ("remembered_max", limits.ended_max),
        ("remember_ms", limits.remember_ms),
        ("claim_window_ms", limits.claim_window_ms),
        ("end_piece_max", u64::from(limits.piece_max)),
        ("deadlock_walk_max", u64::from(limits.walk_max)),
        ("overtaken_max", u64::from(limits.overtaken_max)),
        ("history_max", limits.history_max),
        ("history_ms", limits.history_ms),
    ]
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<String>> =
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}
