//! What a session between two nodes carries: requests on their way to the leader, and answers.
//!
//! The same envelope as other messages between peers. A body that does not fit into the message of
//! its head follows in parts, between which messages of other requests may stand.

use super::DecodeError;
use super::peer::{MESSAGE, all, message, opened};
use crate::forward::{Forwarded, ForwardedAnswer};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of a body in one message.
const PART_BYTES: usize = 128 << 10;

/// One message of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// A request with the first part of its body, and how long the whole body is.
    Request { id: u64, request: Forwarded, body_bytes: u64 },
    /// An answer with the first part of its body, and how long the whole body is.
    Answer { id: u64, answer: ForwardedAnswer, body_bytes: u64 },
    /// The next part of a body.
    Part { id: u64, part: Bytes },
    /// The client of this request is gone.
    HangUp { id: u64 },
    /// The sender is still there.
    Beat,
}

type SentHeaders<'a> = Vec<(&'a str, &'a [u8])>;

#[derive(Serialize, Deserialize)]
struct SentRequest<'a> {
    id: u64,
    method: &'a str,
    target: &'a str,
    #[serde(borrow)]
    headers: SentHeaders<'a>,
    principal: &'a str,
    role: &'a str,
    source: Option<SocketAddr>,
    elapsed_us: u64,
    remaining_us: Option<u64>,
    body_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct SentAnswer<'a> {
    id: u64,
    status: u16,
    #[serde(borrow)]
    headers: SentHeaders<'a>,
    body_bytes: u64,
}

const REQUEST: u8 = 10;
const ANSWER: u8 = 11;
const PART: u8 = 12;
const HANG_UP: u8 = 13;
const BEAT: u8 = 14;

/// The messages that a request is.
pub(crate) fn encode_request(id: u64, request: &Forwarded) -> impl Iterator<Item = Vec<u8>> {
    let sent = SentRequest {
        id,
        method: &request.method,
        target: &request.target,
        headers: headers_out(&request.headers),
        principal: &request.principal,
        role: &request.role,
        source: request.source,
        elapsed_us: us(request.elapsed),
        remaining_us: request.remaining.map(us),
        body_bytes: request.body.len() as u64,
    };
    let (first, rest) = cut(&request.body);
    std::iter::once(message(REQUEST, &sent, first)).chain(parts(id, rest))
}

/// The messages that an answer is.
pub(crate) fn encode_answer(id: u64, answer: &ForwardedAnswer) -> impl Iterator<Item = Vec<u8>> {
    let sent = SentAnswer {
        id,
        status: answer.status,
        headers: headers_out(&answer.headers),
        body_bytes: answer.body.len() as u64,
    };
    let (first, rest) = cut(&answer.body);
    std::iter::once(message(ANSWER, &sent, first)).chain(parts(id, rest))
}

pub(crate) fn encode_hang_up(id: u64) -> Vec<u8> {
    message(HANG_UP, &id, &[])
}

pub(crate) fn encode_beat() -> Vec<u8> {
    message(BEAT, &(), &[])
}

