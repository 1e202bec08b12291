//! Whether a node has its place in a cluster, what it still waits for, and whether it has lost it.

use crate::node::Node;
use std::fmt;
use tokio::sync::watch;

/// Shared by whoever changes it and whoever asks.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Waiting(String),
    Taken,
    Removed(Removed),
}

/// A node that is no member any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Its id.
    pub id: u64,
    /// Who says so: its own log, or another member.
    pub by: Option<u64>,
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} was removed from its cluster", self.id)?;
        if let Some(by) = self.by {
            write!(f, ", as node {by} says")?;
        }
        f.write_str("; to take it in again, empty its data directory and join under a new id")
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { state: watch::Sender::new(State::Waiting("its start".to_owned())) }
    }

    /// Says what the node waits for.
    pub(crate) fn wait_for(&self, what: &str) {
        let news = self.state.send_if_modified(|state| match state {
            State::Waiting(known) if known != what => {
                what.clone_into(known);
                true
            }
            _ => false,
        });
        if news {
            tracing::info!("waiting for {what}");
        }
    }

    /// Says it again: nothing has changed for long.
    pub(crate) fn remind(&self) {
        if let State::Waiting(what) = &*self.state.borrow() {
            tracing::info!("still waiting for {what}");
        }
    }

    pub(crate) fn take(&self) {
        self.state.send_if_modified(|state| {
            let waiting = matches!(state, State::Waiting(_));
            if waiting {
                *state = State::Taken;
            }
            waiting
        });
    }

    /// For good: a node is never taken in again under what it has.
    pub(crate) fn remove(&self, removed: Removed) {
        self.state.send_if_modified(|state| {
            let news = !matches!(state, State::Removed(_));
            if news {
                *state = State::Removed(removed);
            }
            news
        });
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(*self.state.borrow(), State::Removed(_))
    }

    pub(crate) fn waits_for(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Waiting(what) => Some(what.clone()),
            State::Taken => None,
            State::Removed(removed) => Some(format!("its end: {removed}")),
        }
    }

    async fn removed(&self) -> Removed {
        let mut state = self.state.subscribe();
        loop {
            if let State::Removed(removed) = &*state.borrow_and_update() {
                return removed.clone();
            }
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Node {
    /// What the node waits for before it serves, for people; nothing once it does.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        self.inner.place.waits_for()
    }

    /// Returns when the node has been removed from its cluster. The process should drain and end:
    /// it will not be taken in again under what it has.
    pub async fn removed(&self) -> Removed {
        self.inner.place.removed().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_once_lost_is_never_taken_again() {
        let place = Place::new();
        place.wait_for("a quorum");
        assert_eq!(place.waits_for().as_deref(), Some("a quorum"));
        place.take();
        place.wait_for("a leader");
        assert_eq!(place.waits_for(), None, "it serves from the first time on");
        place.remove(Removed { id: 3, by: Some(1) });
        place.remove(Removed { id: 3, by: None });
        place.take();
        let said = place.waits_for().expect("it is not there any more");
        assert!(place.is_removed() && said.contains("node 3 was removed"), "{said}");
        assert!(said.contains("as node 1 says"), "the first word counts: {said}");
    }
}
