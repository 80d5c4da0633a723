//! The control machine's part in merges of PGs: it asks the shards, answers the monitor, and brings copies together.
//!
//! The two copies of a merge must be on one core. A pool that is to have fewer PGs has its sources moved to the cores of their
//! targets before their merge is pending, while clients are served. A primary whose members have not come so far refuses the
//! merge, and the manager asks again later.

use super::{Control, Effect, Fx};
use crate::shard::{self, MergeState};
use machine::Time;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{MOSDPGReadyToMerge, PaxosHeader};
use wire::types::{Epoch, Eversion, PgId};

/// Clients wait while a merge is pending. One that is not ready by then is given up.
const PENDING_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Merges {
    /// Pending merges whose source has its primary here, since when.
    pending: BTreeMap<PgId, Time>,
}

impl Control {
    /// With each map, and each second: the shards say how pending merges stand.
    pub(super) fn look_at_merges(&mut self, now: Time, fx: &mut Fx) {
        let Some(map) = self.history.map.clone() else { return };
        let sources = self.holdings.pending_sources(&map);
        self.merges.pending.retain(|pg, _| sources.contains(pg));
        if !self.is_up() {
            return;
        }
        for pg in sources {
            let entry = &self.holdings.entries[&pg];
            if entry.primary_since.is_some() {
                self.merges.pending.entry(pg).or_insert(now);
            }
            let input = shard::Input::LookAtMerge { source: entry.id(pg) };
            fx.push(Effect::Shard { core: entry.core, input });
        }
    }

    pub(super) fn on_merge_state(
        &mut self,
        now: Time,
        source: PgId,
        epoch: Epoch,
        state: MergeState,
        fx: &mut Fx,
    ) {
        let Some(since) = self.merges.pending.get(&source).copied() else { return };
        // The monitor counts an answer about the newest map alone.
        if epoch != self.epoch() || !self.is_up() {
            return;
        }
        let mut answer = MOSDPGReadyToMerge {
            paxos: PaxosHeader { version: epoch.into() },
            source,
            source_version: Eversion::ZERO,
            target_version: Eversion::ZERO,
            last_epoch_started: 0,
            last_epoch_clean: 0,
            ready: false,
        };
        match state {
            MergeState::Ready { versions, last_epoch_started, last_epoch_clean } => {
                (answer.source_version, answer.target_version) = (versions.source, versions.target);
                (answer.last_epoch_started, answer.last_epoch_clean) = (last_epoch_started, last_epoch_clean);
                answer.ready = true;
            }
            MergeState::Waiting if now < since + PENDING_MAX => return,
            MergeState::Waiting | MergeState::Hindered => {}
        }
        self.send_mon(now, answer, fx);
    }

    /// Moves a source that is on another core than its target, if no other PG moves.
    pub(super) fn bring_together(&mut self, now: Time) {
        let Some(map) = &self.history.map else { return };
        if self.config.cores < 2 || map.pools.values().all(|pool| pool.pg_num_target >= pool.pg_num) {
            return;
        }
        let apart = self.holdings.apart(map);
        // The last PG merges first.
        if let Some((source, core)) = apart.into_iter().next_back() {
            self.want_merging_move(now, source, core);
        }
    }
}
