//! A PostgreSQL server of its own for a test.
