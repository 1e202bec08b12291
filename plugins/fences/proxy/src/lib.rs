//! A reverse proxy that refuses a write with a stale token.
