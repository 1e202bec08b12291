//! The id that finds a request in logs.

use std::fmt;

/// 128 bits: the caller's own trace if it sent one, random otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl TraceId {
    /// Takes part in the caller's trace (W3C `traceparent`), or begins one.
    pub(crate) fn of(traceparent: Option<&[u8]>) -> Self {
        traceparent.and_then(parent).unwrap_or_else(Self::random)
    }

    pub(crate) fn random() -> Self {
        let mut bytes = [0; 16];
        // Without randomness the id is only less unique; the answer matters more.
        let _ = getrandom::fill(&mut bytes);
        Self(u128::from_be_bytes(bytes))
    }
}

/// `version-trace-parent-flags`, where later versions may append.
fn parent(value: &[u8]) -> Option<TraceId> {
    let lower_hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let dashes = value.len() >= 55 && [2, 35, 52].iter().all(|&at| value[at] == b'-');
    if !dashes {
        return None;
    }
    let (version, trace, span, flags) =
        (&value[..2], &value[3..35], &value[36..52], &value[53..55]);
    let end =
        if version == b"00" { value.len() == 55 } else { value.get(55).is_none_or(|b| *b == b'-') };
    let legal = [version, trace, span, flags].into_iter().all(lower_hex) && end && version != b"ff";
    if !legal || span.iter().all(|b| *b == b'0') {
        return None;
    }
    let id = u128::from_str_radix(std::str::from_utf8(trace).ok()?, 16).ok()?;
    (id != 0).then_some(TraceId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_trace_is_taken_over() {
        let id = parent(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect("valid");
        assert_eq!(id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(parent(b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").is_some());
    }

    #[test]
    fn anything_else_begins_a_new_one() {
        for value in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
        ] {
            assert_eq!(parent(value.as_bytes()), None, "{value}");
        }
        assert_ne!(TraceId::random(), TraceId::random());
        assert_eq!(TraceId::random().to_string().len(), 32);
    }
}