/// Bodies are views of `bytes`: whoever keeps them copies them.
pub(crate) fn decode_carried(bytes: &Bytes) -> Result<Carried, DecodeError> {
    let (kind, rest) = opened(bytes)?;
    Ok(match kind {
        REQUEST => {
            let (sent, part): (SentRequest<'_>, _) = head(rest)?;
            let body_bytes = sent.body_bytes;
            let request = request_in(&sent, bytes.slice_ref(part));
            Carried::Request { id: sent.id, request, body_bytes }
        }
        ANSWER => {
            let (sent, part): (SentAnswer<'_>, _) = head(rest)?;
            let answer = ForwardedAnswer {
                status: sent.status,
                headers: headers_in(&sent.headers),
                body: bytes.slice_ref(part),
            };
            Carried::Answer { id: sent.id, answer, body_bytes: sent.body_bytes }
        }
        PART => {
            let (id, part) = head(rest)?;
            Carried::Part { id, part: bytes.slice_ref(part) }
        }
        HANG_UP => Carried::HangUp { id: all(rest)? },
        BEAT => {
            let () = all(rest)?;
            Carried::Beat
        }
        _ => return Err(DecodeError::Unused { what: MESSAGE.what }),
    })
}

fn head<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), DecodeError> {
    let what = MESSAGE.what;
    postcard::take_from_bytes(bytes).map_err(|cause| DecodeError::Malformed { what, cause })
}

fn cut(body: &[u8]) -> (&[u8], &[u8]) {
    body.split_at(body.len().min(PART_BYTES))
}

fn parts(id: u64, rest: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let parts: Vec<_> = rest.chunks(PART_BYTES).map(|part| message(PART, &id, part)).collect();
    parts.into_iter()
}

fn request_in(sent: &SentRequest<'_>, body: Bytes) -> Forwarded {
    Forwarded {
        method: sent.method.to_owned(),
        target: sent.target.to_owned(),
        headers: headers_in(&sent.headers),
        body,
        principal: sent.principal.to_owned(),
        role: sent.role.to_owned(),
        source: sent.source,
        elapsed: Duration::from_micros(sent.elapsed_us),
        remaining: sent.remaining_us.map(Duration::from_micros),
    }
}

fn headers_out(headers: &[(String, Vec<u8>)]) -> SentHeaders<'_> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

fn headers_in(sent: &SentHeaders<'_>) -> Vec<(String, Vec<u8>)> {
    sent.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect()
}

/// Rounded down: what a request has waited is never told longer than it was.
fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: Vec<u8>) -> Forwarded {
        Forwarded {
            method: "POST".to_owned(),
            target: "/v1/acquire-lock?x=%2F".to_owned(),
            headers: vec![("if-match".to_owned(), b"\"7\"".to_vec())],
            body: Bytes::from(body),
            principal: "anonymous".to_owned(),
            role: "admin".to_owned(),
            source: Some(([10, 0, 0, 7], 4_711).into()),
            elapsed: Duration::from_micros(1_500),
            remaining: Some(Duration::from_secs(60)),
        }
    }

    fn decoded(bytes: &[u8]) -> Result<Carried, DecodeError> {
        decode_carried(&Bytes::copy_from_slice(bytes))
    }

    fn together(messages: impl Iterator<Item = Vec<u8>>) -> (Forwarded, u64, usize) {
        let mut messages = messages.map(|bytes| decoded(&bytes).expect("just encoded"));
        let Some(Carried::Request { id: 9, mut request, body_bytes }) = messages.next() else {
            panic!("the first is the head");
        };
        let mut body = request.body.to_vec();
        let mut parts = 0;
        for next in messages {
            let Carried::Part { id: 9, part } = next else { panic!("parts follow") };
            body.extend_from_slice(&part);
            parts += 1;
        }
        request.body = Bytes::from(body);
        (request, body_bytes, parts)
    }

    #[test]
    fn a_request_is_put_together_as_it_was_cut() {
        for (length, parts) in [(0, 0), (1, 0), (PART_BYTES, 0), (PART_BYTES + 1, 1), (600_000, 4)]
        {
            let whole = request((0..length).map(|n| n as u8).collect());
            let (read, body_bytes, seen) = together(encode_request(9, &whole));
            assert_eq!((read == whole, body_bytes, seen), (true, length as u64, parts), "{length}");
        }
    }

    #[test]
    fn what_is_cut_short_or_altered_has_no_meaning() {
        let bytes = encode_request(9, &request(b"{}".to_vec())).next().expect("a message");
        for end in 0..bytes.len() {
            assert!(decoded(&bytes[..end]).is_err(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 0x40;
            assert!(decoded(&altered).is_err(), "{at}");
        }
        assert_eq!(decoded(&encode_beat()).expect("just encoded"), Carried::Beat);
        let hang_up = decoded(&encode_hang_up(3)).expect("just encoded");
        assert_eq!(hang_up, Carried::HangUp { id: 3 });
    }
}
