//! Reads a body within limits of size and time, and refuses what is not JSON.

use crate::fault::Fault;
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::header::{self, HeaderMap};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use leasehold_wire::{Code, Problem};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

const READ_TYPES: &str = "application/json; charset=utf-8";

/// Whether the body's type is one that is read as JSON: none, JSON, or the one that `curl -d`
/// sends by default.
pub(crate) fn check_type(headers: &HeaderMap) -> Result<(), Fault> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(unsupported("a body in a content encoding is not read"));
    }
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let known = match value.as_bytes() {
        b"application/json" | b"application/x-www-form-urlencoded" => true,
        _ => value.to_str().is_ok_and(is_json),
    };
    if known { Ok(()) } else { Err(unsupported("the body is read as JSON only")) }
}

fn is_json(value: &str) -> bool {
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let known = essence.eq_ignore_ascii_case("application/json")
        || essence.eq_ignore_ascii_case("application/x-www-form-urlencoded");
    known && parts.all(|part| part.is_empty() || is_utf8(part))
}

fn is_utf8(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    name.eq_ignore_ascii_case("charset")
        && ["utf-8", "utf8"].iter().any(|utf8| value.trim_matches('"').eq_ignore_ascii_case(utf8))
}

fn unsupported(detail: &'static str) -> Fault {
    let mut problem = Problem::new(415, Code::UnsupportedMediaType, detail);
    problem.expected = Some(READ_TYPES.into());
    problem.into()
}

/// The whole body, if it has at most `size_max` bytes and arrives within `timeout`.
pub(crate) async fn read(
    headers: &HeaderMap,
    payload: &mut Payload,
    size_max: usize,
    timeout: Duration,
) -> Result<Bytes, Fault> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    // Refused before it is read: what follows on the connection is dropped with it.
    if announced.and_then(|text| text.parse::<u64>().ok()).is_some_and(|n| n > size_max as u64) {
        return Err(too_large(size_max));
    }
    Reading {
        payload,
        size_max,
        timeout,
        first: Bytes::new(),
        rest: BytesMut::new(),
        late: Late::NotYet,
    }
    .await
}

fn too_large(size_max: usize) -> Fault {
    let mut problem =
        Problem::new(413, Code::TooLarge, format!("the body has more than {size_max} bytes"));
    problem.max = Some(size_max as u64);
    problem.into()
}

/// Collects chunks. Nearly every body is one chunk that is there at the second look, so the
/// first chunk is not copied, and the timer is not set before a third look is needed.
struct Reading<'a> {
    payload: &'a mut Payload,
    size_max: usize,
    timeout: Duration,
    first: Bytes,
    rest: BytesMut,
    late: Late,
}

enum Late {
    NotYet,
    LookedOnce,
    Timed(Pin<Box<Sleep>>),
}

impl Future for Reading<'_> {
    type Output = Result<Bytes, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match Pin::new(&mut *this.payload).poll_next(cx) {
                Poll::Ready(Some(Ok(chunk))) => this.take(chunk)?,
                Poll::Ready(Some(Err(cause))) => return Poll::Ready(Err(broken(&cause))),
                Poll::Ready(None) => return Poll::Ready(Ok(this.finish())),
                Poll::Pending => return this.late(cx),
            }
        }
    }
}

impl Reading<'_> {
    fn take(&mut self, chunk: Bytes) -> Result<(), Fault> {
        if self.first.len() + self.rest.len() + chunk.len() > self.size_max {
            return Err(too_large(self.size_max));
        }
        if self.first.is_empty() {
            self.first = chunk;
        } else {
            self.rest.extend_from_slice(&chunk);
        }
        Ok(())
    }

    fn finish(&mut self) -> Bytes {
        if self.rest.is_empty() {
            return std::mem::take(&mut self.first);
        }
        let mut whole = BytesMut::with_capacity(self.first.len() + self.rest.len());
        whole.extend_from_slice(&self.first);
        whole.extend_from_slice(&self.rest);
        whole.freeze()
    }

    fn late(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Fault>> {
        match &mut self.late {
            Late::NotYet => {
                self.late = Late::LookedOnce;
                Poll::Pending
            }
            Late::LookedOnce => {
                let mut sleep = Box::pin(tokio::time::sleep(self.timeout));
                let ended = sleep.as_mut().poll(cx);
                self.late = Late::Timed(sleep);
                ended.map(|()| Err(self.timed_out()))
            }
            Late::Timed(sleep) => sleep.as_mut().poll(cx).map(|()| Err(self.timed_out())),
        }
    }

    fn timed_out(&self) -> Fault {
        let ms = self.timeout.as_millis();
        let detail = format!("the body did not arrive within {ms} ms; nothing was done");
        Problem::new(408, Code::RequestTimeout, detail).into()
    }
}

