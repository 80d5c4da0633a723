//! Objects that requests copy (`copy-from`): in any PG, on any OSD, this one included.
//!
//! A request whose operation needs another object leaves its turn, and its own object waits ([`Stage::Copying`]). The shard reads the
//! source as a client would: it sends the source's primary `copy-get`, one part at a time, over the core's link to that OSD. The
//! parts gather in memory. With the last one the request takes its turn again, and its list is executed from the start.
//!
//! ```text
//! turn ─▶ Copying ─▶ place ─▶ part ─▶ … ─▶ last part ─▶ turn, executed with the contents
//!             ▲                 │
//!             └── asked again: the link broke, the source has other OSDs, or it lets go ([`AskAgain`])
//! ```
//!
//! A core has [`COPIES_MAX`] copies under way; other requests wait in the order in which they came. So a copy costs at most
//! `COPIES_MAX` objects of memory, and no core is held. Rejected: Ceph's temporary object, to which it writes the parts of a large
//! one. It takes a transaction on every member for each part, and a clean-up after each crash.
//!
//! [`AskAgain`]: super::Input::AskAgain

use super::op::Stage;
use super::watches::Timer;
use super::{Effect, Fx, Pending, Shard};
use crate::caps;
use crate::errno::Errno;
use crate::ops::Copied;
use crate::slab::Key;
use bytes::Bytes;
use codec::Features;
use machine::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::messages::{MOSDOp, MOSDOpReply, OsdOps};
use wire::types::{
    CopyData, EntityKind, EntityName, Epoch, HObject, OpCode, OpParams, OsdFlags, OsdId, OsdMap, OsdOp, PgId,
    ReqId, SnapId, SpgId, UTime,
};

/// Copies of one core under way.
const COPIES_MAX: usize = 4;
/// A part that does not come is asked for again: everything that loses it is told, so this is for what nobody thought of.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The copies of a core.
#[derive(Default)]
pub(super) struct Copies {
    /// By the number of the request to the source's primary.
    running: BTreeMap<u64, SourceRead>,
    /// Requests that wait for a place, with the positions of their operations.
    waiting: VecDeque<(Key, u32)>,
    last_tid: u64,
    is_armed: bool,
}

struct SourceRead {
    request: Key,
    position: u32,
    source: HObject,
    /// The user version that the source must have; 0: any, until the first part tells it.
    version: u64,
    flags: OsdFlags,
    route: Route,
    copied: Copied,
    asked_at: Time,
    pause: Duration,
}

/// The OSDs that serve the source. When any of it changes, they may have forgotten the request.
#[derive(PartialEq, Eq)]
struct Route {
    pg: PgId,
    /// -1: no OSD for now.
    primary: i32,
    up: Vec<i32>,
    acting: Vec<i32>,
    pg_num: u32,
    forced: Epoch,
}

impl Route {
    /// `None`: the pool is not there.
    fn of(map: &OsdMap, source: &HObject) -> Option<Route> {
        let pool = map.pools.get(&source.pool)?;
        let pg = PgId { pool: source.pool, seed: placement::pg::seed_of(pool, source.hash) };
        let placed = placement::map_pg(map, pg);
        Some(Route {
            pg,
            primary: placed.acting_primary,
            up: placed.up,
            acting: placed.acting,
            pg_num: pool.pg_num,
            forced: pool.last_force_op_resend,
        })
    }
}

