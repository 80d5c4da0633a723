//! Read leases: a primary answers reads only while every other member of the acting set lets it.
//!
//! An old primary that is cut off from the monitor does not know that its interval ended. Its writes cannot commit, because a
//! member has left the interval. Its reads are bounded by time: each answer to a heartbeat is a grant of one lease to the OSD
//! that sent the heartbeat, for all PGs (`control/neighbours.rs`). An OSD grants only to OSDs that its map has up. So grants to an
//! old primary end one lease after the map of any member of its acting set has it down.
//!
//! - A holder counts from the sending of its heartbeat, a granter from the sending of its answer, and by [`READ_LEASE_MARGIN`]
//!   more for clocks of different rates. So a holder's lease ends first.
//! - A member's report names the rest of its grants to primaries of earlier intervals. The new primary serves when these are
//!   over. An old primary that is up must answer the probe, which ends its interval there: its grants need no wait.
//! - An OSD that stops ends the use of its leases on all cores before it tells the monitor that it is dead as of an epoch of its life.
//!   The map shows that (`dead_epoch`), and nobody waits for the grants to it.
//! - An OSD that has just started may have granted in an earlier life, and assumes that it did.
//! - Leases are kept for OSDs that serve. A core tells the control machine of the partners whose leases it uses; an OSD pings them
//!   often enough to keep their grants, and other partners once a second. So the first request after a rest waits for a ping.
//! - Replicas answer reads, too (`copy_reads`), under leases of their own kind: a heartbeat asks for one where clients read from copies.
//!   So the loss of a replica delays the next interval by its leases only if it had such reads.
//! - The lease is checked when the reply goes out, after the store read. Without a lease replies wait in their order. They go out
//!   with the next grants, or end with the role.
//!
//! Limits: an acting set of one OSD has nobody to ask and needs no lease. A host whose clock stops while its process runs is
//! outside of the promise.

use super::super::{Effect, Fx, Shard, ToControl};
use crate::fast_map::FastMap;
use crate::pg::Pg;
use crate::pg::role::{Role, WaitingReply};
use crate::slab::Key;
use machine::net::Held;
use machine::{ConnId, Time};
use std::time::Duration;
use wire::messages::Message;
use wire::types::{OsdMap, OsdState, PastIntervals};

/// Length of a grant.
pub const READ_LEASE: Duration = Duration::from_millis(800);
/// A granter waits so much longer than the holder may read: clock rates differ by less than 5 %.
pub const READ_LEASE_MARGIN: Duration = Duration::from_millis(40);
/// A lease is kept for so long after a core told of its use.
pub const LEASE_KEPT: Duration = Duration::from_secs(10);
/// A core tells again of a lease that it goes on to use.
const TELL_USE_AGAIN: Duration = Duration::from_secs(5);

/// Leases that were renewed, and grants that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseNews {
    /// End of the lease that an OSD gave us.
    pub held: Vec<(i32, Time)>,
    /// End of the grant that we gave an OSD.
    pub granted: Vec<(i32, Time)>,
    /// The same for reads of copies.
    pub held_for_copies: Vec<(i32, Time)>,
    pub granted_for_copies: Vec<(i32, Time)>,
    /// End of the grants that an earlier life of this OSD may have given. Told once, at the start.
    pub granted_before: Option<Time>,
}

impl LeaseNews {
    pub fn is_empty(&self) -> bool {
        let LeaseNews { held, granted, held_for_copies, granted_for_copies, granted_before } = self;
        let lists = [held, granted, held_for_copies, granted_for_copies];
        lists.iter().all(|list| list.is_empty()) && granted_before.is_none()
    }

    /// Leases without end of these OSDs, for hosts without a control machine: benchmarks and tests.
    pub fn endless(osds: std::ops::Range<i32>) -> LeaseNews {
        let held: Vec<_> = osds.map(|osd| (osd, Time(u64::MAX))).collect();
        LeaseNews { held_for_copies: held.clone(), held, ..LeaseNews::default() }
    }
}

/// The leases of this OSD, as one core knows them.
#[derive(Default)]
pub(in crate::shard) struct Leases {
    held: FastMap<i32, Lease>,
    granted: FastMap<i32, Time>,
    granted_for_copies: FastMap<i32, Time>,
    granted_before: Time,
    /// The OSD stops: what it holds counts no more.
    have_ended: bool,
}

