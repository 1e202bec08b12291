//! Standard output: for people or for programs.

use crate::failure::Failure;
use std::fmt::Display;
use std::future::pending;
use std::io::{self, IsTerminal as _, Write as _};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// People: tables and sentences.
    Human,
    /// Programs: the JSON of the service, one document a line.
    Json,
}

/// Writes a line. A reader that has seen enough, as `head` has, ends the command in peace.
pub(crate) fn line(text: &impl Display) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(Failure::Output),
    }
}

/// Resolves when nobody reads standard output any more, for a command that may have nothing to write
/// for hours. Never where that cannot be seen, as of a file.
pub(crate) async fn abandoned() {
    #[expect(deprecated, reason = "its successor is unsafe; this owns its descriptor")]
    let stdout = AsyncFd::with_interest(io::stdout(), Interest::ERROR);
    match &stdout {
        Ok(stdout) if stdout.ready(Interest::ERROR).await.is_ok() => {}
        _ => pending().await,
    }
}

/// What clients chose goes to a terminal: nothing in it may steer the terminal or break the row.
pub(crate) fn shown(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Control characters, and what is invisible and changes the order or the place of its neighbours:
/// with it a name could be shown as another one.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}')
}

/// A remark that is not part of what was asked for: on a terminal only.
pub(crate) fn remark(text: &impl Display) {
    if io::stdout().is_terminal() {
        crate::complain(&text.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_steers_the_terminal() {
        assert_eq!(shown("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(shown("schlüssel/Ω"), "schlüssel/Ω");
        assert_eq!(shown("a\u{202e}b\u{2066}c"), "a\\u{202e}b\\u{2066}c");
        assert_eq!(shown("\u{feff}a\u{200b}\u{2028}"), "\\u{feff}a\\u{200b}\\u{2028}");
        assert_eq!(shown("עברית/名前"), "עברית/名前");
    }
}
