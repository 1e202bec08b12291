//! The storage side: real PostgreSQL, real Redis and a real HTTP server refuse a stale token.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "counts are part of what is shown")]

mod conformance;
mod postgres;
mod proxy;
mod redis;
mod story;
