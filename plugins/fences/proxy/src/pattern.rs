//! Patterns of paths, and the resource that each path belongs to.
//!
//! `/invoices/{id}=invoice/{id}` binds every path with one segment behind `/invoices/` to the
//! resource `invoice/` and that segment. `*` is any one segment, `**` at the end is everything
//! from there on, itself included. A path that no pattern matches belongs to whoever the nearest
//! path above it belongs to.

use crate::paths::Path;
use std::collections::BTreeMap;

/// One `--protect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Segment>,
    /// `**` at the end.
    rest: bool,
    resource: Option<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Is(String),
    Any,
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

/// What a pattern says about a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Match {
    No,
    /// Protected, by whatever resource the writer names.
    Yes,
    /// Protected, and it belongs to this resource.
    Of(String),
}

/// What a pattern says about the paths below another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    No,
    /// Some are protected, by whatever resource the writer names.
    Any,
    /// Those that are protected belong to this resource.
    Of(String),
    /// They belong to several.
    Many,
}

impl Segment {
    fn takes(&self, given: &str) -> bool {
        match self {
            Self::Is(text) => text == given,
            Self::Any | Self::Named(_) => true,
        }
    }

    fn name(&self) -> Option<&str> {
        if let Self::Named(name) = self { Some(name) } else { None }
    }
}

impl Pattern {
    /// Every path, with whatever resource the writer names.
    #[must_use]
    pub fn everything() -> Self {
        Self { segments: Vec::new(), rest: true, resource: None }
    }

    /// Reads `PATTERN` or `PATTERN=RESOURCE`.
    ///
    /// # Errors
    /// Says what is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}`: {why}");
        let (path, resource) = match text.split_once('=') {
            Some((path, resource)) => (path, Some(resource)),
            None => (text, None),
        };
        let path = Path::read(path).map_err(|why| wrong(&format!("the path is refused: {why}")))?;
        let mut segments = path.0;
        let rest = segments.last().is_some_and(|last| last == "**");
        if rest {
            segments.pop();
        }
        let segments: Vec<Segment> =
            segments.into_iter().map(segment).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
        let resource = resource.map(pieces).transpose().map_err(|e| wrong(&e))?;
        let pattern = Self { segments, rest, resource };
        pattern.check_names().map_err(|e| wrong(&e))?;
        Ok(pattern)
    }

    /// Whether it says to which resource a path belongs.
    pub(crate) fn binds(&self) -> bool {
        self.resource.is_some()
    }

    /// Whether it matches every path and binds none, so that no path has to be read.
    pub(crate) fn is_everything(&self) -> bool {
        *self == Self::everything()
    }

    pub(crate) fn matches(&self, path: &Path) -> Match {
        let longer = path.0.len() > self.segments.len();
        if path.0.len() < self.segments.len() || (longer && !self.rest) {
            return Match::No;
        }
        let both = || self.segments.iter().zip(&path.0);
        if !both().all(|(segment, given)| segment.takes(given)) {
            return Match::No;
        }
        let names = both().filter_map(|(segment, given)| Some((segment.name()?, given.as_str())));
        match &self.resource {
            Some(pieces) => Match::Of(filled(pieces, &names.collect())),
            None => Match::Yes,
        }
    }

    /// What it says about a path with more segments than its own: what lies below a path belongs
    /// to whoever the path belongs to, since storage may make a collection of it.
    pub(crate) fn covers(&self, path: &Path) -> Match {
        match path.0.get(..self.segments.len()) {
            Some(own) if own.len() < path.0.len() => self.matches(&Path(own.to_vec())),
            _ => Match::No,
        }
    }

    /// What it says about some path below `path`: what changes a collection changes that as well.
    pub(crate) fn reaches_below(&self, path: &Path) -> Reach {
        let longer = self.segments.len() > path.0.len() || self.rest;
        let both = || self.segments.iter().zip(&path.0);
        if !longer || !both().all(|(segment, given)| segment.takes(given)) {
            return Reach::No;
        }
        let Some(pieces) = &self.resource else { return Reach::Any };
        let known: BTreeMap<_, _> =
            both().filter_map(|(segment, given)| Some((segment.name()?, given.as_str()))).collect();
        let is_known = |piece: &Piece| match piece {
            Piece::Text(_) => true,
            Piece::Name(name) => known.contains_key(name.as_str()),
        };
        let one = pieces.iter().all(is_known);
        if one { Reach::Of(filled(pieces, &known)) } else { Reach::Many }
    }

    /// How many segments it has before its `**`.
    pub(crate) fn depth(&self) -> usize {
        self.segments.len()
    }

    /// Whether it matches all that lies below a path that it matches.
    pub(crate) fn takes_the_rest(&self) -> bool {
        self.rest
    }

    /// Whether every path that another one matches or covers is one that this one matches, or
    /// covers from as near.
    pub(crate) fn takes_all_of(&self, other: &Self) -> bool {
        let longer = other.segments.len() > self.segments.len() || other.rest;
        let mut both = self.segments.iter().zip(&other.segments);
        self.segments.len() <= other.segments.len()
            && (self.rest || !longer)
            && both.all(|(own, other)| {
                own.name().is_some() || matches!(own, Segment::Any) || own == other
            })
    }

    fn check_names(&self) -> Result<(), String> {
        let mut names = Vec::new();
        for segment in &self.segments {
            if let Segment::Named(name) = segment {
                if names.contains(name) {
                    return Err(format!("{{{name}}} stands in it twice"));
                }
                names.push(name.clone());
            }
        }
        for piece in self.resource.iter().flatten() {
            if let Piece::Name(name) = piece
                && !names.contains(name)
            {
                return Err(format!("{{{name}}} is in the resource and not in the path"));
            }
        }
        Ok(())
    }
}

