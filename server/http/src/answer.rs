//! Answers as bytes and headers.

use crate::fault::Fault;
use crate::trace::TraceId;
use actix_web::HttpResponse;
use actix_web::body::{BodyStream, BoxBody, MessageBody as _};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use leasehold_node::ForwardedAnswer;
use serde::Serialize;
use std::convert::Infallible;
use std::fmt;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
const REVISION: HeaderName = HeaderName::from_static("leasehold-revision");
const AGE: HeaderName = HeaderName::from_static("leasehold-age-ms");
const LEADER: HeaderName = HeaderName::from_static("leasehold-leader");
const TRACE: HeaderName = HeaderName::from_static("leasehold-trace-id");

/// What a handler says when all went well, and what when not.
pub(crate) type Answered = Result<Answer, Fault>;

/// A good answer.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Content,
    content_type: HeaderValue,
    fencing_token: Option<u64>,
    revision: Option<u64>,
    age_ms: Option<u64>,
    tag: Option<u64>,
    stored: bool,
}

/// What an answer consists of.
enum Content {
    Whole(Vec<u8>),
    Stream(BoxStream<'static, Result<Bytes, Infallible>>),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(body) => write!(f, "{} bytes", body.len()),
            Self::Stream(_) => f.write_str("a stream"),
        }
    }
}

impl Answer {
    /// A shape as JSON.
    pub(crate) fn json(shape: &impl Serialize) -> Self {
        Self::bytes(write(shape), JSON)
    }

    /// Anything else.
    pub(crate) fn bytes(body: Vec<u8>, content_type: HeaderValue) -> Self {
        Self::new(Content::Whole(body), content_type)
    }

    /// Server-sent events.
    pub(crate) fn events(
        chunks: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
    ) -> Self {
        Self::stream(chunks, EVENTS)
    }

    /// Anything that is sent as it is made.
    pub(crate) fn stream(
        chunks: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
        content_type: HeaderValue,
    ) -> Self {
        Self::new(Content::Stream(chunks.boxed()), content_type).unstored()
    }

    fn new(body: Content, content_type: HeaderValue) -> Self {
        Self {
            body,
            content_type,
            fencing_token: None,
            revision: None,
            age_ms: None,
            tag: None,
            stored: true,
        }
    }

    /// The version of what is answered, to be given back in `If-Match`.
    pub(crate) fn tagged(self, version: u64) -> Self {
        Self { tag: Some(version), ..self }
    }

    /// The header that the holder sends on to storage.
    pub(crate) fn with_token(self, token: Option<u64>) -> Self {
        Self { fencing_token: token, ..self }
    }

    /// The revision that the answer reflects.
    pub(crate) fn at(self, revision: u64) -> Self {
        Self { revision: Some(revision), ..self }
    }

    /// How old the answer may be.
    pub(crate) fn aged(self, age_ms: Option<u64>) -> Self {
        Self { age_ms, ..self }
    }

    /// A reader's answer, which is out of date at once: nobody on the way may keep it.
    pub(crate) fn unstored(self) -> Self {
        Self { stored: false, ..self }
    }

    pub(crate) fn respond(self) -> HttpResponse {
        let body = match self.body {
            Content::Whole(body) => BoxBody::new(Bytes::from(body)),
            Content::Stream(chunks) => BoxBody::new(BodyStream::new(chunks)),
        };
        let mut response = HttpResponse::with_body(StatusCode::OK, body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, self.content_type);
        let tag = self.tag.and_then(|tag| HeaderValue::from_str(&format!("\"{tag}\"")).ok());
        if let Some(tag) = tag {
            headers.insert(header::ETAG, tag);
        }
        for (name, number) in
            [(FENCING_TOKEN, self.fencing_token), (REVISION, self.revision), (AGE, self.age_ms)]
        {
            if let Some(number) = number {
                headers.insert(name, HeaderValue::from(number));
            }
        }
        if !self.stored {
            headers.insert(header::CACHE_CONTROL, NO_STORE);
        }
        response
    }
}

impl Fault {
    pub(crate) fn respond(mut self, trace: TraceId) -> HttpResponse {
        let trace = trace.to_string();
        let status = StatusCode::from_u16(self.problem.status)
            .expect("statuses are literals, which a test goes through");
        let traced = HeaderValue::from_str(&trace).expect("hexadecimal digits are a legal header");
        self.problem.trace_id = Some(trace.into());
        let mut response =
            HttpResponse::with_body(status, BoxBody::new(Bytes::from(write(&*self.problem))));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM);
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        headers.insert(TRACE, traced);
        if let Some(ms) = self.problem.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
}

/// Names the node that leads, unless another node has named one already.
pub(crate) fn name_leader(response: &mut HttpResponse, leader: u64) {
    let headers = response.headers_mut();
    if !headers.contains_key(LEADER) {
        headers.insert(LEADER, HeaderValue::from(leader));
    }
}

/// The answer of another node, as it came.
pub(crate) fn passed_back(answer: ForwardedAnswer) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::with_body(status, BoxBody::new(answer.body));
    for (name, value) in &answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// An answer on its way to another node. Streams do not take it: their body would be empty.
pub(crate) fn whole(response: HttpResponse) -> ForwardedAnswer {
    let (head, body) = response.into_parts();
    let headers = head.headers().iter();
    ForwardedAnswer {
        status: head.status().as_u16(),
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect(),
        body: body.try_into_bytes().unwrap_or_default(),
    }
}

fn write(shape: &impl Serialize) -> Vec<u8> {
    // Large enough for a grant or a problem, so that the hot answers allocate once.
    let mut body = Vec::with_capacity(512);
    serde_json::to_writer(&mut body, shape)
        .expect("shapes have string keys, and memory takes every byte");
    body
}
