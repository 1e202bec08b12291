//! The scripts of the kit, and the queries in them that the commands run as well.
//!
//! Nothing in a database that is called `leasehold` is taken for the kit's, so that a query of it that a
//! command needs cannot be a call of the kit. There is one text of each, in the script.

/// What installs the kit, or brings an older one up to date.
pub const INSTALL: &str = include_str!("../../postgres/install.sql");
/// What removes it.
pub const REMOVE: &str = include_str!("../../postgres/remove.sql");
/// The version that [`INSTALL`] installs.
pub const VERSION: i64 = 2;

/// What is in the schema or on the tables of the kit and not of its making, and what it made and is gone:
/// what it is, the statement that sets it right if there is one, whether installing does, and whether it
/// is gone. For a session whose path is that of the system.
pub(super) const STRANGE: &str = between(
    INSTALL,
    "-- Begin: what the kit has not made, and what it has made and is gone.",
    "-- End.",
);

/// The tables in trigger mode, as `leasehold.protected` has them. For a session whose path is that of
/// the system.
pub(super) const PROTECTED: &str =
    between(INSTALL, "-- Begin: the tables in trigger mode.", "-- End.");

/// By which column the rows of a table `p.target` in trigger mode are judged, whatever its triggers call
/// it, and whether the name that they have, `p.resource_column`, is that of another column by now.
pub(super) const JUDGED: &str =
    between(INSTALL, "-- Begin: the column by which the rows of a table are judged.", "-- End.");

/// The text between two lines of a script. One without them does not compile.
const fn between(script: &'static str, begin: &str, end: &str) -> &'static str {
    let (_, after) = script.split_at(find(script, begin) + begin.len());
    let (text, _) = after.split_at(find(after, end));
    text
}

const fn find(text: &str, what: &str) -> usize {
    let (text, what) = (text.as_bytes(), what.as_bytes());
    let mut at = 0;
    while at + what.len() <= text.len() {
        let mut same = 0;
        while same < what.len() && text[at + same] == what[same] {
            same += 1;
        }
        if same == what.len() {
            return at;
        }
        at += 1;
    }
    panic!("the script has no such line")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_script() {
        assert!(INSTALL.contains(&format!("ours constant integer := {VERSION};")));
        assert!(INSTALL.ends_with("$kit$;\n"), "grants come after it");
    }

    #[test]
    fn both_scripts_know_the_same_things_as_strange() {
        assert!(STRANGE.trim().starts_with("WITH") && STRANGE.trim().ends_with("ORDER BY 4, 1"));
        assert!(REMOVE.contains(STRANGE), "remove.sql has to have the query of install.sql");
        assert!(PROTECTED.trim().starts_with("WITH") && PROTECTED.trim().ends_with("whole AS w"));
    }
}
