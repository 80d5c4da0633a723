//! Everything the monitors know, as a function of the log: [`State::apply`] is the only way it changes.
//!
//! Apply neither reads a clock nor draws a number nor fails: whether a change is allowed was decided when it was
//! proposed. Two replicas that applied the same proposals hold the same bytes ([`State::digest`]).

mod answers;
mod auth;
mod config;
mod joining;
mod log;
mod members;
mod osd;

pub use answers::Answers;
pub use auth::{AuthDb, GLOBAL_ID_MIN};
pub use config::{ConfigDb, ConfigLogEntry};
pub use joining::Joining;
pub use log::ClusterLog;
pub use members::{Member, Members};
pub use osd::OsdHistory;

use crate::proposal::{Change, Metadata, Proposal};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use std::collections::BTreeMap;
use wire::types::{MgrMap, MonMap, OsdMap, UTime};

/// A health check that somebody muted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mute {
    /// Zero: until the check goes away.
    pub until: UTime,
    /// Stays also when the check goes away.
    pub sticky: bool,
    pub summary: String,
    pub count: i64,
}

impl Encode for Mute {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.until);
        w.bool(self.sticky);
        w.put(&self.summary);
        w.i64(self.count);
    }
}

impl Decode for Mute {
    const MIN_LEN: usize = 21;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Mute { until: r.get()?, sticky: r.bool()?, summary: r.get()?, count: r.i64()? })
    }
}

#[derive(Clone, Debug, Default)]
pub struct State {
    /// Number of applied proposals.
    pub version: u64,
    /// When the newest was made.
    pub at: UTime,
    pub monmap: MonMap,
    pub osd: OsdHistory,
    pub mgrmap: MgrMap,
    pub mgr_commands: Bytes,
    pub auth: AuthDb,
    pub config: ConfigDb,
    pub config_keys: BTreeMap<String, Bytes>,
    pub log: ClusterLog,
    pub mon_metadata: BTreeMap<String, Metadata>,
    pub mgr_metadata: BTreeMap<String, Metadata>,
    pub mutes: BTreeMap<String, Mute>,
    /// The monitors' numbers as members of the log.
    pub members: Members,
    pub answers: Answers,
    pub joining: Joining,
}

impl State {
    pub fn osdmap(&self) -> &OsdMap {
        self.osd.map()
    }

    /// False for a proposal that was made for another state: it changes nothing. A leader whose proposals another leader's
    /// overtook could otherwise change what it has not seen.
    pub fn apply(&mut self, proposal: &Proposal) -> bool {
        if proposal.base.is_some_and(|base| base != self.version) {
            return false;
        }
        self.version += 1;
        self.at = proposal.at;
        for change in &proposal.changes {
            self.apply_change(change, proposal.at);
        }
        true
    }

