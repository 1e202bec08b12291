//! The fence proxy in front of a real HTTP server.
