//! Who watches which object over which connection, what they are told, and what happens when they fall silent.

use super::op::Op;
use super::{Fx, Shard, WatchRecord};
use crate::object::{ObjectContext, ObjectState, Watch};
use crate::ops::{INFO_ATTR, NotifyStart, SideEffects};
use crate::pg::Pg;
use crate::pg::log::{EntryKind, LogEntry};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use bytes::Bytes;
use codec::{Encode, Features};
use machine::net::Held;
use machine::{ConnId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Change;
use wire::messages::{MWatchNotify, Message};
use wire::types::{EntityName, NotifyOutcome, op_value};

/// A notification under way.
pub(super) struct Notify {
    conn: ConnId,
    notifier_gid: u64,
    cookie: u64,
    pg: Key,
    object: Key,
    user_version: u64,
    payload: Bytes,
    deadline: Time,
    /// Watchers that have not answered: client and cookie.
    waiting: BTreeSet<(EntityName, u64)>,
    replies: BTreeMap<(u64, u64), Bytes>,
}

/// What happens at a time. Set generously: who acts on it looks whether it still applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    Watch {
        pg: Key,
        object: Key,
        cookie: u64,
        client: EntityName,
    },
    Notify(u64),
    /// A pause in the copying of a PG that is leaving.
    Move(Key),
    /// A primary asks again for what it waits for.
    Peering(Key),
    /// Reads of earlier intervals' primaries have ended: a primary that waits for it serves.
    Serve(Key),
    /// A PG whose recovery was held off tries again, or its pause has ended.
    Recovery(Key),
    /// A scrub looks whether it may begin, or go on.
    Scrub(Key),
    /// A step of a PG's trim.
    Trim(Key),
    /// A scrub asks its members again.
    ScrubWatch(Key),
    /// Places that other OSDs' PGs have here are told again.
    Grants,
    /// The objects of a PG that is being removed could not be listed. By the request's tag.
    Removal(Key),
    /// Parts of objects that are copied and did not come are asked for again.
    Copies,
    /// Background work is reported to the law.
    Pace,
    /// PGs without requests are looked for, whose logs may rest.
    Rest,
}

const TIMED_OUT: i32 = -110;
/// When a watch that may have expired is looked at again, of a PG that holds its requests.
const HELD_AGAIN: Duration = Duration::from_millis(100);

impl Shard {
    /// Unique while this OSD and its clients live: the map's epoch, this core, a counter.
    pub(super) fn next_notify_id(&self) -> u64 {
        let low = (self.config.core.0 as u64 & 0xff) << 24 | (self.next_notify as u64 & 0xff_ffff);
        (self.view.epoch as u64) << 32 | low
    }

    /// What a request wanted besides changing the object, once it is certain to have happened.
    pub(super) fn apply_side_effects(&mut self, now: Time, op: &Op, effects: SideEffects, fx: &mut Fx) {
        let SideEffects { disconnects, connects, pings, notifies, acks } = effects;
        let (pg, object) = (op.pg, op.object);
        let client = op.reqid.name;
        for d in disconnects {
            self.end_watch(now, pg, object, (d.cookie, d.client), d.tell, fx);
        }
        for c in connects {
            self.connect_watch(now, op, c.cookie, Duration::from_secs(c.timeout_s as u64), c.pings, fx);
        }
        for cookie in pings {
            if let Some(watch) = self.watch_mut(pg, object, (cookie, client)) {
                watch.ping(now);
            }
        }
        for n in notifies {
            self.start_notify(now, op, n, fx);
        }
        for ack in acks {
            self.acknowledge(now, pg, object, client, ack, fx);
        }
    }

    /// The watches on objects of PGs that this OSD is the primary of.
    pub(super) fn watch_records(&self) -> Vec<WatchRecord> {
        let objects = self.pgs.iter().flat_map(|(_, pg)| pg.objects.iter());
        let of_object = |(_, context): (Key, &ObjectContext)| {
            let record = |(&(cookie, client), watch): (&(u64, EntityName), &Watch)| WatchRecord {
                object: context.id.object.clone(),
                client,
                addr: watch.conn.and_then(|conn| self.sessions.get(&conn)).map(|session| session.addr),
                cookie,
                timeout_s: watch.timeout.as_secs(),
            };
            context.watches.iter().map(record).collect::<Vec<_>>()
        };
        objects.flat_map(of_object).collect()
    }

