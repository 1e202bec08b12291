//! The command line of the proxy, and what it says in the terms of the proxy.

use crate::duration::{duration, human};
use crate::failure::Failure;
use crate::fence_proxy::NAME;
use crate::service;
use clap::builder::{NonEmptyStringValueParser, TypedValueParser as _};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use leasehold_fence_proxy::{Limits, MakesOnly, Pattern, Rules, Settings, Target};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const AFTER: &str = "\
Every write names the grant that it is made under:
  Fencing-Resource  what is locked, percent-encoded UTF-8
  Fencing-Token     the token of the grant
A token lower than one that was shown for the resource is refused (412 stale_token) before the
upstream gets a byte. A higher one is recorded first, and then waits for older writes in flight. A
read with both headers records its token as well, so that what it reads cannot be overtaken: the
first request of a new holder.

--protect PATTERN[=RESOURCE] says what is protected, and by which resource. Segments of a pattern
are texts, * or {name} for any one, and ** at the end for all the rest; RESOURCE may use the names:
  --protect '/invoices/{id}=invoice/{id}'
The first pattern that matches a path counts, and otherwise the nearest one above it; a path that
belongs to none is passed on as it is. A write on a path below which others have theirs is refused;
--makes-only METHOD PATTERN says which of them only make something new:
  --makes-only 'POST /invoices'

One proxy stands before one upstream: it holds the lock fence-proxy/UPSTREAM, and a second one ends
with 75. After an unclean stop newer tokens wait the longer of --upstream-settle and
--upstream-timeout, and --lock-ttl more where the lock did not end by itself. The data directory holds the highest tokens and is never to be deleted.

Settings are taken from defaults, then --config FILE (TOML, one `key = value` a line; a key is a
flag with _ for -, times are texts such as 30s in quotes, several values a list), then the environment
(LEASEHOLD_FENCE_PROXY_ and the key in upper case, several values with ; between them), then flags.

LEASEHOLD_LOG chooses what is logged; `info,leasehold_fence_proxy::refused=info` tells of every
refused request with its trace_id.

Exit codes: 0 stopped in order, 1 refused by the service, 64 wrong use or settings, 69 no server
could serve, 70 could not start, 75 another proxy stands before this upstream, 79 stopped while
writes were in flight: --drain was over.";

/// A bound that can be set: its flag, its help, and where it goes.
struct Bound<T: 'static> {
    flag: &'static str,
    help: &'static str,
    of: fn(&mut Limits) -> &mut T,
}

const TIMES: &[Bound<Duration>] = &[
    Bound {
        flag: "upstream-timeout",
        help: "How long the upstream may neither take nor say a byte",
        of: |limits| &mut limits.upstream_timeout,
    },
    Bound {
        flag: "upstream-settle",
        help: "How long a write without a complete answer counts as in flight after its connection ended: longer than the upstream works on one",
        of: |limits| &mut limits.upstream_settle,
    },
    Bound {
        flag: "upstream-idle",
        help: "How long a connection to the upstream is kept unused: shorter than the upstream keeps it",
        of: |limits| &mut limits.upstream_idle,
    },
    Bound {
        flag: "connect-timeout",
        help: "How long connecting to the upstream may take",
        of: |limits| &mut limits.connect_timeout,
    },
    Bound {
        flag: "wait-max",
        help: "How long a newer write waits for older ones",
        of: |limits| &mut limits.wait_max,
    },
    Bound {
        flag: "write-max",
        help: "How long one write may take in all",
        of: |limits| &mut limits.write_max,
    },
    Bound {
        flag: "head-timeout",
        help: "How long a client may take for a head, and leave a connection unused",
        of: |limits| &mut limits.head_timeout,
    },
    Bound {
        flag: "client-timeout",
        help: "How long a client may be silent in a body, and take nothing of an answer",
        of: |limits| &mut limits.client_timeout,
    },
    Bound {
        flag: "check-timeout",
        help: "How long the service may take to say whether a token is its own",
        of: |limits| &mut limits.check_timeout,
    },
    Bound {
        flag: "drain",
        help: "How long a stop waits for what is under way",
        of: |limits| &mut limits.drain,
    },
    Bound {
        flag: "lock-ttl",
        help: "The TTL of the proxy's own lock",
        of: |limits| &mut limits.lock_ttl,
    },
];

