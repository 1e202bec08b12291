//! Servers for the tests of the client.
