//! Pools by message rather than command (`rados_pool_create`, `rados_pool_delete` of librados), and how full they
//! are (`MStatfs`, `MGetPoolStats`).

use super::once::{Counter, Once};
use super::session::Session;
use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::commands::pool;
use crate::commands::pool_create::{self, NewPool};
use crate::commands::pool_snap::{self, SnapChange};
use crate::proposal::Change;
use bytes::Bytes;
use codec::{Encode, Features};
use command::Answer;
use command::errno::{EAGAIN, ENOENT, EOPNOTSUPP, EPERM};
use machine::ConnId;
use machine::net::NetEffect;
use std::collections::BTreeMap;
use wire::caps::{Access, OsdCap, Rule, Scope, Spec};
use wire::messages::{
    MGetPoolStats, MGetPoolStatsReply, MPoolOp, MPoolOpReply, MRemoveSnaps, MStatfs, MStatfsReply, Message,
    PaxosHeader,
};
use wire::types::UTime;

impl Monitor {
    pub(super) fn on_pool_op(&mut self, turn: &mut Turn<'_>, conn: ConnId, tid: u64, m: MPoolOp) {
        let asked = [
            m.op.to_le_bytes().as_slice(),
            &m.pool.to_le_bytes(),
            m.name.as_bytes(),
            &m.snap.0.to_le_bytes(),
            &m.crush_rule.to_le_bytes(),
        ]
        .concat();
        let once = self.once(conn, Counter::PoolOps, tid, &[&asked]);
        let result = match once.and_then(|once| self.given(once)) {
            Some(given) => Ok(given.body),
            None => self.pool_op(turn, conn, &m, once),
        };
        let (result, response) = match result {
            Ok(response) => (0, response),
            Err(errno) => (-errno, Bytes::new()),
        };
        let reply = MPoolOpReply {
            paxos: PaxosHeader { version: self.states.head().version },
            fsid: m.fsid,
            result,
            epoch: self.states.head().osdmap().epoch,
            response,
        };
        let index = self.states.head().version;
        self.answer_at(turn, index, NetEffect::Send { conn, message: Message::with_tid(tid, reply) });
    }

    fn pool_op(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        m: &MPoolOp,
        once: Option<Once>,
    ) -> Result<Bytes, i32> {
        let session = self.sessions.get(&conn).ok_or(EPERM)?;
        if m.fsid != self.states.head().monmap.fsid || !self.may_change_pool(session, m) {
            return Err(EPERM);
        }
        if !self.can_propose() {
            return Err(EAGAIN);
        }
        let now = self.wall(turn.now);
        let mut response = Bytes::new();
        let changes = match m.op {
            MPoolOp::CREATE => {
                let new = NewPool {
                    name: m.name.clone(),
                    rule: u8::try_from(m.crush_rule).ok(),
                    ..NewPool::default()
                };
                pool_create::create(self.states.head(), &new, now, &self.options).map(|(changes, _)| changes)
            }
            MPoolOp::DELETE => {
                let id = i64::from(m.pool);
                if !self.states.head().osdmap().pools.contains_key(&id) {
                    return Err(ENOENT);
                }
                pool::remove(self.states.head(), id, now, &self.options)
            }
            MPoolOp::CREATE_SNAP => self.snap_changes(m, SnapChange::Create(&m.name), now),
            MPoolOp::DELETE_SNAP => self.snap_changes(m, SnapChange::Remove(&m.name), now),
            MPoolOp::CREATE_UNMANAGED_SNAP => {
                let id = i64::from(m.pool);
                let made = pool_snap::changes(self.states.head(), id, SnapChange::CreateUnmanaged, now);
                made.map(|(changes, given)| {
                    response = given.map(|snap| Bytes::from(snap.to_vec(Features::NONE))).unwrap_or_default();
                    changes
                })
            }
            MPoolOp::DELETE_UNMANAGED_SNAP => self.snap_changes(m, SnapChange::RemoveUnmanaged(m.snap), now),
            _ => return Err(EOPNOTSUPP),
        };
        let mut changes = changes.map_err(|answer| -answer.result)?;
        if changes.is_empty() && m.op == MPoolOp::CREATE {
            return Err(command::errno::EEXIST);
        }
        // Nothing to do is done.
        if changes.is_empty() && m.op > MPoolOp::DELETE {
            return Ok(response);
        }
        changes.extend(once.map(|once| once.keep(&Answer { body: response.clone(), ..Answer::default() })));
        self.propose(turn.now, changes);
        Ok(response)
    }

