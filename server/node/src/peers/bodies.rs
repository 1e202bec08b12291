//! Bodies that arrive in parts, and the room that a session has for them.

use super::session::{BODY_BYTES_MAX, FORWARDED_MAX};
use crate::codec::Carried;
use crate::forward::{Forwarded, ForwardedAnswer};
use bytes::{Bytes, BytesMut};
use prometheus::IntGauge;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that the requests, or answers, of one session may take at this end, heads included: from
/// the first part until whoever handles them is done. Two of the longest, or thousands of the
/// usual ones.
pub(super) const SESSION_BYTES_MAX: u64 = 64 << 20;
/// Room that is made for a body before any of it is there.
const AT_FIRST_MAX: u64 = 1 << 20;

/// A message that is there with all of its body.
pub(super) enum Whole {
    Request(u64, Forwarded, Place),
    Answer(u64, ForwardedAnswer),
    HangUp(u64),
    /// A request or an answer for which there is no room: it is forgotten.
    NoRoom(u64),
}

/// Bodies that are still arriving, at one end of a session.
pub(super) struct Bodies {
    arriving: HashMap<u64, Arriving>,
    room: Room,
}

struct Arriving {
    head: Head,
    body: BytesMut,
    body_bytes: u64,
    place: Place,
}

enum Head {
    Request(Forwarded),
    Answer(ForwardedAnswer),
}

/// How much is taken, by all that is under way in a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Room {
    taken: Arc<AtomicU64>,
    gauge: Option<IntGauge>,
}

/// The room that one request or answer takes. Dropping it makes room again.
#[derive(Debug)]
pub(super) struct Place {
    room: Room,
    bytes: u64,
}

pub(super) fn meaningless() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what was sent has no place in this session")
}

impl Bodies {
    /// What they take is added to `gauge`.
    pub(super) fn new(gauge: Option<IntGauge>) -> Self {
        Self { arriving: HashMap::new(), room: Room { taken: Arc::default(), gauge } }
    }

    /// A message of so many `bytes`; answers what is whole with it.
    pub(super) fn take(&mut self, carried: Carried, bytes: u64) -> io::Result<Option<Whole>> {
        match carried {
            Carried::Beat => Ok(None),
            Carried::HangUp { id } => {
                self.arriving.remove(&id);
                Ok(Some(Whole::HangUp(id)))
            }
            Carried::Request { id, mut request, body_bytes } => {
                let part = std::mem::take(&mut request.body);
                self.begin(id, Head::Request(request), &part, body_bytes, bytes)
            }
            Carried::Answer { id, mut answer, body_bytes } => {
                let part = std::mem::take(&mut answer.body);
                self.begin(id, Head::Answer(answer), &part, body_bytes, bytes)
            }
            Carried::Part { id, part } => self.go_on(id, &part),
        }
    }

    fn begin(
        &mut self,
        id: u64,
        head: Head,
        part: &[u8],
        body_bytes: u64,
        bytes: u64,
    ) -> io::Result<Option<Whole>> {
        let missing = body_bytes.checked_sub(part.len() as u64).ok_or_else(meaningless)?;
        if body_bytes > BODY_BYTES_MAX || self.arriving.contains_key(&id) {
            return Err(meaningless());
        }
        let place = self.room.take(bytes + missing);
        let Some(place) = place.filter(|_| self.arriving.len() < FORWARDED_MAX) else {
            return Ok(Some(Whole::NoRoom(id)));
        };
        if missing == 0 {
            return Ok(Some(head.with(id, Bytes::copy_from_slice(part), place)));
        }
        let mut body = BytesMut::with_capacity(body_bytes.min(AT_FIRST_MAX) as usize);
        body.extend_from_slice(part);
        self.arriving.insert(id, Arriving { head, body, body_bytes, place });
        Ok(None)
    }

    fn go_on(&mut self, id: u64, part: &[u8]) -> io::Result<Option<Whole>> {
        // Parts of what was hung up on, or had no room, may still be on their way.
        let Some(arriving) = self.arriving.get_mut(&id) else { return Ok(None) };
        arriving.body.extend_from_slice(part);
        match (arriving.body.len() as u64).cmp(&arriving.body_bytes) {
            Ordering::Less => Ok(None),
            Ordering::Greater => Err(meaningless()),
            Ordering::Equal => Ok(self.arriving.remove(&id).map(|whole| {
                let Arriving { head, body, place, .. } = whole;
                head.with(id, body.freeze(), place)
            })),
        }
    }
}

impl Head {
    fn with(self, id: u64, body: Bytes, place: Place) -> Whole {
        match self {
            Self::Request(request) => Whole::Request(id, Forwarded { body, ..request }, place),
            // Whoever waits for it has it at once.
            Self::Answer(answer) => Whole::Answer(id, ForwardedAnswer { body, ..answer }),
        }
    }
}

impl Room {
    /// `None` if there is not enough.
    pub(super) fn take(&self, bytes: u64) -> Option<Place> {
        let taken = self.taken.fetch_add(bytes, Relaxed);
        if let Some(gauge) = &self.gauge {
            gauge.add(bytes as i64);
        }
        let place = Place { room: self.clone(), bytes };
        (taken + bytes <= SESSION_BYTES_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Relaxed);
        if let Some(gauge) = &self.room.gauge {
            gauge.sub(self.bytes as i64);
        }
    }
}