fn broken(cause: &PayloadError) -> Fault {
    let detail = match cause {
        PayloadError::Incomplete(_) => "the body ended early, or its chunks are not well-formed",
        _ => "the body could not be read",
    };
    Problem::new(400, Code::InvalidRequest, detail).into()
}

/// Reads a refused request's small body and drops it.
///
/// A request that is answered before its body was read costs its connection, and a client that
/// is refused in overload would come back with a new one.
pub(crate) async fn discard(payload: &mut Payload, headers: &HeaderMap, size_max: usize) {
    let small = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok())
        .is_some_and(|length| length <= size_max);
    if !small {
        return;
    }
    // One look hands over to the connection, which then delivers what it has already received.
    let mut looked = false;
    std::future::poll_fn(|cx| {
        loop {
            match payload.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if looked => return Poll::Ready(()),
                Poll::Pending => {
                    looked = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;
    use futures_util::{FutureExt as _, stream};

    type BoxedPayloadStream = Pin<Box<dyn Stream<Item = Result<Bytes, PayloadError>>>>;

    fn typed(value: &'static str) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
        check_type(&headers)
    }

    async fn read_of(body: &'static [u8], size_max: usize) -> Result<Bytes, Fault> {
        let (http, mut payload) = TestRequest::post().set_payload(body).to_http_parts();
        read(http.headers(), &mut payload, size_max, Duration::from_secs(1)).await
    }

    #[actix_web::test]
    async fn a_body_within_its_limit_is_read_whole() {
        assert_eq!(read_of(b"{}", 2).await.expect("fits"), "{}");
        assert_eq!(read_of(b"", 0).await.expect("fits"), "");
    }

    #[actix_web::test]
    async fn a_larger_one_is_refused_with_the_limit() {
        let problem = read_of(b"{ }", 2).await.expect_err("too large").problem;
        assert_eq!((problem.status, problem.max), (413, Some(2)));
        let (http, mut payload) =
            TestRequest::post().insert_header(("content-length", "3")).to_http_parts();
        let refused = read(http.headers(), &mut payload, 2, Duration::from_secs(1)).await;
        assert_eq!(refused.expect_err("announced").problem.code, Code::TooLarge);
    }

    #[actix_web::test]
    async fn chunks_are_put_together_and_counted() {
        let chunks = || {
            let parts = ["{\"a\"", ":", "1}"].map(|part| Ok(Bytes::from_static(part.as_bytes())));
            Payload::from(Box::pin(stream::iter(parts)) as BoxedPayloadStream)
        };
        let whole = read(&HeaderMap::new(), &mut chunks(), 7, Duration::from_secs(1)).await;
        assert_eq!(whole.expect("fits"), "{\"a\":1}");
        let refused = read(&HeaderMap::new(), &mut chunks(), 6, Duration::from_secs(1)).await;
        assert_eq!(refused.expect_err("one too many").problem.status, 413);
    }

    #[actix_web::test]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let mut never = Payload::from(Box::pin(stream::pending()) as BoxedPayloadStream);
        let headers = HeaderMap::new();
        let mut reading = Box::pin(read(&headers, &mut never, 9, Duration::from_millis(5)));
        // The second look is what sets the timer; a connection gives it when something arrives.
        assert!((&mut reading).now_or_never().is_none());
        assert_eq!(reading.await.expect_err("late").problem.code, Code::RequestTimeout);
    }

    #[test]
    fn what_is_read_as_json() {
        assert!(check_type(&HeaderMap::new()).is_ok());
        for value in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON;charset=\"UTF-8\"",
            "application/x-www-form-urlencoded",
        ] {
            assert!(typed(value).is_ok(), "{value}");
        }
    }

    #[test]
    fn what_is_not() {
        for value in [
            "text/plain",
            "text/json",
            "application/jsonx",
            "application/json; charset=latin-1",
            "application/json; boundary=x",
            "multipart/form-data; boundary=x",
            "",
        ] {
            assert_eq!(typed(value).expect_err(value).problem.status, 415);
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(check_type(&headers).expect_err("encoded").problem.status, 415);
    }
}
