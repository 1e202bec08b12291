//! Paths as the upstream will read them: only those that everybody reads in the same way.

use percent_encoding::percent_decode_str;

/// The segments of a path, decoded once. A slash at the end makes no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) Vec<String>);

/// Why a path could be read as another one.
pub(crate) type Ambiguous = &'static str;

impl Path {
    /// Reads the path of a request, without its query.
    pub(crate) fn read(path: &str) -> Result<Self, Ambiguous> {
        let Some(rest) = path.strip_prefix('/') else { return Err("it does not begin with /") };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() && path.len() <= 1 {
            return Ok(Self(Vec::new()));
        }
        rest.split('/').map(segment).collect::<Result<_, _>>().map(Self)
    }
}

fn segment(encoded: &str) -> Result<String, Ambiguous> {
    if encoded.is_empty() {
        return Err("it has an empty segment");
    }
    // To some servers `42;v=1` is the same as `42`.
    if encoded.contains(';') {
        return Err("it has a parameter behind a semicolon");
    }
    if !encodings_are_whole(encoded) {
        return Err("it has a % that encodes nothing");
    }
    let Ok(decoded) = percent_decode_str(encoded).decode_utf8() else {
        return Err("it is not UTF-8");
    };
    if decoded.contains(['/', '\\']) {
        return Err("it has an encoded slash or a backslash");
    }
    if decoded.chars().any(char::is_control) {
        return Err("it has a control character");
    }
    // Some cut a segment at its parameters before they look for dots.
    if matches!(decoded.split(';').next(), Some("." | ".." | "")) {
        return Err("it has a dot segment");
    }
    if has_encoding(&decoded) {
        return Err("it is encoded twice");
    }
    Ok(decoded.into_owned())
}

fn encodings_are_whole(encoded: &str) -> bool {
    let percents = encoded.bytes().filter(|byte| *byte == b'%').count();
    percents == (0..encoded.len()).filter(|at| encoding_at(encoded.as_bytes(), *at)).count()
}

fn has_encoding(text: &str) -> bool {
    (0..text.len()).any(|at| encoding_at(text.as_bytes(), at))
}

fn encoding_at(text: &[u8], at: usize) -> bool {
    matches!(text.get(at..at + 3), Some([b'%', high, low])
        if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_is_its_segments() {
        for (path, segments) in [
            ("/", vec![]),
            ("/a", vec!["a"]),
            ("/a/", vec!["a"]),
            ("/a/b%20c", vec!["a", "b c"]),
            ("/%C3%A9/100%25", vec!["é", "100%"]),
            ("/a%3Bv=1/...", vec!["a;v=1", "..."]),
        ] {
            let segments = segments.into_iter().map(str::to_owned).collect();
            assert_eq!(Path::read(path), Ok(Path(segments)), "{path}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for path in [
            "",
            "*",
            "a",
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/.",
            "/..",
            "/a/../b",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/a%2Fb",
            "/a%2fb",
            "/a\\b",
            "/a%5Cb",
            "/a%00",
            "/a%0d%0ab",
            "/%7F",
            "/%252e%252e",
            "/a%2541",
            "/%",
            "/a%2",
            "/a%zz",
            "/%ff",
            "/..;/b",
            "/.%3Bx/b",
            "/;x",
            "/42;v=1",
        ] {
            assert!(Path::read(path).is_err(), "{path}");
        }
    }
}
