//! Which requests must show a token, and for which resource.

use crate::paths::Path;
use crate::pattern::{Match, Pattern, Reach};
use crate::problem::{Code, Problem};
use crate::shown::{Headers, Shown, required};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Uri};

/// The one write that changes nothing below its path: it makes a collection where nothing is.
const MAKES_ONLY: &str = "MKCOL";

/// What counts as a write, and which paths are protected.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Methods that change nothing. All others are writes, known or not.
    pub read_methods: Vec<Method>,
    /// The first that matches a path counts. Where none does, the one that matches the nearest
    /// path above it. Everything else is not protected.
    pub protect: Vec<Pattern>,
    /// Writes that make something new and change nothing that is there: what lies below their path
    /// is not theirs.
    pub makes_only: Vec<MakesOnly>,
}

/// Writes of one method on the paths of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakesOnly {
    method: Method,
    paths: Pattern,
}

/// What a request asks of the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Nothing: it is passed on as it is.
    Nothing,
    /// A read under a token: recorded first, so that what is read cannot be overtaken.
    Seal(Shown),
    /// A write.
    Write(Shown),
}

/// How a path is protected.
#[derive(Debug, PartialEq, Eq)]
enum Protection {
    None,
    /// By the resource that the writer names.
    Any,
    By(String),
    /// By as many resources as lie below it.
    Many,
}

impl Default for Rules {
    fn default() -> Self {
        let read_methods = Self::methods("GET,HEAD,OPTIONS,TRACE,PROPFIND").unwrap_or_default();
        Self { read_methods, protect: vec![Pattern::everything()], makes_only: Vec::new() }
    }
}

impl MakesOnly {
    /// Reads `METHOD PATTERN`.
    ///
    /// # Errors
    /// Says what is wrong with it, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}`: {why}");
        let Some((name, path)) = text.trim().split_once(' ') else {
            return Err(wrong("write a method and a path, such as `POST /invoices`"));
        };
        let paths = Pattern::parse(path.trim())?;
        if paths.binds() {
            return Err(wrong("to whom the path belongs is said by --protect"));
        }
        Ok(Self { method: method(name)?, paths })
    }

    fn takes(&self, asked: &Method, path: &Path) -> bool {
        self.method == *asked && self.paths.matches(path) != Match::No
    }
}

/// As clients write it: a method in lower case is another one, and nobody means that.
fn method(name: &str) -> Result<Method, String> {
    let upper = name.trim().to_ascii_uppercase();
    Method::from_bytes(upper.as_bytes()).map_err(|_| format!("`{name}` is no method"))
}

impl Rules {
    /// Reads methods, with commas between them.
    ///
    /// # Errors
    /// Names what is none.
    pub fn methods(list: &str) -> Result<Vec<Method>, String> {
        list.split(',').map(method).collect()
    }

    /// The first of these patterns that can never count, and the one before it that takes all of
    /// its paths: the places of both.
    #[must_use]
    pub fn idle(protect: &[Pattern]) -> Option<(usize, usize)> {
        let before = |of: usize| (0..of).find(|at| protect[*at].takes_all_of(&protect[of]));
        (0..protect.len()).find_map(|of| Some((of, before(of)?)))
    }

    /// What this request asks of the fence, from its head alone.
    pub(crate) fn demand(&self, head: &Parts) -> Result<Demand, Problem> {
        if self.read_methods.contains(&head.method) {
            return Ok(match Headers::read(&head.headers)? {
                Headers::Exclusive(shown) => Demand::Seal(shown),
                Headers::Nothing | Headers::Shared => Demand::Nothing,
            });
        }
        let protections = self.protections(head)?;
        if protections.iter().all(|protection| *protection == Protection::None) {
            return Ok(Demand::Nothing);
        }
        let shown = match Headers::read(&head.headers)? {
            Headers::Exclusive(shown) => shown,
            Headers::Nothing => return Err(required("Fencing-Token")),
            Headers::Shared => return Err(shared()),
        };
        for protection in &protections {
            check(protection, &shown, head)?;
        }
        Ok(Demand::Write(shown))
    }

    /// Of the path, and of where `Destination` points to.
    fn protections(&self, head: &Parts) -> Result<Vec<Protection>, Problem> {
        if self.protect.iter().any(Pattern::is_everything) && self.protect.len() == 1 {
            return Ok(vec![Protection::Any]);
        }
        let path = read(head.uri.path())?;
        let makes_only = head.method.as_str() == MAKES_ONLY;
        let below =
            !makes_only && !self.makes_only.iter().any(|one| one.takes(&head.method, &path));
        let mut protections = vec![self.protection(&path, below)];
        for destination in head.headers.get_all("destination") {
            protections.push(self.protection(&read(&path_of(destination)?)?, !makes_only));
        }
        Ok(protections)
    }

