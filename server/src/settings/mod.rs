//! Every setting once: key, default, meaning. Raw texts become resolved values in one step that
//! reports all mistakes together.
//!
//! | file | holds |
//! | --- | --- |
//! | [`KEYS`] (`keys`) | the table of all settings |
//! | [`Raw`] (`raw`) | texts from defaults, file, environment and flags, each with its origin |
//! | [`Settings`] (`resolve`) | what they mean, or all mistakes |

mod keys;
mod raw;
mod resolve;

#[cfg(test)]
mod tests;

pub use keys::{KEYS, Key};
pub use raw::{Mistake, Origin, Raw};
pub use resolve::Settings;
