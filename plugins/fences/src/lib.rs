//! What attaches Leasehold to storage.
mod error;
mod races;
mod report;
mod stop;
mod tls;
pub use error::Error;
pub use races::Race;
pub use report::{Finding, Report, Row, Severity, Verdict, Weight};
pub use stop::Stop;
