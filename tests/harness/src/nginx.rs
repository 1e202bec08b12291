//! An nginx of its own for a test: storage that speaks HTTP.
