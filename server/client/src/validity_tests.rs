//! Random histories of sends, answers, doubts and ends.