const COUNTS: &[Bound<usize>] = &[
    Bound {
        flag: "waiting-max",
        help: "How many newer writes wait for older ones at a time",
        of: |limits| &mut limits.waiting_max,
    },
    Bound {
        flag: "connections-max",
        help: "How many clients are connected at a time",
        of: |limits| &mut limits.connections_max,
    },
    Bound {
        flag: "head-max",
        help: "The largest head of a request or an answer, in bytes; at least 8192",
        of: |limits| &mut limits.head_max,
    },
    Bound {
        flag: "checks-max",
        help: "How many tokens the service is asked about at a time",
        of: |limits| &mut limits.checks_max,
    },
];

/// The command.
pub(crate) fn command() -> Command {
    let text =
        |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    Command::new(NAME)
        .about("Stand before an HTTP storage and refuse stale writes")
        .after_help(AFTER)
        .args([
            text("config", "FILE").value_parser(value_parser!(PathBuf)).help("Read settings from this TOML file"),
            text("upstream", "URL").help("The storage: http://HOST:PORT or https://HOST"),
            text("listen", "ADDR").value_parser(value_parser!(SocketAddr)).default_value("127.0.0.1:7080").help("Where clients come in"),
            text("data-dir", "DIR").value_parser(value_parser!(PathBuf)).default_value("./leasehold-fence").help("Where the highest tokens are kept"),
            text("protect", "PATTERN[=RESOURCE]").action(ArgAction::Append).help("What is protected, and by which resource; may be given several times [default: /**]"),
            text("makes-only", "METHOD PATTERN").action(ArgAction::Append).help("Writes that make something new and change nothing that is there, beside MKCOL; may be given several times"),
            text("read-methods", "LIST").help("Methods that change nothing; all others are writes [default: GET,HEAD,OPTIONS,TRACE,PROPFIND]"),
            text("strict", "").action(ArgAction::SetTrue).help("Let each token pass only once"),
            text("check-tokens", "on|off").value_parser(["on", "off"]).default_value("on").hide_possible_values(true).help("Ask the service about a token higher than any seen, so that nobody can invent one"),
            text("upstream-name", "NAME").value_parser(NonEmptyStringValueParser::new()).help("What the upstream is called in the proxy's lock, where several URLs lead to it [default: its URL]"),
            text("upstream-ca", "FILE").value_parser(value_parser!(PathBuf)).help("Who may have signed the upstream's certificate, in PEM [default: whom the machine trusts]"),
            text("ops-listen", "ADDR").value_parser(value_parser!(SocketAddr)).help("Where /livez, /readyz and /metrics are [default: nowhere]"),
            text("log-format", "text|json").value_parser(["text", "json"]).default_value("text").hide_possible_values(true).help("How log lines are written to standard error"),
            text("resources-max", "N").value_parser(value_parser!(u64).range(1..)).help("How many resources have a highest token of their own [default: 1000000]"),
        ])
        .args(TIMES.iter().map(time))
        .args(COUNTS.iter().map(count))
        .args(service::flags())
}

fn time(bound: &Bound<Duration>) -> Arg {
    let default = (bound.of)(&mut Limits::default()).as_millis();
    let default = human(u64::try_from(default).unwrap_or(u64::MAX));
    let help = format!("{} [default: {default}]", bound.help);
    Arg::new(bound.flag)
        .long(bound.flag)
        .value_name("TIME")
        .value_parser(duration)
        .help_heading("Bounds")
        .help(help)
}

fn count(bound: &Bound<usize>) -> Arg {
    let default = *(bound.of)(&mut Limits::default());
    let help = format!("{} [default: {default}]", bound.help);
    Arg::new(bound.flag)
        .long(bound.flag)
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..).map(|count| count as usize))
        .help_heading("Bounds")
        .help(help)
}

