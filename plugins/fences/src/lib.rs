//! What attaches Leasehold to storage.