#[derive(Default)]
struct Lease {
    until: Time,
    /// For reads of copies.
    copies_until: Time,
    /// The control machine knows of its use, until these times.
    use_told_until: Time,
    copy_use_told_until: Time,
}

impl Leases {
    fn learn(&mut self, news: &LeaseNews) {
        for (osd, until) in &news.held {
            self.held.entry(*osd).or_default().until = *until;
        }
        for (osd, until) in &news.held_for_copies {
            self.held.entry(*osd).or_default().copies_until = *until;
        }
        self.granted.extend(news.granted.iter().copied());
        self.granted_for_copies.extend(news.granted_for_copies.iter().copied());
        self.granted_before = self.granted_before.max(news.granted_before.unwrap_or_default());
    }

    /// The PG's primary may answer reads now.
    fn allow(&self, own: i32, acting: &[i32], now: Time) -> bool {
        let holds = |osd| !self.have_ended && self.held.get(&osd).is_some_and(|lease| now < lease.until);
        others(own, acting).all(holds)
    }

    /// A replica of the PG may answer reads now.
    pub(super) fn allow_copies(&self, own: i32, acting: &[i32], now: Time) -> bool {
        let holds =
            |osd| !self.have_ended && self.held.get(&osd).is_some_and(|lease| now < lease.copies_until);
        others(own, acting).all(holds)
    }

    /// A replica of the PG has reads. Returns the OSDs whose leases the control machine is to keep.
    pub(super) fn note_copy_use(&mut self, own: i32, acting: &[i32], now: Time) -> Vec<i32> {
        let mut untold = Vec::new();
        for osd in others(own, acting) {
            let lease = self.held.entry(osd).or_default();
            if now >= lease.copy_use_told_until {
                lease.copy_use_told_until = now + TELL_USE_AGAIN;
                untold.push(osd);
            }
        }
        untold
    }

    /// The PG's primary serves. Returns the OSDs whose leases the control machine is to keep.
    fn note_use(&mut self, own: i32, acting: &[i32], now: Time) -> Vec<i32> {
        let mut untold = Vec::new();
        for osd in others(own, acting) {
            let lease = self.held.entry(osd).or_default();
            if now >= lease.use_told_until {
                lease.use_told_until = now + TELL_USE_AGAIN;
                untold.push(osd);
            }
        }
        untold
    }

    /// End of the grant that this OSD may have given another one.
    fn granted_until(&self, osd: i32) -> Time {
        self.granted.get(&osd).copied().unwrap_or_default().max(self.granted_before)
    }

    /// The same of grants for reads of copies.
    fn copies_granted_until(&self, osd: i32) -> Time {
        self.granted_for_copies.get(&osd).copied().unwrap_or_default().max(self.granted_before)
    }
}

/// The other members of an acting set.
fn others(own: i32, acting: &[i32]) -> impl Iterator<Item = i32> {
    acting.iter().copied().filter(move |osd| *osd != own && *osd >= 0 && *osd != i32::MAX)
}

/// The map has the OSD down, and its last process told the monitor before it ended that it answers no more; or an operator says so. A
/// life before that one ended when it began. (`OSDMap::is_dead`)
fn is_dead(map: &OsdMap, osd: i32) -> bool {
    map.osd(osd)
        .is_some_and(|row| !row.state.has(OsdState::UP) && row.xinfo.dead_epoch >= row.info.up_from.max(1))
}

/// Primaries of earlier intervals that served, and that the map has down and not dead.
fn lost_primaries<'a>(own: i32, past: &'a PastIntervals, map: &'a OsdMap) -> impl Iterator<Item = i32> + 'a {
    let served = past.intervals.iter().filter(|interval| interval.may_have_written);
    let may_live = move |osd: &i32| !map.is_up(*osd) && !is_dead(map, *osd);
    served.map(|interval| interval.primary).filter(move |osd| *osd >= 0 && *osd != own && may_live(osd))
}

/// Acting OSDs of earlier intervals that served, and that the map has down and not dead: each may have answered reads of its copy.
fn lost_members<'a>(own: i32, past: &'a PastIntervals, map: &'a OsdMap) -> impl Iterator<Item = i32> + 'a {
    let served = past.intervals.iter().filter(|interval| interval.may_have_written);
    let may_live = move |osd: &i32| !map.is_up(*osd) && !is_dead(map, *osd);
    let acting = served.flat_map(|interval| &interval.acting).copied();
    acting.filter(move |osd| *osd >= 0 && *osd != i32::MAX && *osd != own && may_live(osd))
}