impl Shard {
    /// The operation at `position` copies an object. The request has its turn, and nothing of it is under way.
    pub(super) fn begin_copy(&mut self, now: Time, key: Key, position: u32, fx: &mut Fx) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        op.stage = Stage::Copying;
        // The list is executed from the start, and what it read may change meanwhile.
        (op.call_reads, op.past) = (None, None);
        self.pgs[op.pg].objects[op.object].begin_copying();
        self.copies.waiting.push_back((key, position));
        self.start_copies(now, fx);
    }

    /// Gives free places to requests that wait.
    fn start_copies(&mut self, now: Time, fx: &mut Fx) {
        while self.copies.running.len() < COPIES_MAX
            && let Some((key, position)) = self.copies.waiting.pop_front()
        {
            if self.is_copying(key) {
                self.start_copy(now, key, position, fx);
            }
        }
    }

    fn is_copying(&self, key: Key) -> bool {
        self.op(key).is_some_and(|op| matches!(op.stage, Stage::Copying))
    }

    fn start_copy(&mut self, now: Time, key: Key, position: u32, fx: &mut Fx) {
        match self.copy_of(now, key, position) {
            Ok(copy) => {
                self.copies.last_tid += 1;
                self.copies.running.insert(self.copies.last_tid, copy);
                self.ask_for_part(now, self.copies.last_tid, fx);
            }
            Err(errno) => self.end_copy(key, position, Err(errno)),
        }
    }

    fn copy_of(&self, now: Time, key: Key, position: u32) -> Result<SourceRead, Errno> {
        let op = self.op(key).ok_or(Errno::IO)?;
        let wanted = op.operations.get(position as usize).and_then(|operation| operation.copy_from());
        let wanted = wanted.ok_or(Errno::IO)?;
        let pool = self.view.map.pools.get(&wanted.pool()).ok_or(Errno::NOENT)?;
        let (name, place_key, namespace) = wanted.place();
        let source = wanted.source(placement::pg::hash_of(
            pool,
            name.as_bytes(),
            place_key.as_bytes(),
            namespace.as_bytes(),
        ));
        let route = Route::of(&self.view.map, &source).ok_or(Errno::NOENT)?;
        let copy = SourceRead {
            request: key,
            position,
            source,
            version: wanted.source_version(),
            flags: wanted.read_flags(),
            route,
            copied: Copied::default(),
            asked_at: now,
            pause: ASK_AGAIN.0,
        };
        // This OSD may read anything. Its client may not.
        let (session, view) = (self.sessions.get(&op.conn), self.view.pools.get(&copy.source.pool));
        let may_read = session.zip(view).is_some_and(|(session, pool)| {
            let (cap, peer) = (&session.caps, &session.peer);
            let request = self.part_request(&copy);
            caps::allow(cap, peer, &pool.name, &pool.applications, &request, (true, false), &[])
        });
        if may_read { Ok(copy) } else { Err(Errno::PERM) }
    }

    fn part_request(&self, copy: &SourceRead) -> MOSDOp {
        let mut ops = OsdOps::new();
        if copy.version != 0 {
            let mut params = OpParams::default();
            params.0[8..16].copy_from_slice(&copy.version.to_le_bytes());
            ops.push(OsdOp::new(OpCode::ASSERT_VER, params, Bytes::new()));
        }
        let max = self.config.limits.copy_part_max;
        let mut params = OpParams::default();
        params.0[..8].copy_from_slice(&max.to_le_bytes());
        let mut input = codec::Writer::new(Features::ALL);
        input.put(copy.copied.cursor());
        input.u64(max);
        ops.push(OsdOp::new(OpCode::COPY_GET, params, input.into_bytes()));
        MOSDOp {
            pg: SpgId::from(copy.route.pg),
            epoch: self.view.epoch,
            flags: OsdFlags::READ | OsdFlags::ACK | OsdFlags::ONDISK | copy.flags,
            explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
            client_incarnation: 0,
            mtime: UTime::ZERO,
            object: copy.source.clone(),
            ops,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: Features::ALL.0,
        }
    }

    fn ask_for_part(&mut self, now: Time, tid: u64, fx: &mut Fx) {
        let Some(copy) = self.copies.running.get(&tid) else { return };
        let (to, request) = (copy.route.primary, Box::new(self.part_request(copy)));
        if let Some(copy) = self.copies.running.get_mut(&tid) {
            copy.asked_at = now;
        }
        if !std::mem::replace(&mut self.copies.is_armed, true) {
            self.timers.insert((now + LOOK_EVERY, Timer::Copies));
        }
        if to >= 0 {
            fx.push(Effect::AskPeer { to: OsdId(to), tid, request });
        }
    }

    /// The source's primary has answered.
    pub(super) fn on_part(&mut self, now: Time, tid: u64, reply: MOSDOpReply, fx: &mut Fx) {
        let Some(mut copy) = self.copies.running.remove(&tid) else { return };
        if self.is_copying(copy.request) {
            let limits = &self.config.limits;
            match take_part(&reply).and_then(|part| copy.copied.add(part, limits)) {
                Ok(()) if copy.copied.is_complete() => {
                    copy.copied.user_version = reply.versions.user;
                    self.end_copy(copy.request, copy.position, Ok(copy.copied));
                }
                Ok(()) => {
                    copy.version = reply.versions.user;
                    copy.pause = ASK_AGAIN.0;
                    // Another number: an answer to an earlier asking is none to this one.
                    self.copies.last_tid += 1;
                    self.copies.running.insert(self.copies.last_tid, copy);
                    return self.ask_for_part(now, self.copies.last_tid, fx);
                }
                Err(errno) => self.end_copy(copy.request, copy.position, Err(errno)),
            }
        }
        self.start_copies(now, fx);
    }

    /// The request takes its turn again, before all that came after it.
    fn end_copy(&mut self, key: Key, position: u32, outcome: Result<Copied, Errno>) {
        let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
        op.copies.push((position, outcome));
        op.stage = Stage::Turn;
        let (pg, object) = (op.pg, op.object);
        let context = &mut self.pgs[pg].objects[object];
        context.end_copying();
        context.put_back(key, op.access.turn(), op.order);
        self.pass_turn(pg, object);
    }

    /// Asks again where a new map has changed the source's OSDs. Copies whose requests are gone end.
    pub(super) fn follow_sources(&mut self, now: Time, fx: &mut Fx) {
        let tids: Vec<u64> = self.copies.running.keys().copied().collect();
        for tid in tids {
            let Some(copy) = self.copies.running.get_mut(&tid) else { continue };
            let (key, position) = (copy.request, copy.position);
            let route = Route::of(&self.view.map, &copy.source);
            let is_changed = route.as_ref() != Some(&copy.route);
            match route {
                Some(route) => copy.route = route,
                None => {
                    self.copies.running.remove(&tid);
                    if self.is_copying(key) {
                        self.end_copy(key, position, Err(Errno::NOENT));
                    }
                    continue;
                }
            }
            if !self.is_copying(key) {
                self.copies.running.remove(&tid);
            } else if is_changed {
                self.ask_for_part(now, tid, fx);
            }
        }
        self.start_copies(now, fx);
    }

    /// What this OSD was asked may be lost, or it lets go what it held back.
    pub(super) fn ask_osd_again(&mut self, now: Time, osd: OsdId, fx: &mut Fx) {
        let is_its = |(tid, copy): (&u64, &SourceRead)| (copy.route.primary == osd.0).then_some(*tid);
        let tids: Vec<u64> = self.copies.running.iter().filter_map(is_its).collect();
        tids.into_iter().for_each(|tid| self.ask_for_part(now, tid, fx));
    }

    pub(super) fn look_at_copies(&mut self, now: Time, fx: &mut Fx) {
        self.copies.is_armed = false;
        if self.copies.running.is_empty() {
            return;
        }
        let mut due = Vec::new();
        for (tid, copy) in &mut self.copies.running {
            if now.since(copy.asked_at) >= copy.pause {
                copy.pause = ASK_AGAIN.1.min(2 * copy.pause);
                due.push(*tid);
            }
        }
        due.into_iter().for_each(|tid| self.ask_for_part(now, tid, fx));
        if !std::mem::replace(&mut self.copies.is_armed, true) {
            self.timers.insert((now + LOOK_EVERY, Timer::Copies));
        }
    }

    pub(super) fn check_copies(&self) {
        assert!(self.copies.running.len() <= COPIES_MAX, "a core has too many copies");
        let is_full = self.copies.running.len() == COPIES_MAX;
        assert!(is_full || self.copies.waiting.is_empty(), "a request waits for a place that is free");
    }
}

/// The part in an answer.
fn take_part(reply: &MOSDOpReply) -> Result<CopyData, Errno> {
    if reply.result < 0 {
        return Err(Errno(reply.result.saturating_neg()));
    }
    let part = reply.ops.iter().find(|op| op.code == OpCode::COPY_GET).ok_or(Errno::IO)?;
    CopyData::of(&part.output.to_bytes()).map_err(|_| Errno::IO)
}