    fn watch_mut(&mut self, pg: Key, object: Key, who: (u64, EntityName)) -> Option<&mut Watch> {
        self.pgs.get_mut(pg)?.objects.get_mut(object)?.watches.get_mut(&who)
    }

    fn connect_watch(
        &mut self,
        now: Time,
        op: &Op,
        cookie: u64,
        timeout: Duration,
        pings: bool,
        fx: &mut Fx,
    ) {
        let (pg, object, client) = (op.pg, op.object, op.reqid.name);
        let Some(context) = self.pgs.get_mut(pg).and_then(|p| p.objects.get_mut(object)) else { return };
        let watch = context.watches.entry((cookie, client)).or_insert_with(|| Watch::absent(timeout, now));
        let before = watch.conn;
        if self.sessions.contains_key(&op.conn) {
            watch.connect(op.conn, pings, now);
        } else {
            // The client went while its request was on the way: it has one time-out to return.
            watch.disconnect(now);
            watch.expires = Some(now + timeout);
        }
        let expires = watch.expires;
        let owed: Vec<u64> = watch.unacknowledged.iter().copied().collect();
        if before != Some(op.conn) {
            if let Some(session) = before.and_then(|c| self.sessions.get_mut(&c)) {
                session.watches.remove(&(pg, object, cookie));
            }
            for id in owed {
                self.tell(id, op.conn, cookie, fx);
            }
        }
        if let Some(session) = self.sessions.get_mut(&op.conn) {
            session.watches.insert((pg, object, cookie));
        }
        self.set_watch_timer(pg, object, cookie, client, expires);
    }

    pub(super) fn set_watch_timer(
        &mut self,
        pg: Key,
        object: Key,
        cookie: u64,
        client: EntityName,
        expires: Option<Time>,
    ) {
        if let Some(at) = expires {
            self.timers.insert((at, Timer::Watch { pg, object, cookie, client }));
        }
    }

    /// The watch is over. Notifications that waited for it wait no more.
    fn end_watch(
        &mut self,
        now: Time,
        pg: Key,
        object: Key,
        who: (u64, EntityName),
        tell: bool,
        fx: &mut Fx,
    ) {
        let (cookie, client) = who;
        let Some(context) = self.pgs.get_mut(pg).and_then(|p| p.objects.get_mut(object)) else { return };
        let Some(watch) = context.watches.remove(&who) else { return };
        if let Some(conn) = watch.conn {
            if let Some(session) = self.sessions.get_mut(&conn) {
                session.watches.remove(&(pg, object, cookie));
            }
            if tell {
                let event = op_value::EVENT_DISCONNECT;
                let message = MWatchNotify {
                    event,
                    cookie,
                    version: 0,
                    notify_id: 0,
                    payload: Bytes::new(),
                    result: 0,
                    notifier_gid: 0,
                    outcome: Bytes::new(),
                };
                self.send(conn, Message::new(message), fx);
            }
        }
        for id in watch.unacknowledged {
            if let Some(notify) = self.notifies.get_mut(&id) {
                notify.waiting.remove(&(client, cookie));
                self.complete_when_answered(now, id, false, fx);
            }
        }
    }