    /// A self-managed snapshot takes the right to write in its pool, be it as a capability of the client's on OSDs: a client of
    /// block images may read the maps alone (`OSDMonitor::enforce_pool_op_caps`).
    fn may_change_pool(&self, session: &Session, m: &MPoolOp) -> bool {
        if !matches!(m.op, MPoolOp::CREATE_UNMANAGED_SNAP | MPoolOp::DELETE_UNMANAGED_SNAP) {
            return session.may("osd", Allow::W);
        }
        let pool = self.states.head().osdmap().pool_names.get(&i64::from(m.pool)).map(String::as_str);
        let args = pool.map(|name| ("poolname".to_owned(), name.to_owned())).into_iter().collect();
        if session.permits("osd", "osd pool op unmanaged-snap", &args, Allow::W) {
            return true;
        }
        let text = self.states.committed.auth.caps(session.name(), "osd").unwrap_or_default();
        OsdCap::parse(text).is_ok_and(|caps| writes_in(&caps, pool))
    }

    fn snap_changes(&self, m: &MPoolOp, wanted: SnapChange<'_>, now: UTime) -> Result<Vec<Change>, Answer> {
        pool_snap::changes(self.states.head(), i64::from(m.pool), wanted, now).map(|(changes, _)| changes)
    }

    /// Without the capability stock drops the message, too (`OSDMonitor::preprocess_remove_snaps`).
    pub(super) fn on_remove_snaps(&mut self, turn: &mut Turn<'_>, conn: ConnId, tid: u64, m: MRemoveSnaps) {
        let may = |session: &Session| session.permits("osd", "osd pool rmsnap", &BTreeMap::new(), Allow::RW);
        if !self.sessions.get(&conn).is_some_and(may) || !self.can_propose() {
            return;
        }
        let now = self.wall(turn.now);
        let Ok(changes) = pool_snap::remove_by_message(self.states.head(), &m.snaps, now) else { return };
        self.propose(turn.now, changes);
        let index = self.states.head().version;
        let echo = MRemoveSnaps { paxos: PaxosHeader { version: index }, snaps: m.snaps };
        self.answer_at(turn, index, NetEffect::Send { conn, message: Message::with_tid(tid, echo) });
    }

    pub(super) fn on_statfs(&mut self, turn: &mut Turn<'_>, conn: ConnId, tid: u64, m: MStatfs) {
        if !self.sessions.get(&conn).is_some_and(|s| s.may("pg", Allow::R)) {
            return;
        }
        let digest = &self.reports.digest;
        let statfs = &digest.osd_sum.statfs;
        let (mut total, mut available) = (statfs.total, statfs.available);
        let mut used = total.saturating_sub(available);
        let mut objects = digest.pg_sum.stats.sum.num_objects.max(0) as u64;
        if let Some(pool) = m.data_pool
            && let Some(row) = self.states.committed.osdmap().pools.get(&pool)
        {
            let stat = digest.pool_sums.get(&(pool as i32));
            used = stat.map_or(0, |s| s.stats.sum.num_bytes.max(0) as u64);
            objects = stat.map_or(0, |s| s.stats.sum.num_objects.max(0) as u64);
            let raw =
                digest.available_by_rule.get(&row.crush_rule.into()).copied().unwrap_or(0).max(0) as u64;
            available = raw / u64::from(row.size.max(1));
            total = used + available;
        }
        let reply = MStatfsReply {
            fsid: m.fsid,
            version: self.states.committed.version,
            kb: total / 1024,
            kb_used: used / 1024,
            kb_avail: available / 1024,
            num_objects: objects,
        };
        turn.send_message(conn, Message::with_tid(tid, reply));
    }

    pub(super) fn on_get_pool_stats(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        tid: u64,
        m: MGetPoolStats,
    ) {
        if !self.sessions.get(&conn).is_some_and(|s| s.may("pg", Allow::R)) {
            return;
        }
        let map = self.states.committed.osdmap();
        let sums = &self.reports.digest.pool_sums;
        let stats: BTreeMap<_, _> = m
            .pools
            .iter()
            .filter_map(|name| Some((name.clone(), *sums.get(&(map.pool_by_name(name)? as i32))?)))
            .collect();
        let per_pool = true;
        let reply = MGetPoolStatsReply { paxos: PaxosHeader::default(), fsid: m.fsid, stats, per_pool };
        turn.send_message(conn, Message::with_tid(tid, reply));
    }
}

/// True if some grant lets its holder write objects of a pool: a grant for all pools, or, where the pool is there, one for it by
/// name. A grant's network, namespace and pool tag do not count (`is_osd_writable` in `mon/OSDMonitor.cc`).
fn writes_in(caps: &OsdCap, pool: Option<&str>) -> bool {
    let everywhere = Scope::default();
    let writes = |rule: &Rule| matches!(rule.spec, Spec::Access(access) if access.contains(Access::WRITE));
    let covers = |scope: &Scope| *scope == everywhere || pool.is_some_and(|pool| scope.pool == pool);
    caps.grants.iter().flat_map(|grant| &grant.rules).any(|rule| writes(rule) && covers(&rule.scope))
}
