//! A reverse proxy that refuses a write with a stale token.

mod headers;
mod paths;
mod pattern;
mod problem;
mod rules;
mod shown;
mod target;

pub use pattern::Pattern;
pub use problem::{Code, Problem};
pub use rules::Rules;
pub use target::Target;
