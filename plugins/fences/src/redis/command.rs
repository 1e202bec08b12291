//! Command lines as `redis-cli` takes them, with the parameters `:resource`, `:token` and `:value`.

use crate::error::Error;
use crate::races::store::Holder;
use ::redis::Cmd;

const PARAMETERS: [&str; 3] = [":resource", ":token", ":value"];

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    words: Vec<String>,
}

impl Command {
    pub(crate) fn new(line: &str) -> Result<Self, Error> {
        let words = words(line)?;
        if words.is_empty() {
            return Err(Error::Usage("there is an empty command".to_owned()));
        }
        Ok(Self { words })
    }

    pub(crate) fn fill(&self, holder: Holder<'_>, value: i64) -> Cmd {
        let mut command = Cmd::new();
        for word in &self.words {
            command.arg(filled(word, holder, value));
        }
        command
    }
}

/// What is filled in is not looked at again: a resource may be called `:token`.
fn filled(word: &str, holder: Holder<'_>, value: i64) -> String {
    let mut text = String::new();
    let mut rest = word;
    let first = |rest: &str| {
        let places = PARAMETERS.iter().filter_map(|name| Some((rest.find(name)?, *name)));
        places.min()
    };
    while let Some((at, name)) = first(rest) {
        text.push_str(&rest[..at]);
        match name {
            ":resource" => text.push_str(holder.resource),
            ":token" => text.push_str(&holder.token.to_string()),
            _ => text.push_str(&value.to_string()),
        }
        rest = &rest[at + name.len()..];
    }
    text.push_str(rest);
    text
}

/// Single quotes keep everything, double quotes know `\n`, `\t`, `\"` and `\\`.
fn words(line: &str) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => quoted(&mut letters, letter, word.get_or_insert_default(), line)?,
            blank if blank.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(
    letters: &mut std::str::Chars<'_>,
    quote: char,
    word: &mut String,
    line: &str,
) -> Result<(), Error> {
    let open = || Error::Usage(format!("a quote is not closed: {line}"));
    loop {
        match letters.next().ok_or_else(open)? {
            end if end == quote => return Ok(()),
            '\\' if quote == '"' => match letters.next().ok_or_else(open)? {
                'n' => word.push('\n'),
                't' => word.push('\t'),
                other => word.push(other),
            },
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        let command = Command::new(line).expect(line);
        let holder = Holder { resource: "a:token b", token: 34 };
        command.words.iter().map(|word| filled(word, holder, -5)).collect()
    }

    #[test]
    fn words_are_split_before_parameters_are_filled_in() {
        assert_eq!(
            args("FCALL f 1 fence:{:resource} :token"),
            ["FCALL", "f", "1", "fence:{a:token b}", "34"]
        );
        assert_eq!(args("SET lock::resource :value"), ["SET", "lock:a:token b", "-5"]);
        assert_eq!(
            args(r#"EVAL "return \"x\"\n" 0 'it"s'"" """#),
            ["EVAL", "return \"x\"\n", "0", "it\"s", ""]
        );
    }

    #[test]
    fn open_quotes_and_nothing_are_refused() {
        for line in ["SET 'a", "SET \"a", "SET \"a\\", "", "  "] {
            assert!(Command::new(line).is_err(), "{line}");
        }
    }
}
