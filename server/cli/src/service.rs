//! Where the service is, who calls it, and how the answer is wanted: what all commands share.

use crate::failure::Failure;
use crate::output::{self, Output};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use leasehold_client::{Answer, Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";
pub(crate) const SERVER: &str = "LEASEHOLD_SERVER";
pub(crate) const CREDENTIAL: &str = "LEASEHOLD_CREDENTIAL";
/// A credential is short; a larger file is another file.
const CREDENTIAL_MAX: u64 = 64 * 1024;

/// The flags that every client command has.
pub(crate) fn flags() -> [Arg; 3] {
    [
        Arg::new("server")
            .long("server")
            .value_name("URL")
            .action(ArgAction::Append)
            .global(true)
            .help_heading("Service")
            .help(format!(
                "A server; may be given several times [env: {SERVER}, with commas] \
                 [default: {DEFAULT_SERVER}]"
            )),
        Arg::new("credential-file")
            .long("credential-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .global(true)
            .help_heading("Service")
            .help(format!(
                "A file with the credential in it [env: {CREDENTIAL} has the credential]"
            )),
        output_flag().help_heading("Service"),
    ]
}

/// How the answer is wanted.
pub(crate) fn output_flag() -> Arg {
    Arg::new("output")
        .long("output")
        .value_name("human|json")
        .value_parser(["human", "json"])
        .default_value("human")
        .global(true)
        .hide_possible_values(true)
        .help("For people, or for programs: the JSON of the service, one document a line")
}

/// How long one attempt of a call may take; a wait in line comes on top.
pub(crate) const ATTEMPT_MAX: Duration = Duration::from_secs(5);

/// A client of the service, and how its answers are wanted.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) client: Client,
    pub(crate) output: Output,
}

/// An answer as it came, and what it says.
#[derive(Debug)]
pub(crate) struct Told<T> {
    pub(crate) raw: Box<RawValue>,
    pub(crate) value: T,
}

impl Service {
    /// From flags and environment. `attempt` is how long one attempt may take.
    pub(crate) fn new(
        given: &ArgMatches,
        client_id: Option<String>,
        attempt: Duration,
    ) -> Result<Self, Failure> {
        let mut builder = Client::builder()
            .servers(servers(given)?)
            .client_id(client_id.unwrap_or_else(own_label))
            .attempt_timeout(attempt);
        if let Some(credential) = credential(given)? {
            builder = builder.credential(credential);
        }
        Ok(Self { client: builder.build()?, output: wanted(given) })
    }

    /// The same service for a client with another label.
    pub(crate) fn acting_for(
        &self,
        given: &ArgMatches,
        client_id: String,
    ) -> Result<Self, Failure> {
        Self::new(given, Some(client_id), ATTEMPT_MAX)
    }

    /// Reads.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
    ) -> Result<Told<T>, Failure> {
        let query: Vec<(&str, &str)> =
            query.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        told(self.client.get(path, &query).await)
    }

    /// Posts what may be repeated.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Told<T>, Failure> {
        told(self.client.post(path, body).await)
    }

    /// Shows what was read otherwise as it was wanted.
    pub(crate) fn show_value<T: Serialize, D: Display>(
        &self,
        value: &T,
        human: impl FnOnce(&T) -> D,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Json => output::line(&json(value)?),
            Output::Human => output::line(&human(value)),
        }
    }

    /// Shows an answer as it was wanted.
    pub(crate) fn show<T, D: Display>(
        &self,
        told: &Told<T>,
        human: impl FnOnce(&T) -> D,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Json => output::line(&told.raw),
            Output::Human => output::line(&human(&told.value)),
        }
    }
}

pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::Local(error.to_string()))
}

pub(crate) fn told<T: DeserializeOwned>(
    answer: Result<Answer<Box<RawValue>>, Error>,
) -> Result<Told<T>, Failure> {
    let answer = answer?;
    let value = serde_json::from_str(answer.value.get()).map_err(|error| {
        let detail = format!("the answer is not what was asked for: {error}");
        Failure::from(Error::Transport { detail })
    })?;
    Ok(Told { value, raw: answer.value })
}

/// How the answer is wanted; known before anything can go wrong with the rest.
pub(crate) fn wanted(given: &ArgMatches) -> Output {
    // Completions are no matter of the service, and have no such flag.
    match given.try_get_one::<String>("output").ok().flatten().map(String::as_str) {
        Some("json") => Output::Json,
        _ => Output::Human,
    }
}

fn servers(given: &ArgMatches) -> Result<Vec<String>, Failure> {
    if let Some(given) = given.get_many::<String>("server") {
        return Ok(given.cloned().collect());
    }
    let named = variable(SERVER)?.unwrap_or_default();
    let named: Vec<String> =
        named.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect();
    Ok(if named.is_empty() { vec![DEFAULT_SERVER.to_owned()] } else { named })
}

fn credential(given: &ArgMatches) -> Result<Option<String>, Failure> {
    match given.get_one::<PathBuf>("credential-file") {
        Some(path) => from_file(path).map(Some),
        None => Ok(variable(CREDENTIAL)?.filter(|credential| !credential.is_empty())),
    }
}

fn from_file(path: &Path) -> Result<String, Failure> {
    let wrong = |what: &dyn Display| Failure::Usage(format!("{}: {what}", path.display()));
    let size = fs::metadata(path).map_err(|error| wrong(&error))?.len();
    if size > CREDENTIAL_MAX {
        return Err(wrong(&"too large for a credential"));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    match text.trim() {
        "" => Err(wrong(&"there is no credential in it")),
        credential => Ok(credential.to_owned()),
    }
}

pub(crate) fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage(format!("{name} is not UTF-8")))
        }
    }
}

/// `USER@HOST`, as far as they are known: what an operator wants to read beside a lock.
pub(crate) fn own_label() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
    let machine = rustix::system::uname();
    let mut label = format!("{user}@{}", machine.nodename().to_string_lossy());
    // 256 bytes are allowed.
    label.truncate(label.floor_char_boundary(200));
    label
}