fn segment(text: String) -> Result<Segment, String> {
    if text == "*" {
        return Ok(Segment::Any);
    }
    if let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        return if is_name(name) {
            Ok(Segment::Named(name.to_owned()))
        } else {
            Err(format!("{text} is not a name of letters, digits and _"))
        };
    }
    if text.contains(['*', '{', '}']) {
        return Err(format!("`{text}`: a segment is a text, *, {{name}}, or ** at the end"));
    }
    Ok(Segment::Is(text))
}

fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err("a { in the resource has no }".to_owned());
        };
        if !is_name(name) {
            return Err(format!("{{{name}}} is not a name of letters, digits and _"));
        }
        pieces.push(Piece::Text(text.to_owned()));
        pieces.push(Piece::Name(name.to_owned()));
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    if pieces.is_empty() { Err("the resource is empty".to_owned()) } else { Ok(pieces) }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn filled(pieces: &[Piece], names: &BTreeMap<&str, &str>) -> String {
    let one = |piece: &'_ Piece| match piece {
        Piece::Text(text) => text.clone(),
        // Every name stands in the path: that was checked when the pattern was read.
        Piece::Name(name) => names.get(name.as_str()).copied().unwrap_or_default().to_owned(),
    };
    pieces.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pattern: &str, path: &str) -> Match {
        let pattern = Pattern::parse(pattern).expect("a pattern");
        pattern.matches(&Path::read(path).expect("a path"))
    }

    fn resource(name: &str) -> Match {
        Match::Of(name.to_owned())
    }

    #[test]
    fn a_template_binds_a_path_to_its_resource() {
        let invoice = "/invoices/{id}=invoice/{id}";
        assert_eq!(of(invoice, "/invoices/42"), resource("invoice/42"));
        assert_eq!(of(invoice, "/invoices/42/"), resource("invoice/42"));
        assert_eq!(of(invoice, "/invoices/a%20b"), resource("invoice/a b"));
        assert_eq!(of(invoice, "/invoices"), Match::No);
        assert_eq!(of(invoice, "/invoices/42/lines"), Match::No);
        assert_eq!(of("/{a}/{b}/**={b}-{a}!", "/x/y/z/w"), resource("y-x!"));
        assert_eq!(of("/report=reports/daily", "/report"), resource("reports/daily"));
    }

    #[test]
    fn stars_stand_for_one_segment_or_all_the_rest() {
        for (pattern, path, matched) in [
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/a/**", "/a", true),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/ab", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/a/*/c", "/a/b/c", true),
            ("/", "/", true),
            ("/", "/a", false),
        ] {
            let expected = if matched { Match::Yes } else { Match::No };
            assert_eq!(of(pattern, path), expected, "{pattern} {path}");
        }
        assert!(Pattern::parse("/**").expect("a pattern").is_everything());
    }

    #[test]
    fn a_collection_is_known_to_hold_what_is_protected() {
        let below = |pattern: &str, path: &str| {
            let pattern = Pattern::parse(pattern).expect("a pattern");
            pattern.reaches_below(&Path::read(path).expect("a path"))
        };
        for (pattern, path, reach) in [
            ("/invoices/{id}", "/invoices", Reach::Any),
            ("/invoices/{id}", "/", Reach::Any),
            ("/a/*/c", "/a/b", Reach::Any),
            ("/a/**", "/a/b/c", Reach::Any),
            ("/invoices/{id}", "/invoices/42", Reach::No),
            ("/invoices/{id}", "/orders", Reach::No),
            ("/invoices/{id}=invoice/{id}", "/invoices", Reach::Many),
            ("/{year}/{id}={year}", "/2026", Reach::Of("2026".to_owned())),
            ("/{year}/**={year}", "/2026/x", Reach::Of("2026".to_owned())),
        ] {
            assert_eq!(below(pattern, path), reach, "{pattern} {path}");
        }
    }

    #[test]
    fn what_lies_below_a_path_is_covered_by_its_pattern() {
        let covers = |pattern: &str, path: &str| {
            let pattern = Pattern::parse(pattern).expect("a pattern");
            pattern.covers(&Path::read(path).expect("a path"))
        };
        let invoice = "/invoices/{id}=invoice/{id}";
        assert_eq!(covers(invoice, "/invoices/42/x/y"), resource("invoice/42"));
        assert_eq!(covers("/a/*", "/a/b/c"), Match::Yes);
        // Not itself, and nothing beside it.
        for path in ["/invoices/42", "/invoices", "/", "/orders/42/x"] {
            assert_eq!(covers(invoice, path), Match::No, "{path}");
        }
    }

    #[test]
    fn a_pattern_takes_all_of_those_that_match_nothing_else() {
        let takes = |first: &str, second: &str| {
            let [first, second] = [first, second].map(|it| Pattern::parse(it).expect("a pattern"));
            first.takes_all_of(&second)
        };
        for (first, second) in [
            ("/**", "/a/{id}=a/{id}"),
            ("/**=all", "/"),
            ("/a/**", "/a"),
            ("/a/**", "/a/b/**"),
            ("/{x}/**", "/a/{id}"),
            ("/a/*", "/a/b=b"),
            ("/a/b", "/a/b"),
        ] {
            assert!(takes(first, second), "{first} {second}");
        }
        for (first, second) in [
            ("/a/{id}", "/**"),
            ("/a/**", "/b"),
            ("/a/**", "/{x}/b"),
            ("/a/*", "/a/b/c"),
            ("/a/*", "/a/b/**"),
            ("/a/b/**", "/a/*"),
        ] {
            assert!(!takes(first, second), "{first} {second}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "", "a", "/a/../b", "//", "/a*b", "/**/b", "/{}", "/{a-b}", "/{a}/{a}", "/a={b}",
            "/a=", "/a={", "/{a}={a", "/x{a}",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
