//! A Redis server of its own for a test.