    fn start_notify(&mut self, now: Time, op: &Op, start: NotifyStart, fx: &mut Fx) {
        let NotifyStart { id, cookie, timeout_s, payload } = start;
        let deadline = now + Duration::from_secs(timeout_s as u64);
        let context = &mut self.pgs[op.pg].objects[op.object];
        let mut waiting = BTreeSet::new();
        let mut told = Vec::new();
        for ((watch_cookie, client), watch) in &mut context.watches {
            if watch.is_stale(now) {
                // It will time out in a moment; nobody need wait for it.
                watch.conn = None;
                continue;
            }
            watch.unacknowledged.insert(id);
            waiting.insert((*client, *watch_cookie));
            told.extend(watch.conn.map(|conn| (conn, *watch_cookie)));
        }
        // The map of watches has no order of its own that a person could know: tell them in theirs.
        told.sort_unstable_by_key(|(conn, cookie)| (*conn, *cookie));
        let notify = Notify {
            conn: op.conn,
            notifier_gid: op.reqid.name.num as u64,
            cookie,
            pg: op.pg,
            object: op.object,
            user_version: context.state.info().map_or(0, |i| i.user_version),
            payload,
            deadline,
            waiting,
            replies: BTreeMap::new(),
        };
        self.notifies.insert(id, notify);
        self.timers.insert((deadline, Timer::Notify(id)));
        for (conn, cookie) in told {
            self.tell(id, conn, cookie, fx);
        }
        self.complete_when_answered(now, id, false, fx);
    }

    fn tell(&self, id: u64, conn: ConnId, cookie: u64, fx: &mut Fx) {
        let Some(notify) = self.notifies.get(&id) else { return };
        let message = MWatchNotify {
            event: op_value::EVENT_NOTIFY,
            cookie,
            version: notify.user_version,
            notify_id: id,
            payload: notify.payload.clone(),
            result: 0,
            notifier_gid: notify.notifier_gid,
            outcome: Bytes::new(),
        };
        self.send(conn, Message::new(message), fx);
    }

    fn acknowledge(
        &mut self,
        now: Time,
        pg: Key,
        object: Key,
        client: EntityName,
        ack: crate::ops::NotifyAck,
        fx: &mut Fx,
    ) {
        let Some(context) = self.pgs.get_mut(pg).and_then(|p| p.objects.get_mut(object)) else { return };
        let mut acked = Vec::new();
        for ((cookie, watcher), watch) in &mut context.watches {
            let meant = *watcher == client && ack.cookie.is_none_or(|c| c == *cookie);
            if meant && watch.unacknowledged.remove(&ack.notify_id) {
                acked.push(*cookie);
            }
        }
        let Some(notify) = self.notifies.get_mut(&ack.notify_id) else { return };
        for cookie in acked {
            notify.waiting.remove(&(client, cookie));
            notify.replies.insert((client.num as u64, cookie), ack.reply.clone());
        }
        self.complete_when_answered(now, ack.notify_id, false, fx);
    }

    /// Tells the notifier the outcome when all have answered, or the time is up.
    fn complete_when_answered(&mut self, now: Time, id: u64, timed_out: bool, fx: &mut Fx) {
        let Some(notify) = self.notifies.get(&id) else { return };
        if !notify.waiting.is_empty() && !timed_out {
            return;
        }
        let Some(notify) = self.notifies.remove(&id) else { return };
        self.timers.remove(&(notify.deadline, Timer::Notify(id)));
        for (client, cookie) in &notify.waiting {
            if let Some(watch) = self.watch_mut(notify.pg, notify.object, (*cookie, *client)) {
                watch.unacknowledged.remove(&id);
            }
        }
        let outcome = NotifyOutcome {
            replies: notify.replies.into_iter().collect(),
            missed: notify.waiting.iter().map(|(client, cookie)| (client.num as u64, *cookie)).collect(),
        };
        let message = MWatchNotify {
            event: op_value::EVENT_NOTIFY_COMPLETE,
            cookie: notify.cookie,
            version: notify.user_version,
            notify_id: id,
            payload: Bytes::new(),
            result: if timed_out { TIMED_OUT } else { 0 },
            notifier_gid: notify.notifier_gid,
            outcome: outcome.to_vec(Features::NONE).into(),
        };
        // It claims that every watcher heard: a later interval has other watchers.
        self.reply_by_lease(now, notify.pg, notify.conn, Message::new(message), Held::default(), fx);
    }

    pub(super) fn on_closed(&mut self, now: Time, conn: ConnId) {
        let Some(session) = self.sessions.remove(&conn) else { return };
        self.forget_withheld();
        for (pg, object, cookie) in session.watches {
            if let Some(watch) = self.watch_mut(pg, object, (cookie, session.name))
                && watch.conn == Some(conn)
            {
                watch.disconnect(now);
                let expires = watch.expires;
                self.set_watch_timer(pg, object, cookie, session.name, expires);
            }
        }
    }

