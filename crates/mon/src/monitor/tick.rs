//! The tick: work of the monitor that the clock starts.

use super::{Monitor, Turn};
use crate::health;
use crate::join_token;
use crate::proposal::Change;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{HealthStatus, LogPriority, UTime};

const TICK: Duration = Duration::from_secs(1);

impl Monitor {
    pub(super) fn tick(&mut self, turn: &mut Turn<'_>) {
        self.tick_at = turn.now + TICK;
        if self.states.committed.version == 0 {
            return;
        }
        self.ask_for_ids(turn);
        if !self.is_leading() {
            return;
        }
        self.follow_members(turn.now);
        self.answer_joining(turn);
        self.answer_removed(turn);
        self.rotate_secrets(turn);
        self.tick_osds(turn);
        self.tick_mgr(turn);
        self.tick_quotas(turn);
        self.tick_snapshots(turn);
        self.tick_fullness(turn);
        self.tick_tokens(turn);
        self.tick_health(turn);
        self.describe_monitors(turn);
    }

    /// Mutes end by time, or when their check goes away or grows; changes of health go to the cluster log.
    fn tick_health(&mut self, turn: &mut Turn<'_>) {
        let now = self.wall(turn.now);
        let situation = self.situation(turn);
        let checks = health::checks(&self.states.committed, &self.reports, &situation, &self.options);
        let mut changes = Vec::new();
        for (code, mute) in &self.states.head().mutes {
            let expired = mute.until != UTime::ZERO && mute.until <= now;
            let gone = !mute.sticky && checks.get(code).is_none_or(|c| c.count > mute.count);
            if expired || gone {
                changes.push(Change::Unmute { code: code.clone() });
            }
        }
        let before = std::mem::take(&mut self.last_checks);
        for (code, check) in &checks {
            let line = match before.get(code) {
                None => format!("Health check failed: {} ({code})", check.summary),
                Some(old) if old.summary != check.summary => {
                    format!("Health check update: {} ({code})", check.summary)
                }
                Some(_) => continue,
            };
            let priority =
                if check.severity == HealthStatus::ERR { LogPriority::ERROR } else { LogPriority::WARN };
            changes.push(self.log_change(now, priority, "cluster", line));
        }
        for (code, check) in &before {
            if !checks.contains_key(code) {
                let line = format!("Health check cleared: {code} (was: {})", check.summary);
                changes.push(self.log_change(now, LogPriority::INFO, "cluster", line));
            }
        }
        if checks.is_empty() && !before.is_empty() {
            let line = "Cluster is now healthy".to_owned();
            changes.push(self.log_change(now, LogPriority::INFO, "cluster", line));
        }
        self.last_checks = checks;
        self.propose(turn.now, changes);
    }

    /// Join tokens end at their time, or when somebody removed their key.
    fn tick_tokens(&mut self, turn: &mut Turn<'_>) {
        let now = self.wall(turn.now);
        let mut changes = Vec::new();
        for (id, token) in &self.states.head().joining.tokens {
            let entity = join_token::entity_of(id);
            let has_key = self.states.head().auth.entities.contains_key(&entity);
            if token.expires <= now && has_key {
                changes.push(Change::AuthRemove { name: entity });
            }
            if token.expires <= now || !has_key {
                changes.push(Change::JoinToken { id: id.clone(), token: None });
            }
        }
        self.propose(turn.now, changes);
    }

    /// Metadata of this monitor and of those that are connected, where the state has something else.
    fn describe_monitors(&mut self, turn: &mut Turn<'_>) {
        let own = (self.settings.name.as_str(), &self.settings.metadata);
        let said = self.quorum.metadata(&self.states.head().members).chain([own]);
        let is_news = |(name, metadata): &(&str, &BTreeMap<String, String>)| {
            self.states.head().monmap.mons.contains_key(*name)
                && self.states.head().mon_metadata.get(*name) != Some(metadata)
        };
        let change = |(name, metadata): (&str, &BTreeMap<String, String>)| Change::MonMetadata {
            name: name.to_owned(),
            metadata: metadata.clone(),
        };
        let changes = said.filter(is_news).map(change).collect();
        self.propose(turn.now, changes);
    }
}
