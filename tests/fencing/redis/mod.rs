//! The Redis library in a real server.