    pub(super) fn fire_timers(&mut self, now: Time, fx: &mut Fx) {
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::Notify(id) => self.complete_when_answered(now, id, true, fx),
                Timer::Move(pg) => self.end_pause(now, pg),
                Timer::Peering(pg) => self.ask_again(now, pg, fx),
                Timer::Serve(pg) => self.serve_when_activated(now, pg, fx),
                Timer::Recovery(pg) => self.on_recovery_timer(pg, fx),
                Timer::Scrub(pg) => self.on_scrub_timer(pg, fx),
                Timer::Trim(pg) => self.on_trim_timer(now, pg, fx),
                Timer::ScrubWatch(pg) => self.watch_scrub(pg, fx),
                Timer::Rest => self.rest_unused(now),
                Timer::Copies => self.look_at_copies(now, fx),
                Timer::Pace => self.report_pace(fx),
                Timer::Grants => self.repeat_grants(fx),
                Timer::Removal(key) => self.list_removal_again(key, fx),
                // It changes the object, durably: not while the PG is between two cores.
                Timer::Watch { pg, object, cookie, client }
                    if self.watch_must_wait(now, pg, object, (cookie, client), fx) =>
                {
                    self.timers.insert((now + HELD_AGAIN, timer));
                }
                Timer::Watch { pg, object, cookie, client } => {
                    let Some(watch) = self.watch_mut(pg, object, (cookie, client)) else { continue };
                    match watch.expires {
                        Some(_) if planted::has(PlantedBug::WatchNeverExpires) => {}
                        Some(expires) if expires <= now => {
                            self.expire_watch(now, pg, object, cookie, client, fx)
                        }
                        later => self.set_watch_timer(pg, object, cookie, client, later),
                    }
                }
            }
        }
    }

    /// Watches of clients on the blocklist expire at once (`PrimaryLogPG::check_blocklisted_watchers`). A client that broke a lock
    /// notifies and removes the object without a wait for the one that it put there. A watch is known by its session, or by the timer of
    /// its time-out.
    pub(super) fn expire_blocklisted_watches(&mut self, now: Time) {
        let Shard { pgs, sessions, view, timers, .. } = self;
        let fenced = sessions.values().filter(|session| view.is_blocklisted(&session.addr));
        let connected = fenced.flat_map(|session| {
            session.watches.iter().map(|&(pg, object, cookie)| (pg, object, (cookie, session.name)))
        });
        let silent = timers.iter().filter_map(|(_, timer)| match *timer {
            Timer::Watch { pg, object, cookie, client } => Some((pg, object, (cookie, client))),
            _ => None,
        });
        let known: Vec<(Key, Key, (u64, EntityName))> = connected.chain(silent).collect();
        for (pg, object, who) in known {
            let Some(context) = pgs.get_mut(pg).and_then(|pg| pg.objects.get_mut(object)) else { continue };
            let addr = context.state.info().and_then(|info| Some(info.watchers.get(&who)?.addr));
            if addr.is_some_and(|addr| view.is_blocklisted(&addr))
                && let Some(watch) = context.watches.get_mut(&who)
            {
                watch.expires = Some(now);
                timers.insert((now, Timer::Watch { pg, object, cookie: who.0, client: who.1 }));
            }
        }
    }

    /// The watch has expired, and the object cannot change now: its PG is between two cores or not served, its log rests, or a
    /// member lacks the object.
    fn watch_must_wait(
        &mut self,
        now: Time,
        key: Key,
        object: Key,
        who: (u64, EntityName),
        fx: &mut Fx,
    ) -> bool {
        let Some(pg) = self.pgs.get_mut(key) else { return false };
        let Some(context) = pg.objects.get(object) else { return false };
        let expires = context.watches.get(&who).and_then(|watch| watch.expires);
        if expires.is_none_or(|expires| expires > now) {
            return false;
        }
        if pg.holds_requests()
            || pg.phase != crate::pg::PgPhase::Active
            || pg.block_now(&context.id.object) != crate::object::ObjectBlock::None
        {
            return true;
        }
        // The log stays until the timer fires again.
        pg.used_at = now + 2 * HELD_AGAIN;
        !self.wake_log(key, fx)
    }

    /// A watcher was silent for too long: it is struck from the object's info, durably.
    fn expire_watch(
        &mut self,
        now: Time,
        pg_key: Key,
        object_key: Key,
        cookie: u64,
        client: EntityName,
        fx: &mut Fx,
    ) {
        self.end_watch(now, pg_key, object_key, (cookie, client), true, fx);
        let (epoch, wall, osd) = (self.view.epoch, self.wall(now), self.config.osd);
        let pg = &mut self.pgs[pg_key];
        let version = pg.next_version(epoch);
        let object = &mut pg.objects[object_key];
        let ObjectState::Present(info) = &mut object.state else { return };
        if info.watchers.remove(&(cookie, client)).is_none() {
            return;
        }
        let (prior_version, user_version) = (info.version, info.user_version);
        info.prior_version = prior_version;
        info.version = version;
        info.local_mtime = wall;
        let value = info.to_vec(Features::ALL).into();
        let changes = vec![Change::SetAttr { object: object.id.clone(), name: INFO_ATTR, value }];
        let name = object.id.object.clone();
        let entry = LogEntry::of_osd(osd, EntryKind::Modify, name, version, prior_version, user_version);
        self.submit_entry(pg_key, None, entry, changes, fx);
    }

    /// The PG goes to another core, with its watches and the notifications under way.
    pub(super) fn leave_watches(&mut self, pg_key: Key, pg: &Pg) -> Vec<(u64, Notify)> {
        for (object_key, object) in pg.objects.iter() {
            for ((cookie, _), watch) in &object.watches {
                if let Some(session) = watch.conn.and_then(|conn| self.sessions.get_mut(&conn)) {
                    session.watches.remove(&(pg_key, object_key, *cookie));
                }
            }
        }
        let mut ids: Vec<u64> =
            self.notifies.iter().filter(|(_, n)| n.pg == pg_key).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| Some((id, self.notifies.remove(&id)?))).collect()
    }

    /// It has come, and its watchers know nothing of it: their connections reach every core.
    pub(super) fn adopt_watches(&mut self, now: Time, pg_key: Key, notifies: Vec<(u64, Notify)>) {
        let Shard { pgs, sessions, timers, .. } = self;
        for (object, context) in pgs[pg_key].objects.iter_mut() {
            for (&(cookie, client), watch) in &mut context.watches {
                match watch.conn.map(|conn| sessions.get_mut(&conn)) {
                    Some(Some(session)) => drop(session.watches.insert((pg_key, object, cookie))),
                    // It was closed while the PG was on its way.
                    Some(None) => watch.disconnect(now),
                    None => {}
                }
                if let Some(at) = watch.expires {
                    timers.insert((at, Timer::Watch { pg: pg_key, object, cookie, client }));
                }
            }
        }
        for (id, notify) in notifies {
            timers.insert((notify.deadline, Timer::Notify(id)));
            self.notifies.insert(id, Notify { pg: pg_key, ..notify });
        }
    }

    /// The PG stops serving: its watchers will come to whom the map names, its notifications are void.
    pub(super) fn forget_watches(&mut self, pg_key: Key) {
        let mut gone = Vec::new();
        for (object_key, object) in self.pgs[pg_key].objects.iter_mut() {
            for ((cookie, _), watch) in object.watches.drain() {
                gone.extend(watch.conn.map(|conn| (conn, object_key, cookie)));
            }
            // Its watchers must be known anew when it is served again. A write that is not durable yet does not stand in the
            // way: the store shows what was submitted.
            (object.state, object.snaps) = (ObjectState::Unknown, None);
        }
        for (conn, object_key, cookie) in gone {
            if let Some(session) = self.sessions.get_mut(&conn) {
                session.watches.remove(&(pg_key, object_key, cookie));
            }
        }
        self.notifies.retain(|_, n| n.pg != pg_key);
    }
}
