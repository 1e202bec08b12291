//! Tables of streams, and streams cut anywhere.