    fn apply_change(&mut self, change: &Change, at: UTime) {
        match change {
            Change::MonMap { map } => {
                self.members.follow(map);
                self.mon_metadata.retain(|name, _| map.mons.contains_key(name));
                self.monmap = map.clone();
            }
            Change::MonDisk { name, disk } => self.members.set_disk(name, *disk),
            Change::MonLeaving { name } => self.members.leave(name),
            Change::MonReplaced { name, disk } => self.members.renew(name, *disk),
            Change::Answered { given } => self.answers.keep(given.clone()),
            Change::OsdMap { step } => self.osd.apply(step),
            Change::OsdMetadata { osd, metadata } => self.osd.set_metadata(*osd, metadata.clone()),
            Change::MgrMap { map } => self.mgrmap = (**map).clone(),
            Change::MgrCommands { descriptions } => self.mgr_commands = descriptions.clone(),
            Change::AuthSet { name, entity } => {
                self.auth.entities.insert(name.clone(), entity.clone());
            }
            Change::AuthRemove { name } => {
                self.auth.entities.remove(name);
            }
            Change::Rotating { service, keys } => {
                self.auth.rotating.insert(*service, keys.clone());
            }
            Change::GlobalIdLimit { limit } => {
                self.auth.global_id_limit = self.auth.global_id_limit.max(*limit);
            }
            Change::Config { by, changes } => self.config.apply(at, by, changes),
            Change::ConfigKey { key, value: Some(value) } => {
                self.config_keys.insert(key.clone(), value.clone());
            }
            Change::ConfigKey { key, value: None } => {
                self.config_keys.remove(key);
            }
            Change::Log { entry } => self.log.append(entry.clone()),
            Change::MonMetadata { name, metadata } => {
                self.mon_metadata.insert(name.clone(), metadata.clone());
            }
            Change::MgrMetadata { name, metadata: Some(metadata) } => {
                self.mgr_metadata.insert(name.clone(), metadata.clone());
            }
            Change::MgrMetadata { name, metadata: None } => {
                self.mgr_metadata.remove(name);
            }
            Change::Mute { code, until, sticky, summary, count } => {
                let mute = Mute { until: *until, sticky: *sticky, summary: summary.clone(), count: *count };
                self.mutes.insert(code.clone(), mute);
            }
            Change::Unmute { code } => {
                self.mutes.remove(code);
            }
            Change::JoinToken { id, token: Some(token) } => {
                self.joining.tokens.insert(id.clone(), token.clone());
            }
            Change::JoinToken { id, token: None } => {
                self.joining.tokens.remove(id);
            }
            Change::Host { name, host: Some(host) } => {
                self.joining.hosts.insert(name.clone(), host.clone());
            }
            Change::Host { name, host: None } => {
                self.joining.hosts.remove(name);
            }
            Change::OsdMapFloor { epoch } => self.osd.trim(*epoch),
            Change::PgCreate { pg } => self.osd.create_again(*pg, at),
            Change::PgUnborn { pg, since } => {
                if let Some(row) = self.osd.creating.get_mut(pg).filter(|(known, _)| known < since) {
                    *row = (*since, at);
                }
            }
            Change::PgCreated { pg } => {
                self.osd.creating.remove(pg);
            }
        }
    }

    /// The whole state as bytes: a snapshot that replaces the log up to [`State::version`].
    pub fn snapshot(&self) -> Bytes {
        self.to_vec(Features::ALL).into()
    }

    /// SHA-256 over the snapshot: equal on replicas that applied the same log.
    pub fn digest(&self) -> [u8; 32] {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.snapshot());
        digest.as_ref().try_into().expect("SHA-256 is 32 bytes")
    }
}

impl Encode for State {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.u64(self.version);
            w.put(&self.at);
            w.put(&self.monmap);
            w.put(&self.osd);
            w.put(&self.mgrmap);
            w.put(&self.mgr_commands);
            w.put(&self.auth);
            w.put(&self.config);
            w.put(&self.config_keys);
            w.put(&self.log);
            w.put(&self.mon_metadata);
            w.put(&self.mgr_metadata);
            w.put(&self.mutes);
            w.put(&self.members);
            w.put(&self.answers);
            w.put(&self.joining);
        });
    }
}

impl Decode for State {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("monitor state", 3, |r, version| {
            let mut state = State {
                version: r.u64()?,
                at: r.get()?,
                monmap: r.get()?,
                osd: r.get()?,
                mgrmap: r.get()?,
                mgr_commands: r.get()?,
                auth: r.get()?,
                config: r.get()?,
                config_keys: r.get()?,
                log: r.get()?,
                mon_metadata: r.get()?,
                mgr_metadata: r.get()?,
                mutes: r.get()?,
                members: Members::default(),
                answers: Answers::default(),
                joining: Joining::default(),
            };
            if version >= 2 {
                state.members = r.get()?;
                state.answers = r.get()?;
            } else {
                state.members = Members::of_map(&state.monmap);
            }
            if version >= 3 {
                state.joining = r.get()?;
            }
            Ok(state)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joining::Token;

    #[test]
    fn state_from_before_tokens_still_decodes() {
        let mut state = State { version: 7, ..State::default() };
        let joining_len = state.joining.to_vec(Features::ALL).len();
        let mut old = state.to_vec(Features::ALL);
        old.truncate(old.len() - joining_len);
        let content_len = (old.len() - 6) as u32;
        old[0] = 2;
        old[2..6].copy_from_slice(&content_len.to_le_bytes());
        let read: State = codec::decode_exact(&old).unwrap();
        assert_eq!((read.version, read.joining), (7, Joining::default()));

        let token = Token { used: 3, uses_left: Some(1), ..Token::default() };
        state.joining.tokens.insert("k7qf3".into(), token);
        let read: State = codec::decode_exact(&state.snapshot()).unwrap();
        assert_eq!(read.joining, state.joining);
    }
}
