//! Settings from a file and from the environment, for what the command line leaves out.
//!
//! What they say is put on the command line, where its own parsers read it: there is one way to
//! write a setting, and one place that knows what is wrong with it.

use crate::failure::Failure;
use crate::fence_proxy::args::command;
use crate::service::{CREDENTIAL, SERVER};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Before a key in the environment. Not that of `serve` alone: both may run in one environment,
/// and both listen.
const PREFIX: &str = "LEASEHOLD_FENCE_PROXY_";

/// Between several values in one variable: no path that is protected has it.
const BETWEEN: char = ';';

/// What a file is told of, and what it cannot tell.
const NOT_IN_FILES: [&str; 3] = ["config", "help", "version"];

/// Where the service is has variables of its own, which count before a file.
const OF_THE_SERVICE: [(&str, &str); 2] = [("server", SERVER), ("credential-file", CREDENTIAL)];

/// The values of one flag, and where they stand.
struct Said {
    values: Vec<String>,
    origin: String,
}

/// By the name of the flag.
type All = BTreeMap<String, Said>;

/// The command line with what file and environment say where it says nothing itself.
pub(super) fn complete(
    given: &ArgMatches,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<ArgMatches, Failure> {
    let command = command();
    let environment: BTreeMap<_, _> = environment.collect();
    let (mut said, mut mistakes) = (All::new(), Vec::new());
    if let Some(path) = given.get_one::<PathBuf>("config") {
        read_file(path, &command, &mut said, &mut mistakes);
        said.retain(|flag, _| !is_in_force(flag, &environment));
    }
    read_environment(&environment, &command, &mut said, &mut mistakes);
    let mut line = Vec::new();
    for arg in command.get_arguments() {
        if is_given(given, arg) {
            line.extend(again(given, arg));
        } else if let Some(said) = said.get(arg.get_id().as_str()) {
            match written(arg, said) {
                Ok(words) => line.extend(words),
                Err(mistake) => mistakes.push(mistake),
            }
        }
    }
    if !mistakes.is_empty() {
        return Err(Failure::Usage(mistakes.join("; ")));
    }
    let parsed = command.no_binary_name(true).try_get_matches_from(line);
    parsed.map_err(|error| Failure::Usage(first_line(&error)))
}

/// Whether a variable of the service says what this flag of a file says.
fn is_in_force(flag: &str, environment: &BTreeMap<String, String>) -> bool {
    let mut of_the_service = OF_THE_SERVICE.iter().filter(|(name, _)| *name == flag);
    of_the_service.any(|(_, variable)| environment.get(*variable).is_some_and(|it| !it.is_empty()))
}

fn read_file(path: &Path, command: &Command, said: &mut All, mistakes: &mut Vec<String>) {
    let wrong = |what: &str| format!("{}: {what}", path.display());
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return mistakes.push(wrong(&error.to_string())),
    };
    let table = match text.parse::<toml::Table>() {
        Ok(table) => table,
        Err(error) => return mistakes.push(wrong(error.to_string().trim())),
    };
    for (key, value) in table {
        let Some(flag) = flag_of(&key, command) else {
            mistakes.push(wrong(&format!("unknown key `{key}`")));
            continue;
        };
        match plain(value) {
            Some(values) => {
                said.insert(flag, Said { values, origin: path.display().to_string() });
            }
            None => mistakes.push(wrong(&format!("`{key}` is no text, number or list of texts"))),
        }
    }
}

fn read_environment(
    environment: &BTreeMap<String, String>,
    command: &Command,
    said: &mut All,
    mistakes: &mut Vec<String>,
) {
    for (variable, value) in environment {
        let Some(key) = variable.strip_prefix(PREFIX) else { continue };
        let flag = flag_of(&key.to_ascii_lowercase(), command);
        // The service has variables of its own.
        let Some(flag) = flag.filter(|flag| OF_THE_SERVICE.iter().all(|(name, _)| name != flag))
        else {
            mistakes.push(format!("{variable}: there is no such setting"));
            continue;
        };
        let values = value.split(BETWEEN).map(|value| value.trim().to_owned()).collect();
        said.insert(flag, Said { values, origin: variable.clone() });
    }
}

/// A key is a flag with `_` for `-`.
fn flag_of(key: &str, command: &Command) -> Option<String> {
    let flag = key.replace('_', "-");
    let known = command.get_arguments().any(|arg| arg.get_id().as_str() == flag);
    (known && !key.contains('-') && !NOT_IN_FILES.contains(&&*flag)).then_some(flag)
}

fn plain(value: toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::String(text) => Some(vec![text]),
        toml::Value::Integer(number) => Some(vec![number.to_string()]),
        toml::Value::Boolean(yes) => Some(vec![yes.to_string()]),
        toml::Value::Array(items) => {
            items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    }
}

fn is_given(given: &ArgMatches, arg: &Arg) -> bool {
    given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
}

/// What the command line said.
fn again(given: &ArgMatches, arg: &Arg) -> Vec<OsString> {
    let name = arg.get_id().as_str();
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return vec![format!("--{name}").into()];
    }
    let values = given.get_raw(name).into_iter().flatten();
    values.map(|value| word(name, value.to_owned())).collect()
}

fn word(name: &str, value: OsString) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    word
}

