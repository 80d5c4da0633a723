//! Requests of primaries to the monitor: `up_thru` before an interval may serve, and other acting sets (`pg_temp`).
//!
//! A request is repeated until the map shows its result, because the monitor or the connection to it may lose the message.

use super::{Control, Fx};
use machine::Time;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{MOSDAlive, MOSDPGTemp, PaxosHeader};
use wire::types::{Epoch, OsdMap, PgId};

const UP_THRU_AGAIN: Duration = Duration::from_secs(2);
const TEMPS_AGAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// The greatest `up_thru` that a primary here needs.
    up_thru: Epoch,
    up_thru_asked_at: Option<Time>,
    acting: BTreeMap<PgId, ActingWish>,
}

/// The acting set that a primary wants for one interval.
#[derive(Debug)]
struct ActingWish {
    /// The first epoch of the interval. The next interval's primary decides anew.
    since: Epoch,
    acting: Vec<i32>,
    asked_at: Option<Time>,
}

impl Wishes {
    /// The monitor may not have the last requests.
    pub fn ask_again(&mut self) {
        self.up_thru_asked_at = None;
        self.acting.values_mut().for_each(|wish| wish.asked_at = None);
    }

    /// The `up_thru` to ask for, if the map lacks it and the last request is a while ago.
    fn due_up_thru(&mut self, now: Time, map: &OsdMap, osd: i32) -> Option<Epoch> {
        let has = map.osd(osd).map_or(0, |row| row.info.up_thru);
        let lately = self.up_thru_asked_at.is_some_and(|at| now < at + UP_THRU_AGAIN);
        if has >= self.up_thru || lately {
            return None;
        }
        self.up_thru_asked_at = Some(now);
        Some(self.up_thru)
    }

    /// Forgets what the map shows and what belongs to earlier intervals. Returns the acting sets to ask for.
    fn due_temps(
        &mut self,
        now: Time,
        map: &OsdMap,
        interval_since: impl Fn(PgId) -> Option<Epoch>,
    ) -> BTreeMap<PgId, Vec<i32>> {
        self.acting.retain(|pg, wish| {
            let temp = map.pg_temp.get(pg).map_or(&[][..], Vec::as_slice);
            interval_since(*pg) == Some(wish.since) && temp != wish.acting
        });
        let mut due = BTreeMap::new();
        for (pg, wish) in &mut self.acting {
            if wish.asked_at.is_none_or(|at| now >= at + TEMPS_AGAIN) {
                wish.asked_at = Some(now);
                due.insert(*pg, wish.acting.clone());
            }
        }
        due
    }
}

impl Control {
    pub(super) fn want_up_thru(&mut self, now: Time, since: Epoch, fx: &mut Fx) {
        if since > self.wishes.up_thru {
            self.wishes.up_thru = since;
            self.wishes.up_thru_asked_at = None;
            self.repeat_wishes(now, fx);
        }
    }

    pub(super) fn want_acting(&mut self, now: Time, pg: PgId, acting: Vec<i32>, fx: &mut Fx) {
        let Some(since) = self.holdings.interval_since(pg) else { return };
        let is_known =
            self.wishes.acting.get(&pg).is_some_and(|wish| wish.since == since && wish.acting == acting);
        if !is_known {
            self.wishes.acting.insert(pg, ActingWish { since, acting, asked_at: None });
            self.repeat_wishes(now, fx);
        }
    }

    /// Sends the requests that are due.
    pub(super) fn repeat_wishes(&mut self, now: Time, fx: &mut Fx) {
        let Some(map) = self.history.map.clone() else { return };
        if !self.life.is_up() || !self.is_up() {
            return;
        }
        let paxos = PaxosHeader { version: map.epoch.into() };
        if let Some(want) = self.wishes.due_up_thru(now, &map, self.config.osd.0) {
            self.send_mon(now, MOSDAlive { paxos, want }, fx);
        }
        let pg_temp = self.wishes.due_temps(now, &map, |pg| self.holdings.interval_since(pg));
        if !pg_temp.is_empty() {
            self.send_mon(now, MOSDPGTemp { paxos, map_epoch: map.epoch, pg_temp, forced: false }, fx);
        }
    }
}
