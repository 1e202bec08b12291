//! The statements that are raced: those of the kit's parts, those of the user, and none at all.

use super::session::{Script, Transactions};
use super::statement::Statement;
use crate::races::Race;
use crate::report::Weight;
use crate::tally::judged;
use crate::wanted::Own;

/// Statements, and what is raced through them.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    pub(crate) setup: Vec<Statement>,
    pub(crate) cleanup: Vec<Statement>,
    pub(crate) script: Script,
    pub(crate) races: Vec<(Race, Weight)>,
}

const SETUP: &str = "INSERT INTO {t} VALUES (:resource, 0, 0)
     ON CONFLICT (resource) DO UPDATE SET value = 0, last_token = 0";
const READ: &str = "SELECT value FROM {t} WHERE resource = :resource";
const WRITE: &str = "UPDATE {t} SET value = :value WHERE resource = :resource";
// With casts, as whatever else is called like that in the schema has other types.
const SEAL: &str = "SELECT leasehold.seal(:resource::text, :token::bigint)";
const GUARD: &str = "SELECT leasehold.guard(:resource::text, :token::bigint)";

/// The parts of the kit, on the table `table` of the test's own; the last schema has no fence.
pub(crate) fn of_the_kit(table: &str, trigger_table: &str) -> Vec<Schema> {
    let parts = Transactions::Parts;
    let kit = |name, write: &[&str], transactions| {
        built(name, table, &[SEAL], write, transactions, &judged(false))
    };
    let trigger =
        ["SET LOCAL leasehold.resource = :resource", "SET LOCAL leasehold.token = :token", WRITE];
    let passes = "UPDATE {t} SET value = :value \
         WHERE resource = :resource AND leasehold.passes(:resource::text, :token::bigint)";
    let conditional_seal = "UPDATE {t} SET last_token = :token \
         WHERE resource = :resource AND last_token <= :token";
    let conditional = "UPDATE {t} SET value = :value, last_token = :token \
         WHERE resource = :resource AND last_token <= :token";
    let strict = ["SELECT leasehold.guard(:resource::text, :token::bigint, true)", WRITE];
    let control = [(Race::Paused, Weight::Control), (Race::Updates, Weight::Control)];
    let whole = [(Race::Updates, Weight::Judged)];
    let mut schemas = vec![
        kit("guard", &[GUARD, WRITE], parts),
        kit("passes", &[passes], parts),
        built("trigger", trigger_table, &[SEAL], &trigger, parts, &judged(false)),
        built("conditional", table, &[conditional_seal], &[conditional], parts, &judged(false)),
        built("strict", table, &[SEAL], &strict, parts, &judged(true)),
        built("one-transaction", table, &[SEAL], &[GUARD, WRITE], Transactions::Whole, &whole),
        built("none", table, &[], &[WRITE], parts, &control),
    ];
    if let Some(trigger) = schemas.iter_mut().find(|schema| schema.name == "trigger") {
        // Its rows are made before it is protected.
        trigger.setup.clear();
    }
    schemas
}

/// What makes a row of the test's own table.
pub(crate) fn row(table: &str) -> Statement {
    Statement::new(&SETUP.replace("{t}", table))
}

fn built(
    name: &'static str,
    table: &str,
    seal: &[&str],
    write: &[&str],
    transactions: Transactions,
    races: &[(Race, Weight)],
) -> Schema {
    let on = |sqls: &[&str]| {
        sqls.iter().map(|sql| Statement::new(&sql.replace("{t}", table))).collect::<Vec<_>>()
    };
    Schema {
        name,
        setup: on(&[SETUP]),
        cleanup: Vec::new(),
        script: Script {
            seal: on(seal),
            read: on(&[READ]),
            write: on(write),
            transactions,
            refusals: Vec::new(),
            own: false,
        },
        races: races.to_vec(),
    }
}

/// The user's own.
pub(crate) fn of_the_user(own: &Own) -> Schema {
    let all = |sqls: &[String]| sqls.iter().map(|sql| Statement::new(sql)).collect::<Vec<_>>();
    let transactions = if own.autocommit { Transactions::Statements } else { Transactions::Parts };
    Schema {
        name: "own",
        setup: all(&own.setup),
        cleanup: all(&own.cleanup),
        script: Script {
            seal: all(&own.seal),
            read: all(&own.read),
            write: all(&own.write),
            transactions,
            refusals: own.refusals.clone(),
            own: true,
        },
        races: own.races(),
    }
}
