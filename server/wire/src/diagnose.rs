//! Finds out what exactly is wrong with a body that the typed parse refused.
//!
//! The body is read into a loose tree that keeps order and repeated keys, and notes where it is,
//! so that a fault of the text itself (a number out of range, bytes that are not UTF-8) is
//! attributed to a field as well. Then the tree is compared with the table of fields.

use crate::metadata;
use crate::parse::{Field, Invalid, Kind};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cell::RefCell;
use std::fmt::{self, Write as _};

/// Names from a body are cut to this many characters before they go into an error.
const NAME_SHOWN: usize = 64;

/// Says what is wrong with `body`, of which `cause` is the typed parser's opinion.
#[cold]
pub(crate) fn explain(body: &[u8], fields: &[Field], cause: &serde_json::Error) -> Invalid {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Invalid::body("is empty");
    }
    let trail = Trail::default();
    let mut source = serde_json::Deserializer::from_slice(body);
    let read = Look { trail: &trail }.deserialize(&mut source);
    let fault = match read {
        Ok(tree) => match source.end() {
            Ok(()) => return compare(&tree, fields, "").unwrap_or_else(|| vague(cause)),
            Err(fault) => fault,
        },
        Err(fault) => fault,
    };
    unreadable(body, fields, &trail, &fault)
}

/// The table found nothing wrong although the typed parse did. Tests keep the two in step.
fn vague(cause: &serde_json::Error) -> Invalid {
    Invalid::body(format!("is not as expected: {cause}"))
}

fn unreadable(body: &[u8], fields: &[Field], trail: &Trail, fault: &serde_json::Error) -> Invalid {
    let what = match std::str::from_utf8(body) {
        Err(bad) => format!("is not UTF-8 (byte {})", bad.valid_up_to()),
        Ok(_) => format!("is not valid JSON: {fault}"),
    };
    match (trail.path(), trail.kind(fields)) {
        (None, _) => Invalid::body(what),
        (Some(path), Some(kind)) => Invalid::field(path, what, kind.to_string()),
        (Some(path), None) => Invalid { allowed: None, ..Invalid::field(path, what, "") },
    }
}

/// A JSON value, as far as a comparison needs it.
enum Loose {
    Null,
    Flag,
    Count,
    Negative,
    Fraction,
    Text(String),
    List(Vec<Loose>),
    Object(Vec<(String, Loose)>),
}

impl Loose {
    fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Flag => "a boolean",
            Self::Count => "a number",
            Self::Negative => "a negative number",
            Self::Fraction => "a number with a fraction or an exponent, or one too large",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

fn compare(tree: &Loose, fields: &[Field], at: &str) -> Option<Invalid> {
    let Loose::Object(entries) = tree else {
        let problem = format!("must be an object, not {}", tree.name());
        return Some(if at.is_empty() {
            Invalid::body(problem)
        } else {
            Invalid::field(at.to_owned(), problem, "an object")
        });
    };
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in entries {
        let path = join(at, name);
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            return Some(unknown(path, fields));
        };
        if seen.contains(&field.name) {
            return Some(Invalid::field(path, "stands there more than once", "one value"));
        }
        seen.push(field.name);
        if let Some(wrong) = misfit(value, field.kind, &path) {
            return Some(wrong);
        }
    }
    let missing = fields.iter().find(|field| field.required && !seen.contains(&field.name))?;
    Some(Invalid::field(join(at, missing.name), "is missing", missing.kind.to_string()))
}

fn unknown(path: String, fields: &[Field]) -> Invalid {
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    Invalid::field(path, "is not a field of this request", names.join(", "))
}

fn misfit(value: &Loose, kind: Kind, path: &str) -> Option<Invalid> {
    match (kind, value) {
        (Kind::Text, Loose::Text(_)) | (Kind::Count, Loose::Count) | (Kind::Flag, Loose::Flag) => {
            None
        }
        (Kind::Choice(words), Loose::Text(text)) if words.contains(&text.as_str()) => None,
        (Kind::Choice(_), Loose::Text(_)) => {
            Some(Invalid::field(path.to_owned(), format!("must be {kind}"), kind.to_string()))
        }
        (Kind::TextMap, Loose::Object(entries)) => text_map(entries, path),
        (Kind::Texts, Loose::List(items)) => {
            each(items, path, |item, at| misfit(item, Kind::Text, at))
        }
        (Kind::Objects(fields), Loose::List(items)) => {
            each(items, path, |item, at| compare(item, fields, at))
        }
        _ => Some(Invalid::field(
            path.to_owned(),
            format!("must be {kind}, not {}", value.name()),
            kind.to_string(),
        )),
    }
}

