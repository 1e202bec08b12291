//! Very many deadlines at once in a cluster, among which the few that are kept must not drown.

use std::time::Duration;

use leasehold_harness::storm::Storm;

use crate::nodes;

#[test]
#[allow(clippy::print_stderr)]
fn a_hundred_thousand_leases_end_at_once_while_others_are_kept_and_taken_through_every_node() {
    let cluster = nodes().start(3);
    let storm = Storm {
        left: 100_000,
        kept: 1_000,
        kept_ttl: Duration::from_secs(10),
        ends_in: Duration::from_secs(14),
    };
    let course = storm.run(&cluster.addresses());
    // For whoever reads on: how long things take is the machine's.
    eprintln!("{course}");
}