    fn protection(&self, path: &Path, below: bool) -> Protection {
        let owner = self.owner(path);
        let protection = match &owner {
            Some((_, Match::Of(resource))) => Protection::By(resource.clone()),
            Some(_) => Protection::Any,
            None => Protection::None,
        };
        let many = below && self.below(path, owner.map(|(at, _)| at), &protection);
        if many { Protection::Many } else { protection }
    }

    /// The first pattern that matches a path; where none does, the one that comes nearest to it
    /// from above. So does one that stands before a `**` and reaches deeper: what takes all the
    /// rest must not take away what belongs to somebody.
    fn owner(&self, path: &Path) -> Option<(usize, Match)> {
        let each = || self.protect.iter().enumerate();
        let mut exact = each().map(|(at, pattern)| (at, pattern.matches(path)));
        let exact = exact.find(|(_, found)| *found != Match::No);
        let counts = |at: usize| match &exact {
            Some((of, _)) => at < *of && self.protect[at].depth() > self.protect[*of].depth(),
            None => true,
        };
        let covered = each().filter(|(at, _)| counts(*at));
        let covered = covered.map(|(at, pattern)| (at, pattern.covers(path)));
        let covered = covered.filter(|(_, found)| *found != Match::No);
        // Of several equally near ones this finds the first.
        let nearest = covered.min_by_key(|(at, _)| std::cmp::Reverse(self.protect[*at].depth()));
        nearest.or(exact)
    }

    /// Whether something below a path is protected in another way than the path itself.
    fn below(&self, path: &Path, owner: Option<usize>, protection: &Protection) -> bool {
        // Where everything below has its pattern, those behind it are never looked at.
        let last = owner.filter(|at| self.protect[*at].takes_the_rest());
        let looked_at = self.protect.iter().enumerate().take(last.unwrap_or(self.protect.len()));
        // What lies below stays with the owner, whatever takes all the rest behind it.
        let yields = |at: usize, pattern: &Pattern| {
            let behind = owner.filter(|of| at > *of && pattern.takes_the_rest());
            behind.is_some_and(|of| pattern.depth() < self.protect[of].depth())
        };
        let looked_at = looked_at.filter(|(at, pattern)| !yields(*at, pattern));
        looked_at.filter(|(at, _)| Some(*at) != owner).any(|(_, pattern)| {
            match (pattern.reaches_below(path), protection) {
                (Reach::No, _) | (Reach::Any, Protection::Any | Protection::By(_)) => false,
                (Reach::Of(resource), Protection::By(own)) => resource != *own,
                _ => true,
            }
        })
    }
}

fn read(path: &str) -> Result<Path, Problem> {
    Path::read(path).map_err(|why| {
        let detail = format!("no write on a path that can be read in two ways: {why}");
        Problem::new(Code::AmbiguousPath, detail)
    })
}

/// A `Destination` is a URL or a path, and is read as the upstream reads it: for its path.
fn path_of(destination: &HeaderValue) -> Result<String, Problem> {
    let uri = Uri::try_from(destination.as_bytes());
    match uri {
        Ok(uri) if uri.path().starts_with('/') => Ok(uri.path().to_owned()),
        _ => Err(Problem::invalid("Destination", "Destination is neither a URL nor a path")),
    }
}

fn check(protection: &Protection, shown: &Shown, head: &Parts) -> Result<(), Problem> {
    let wrong =
        |detail| Err(Problem::about(Code::WrongResource, &shown.resource, shown.token, detail));
    match protection {
        Protection::None | Protection::Any => Ok(()),
        Protection::By(resource) if *resource == shown.resource => Ok(()),
        Protection::By(resource) => {
            wrong(format!("this path belongs to {resource}, not to {}", shown.resource))
        }
        Protection::Many => wrong(several(head)),
    }
}

fn several(head: &Parts) -> String {
    format!(
        "what lies below this path belongs to other resources: change them one by one. If {method} \
         here only makes something new, the operator can say so to the proxy: --makes-only \
         '{method} {path}'",
        method = head.method,
        path = head.uri.path()
    )
}

fn shared() -> Problem {
    Problem::new(Code::SharedToken, "a shared grant is for reading: its token does not fence")
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