/// Reports of an older map do not count for leases: their senders may have granted to a lost OSD since.
pub(super) fn reports_count_from(own: i32, past: &PastIntervals, map: &OsdMap) -> u32 {
    let down_at = |osd| map.osd(osd).map_or(map.epoch, |row| row.info.down_at);
    let lost = lost_primaries(own, past, map).chain(lost_members(own, past, map));
    lost.map(down_at).max().unwrap_or(0)
}

impl Shard {
    /// True if a primary may answer reads: each other member of the acting set has given it a lease.
    pub fn may_read(&self, pg: &Pg, now: Time) -> bool {
        self.leases.allow(self.config.osd.0, &pg.interval.acting, now)
    }

    pub(in crate::shard) fn on_leases(&mut self, now: Time, news: &LeaseNews, fx: &mut Fx) {
        self.leases.learn(news);
        if !self.awaiting_leases.is_empty() {
            self.send_waiting_replies(now, fx);
        }
    }

    pub(in crate::shard) fn end_leases(&mut self, fx: &mut Fx) {
        self.leases.have_ended = true;
        fx.push(Effect::Control(ToControl::LeasesEnded));
    }

    /// Requests on the PG need the leases of its acting set, and its partners' deaths to be found soon.
    pub(in crate::shard) fn use_leases(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let osds = self.leases.note_use(self.config.osd.0, &self.pgs[key].interval.acting, now);
        if !osds.is_empty() {
            fx.push(Effect::Control(ToControl::LeasesUsed { osds, is_for_copies: false }));
        }
    }

    fn send_waiting_replies(&mut self, now: Time, fx: &mut Fx) {
        for key in std::mem::take(&mut self.awaiting_leases) {
            let Some(pg) = self.pgs.get(key) else { continue };
            let may_read = self.may_read(pg, now);
            let Some(primary) = self.pgs[key].role.primary_mut() else { continue };
            if primary.waiting_replies.is_empty() {
                continue;
            }
            if !may_read {
                self.awaiting_leases.insert(key);
                continue;
            }
            for WaitingReply { conn, message, .. } in std::mem::take(&mut primary.waiting_replies) {
                fx.push(Effect::Send { conn, message });
            }
        }
    }

    /// Sends a reply that shows the state of the PG, now or when the lease is renewed.
    pub(in crate::shard) fn reply_by_lease(
        &mut self,
        now: Time,
        key: Key,
        conn: ConnId,
        message: Message,
        held: Held,
        fx: &mut Fx,
    ) {
        // A replica has asked for its own leases in this step.
        if matches!(self.pgs[key].role, Role::Replica(_)) {
            return fx.push(Effect::Send { conn, message });
        }
        self.use_leases(now, key, fx);
        if self.may_read(&self.pgs[key], now) {
            return self.reply_in_order(key, conn, message, held, fx);
        }
        // Without the role the interval is over.
        if let Role::Primary(primary) = &mut self.pgs[key].role {
            primary.waiting_replies.push_back(WaitingReply { conn, message, held });
            self.awaiting_leases.insert(key);
        }
    }

    /// Sends a reply behind the PG's replies that wait for a lease.
    pub(in crate::shard) fn reply_in_order(
        &mut self,
        key: Key,
        conn: ConnId,
        message: Message,
        held: Held,
        fx: &mut Fx,
    ) {
        match self.pgs[key].role.primary_mut() {
            Some(primary) if !primary.waiting_replies.is_empty() => {
                primary.waiting_replies.push_back(WaitingReply { conn, message, held });
            }
            _ => fx.push(Effect::Send { conn, message }),
        }
    }

    /// The end of the reads that OSDs of the PG's earlier intervals may answer, as far as this OSD knows.
    pub(super) fn old_reads_until(&self, pg: &Pg) -> Time {
        let lost = lost_primaries(self.config.osd.0, &pg.past, &self.view.map);
        let of_primaries = lost.map(|osd| self.leases.granted_until(osd));
        let members = lost_members(self.config.osd.0, &pg.past, &self.view.map);
        let of_copies = members.map(|osd| self.leases.copies_granted_until(osd));
        of_primaries.chain(of_copies).max().unwrap_or_default().max(pg.old_reads_until)
    }

    /// The same of a PG that is not here: of every OSD that is down.
    pub(super) fn any_reads_until(&self) -> Time {
        let map = &self.view.map;
        let granted = self.leases.granted.iter().filter(|(osd, _)| !map.is_up(**osd) && !is_dead(map, **osd));
        granted.map(|(_, until)| *until).max().unwrap_or_default().max(self.leases.granted_before)
    }
}

