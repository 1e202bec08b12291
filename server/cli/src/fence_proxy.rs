//! `leasehold fence-proxy`: a reverse proxy that refuses stale writes, before any HTTP storage.
//!
//! Unlike the other commands it serves, so it has a runtime with a thread for each core.

use crate::duration::duration;
use crate::failure::Failure;
use crate::service::{self, ATTEMPT_MAX, Service};
use crate::{complain, exit};
use clap::builder::{NonEmptyStringValueParser, TypedValueParser as _};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use leasehold_fence_proxy::{
    Home, Limits, Pattern, Proxy, Rules, Settings, StartError, Stopped, Target,
};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The name of the command.
pub const NAME: &str = "fence-proxy";

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
belongs to none is passed on as it is.

One proxy stands before one upstream: it holds the lock fence-proxy/UPSTREAM, and a second one ends
with 75. After an unclean stop newer tokens wait the longer of --upstream-settle and
--upstream-timeout. The data directory holds the highest tokens and is never to be deleted.

LEASEHOLD_LOG chooses what is logged; `info,leasehold_fence_proxy::refused=info` tells of every
refused request with its trace_id.

Exit codes: 0 stopped in order, 64 wrong use, 69 no server could serve, 70 could not start, 75
another proxy stands before this upstream.";

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
        help: "How many newer writes wait at a time",
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

pub(crate) fn command() -> Command {
    let text =
        |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    Command::new(NAME)
        .about("Stand before an HTTP storage and refuse stale writes")
        .after_help(AFTER)
        .args([
            text("upstream", "URL").required(true).help("The storage: http://HOST:PORT or https://HOST"),
            text("listen", "ADDR").value_parser(value_parser!(SocketAddr)).default_value("127.0.0.1:7080").help("Where clients come in"),
            text("data-dir", "DIR").value_parser(value_parser!(PathBuf)).default_value("./leasehold-fence").help("Where the highest tokens are kept"),
            text("protect", "PATTERN[=RESOURCE]").action(ArgAction::Append).help("What is protected, and by which resource; may be given several times [default: /**]"),
            text("read-methods", "LIST").help("Methods that change nothing; all others are writes [default: GET,HEAD,OPTIONS,TRACE,PROPFIND]"),
            text("strict", "").action(ArgAction::SetTrue).help("Let each token pass only once"),
            text("check-tokens", "on|off").value_parser(["on", "off"]).default_value("on").hide_possible_values(true).help("Ask the service about a token higher than any seen, so that nobody can invent one"),
            text("upstream-name", "NAME").value_parser(NonEmptyStringValueParser::new()).help("What the upstream is called in the proxy's lock, where several URLs lead to it [default: its URL]"),
            text("upstream-ca", "FILE").value_parser(value_parser!(PathBuf)).help("Who may have signed the upstream's certificate, in PEM [default: whom the machine trusts]"),
            text("ops-listen", "ADDR").value_parser(value_parser!(SocketAddr)).help("Where /livez, /readyz and /metrics are [default: nowhere]"),
            text("log", "text|json").value_parser(["text", "json"]).default_value("text").hide_possible_values(true).help("The format of the log lines"),
            text("resources-max", "N").value_parser(value_parser!(u64).range(1..)).help("How many resources have a highest token of their own [default: 1000000]"),
        ])
        .args(TIMES.iter().map(time))
        .args(COUNTS.iter().map(count))
        .args(service::flags())
}

fn time(bound: &Bound<Duration>) -> Arg {
    let default = (bound.of)(&mut Limits::default()).as_millis();
    let default = crate::duration::human(u64::try_from(default).unwrap_or(u64::MAX));
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

/// Whether log lines are wanted as JSON.
#[must_use]
pub fn json_log(given: &ArgMatches) -> bool {
    given.get_one::<String>("log").is_some_and(|format| format == "json")
}

/// Serves until a signal ends it.
pub(crate) fn main(given: &ArgMatches) -> ExitCode {
    match run(given) {
        Ok(code) => code,
        Err(failure) => {
            crate::complain_of(&failure, service::wanted(given));
            ExitCode::from(match failure {
                Failure::Local(_) => exit::FAILED,
                failure => failure.exit_code(),
            })
        }
    }
}

fn run(given: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = settings(given)?;
    let dir = given.get_one::<PathBuf>("data-dir").cloned().unwrap_or_default();
    let home = Home::open(&dir, &service::own_label());
    let home = home.map_err(|error| Failure::Local(error.to_string()))?;
    let client = Service::new(given, Some(home.client_id().to_owned()), ATTEMPT_MAX)?.client;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Local(error.to_string()))?;
    runtime.block_on(async {
        let proxy = match Proxy::start(settings, home, client).await {
            Ok(proxy) => proxy,
            Err(error) => return not_started(error),
        };
        say(given, &proxy, &dir);
        stop_signal().await;
        match proxy.stop().await {
            Stopped::Clean => {}
            Stopped::Settling => complain(
                "stopped before the writes from before its start had settled: the next start waits \
                 for them",
            ),
            Stopped::Unclean => {
                complain("stopped while writes were in flight: the next start waits for them");
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn not_started(error: StartError) -> Result<ExitCode, Failure> {
    match error {
        StartError::Held { .. } => {
            complain(&format!("held: {error}"));
            Ok(ExitCode::from(exit::NOT_GOT))
        }
        StartError::Service(error) => Err((*error).into()),
        StartError::Setting(detail) => Err(Failure::Usage(detail)),
        error @ StartError::OtherUpstream { .. } => Err(Failure::Usage(error.to_string())),
        other => Err(Failure::Local(other.to_string())),
    }
}

/// A closed standard output is no reason to stop serving.
fn say(given: &ArgMatches, proxy: &Proxy, dir: &std::path::Path) {
    let mut lines = vec![format!(
        "leasehold fence-proxy {} listening on http://{}",
        env!("CARGO_PKG_VERSION"),
        proxy.address()
    )];
    let upstream = given.get_one::<String>("upstream").cloned().unwrap_or_default();
    lines.push(format!("passes on to {upstream}"));
    lines.extend(
        proxy.ops_address().map(|address| format!("health and metrics on http://{address}")),
    );
    lines.push(format!("highest tokens in {}", dir.display()));
    let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
}

fn settings(given: &ArgMatches) -> Result<Settings, Failure> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let upstream = Target::parse(text("upstream").unwrap_or_default());
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
    if let Some(patterns) = given.get_many::<String>("protect") {
        rules.protect = patterns
            .map(|text| Pattern::parse(text))
            .collect::<Result<_, _>>()
            .map_err(|why| Failure::Usage(format!("--protect: {why}")))?;
    }
    Ok(rules)
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

/// Every client takes two descriptors, its own and one to the upstream, and systems start
/// processes with few of them.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is not allowed, clients beyond the limit wait to be accepted.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns at SIGTERM or SIGINT.
async fn stop_signal() {
    let (term, int) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut term), Ok(mut int)) = (term, int) else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
