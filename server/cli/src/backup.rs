//! `leasehold backup`: everything that the service has, as one file.

use crate::data::{Checked, Data};
use crate::failure::Failure;
use crate::output::shown;
use crate::service::{self, Service};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

const AFTER: &str = "\
Any server gives a backup, while the service works: the state and the history as of one instant, and
everything that was answered before it. The file is checked before it gets its name, so a file with
that name is whole. Keep it where the service's disks are not.

Example:
  leasehold backup /backups/leasehold-$(date +%F)";

/// The command.
pub(crate) const NAME: &str = "backup";

pub(crate) fn command() -> Command {
    Command::new(NAME)
        .about("Write a backup of the whole service into a file")
        .after_help(format!("{AFTER}\n\n{}", crate::exit::HELP))
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Where to; it must not be there"),
        )
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .help("Replace a file that is there"),
        )
        .args(service::flags())
}

pub(crate) async fn run(
    given: &ArgMatches,
    service: &Service,
    data: &dyn Data,
) -> Result<(), Failure> {
    let file = given.get_one::<PathBuf>("file").cloned().unwrap_or_default();
    if file.exists() && !given.get_flag("force") {
        let why = "is there already; --force replaces it";
        return Err(Failure::Usage(format!("{}: {why}", file.display())));
    }
    let part = unfinished(&file);
    let written = write(service, &part).await;
    let checked = written.and_then(|()| Ok(data.check(&part)?));
    let kept = checked.and_then(|checked| keep(&part, &file).map(|()| checked));
    if kept.is_err() {
        // What came so far is no backup.
        let _ = fs::remove_file(&part);
    }
    service.show_value(&kept?, |checked| told(checked, &file))
}

fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

async fn write(service: &Service, part: &Path) -> Result<(), Failure> {
    let mut backup = service.client.backup().await?;
    let failed = |error| local(part, &error);
    let mut file = File::create(part).map_err(failed)?;
    while let Some(bytes) = backup.next().await? {
        file.write_all(&bytes).map_err(failed)?;
    }
    file.sync_all().map_err(failed)
}

/// Under its name, durably.
fn keep(part: &Path, file: &Path) -> Result<(), Failure> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or_else(|| Path::new("."));
    fs::rename(part, file)
        .and_then(|()| File::open(dir)?.sync_all())
        .map_err(|error| local(file, &error))
}

fn local(path: &Path, error: &io::Error) -> Failure {
    Failure::Local(format!("{}: {error}", path.display()))
}

fn told(checked: &Checked, file: &Path) -> String {
    let Checked { cluster_id, revision, last_token, bytes, node, .. } = checked;
    format!(
        "{}: {bytes} bytes from node {node} of cluster {}, up to revision {revision} and token \
         {last_token}",
        shown(&file.display().to_string()),
        cluster_id.as_deref().unwrap_or("-"),
    )
}
