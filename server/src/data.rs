//! What the commands of the client side do to files of a node.

use leasehold_cli::data::{Checked, Data, Floor, Refused, Restored, Wanted};
use leasehold_core::restore::RestoreError;
use leasehold_node::backup::{self, RecoverSettings, RestoreFailed, RestoreSettings, TokenFloor};
use leasehold_wire::Time;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The files as this program knows them.
#[derive(Debug, Clone, Copy)]
pub struct Files;

impl Data for Files {
    fn check(&self, file: &Path) -> Result<Checked, Refused> {
        let refused = |error: &dyn Error| {
            Refused(format!("{}: {}", file.display(), crate::serve::chain(error)))
        };
        let opened = File::open(file).map_err(|error| refused(&error))?;
        let checked = backup::check(BufReader::new(opened)).map_err(|error| refused(&error))?;
        Ok(Checked {
            cluster_id: checked.cluster,
            revision: checked.revision.to_string(),
            last_token: checked.last_token,
            taken_at: Time(checked.taken_at_ms),
            node: checked.node,
            version: checked.version,
            bytes: checked.bytes,
        })
    }

    fn restore(&self, file: &Path, wanted: &Wanted) -> Result<Restored, Refused> {
        let restored = backup::restore(&RestoreSettings {
            file: file.to_owned(),
            dir: wanted.dir.clone(),
            node: wanted.node,
            floor: floor(wanted.floor),
            hold_ms: wanted.hold_ms,
        });
        told(restored, &wanted.dir)
    }

    fn recover(&self, wanted: &Wanted) -> Result<Restored, Refused> {
        let recovered = backup::recover(&RecoverSettings {
            dir: wanted.dir.clone(),
            floor: floor(wanted.floor),
            hold_ms: wanted.hold_ms,
        });
        told(recovered, &wanted.dir)
    }
}

fn floor(floor: Floor) -> TokenFloor {
    match floor {
        Floor::At(floor) => TokenFloor::At(floor),
        Floor::Auto { seen } => TokenFloor::Auto { seen },
    }
}

/// With the flags that there are for it.
fn refusal(error: &RestoreFailed) -> String {
    let told = crate::serve::chain(error);
    match error {
        RestoreFailed::Rule(RestoreError::NothingOpen) => {
            format!("{told} (`--wait TIME`, or `--no-wait`)")
        }
        _ => told,
    }
}

fn told(
    restored: Result<backup::Restored, RestoreFailed>,
    dir: &Path,
) -> Result<Restored, Refused> {
    let restored = restored.map_err(|error| Refused(refusal(&error)))?;
    Ok(Restored {
        cluster_id: restored.cluster,
        node: restored.node,
        data_dir: dir.to_owned(),
        token_floor: restored.token_floor,
        last_token: restored.last_token,
        revision_before: restored.before.to_string(),
        revision: restored.revision.to_string(),
        hold_ms: restored.hold_ms,
        grants_ended: restored.grants,
        leases_ended: restored.leases,
        waiters_dropped: restored.waiters,
        files_before: restored.kept,
    })
}
