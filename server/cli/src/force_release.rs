//! `leasehold force-release`: an operator ends a grant against its holder's will.

use crate::args;
use crate::duration::human;
use crate::failure::Failure;
use crate::service::Service;
use clap::{Arg, ArgAction, ArgMatches, Command};
use leasehold_wire::{ForceRelease, ForceReleased, ForceWhen};

const AFTER: &str = "\
By default the grant drains: it is not renewed any more and ends at its deadline, so that nobody is
let in while the holder may still believe. --now lets the next one in at once, and only fencing
keeps the old holder from writing. Both are recorded in the audit.

Example:
  leasehold force-release payments/invoice/42 34 --reason 'host 7 is gone, ticket 112'";

pub(crate) fn command() -> Command {
    Command::new("force-release")
        .about("End a lock against its holder's will")
        .after_help(AFTER)
        .arg(args::resource())
        .arg(
            args::token()
                .help("The token that you saw; if another one holds by now, nothing happens"),
        )
        .arg(
            Arg::new("reason")
                .long("reason")
                .value_name("TEXT")
                .required(true)
                .help("Why, for the audit: 1 to 512 bytes"),
        )
        .arg(
            Arg::new("now")
                .long("now")
                .action(ArgAction::SetTrue)
                .help("Do not wait for the deadline, although the holder may still be at work"),
        )
}

pub(crate) async fn run(given: &ArgMatches, service: &Service) -> Result<(), Failure> {
    let body = ForceRelease {
        resource: args::text(given, "resource").unwrap_or_default().into(),
        token: given.get_one("token").copied().unwrap_or_default(),
        reason: args::text(given, "reason").unwrap_or_default().into(),
        when: if given.get_flag("now") { ForceWhen::Now } else { ForceWhen::Drain },
    };
    let forced = service.post::<ForceReleased>("/v1/lock/force-release", &body).await?;
    service.show(&forced, told)
}

fn told(forced: &ForceReleased) -> String {
    match (forced.ended, forced.overlap) {
        (true, true) => "ended; its holder may still believe that it holds".to_owned(),
        (true, false) => "ended".to_owned(),
        (false, _) => {
            format!("draining: it ends in {} at the latest", human(forced.expires_in_ms))
        }
    }
}
