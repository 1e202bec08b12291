//! The PostgreSQL kit in a real server.
