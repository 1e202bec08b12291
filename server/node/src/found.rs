//! How a node gets its place in a cluster: it founds one, is taken in, or comes back.
//!
//! Of several founders the one with the lowest id founds the cluster, once all of them have
//! answered that they are empty and were told of the same founders. Each answers with its
//! incarnation, which becomes part of its membership: so a node that loses its data later is not
//! taken for the one whose votes are gone.

use crate::codec::{About, Standing, Unwelcome};
use crate::config::{NodeConfig, PeerConfig};
use crate::membership::stranger;
use crate::node::{Node, StartError};
use crate::peers::{Line, LineError, member_of};
use crate::runtime;
use crate::types::Member;
use futures_util::future::join_all;
use leasehold_core::ClusterId;
use openraft::async_runtime::WatchReceiver as _;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the other founders are asked while they do not all answer.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// How often it is looked whether an entry has come that founds the cluster.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// A founder that is silent for so long is asked again in the next round.
const GREETED_WITHIN: Duration = Duration::from_secs(3);
/// A recovery that takes longer than this says what it waits for, and looks again as often.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// How often somebody who reads the log is told that nothing has changed.
const REMIND: Duration = Duration::from_secs(30);

impl Node {
    /// Waits for as long as there is something to wait for, and says what that is.
    pub(crate) async fn found_or_recover(&self, config: &NodeConfig) -> Result<(), StartError> {
        tokio::select! {
            done = self.get_place(config) => done,
            () = self.remind() => Ok(()),
        }
    }

    async fn remind(&self) {
        loop {
            runtime::sleep(REMIND).await;
            self.inner.place.remind();
        }
    }

    async fn get_place(&self, config: &NodeConfig) -> Result<(), StartError> {
        if !self.is_initialized().await? {
            match &config.peers {
                None => self.initialize(BTreeMap::new()).await?,
                Some(peers) if peers.founders.is_empty() => self.wait_to_be_taken_in().await?,
                Some(peers) => self.found_together(peers).await?,
            }
        }
        self.recover().await
    }

    async fn is_initialized(&self) -> Result<bool, StartError> {
        self.inner.raft.is_initialized().await.map_err(raft_failed)
    }

    /// Founds a cluster of this node and the others.
    async fn initialize(&self, mut members: BTreeMap<u64, Member>) -> Result<(), StartError> {
        members.insert(self.inner.id, self.inner.identity.member());
        self.inner.raft.initialize(members).await.map_err(raft_failed)
    }

