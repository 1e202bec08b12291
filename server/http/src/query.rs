//! Strict reading of a query string: unknown, repeated and undecodable parameters are errors.

use leasehold_core::Token;
use leasehold_wire::Invalid;
use std::ops::RangeInclusive;

/// The parameters of one request.
#[derive(Debug)]
pub(crate) struct Query {
    pairs: Vec<(&'static str, String)>,
}

impl Query {
    /// Reads a query in which each of `known` may stand once.
    pub(crate) fn parse(text: &str, known: &'static [&'static str]) -> Result<Self, Invalid> {
        let mut pairs: Vec<(&'static str, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = known_name(name, known)?;
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(Invalid::field(name, "stands there more than once", "one value"));
            }
            let value = decode(value).ok_or_else(|| {
                Invalid::field(name, "is not percent-encoded UTF-8", "percent-encoded UTF-8")
            })?;
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    /// The value of a parameter, if it is there.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that must be there.
    pub(crate) fn required(&self, name: &'static str) -> Result<&str, Invalid> {
        self.text(name).ok_or_else(|| Invalid::field(name, "is missing", "a query parameter"))
    }

    /// A whole number within a range.
    pub(crate) fn number(
        &self,
        name: &'static str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, Invalid> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match digits.then(|| text.parse::<usize>().ok()).flatten() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let allowed = format!("{} to {}", range.start(), range.end());
                Err(Invalid::field(name, format!("must be a number from {allowed}"), allowed))
            }
        }
    }

    /// A token.
    pub(crate) fn token(&self, name: &'static str) -> Result<Option<Token>, Invalid> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match digits.then(|| text.parse::<u64>().ok()).flatten() {
            Some(number) if (1..Token::LIMIT).contains(&number) => Ok(Some(Token(number))),
            _ => {
                let allowed = format!("1 to {}", Token::LIMIT - 1);
                Err(Invalid::field(name, format!("must be a number from {allowed}"), allowed))
            }
        }
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, Invalid> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*meaning));
        }
        let allowed = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        Err(Invalid::field(name, format!("must be one of {allowed}"), allowed))
    }

    /// Whether the caller is content with what this node knows.
    pub(crate) fn stale(&self) -> Result<bool, Invalid> {
        let words = [("linearizable", false), ("stale", true)];
        Ok(self.choice("consistency", &words)?.unwrap_or(false))
    }
}

/// Whether a query says so, whatever else is in it.
pub(crate) fn says_stale(text: &str) -> bool {
    let is = |raw: &str, word: &str| raw == word || decode(raw).as_deref() == Some(word);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().any(|(name, value)| is(name, "consistency") && is(value, "stale"))
}

fn known_name(raw: &str, known: &'static [&'static str]) -> Result<&'static str, Invalid> {
    let name = decode(raw);
    let found = known.iter().find(|known| name.as_deref() == Some(**known));
    found.copied().ok_or_else(|| {
        let shown: String = name.as_deref().unwrap_or(raw).chars().take(64).collect();
        Invalid::field(shown, "is not a parameter of this request", known.join(", "))
    })
}

/// Undoes percent-encoding, and the plus sign that forms write for a space.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Query, Invalid> {
        Query::parse(text, &["resource", "limit"])
    }

    #[test]
    fn values_are_decoded_once() {
        for (raw, value) in [
            ("a%2Fb", "a/b"),
            ("a/b", "a/b"),
            ("a+b%2b", "a b+"),
            ("%252F", "%2F"),
            ("%C3%A9", "é"),
            ("", ""),
            ("..", ".."),
        ] {
            assert_eq!(parse(&format!("resource={raw}")).expect(raw).text("resource"), Some(value));
        }
        assert_eq!(parse("").expect("empty").text("resource"), None);
        assert_eq!(parse("&resource=a&").expect("bare ampersands").text("resource"), Some("a"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, field) in [
            ("resource=%", "resource"),
            ("resource=%2", "resource"),
            ("resource=%zz", "resource"),
            ("resource=%FF", "resource"),
            ("resource=a&resource=a", "resource"),
            ("Resource=a", "Resource"),
            ("ressource=a", "ressource"),
        ] {
            assert_eq!(parse(text).expect_err(text).field.as_deref(), Some(field), "{text}");
        }
        assert_eq!(
            parse("").expect("empty").required("resource").expect_err("missing").field.as_deref(),
            Some("resource")
        );
    }

    #[test]
    fn a_stale_answer_is_asked_for_in_any_encoding() {
        for text in ["consistency=stale", "a=1&consistency=stale&b", "%63onsistency=%73tale"] {
            assert!(says_stale(text), "{text}");
        }
        for text in
            ["", "consistency", "consistency=linearizable", "x=consistency=stale", "%=stale"]
        {
            assert!(!says_stale(text), "{text}");
        }
    }

    #[test]
    fn numbers_are_digits_within_their_range() {
        let number =
            |text: &str| parse(&format!("limit={text}")).expect("known").number("limit", 1..=1_000);
        assert_eq!(number("1").expect("in range"), Some(1));
        assert_eq!(number("1000").expect("in range"), Some(1_000));
        for text in ["0", "1001", "-1", "%2B1", "1.0", "", "99999999999999999999"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