fn each(
    items: &[Loose],
    path: &str,
    check: impl Fn(&Loose, &str) -> Option<Invalid>,
) -> Option<Invalid> {
    items.iter().enumerate().find_map(|(index, item)| check(item, &format!("{path}[{index}]")))
}

fn text_map(entries: &[(String, Loose)], path: &str) -> Option<Invalid> {
    let mut bytes = 0;
    for (index, (name, value)) in entries.iter().enumerate() {
        let at = join(path, name);
        let Loose::Text(text) = value else { return misfit(value, Kind::Text, &at) };
        if entries[..index].iter().any(|(earlier, _)| earlier == name) {
            return Some(Invalid::field(at, "stands there more than once", "one value"));
        }
        bytes += name.len() + text.len();
        if index >= metadata::ENTRIES_MAX || bytes > metadata::BYTES_MAX {
            return Some(Invalid::field(path.to_owned(), "is too large", metadata::ALLOWED));
        }
    }
    None
}

fn join(at: &str, name: &str) -> String {
    let mut path = at.to_owned();
    if !at.is_empty() {
        path.push('.');
    }
    path.extend(name.chars().take(NAME_SHOWN));
    path
}

/// Where in the body the loose reader is. What went wrong leaves it standing at the place.
#[derive(Default)]
struct Trail(RefCell<Vec<Step>>);

enum Step {
    Key(String),
    Index(usize),
}

impl Trail {
    fn within<T, E>(&self, step: Step, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.0.borrow_mut().push(step);
        let value = read()?;
        self.0.borrow_mut().pop();
        Ok(value)
    }

    /// Nothing if the body is a list, whose items are no fields.
    fn path(&self) -> Option<String> {
        let steps = self.0.borrow();
        if matches!(steps.first(), Some(Step::Index(_))) {
            return None;
        }
        let path = steps.iter().fold(String::new(), |path, step| match step {
            Step::Key(name) => join(&path, name),
            Step::Index(index) => {
                let mut path = path;
                // Writing to a string cannot fail.
                let _ = write!(path, "[{index}]");
                path
            }
        });
        (!path.is_empty()).then_some(path)
    }

    fn kind(&self, fields: &[Field]) -> Option<Kind> {
        let mut fields = fields;
        let mut kind = None;
        for step in self.0.borrow().iter() {
            if let Step::Key(name) = step {
                let field = fields.iter().find(|field| field.name == name)?;
                kind = Some(field.kind);
                fields = if let Kind::Objects(inner) = field.kind { inner } else { &[] };
            }
        }
        kind
    }
}

#[derive(Clone, Copy)]
struct Look<'t> {
    trail: &'t Trail,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = Loose;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Loose, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = Loose;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Loose, E> {
        Ok(Loose::Null)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Loose, E> {
        Ok(Loose::Flag)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Loose, E> {
        Ok(Loose::Count)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Loose, E> {
        Ok(if number < 0 { Loose::Negative } else { Loose::Count })
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Loose, E> {
        Ok(Loose::Fraction)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Loose, E> {
        Ok(Loose::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Loose, A::Error> {
        let mut list = Vec::new();
        loop {
            let step = Step::Index(list.len());
            match self.trail.within(step, || items.next_element_seed(self))? {
                Some(item) => list.push(item),
                None => return Ok(Loose::List(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Loose, A::Error> {
        let mut object = Vec::new();
        while let Some(name) = entries.next_key::<String>()? {
            let step = Step::Key(name.clone());
            let value = self.trail.within(step, || entries.next_value_seed(self))?;
            object.push((name, value));
        }
        Ok(Loose::Object(object))
    }
}
