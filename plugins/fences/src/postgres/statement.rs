//! Statements with the parameters `:resource`, `:token` and `:value`.
//!
//! They are filled in as literals: `SET LOCAL` takes no parameters, and a column of any type takes
//! a literal.

use crate::error::Error;
use crate::races::store::Holder;

/// Verbs that change or return rows: none of them means that the write was refused.
const OF_ROWS: [&str; 8] =
    ["select", "insert", "update", "delete", "merge", "with", "values", "table"];

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pieces: Vec<Piece>,
    of_rows: bool,
    /// What looks like a parameter, and may be one that was misspelt.
    unknown: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Resource,
    Token,
    Value,
}

impl Statement {
    pub(crate) fn new(sql: &str) -> Self {
        let first = sql.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next();
        let first = first.unwrap_or_default().to_ascii_lowercase();
        let (pieces, unknown) = pieces(sql);
        Self { pieces, of_rows: OF_ROWS.contains(&first.as_str()), unknown }
    }

    /// A syntax error, with a parameter that there is not named as its likely cause.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match (&self.unknown, error) {
            (Some(name), Error::Refused(why)) if why.starts_with("42601") => Error::Usage(format!(
                "{why}; is :{name} meant as a parameter? There are :resource, :token and :value"
            )),
            (_, error) => error,
        }
    }

    /// Whether it has to return or change a row.
    pub(crate) fn of_rows(&self) -> bool {
        self.of_rows
    }

    pub(crate) fn fill(&self, holder: Holder<'_>, value: i64) -> String {
        let mut sql = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => sql.push_str(text),
                Piece::Resource => {
                    sql.push('\'');
                    sql.push_str(&holder.resource.replace('\'', "''"));
                    sql.push('\'');
                }
                Piece::Token => sql.push_str(&holder.token.to_string()),
                Piece::Value => sql.push_str(&value.to_string()),
            }
        }
        sql
    }
}

/// A parameter counts outside of quotes, and after one colon: two are a cast.
fn pieces(sql: &str) -> (Vec<Piece>, Option<String>) {
    let mut pieces = Vec::new();
    let mut unknown = None;
    let mut text = String::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let quoted = quoted(rest);
        if quoted > 0 {
            text.push_str(&rest[..quoted]);
            rest = &rest[quoted..];
        } else if let Some((parameter, after)) = parameter(rest, text.ends_with(':')) {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(parameter);
            rest = after;
        } else {
            if let Some(name) = named(rest, text.ends_with(':')) {
                unknown.get_or_insert(name.to_owned());
            }
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    pieces.push(Piece::Text(text));
    (pieces, unknown)
}

/// The name after a colon, if it is one: a number is the end of a slice.
fn named(rest: &str, after_colon: bool) -> Option<&str> {
    let name = rest.strip_prefix(':').filter(|_| !after_colon)?;
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    Some(&name[..end]).filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

fn parameter(rest: &str, after_colon: bool) -> Option<(Piece, &str)> {
    let name = named(rest, after_colon)?;
    let piece = match name {
        "resource" => Piece::Resource,
        "token" => Piece::Token,
        "value" => Piece::Value,
        _ => return None,
    };
    Some((piece, &rest[1 + name.len()..]))
}

/// The length of the quoted text that starts here, or 0. An end that is missing is the server's to
/// complain about.
fn quoted(rest: &str) -> usize {
    let to_end = |opening: &str, closing: &str| {
        let body = &rest[opening.len()..];
        body.find(closing).map_or(rest.len(), |at| opening.len() + at + closing.len())
    };
    match rest.chars().next() {
        Some('\'') => to_end("'", "'"),
        Some('"') => to_end("\"", "\""),
        Some('-') if rest.starts_with("--") => to_end("--", "\n"),
        Some('/') if rest.starts_with("/*") => to_end("/*", "*/"),
        Some('$') => dollar_tag(rest).map_or(0, |tag| to_end(tag, tag)),
        _ => 0,
    }
}

/// `$$` or `$name$`; `$1` is none.
fn dollar_tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 2;
    let name = &rest[1..end - 1];
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (plain && !name.starts_with(|c: char| c.is_ascii_digit())).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(sql: &str) -> String {
        Statement::new(sql).fill(Holder { resource: "o'neil/1", token: 34 }, -5)
    }

    #[test]
    fn parameters_are_filled_in_outside_of_quotes() {
        assert_eq!(
            filled("UPDATE t SET v = :value::int, k=':token' WHERE r = :resource AND l<=:token"),
            "UPDATE t SET v = -5::int, k=':token' WHERE r = 'o''neil/1' AND l<=34"
        );
        assert_eq!(
            filled("SELECT x::token, \":value\", $$:value$$, :values"),
            "SELECT x::token, \":value\", $$:value$$, :values"
        );
        assert_eq!(
            filled("SELECT $f$ :token $f$ /* :token */ -- :token"),
            "SELECT $f$ :token $f$ /* :token */ -- :token"
        );
        assert_eq!(filled("SELECT $1, :token"), "SELECT $1, 34");
        assert_eq!(
            filled("SELECT 'it''s :token', 'open :token"),
            "SELECT 'it''s :token', 'open :token"
        );
        assert_eq!(filled("größer :token ß"), "größer 34 ß");
    }

    #[test]
    fn a_misspelt_parameter_is_named_where_the_syntax_is_wrong() {
        let told = |sql, why: &str| {
            Statement::new(sql).explain(Error::Refused(why.to_owned())).to_string()
        };
        let syntax = "42601: syntax error at or near \":\"";
        assert!(told("SELECT 1 WHERE a = :resourc", syntax).contains(":resourc meant"));
        for sql in ["SELECT a[1:2] FRM t", "SELECT :token FRM t", "SELECT a::text, ':x' FRM t"] {
            assert_eq!(told(sql, syntax), syntax, "{sql}");
        }
        let other = "42P01: relation \"t\" does not exist";
        assert_eq!(told("SELECT a[1:b] FROM t", other), other);
    }

    #[test]
    fn statements_of_rows_are_known() {
        for sql in [" update t", "WITH a AS (SELECT 1) UPDATE t", "SELECT 1", "insert into t"] {
            assert!(Statement::new(sql).of_rows(), "{sql}");
        }
        for sql in ["SET LOCAL a = 1", "LOCK TABLE t", "CALL p()", "", "DO $$ $$"] {
            assert!(!Statement::new(sql).of_rows(), "{sql}");
        }
    }
}