/// What was given, checked.
pub(super) fn settings(given: &ArgMatches) -> Result<Settings, Failure> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let upstream = text("upstream").ok_or_else(|| {
        Failure::Usage("--upstream: where the storage is has to be said".to_owned())
    })?;
    let upstream = Target::parse(upstream);
    let address = |name: &str| given.get_one::<SocketAddr>(name).copied();
    Ok(Settings {
        upstream: upstream.map_err(|why| Failure::Usage(format!("--upstream: {why}")))?,
        upstream_name: text("upstream-name").map(str::to_owned),
        upstream_ca: given.get_one::<PathBuf>("upstream-ca").cloned(),
        listen: address("listen").unwrap_or(SocketAddr::from(([127, 0, 0, 1], 7080))),
        ops_listen: address("ops-listen"),
        rules: rules(given)?,
        check_tokens: text("check-tokens") != Some("off"),
        strict: given.get_flag("strict"),
        limits: limits(given)?,
    })
}

fn rules(given: &ArgMatches) -> Result<Rules, Failure> {
    let mut rules = Rules::default();
    if let Some(methods) = given.get_one::<String>("read-methods") {
        rules.read_methods = Rules::methods(methods)
            .map_err(|why| Failure::Usage(format!("--read-methods: {why}")))?;
    }
    if let Some(makes_only) = given.get_many::<String>("makes-only") {
        rules.makes_only = makes_only
            .map(|text| MakesOnly::parse(text))
            .collect::<Result<_, _>>()
            .map_err(|why| Failure::Usage(format!("--makes-only: {why}")))?;
    }
    if let Some(patterns) = given.get_many::<String>("protect") {
        rules.protect = protect(&patterns.map(String::as_str).collect::<Vec<_>>())
            .map_err(|why| Failure::Usage(format!("--protect: {why}")))?;
    }
    Ok(rules)
}

fn protect(texts: &[&str]) -> Result<Vec<Pattern>, String> {
    let patterns = texts.iter().map(|text| Pattern::parse(text)).collect::<Result<Vec<_>, _>>()?;
    match Rules::idle(&patterns) {
        None => Ok(patterns),
        Some((idle, before)) => Err(format!(
            "`{}` never counts: `{}` stands before it and takes all of its paths",
            texts[idle], texts[before]
        )),
    }
}

fn limits(given: &ArgMatches) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    for bound in TIMES {
        if let Some(time) = given.get_one::<Duration>(bound.flag) {
            *(bound.of)(&mut limits) = *time;
        }
    }
    for bound in COUNTS {
        if let Some(count) = given.get_one::<usize>(bound.flag) {
            *(bound.of)(&mut limits) = *count;
        }
    }
    if let Some(max) = given.get_one::<u64>("resources-max") {
        limits.resources_max = *max;
    }
    limits.check().map_err(Failure::Usage)?;
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> Result<ArgMatches, String> {
        let upstream = ["fence-proxy", "--upstream", "http://127.0.0.1:1"];
        let parsed = command().try_get_matches_from(upstream.iter().chain(args));
        parsed.map_err(|error| error.to_string())
    }

    fn refused(args: &[&str]) -> String {
        match settings(&given(args).expect("flags that exist")) {
            Err(Failure::Usage(detail)) => detail,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn an_upstream_has_a_name_that_is_not_empty() {
        let error = given(&["--upstream-name", ""]).expect_err("refused");
        assert!(error.contains("--upstream-name"), "{error}");
        let named = given(&["--upstream-name", "store"]).expect("a name");
        assert_eq!(settings(&named).expect("settings").upstream_name.as_deref(), Some("store"));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_flag() {
        for (args, flag) in [
            (["--protect", "a"], "--protect: "),
            (["--makes-only", "POST"], "--makes-only: "),
            (["--read-methods", "GET,,"], "--read-methods: "),
            (["--wait-max", "0s"], "--wait-max: "),
        ] {
            assert!(refused(&args).starts_with(flag), "{args:?}: {}", refused(&args));
        }
        let idle =
            refused(&["--protect", "/b", "--protect", "/a/**", "--protect", "/a/{id}=a/{id}"]);
        assert!(idle.starts_with("--protect: `/a/{id}=a/{id}` never counts: `/a/**`"), "{idle}");
        let none = command().try_get_matches_from(["fence-proxy"]).expect("no flag at all");
        assert!(
            matches!(settings(&none), Err(Failure::Usage(detail)) if detail.starts_with("--upstream: "))
        );
    }

    #[test]
    fn the_format_of_the_log_has_the_name_that_it_has_for_a_node() {
        assert!(given(&["--log", "json"]).is_err());
        let json = given(&["--log-format", "json"]).expect("a format");
        assert!(crate::fence_proxy::json_log(&json));
    }
}
