//! The repository tests itself: its arrows, its documents, its language.

mod arrows;
mod documents;
mod files;