/// The rest of a time for a report, rounded up.
pub(super) fn rest_ms(now: Time, until: Time) -> u32 {
    until.since(now).as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{OsdRow, PastInterval};

    #[test]
    fn ended_leases_allow_reads_of_single_copies_alone() {
        let mut leases = Leases::default();
        leases.learn(&LeaseNews::endless(0..8));
        assert!(leases.allow(1, &[1, 4], Time(5)));
        leases.have_ended = true;
        leases.learn(&LeaseNews::endless(0..8));
        assert!(!leases.allow(1, &[1, 4], Time(5)), "news from before the stop count no more");
        assert!(leases.allow(1, &[1], Time(5)), "nobody else can have taken a write");
    }

    #[test]
    fn osd_is_dead_as_of_an_epoch_of_its_last_life() {
        let map = |state: u32, up_from: u32, dead_epoch: u32| {
            let mut row = OsdRow { state: OsdState(OsdState::EXISTS | state), ..OsdRow::default() };
            (row.info.up_from, row.info.down_at, row.xinfo.dead_epoch) = (up_from, up_from + 3, dead_epoch);
            OsdMap { epoch: 50, osds: vec![row], ..OsdMap::default() }
        };
        assert!(is_dead(&map(0, 20, 20), 0) && is_dead(&map(0, 20, 22), 0));
        assert!(!is_dead(&map(0, 20, 12), 0), "that was an earlier life");
        assert!(!is_dead(&map(OsdState::UP, 20, 22), 0), "it has come back");
        assert!(!is_dead(&map(0, 0, 0), 0) && !is_dead(&map(0, 20, 22), 7));
        let interval = PastInterval { primary: 0, may_have_written: true, ..PastInterval::default() };
        let past = PastIntervals { intervals: vec![interval], ..PastIntervals::default() };
        assert_eq!(lost_primaries(1, &past, &map(0, 20, 12)).collect::<Vec<_>>(), [0]);
        assert_eq!(lost_primaries(1, &past, &map(0, 20, 22)).count(), 0);
        assert_eq!(
            (reports_count_from(1, &past, &map(0, 20, 12)), reports_count_from(1, &past, &map(0, 20, 22))),
            (23, 0)
        );
    }

    #[test]
    fn leases_for_copies_are_apart_from_those_of_primaries() {
        let (mut leases, until) = (Leases::default(), Time(800));
        leases.learn(&LeaseNews { held: vec![(4, until)], ..LeaseNews::default() });
        assert!(leases.allow(1, &[1, 4], Time(5)) && !leases.allow_copies(1, &[4, 1], Time(5)));
        leases.learn(&LeaseNews { held_for_copies: vec![(4, until)], ..LeaseNews::default() });
        assert!(leases.allow_copies(1, &[4, 1], Time(799)) && !leases.allow_copies(1, &[4, 1], until));
        assert!(!leases.allow_copies(1, &[4, 1, 6], Time(5)), "each other member grants");
        assert_eq!(leases.note_copy_use(1, &[4, 1, 6], Time(5)), [4, 6]);
        assert_eq!(leases.note_use(1, &[4, 1, 6], Time(5)), [4, 6], "the other kind");
        leases.have_ended = true;
        assert!(!leases.allow_copies(1, &[4, 1], Time(5)));
    }

    #[test]
    fn use_of_a_lease_is_told_once_in_a_while() {
        let mut leases = Leases::default();
        let at = |ms: u64| Time(ms * 1_000_000);
        assert_eq!(leases.note_use(1, &[1, 4, -1, i32::MAX, 7], at(1000)), [4, 7]);
        assert_eq!(leases.note_use(1, &[4, 1, 9], at(1100)), [9]);
        assert!(leases.note_use(1, &[1, 4], at(5999)).is_empty());
        assert_eq!(leases.note_use(1, &[1, 4], at(6000)), [4]);
        assert!(!leases.allow(1, &[1, 4], at(6000)), "use is no grant");
        leases.learn(&LeaseNews { held: vec![(4, at(6800))], ..LeaseNews::default() });
        assert!(leases.allow(1, &[1, 4], at(6799)) && !leases.allow(1, &[1, 4], at(6800)));
        assert!(leases.note_use(1, &[1, 4], at(6700)).is_empty());
    }
}