    async fn wait_to_be_taken_in(&self) -> Result<(), StartError> {
        self.inner.place.wait_for(
            "a cluster to take this empty node in: `leasehold cluster add` there, or `--join` \
             here; to found one, start it with `--peers`",
        );
        while !self.is_initialized().await? {
            runtime::sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    /// Asks the other founders until all of them are there and empty, or one of them has got this
    /// node into a cluster.
    async fn found_together(&self, peers: &PeerConfig) -> Result<(), StartError> {
        let first = peers.founders.keys().next() == Some(&self.inner.id);
        while !self.is_initialized().await? {
            let (members, absent) = self.ask_founders(peers).await?;
            if first && absent.is_empty() {
                return self.initialize(members).await;
            }
            let what = match (absent.is_empty(), peers.founders.first_key_value()) {
                (true, Some((first, _))) => format!("node {first} to found the cluster"),
                _ => format!("the other founders: {absent:?} do not answer, or are not empty"),
            };
            self.inner.place.wait_for(&what);
            runtime::sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    /// Those who are there and empty, and the ids of the others.
    async fn ask_founders(
        &self,
        peers: &PeerConfig,
    ) -> Result<(BTreeMap<u64, Member>, Vec<u64>), StartError> {
        let others = peers.founders.iter().filter(|(id, _)| **id != self.inner.id);
        let asked = join_all(others.map(|(id, address)| async move {
            let mut line = Line::unmet(self.inner.identity.clone(), *id, address.clone());
            let told = runtime::timeout_at(runtime::now() + GREETED_WITHIN, line.greet()).await;
            let silent = || LineError::Silent { address: address.clone(), within: GREETED_WITHIN };
            (*id, address, told.unwrap_or_else(|| Err(silent())))
        }));
        let (mut members, mut absent) = (BTreeMap::new(), Vec::new());
        for (id, address, told) in asked.await {
            match self.founder(address, told)? {
                Some(member) => drop(members.insert(id, member)),
                None => absent.push(id),
            }
        }
        Ok((members, absent))
    }

    /// One founder, if it is there and empty.
    fn founder(
        &self,
        address: &str,
        told: Result<(About, Standing), LineError>,
    ) -> Result<Option<Member>, StartError> {
        match told {
            Ok((about, Standing { empty: true, .. })) => Ok(Some(member_of(&about))),
            Ok((_, Standing { cluster: Some(cluster), member: false, .. })) => {
                Err(StartError::OtherCluster {
                    address: address.to_owned(),
                    cluster: ClusterId(u128::from_be_bytes(cluster)).to_string(),
                })
            }
            // It will be heard of from whoever leads.
            Ok(_) => Ok(None),
            Err(LineError::Unwelcome { why: Unwelcome::OtherIncarnation(id), .. })
                if id == self.inner.id =>
            {
                Err(StartError::LostData { id })
            }
            Err(
                cause @ LineError::Unwelcome {
                    why:
                        Unwelcome::OtherFounders
                        | Unwelcome::OtherNode(_)
                        | Unwelcome::OtherCluster
                        | Unwelcome::Protocol(..),
                    ..
                },
            ) => Err(StartError::Unwelcome(Box::new(cause))),
            Err(cause) => {
                tracing::debug!(%cause, "a founder does not answer");
                Ok(None)
            }
        }
    }

    /// Applies what was committed before the node stopped.
    async fn recover(&self) -> Result<(), StartError> {
        let raft = &self.inner.raft;
        if raft.voter_ids().eq([self.inner.id]) {
            // Nobody else could be leading: there is no reason to wait for an election time-out.
            raft.trigger().elect(false).await.map_err(raft_failed)?;
        }
        tokio::select! {
            recovered = raft.wait_for_recovery(None) => {
                recovered.map_err(|cause| StartError::Recovery { cause: cause.to_string() })?;
            }
            () = self.tell_what_is_missing() => {}
        }
        // Whoever leads first writes the entry that founds it.
        while self.cluster().is_none() {
            runtime::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Never returns.
    async fn tell_what_is_missing(&self) {
        loop {
            runtime::sleep(TELL_AFTER).await;
            self.inner.place.wait_for(&self.missing().await);
        }
    }

    async fn missing(&self) -> String {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let committed = metrics.cluster_committed.map(|id| id.index);
        if committed.is_some() && committed >= metrics.last_log_index {
            return "the log to be applied".to_owned();
        }
        let round = self.inner.survey.round().await;
        if let Some(leader) = self.stranger_to(&round) {
            return stranger(leader);
        }
        let voters = || metrics.membership_config.voter_ids();
        let silent = voters().filter(|id| round.get(id).is_some_and(|one| one.told.is_err()));
        let silent: Vec<u64> = silent.collect();
        let count = voters().count();
        if count > 1 && self.inner.identity.member().peer.is_empty() {
            return "its cluster, which cannot reach it: it was started without `--peer-listen`, and \
                    once had peers"
                .to_owned();
        }
        if count - silent.len() > count / 2 {
            return "a leader and its log".to_owned();
        }
        format!("a quorum of the {count} voters: {silent:?} do not answer")
    }

    /// Nothing was ever decided here: a cluster may take the node in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.identity.is_empty()
    }

    /// Which cluster this is; nothing before it is founded.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.inner.shared.table.read().cluster()
    }
}

fn raft_failed(cause: impl std::fmt::Display) -> StartError {
    StartError::Raft(cause.to_string())
}