/// What a file or a variable says, as it would stand on the command line.
fn written(arg: &Arg, said: &Said) -> Result<Vec<OsString>, String> {
    let name = arg.get_id().as_str();
    let wrong = |what: &str| format!("{} ({}): {what}", name.replace('-', "_"), said.origin);
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return match said.values.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["true"] => Ok(vec![format!("--{name}").into()]),
            ["false"] => Ok(Vec::new()),
            _ => Err(wrong("it is true or false")),
        };
    }
    if said.values.len() != 1 && !matches!(arg.get_action(), ArgAction::Append) {
        return Err(wrong("it has one value"));
    }
    let words: Vec<_> = said.values.iter().map(|value| word(name, value.into())).collect();
    // Alone, so that the mistake is told with its origin.
    let alone = Command::new("alone").no_binary_name(true).arg(arg.clone());
    match alone.try_get_matches_from(&words) {
        Ok(_) => Ok(words),
        Err(error) => Err(wrong(&first_line(&error))),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn completed(flags: &[&str], environment: &[(&str, &str)]) -> Result<ArgMatches, String> {
        let given = command().no_binary_name(true).try_get_matches_from(flags);
        let pairs =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        complete(&given.expect("flags that exist"), pairs).map_err(|failure| failure.detail())
    }

    /// A file that goes away with its test.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("leasehold-fence-proxy-{}-{name}.toml", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).expect("a file");
            Self(path)
        }

        fn flags<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
            let own = ["--config", self.0.to_str().expect("a plain path")];
            own.iter().chain(more).copied().collect()
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn all(given: &ArgMatches, name: &str) -> Vec<String> {
        given.get_many::<String>(name).into_iter().flatten().cloned().collect()
    }

    #[test]
    fn flags_go_before_the_environment_and_that_before_a_file() {
        let file = File::new(
            "order",
            "upstream = \"http://file:1\"\nwait_max = \"1s\"\ndrain = \"1s\"\nwaiting_max = 1\n\
             strict = true\nprotect = [\"/a/**\", \"/b={x}\"]\n",
        );
        let environment = [
            ("LEASEHOLD_FENCE_PROXY_WAIT_MAX", "2s"),
            ("LEASEHOLD_FENCE_PROXY_DRAIN", "2s"),
            ("LEASEHOLD_FENCE_PROXY_MAKES_ONLY", "POST /a; POST /b"),
            ("LEASEHOLD_LISTEN", "that of a node"),
            ("LEASEHOLD_SERVER", "http://x"),
        ];
        let given = completed(&file.flags(&["--drain", "3s"]), &environment).expect("settings");
        let time = |name| *given.get_one::<Duration>(name).expect("a time");
        let seconds = Duration::from_secs;
        assert_eq!((time("wait-max"), time("drain")), (seconds(2), seconds(3)));
        assert_eq!(all(&given, "upstream"), ["http://file:1"]);
        assert_eq!(given.get_one::<usize>("waiting-max"), Some(&1));
        assert!(given.get_flag("strict"));
        assert_eq!(all(&given, "protect"), ["/a/**", "/b={x}"]);
        assert_eq!(all(&given, "makes-only"), ["POST /a", "POST /b"]);
    }

    #[test]
    fn what_the_command_line_says_stays_as_it_is() {
        let flags =
            ["--protect", "/a", "--protect=-x", "--strict", "--server", "a", "--server", "b"];
        let given =
            completed(&flags, &[("LEASEHOLD_FENCE_PROXY_PROTECT", "/c")]).expect("settings");
        assert_eq!(all(&given, "protect"), ["/a", "-x"]);
        assert_eq!(all(&given, "server"), ["a", "b"]);
        assert!(given.get_flag("strict"));
        let given = completed(&[], &[("LEASEHOLD_FENCE_PROXY_STRICT", "false")]).expect("settings");
        assert!(!given.get_flag("strict"));
    }

    #[test]
    fn the_variables_of_the_service_count_before_a_file() {
        let file = File::new("server", "server = [\"a\", \"b\"]\ncredential_file = \"c\"\n");
        let servers = |environment: &[_]| {
            all(&completed(&file.flags(&[]), environment).expect("settings"), "server")
        };
        assert_eq!(servers(&[]), ["a", "b"]);
        assert_eq!(servers(&[("LEASEHOLD_SERVER", "")]), ["a", "b"]);
        assert!(servers(&[("LEASEHOLD_SERVER", "x")]).is_empty());
    }

    #[test]
    fn all_mistakes_are_told_at_once_and_with_their_origin() {
        let file =
            File::new("wrong", "wait_max = \"soon\"\nnonsense = 1\nconfig = \"x\"\ndrain = 1.5\n");
        let environment = [
            ("LEASEHOLD_FENCE_PROXY_LISTEN", "here"),
            ("LEASEHOLD_FENCE_PROXY_STRICT", "perhaps"),
            ("LEASEHOLD_FENCE_PROXY_SERVER", "x"),
            ("LEASEHOLD_FENCE_PROXY_HEAD_MAX", "1;2"),
        ];
        let told = completed(&file.flags(&[]), &environment).expect_err("mistakes");
        let name = file.0.display();
        for one in [
            format!("wait_max ({name}): "),
            format!("{name}: unknown key `nonsense`"),
            format!("{name}: unknown key `config`"),
            format!("{name}: `drain` is no text"),
            "listen (LEASEHOLD_FENCE_PROXY_LISTEN): ".to_owned(),
            "strict (LEASEHOLD_FENCE_PROXY_STRICT): ".to_owned(),
            "LEASEHOLD_FENCE_PROXY_SERVER: there is no such setting".to_owned(),
            "head_max (LEASEHOLD_FENCE_PROXY_HEAD_MAX): it has one value".to_owned(),
        ] {
            assert!(told.contains(&one), "{one} is not in {told}");
        }
        assert!(completed(&["--config", "/nowhere/at/all"], &[]).is_err());
    }
}
