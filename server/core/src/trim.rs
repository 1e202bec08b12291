//! Forgetting, the limits and the level: what is bounded by age or changed by a setting is a log
//! entry, so that every node forgets and changes at the same one.

use crate::ids::ClusterId;
use crate::limits::Limits;
use crate::machine::Step;
use crate::outcome::{EventKind, Outcome, Refusal};
use std::sync::Arc;

/// How much one step forgets. Forgetting is cheaper than ending, so a piece may be longer.
const FORGET_MAX: usize = 4_096;

impl Step<'_> {
    pub(crate) fn trim(&mut self, ended_before_ms: u64, history_before_ms: u64) -> Outcome {
        // After the bound was lowered, what is above it goes here too.
        let above = (self.state.ended.len() as u64).saturating_sub(self.state.limits.ended_max);
        let old = self.state.ended.iter().take(FORGET_MAX).zip(0..);
        let old =
            old.take_while(|((_, row), nth)| row.ended_at_ms < ended_before_ms || *nth < above);
        let old: Vec<u64> = old.map(|((seq, _), _)| *seq).collect();
        for seq in &old {
            self.forget_ended(*seq);
        }
        if history_before_ms > 0 {
            self.emit(EventKind::HistoryTrimmed { before_ms: history_before_ms });
        }
        Outcome::Done { more: old.len() == FORGET_MAX }
    }

    /// A repeat, after an answer that was lost, changes nothing; neither does a second founder.
    pub(crate) fn found(&mut self, cluster: ClusterId, limits: &Limits) -> Outcome {
        match self.state.head.cluster {
            Some(founded) if founded == cluster => Outcome::Done { more: false },
            Some(_) => Outcome::Refused(Refusal::Void),
            None => {
                self.state.head.cluster = Some(cluster);
                self.state.limits = Arc::new(limits.clone());
                self.emit(EventKind::LimitsChanged);
                Outcome::Done { more: false }
            }
        }
    }

    pub(crate) fn set_limits(&mut self, limits: &Limits) -> Outcome {
        if *self.state.limits != *limits {
            self.state.limits = Arc::new(limits.clone());
            self.emit(EventKind::LimitsChanged);
        }
        Outcome::Done { more: false }
    }

    /// It only rises: what an earlier entry was allowed to hold is in the log for good.
    ///
    /// Source: etcd's cluster version, Kafka's metadata.version.
    pub(crate) fn raise_level(&mut self, to: u16) -> Outcome {
        self.state.head.level = self.state.head.level.max(to);
        Outcome::Done { more: false }
    }
}
