//! The storage side: real PostgreSQL, real Redis and a real HTTP server refuse a stale token.

mod conformance;
mod postgres;
mod proxy;
mod redis;
mod story;
