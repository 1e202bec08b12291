//! `leasehold fence test` against stores that are fenced, and against stores that are not.
