//! Faults under load. Clients compete for locks, hold, renew, release and forget them; a watcher
//! follows; meanwhile something goes wrong, again and again. Then all of it is healed and judged.
//!
//! - `trial`: how load, fault and judgement follow each other, and for how long;
//! - `load`: what the clients do;
//! - `verdict`: what must be true in the end;
//! - `killed`, `frozen`, `partitions`, `clocks`, `disks`, `members`: what goes wrong.
//!
//! `LEASEHOLD_FAULT_SECONDS` says how long each trial goes on doing harm, `LEASEHOLD_FAULT_SEEDS`
//! how many trials there are of each kind, and `LEASEHOLD_SEED` where the first one begins.

mod clocks;
mod disks;
mod frozen;
mod killed;
mod load;
mod members;
mod partitions;
mod trial;
mod verdict;

pub(crate) use partitions::wires;
