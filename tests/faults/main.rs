//! What happens to promises when the process dies or its files are harmed.

mod damage;
mod exec;
mod exec_job;
mod kill;

use leasehold_harness::Server;

fn server() -> Server {
    Server::builder(env!("CARGO_BIN_EXE_leasehold")).start()
}
