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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{OsdRow, OsdState};

    const PG: PgId = PgId { pool: 1, seed: 0 };

    fn at(second: u64) -> Time {
        Time::ZERO + Duration::from_secs(second)
    }

    fn map() -> OsdMap {
        let row = OsdRow { state: OsdState(OsdState::EXISTS | OsdState::UP), ..OsdRow::default() };
        OsdMap { epoch: 9, osds: vec![row], ..OsdMap::default() }
    }

    fn wishes(acting: &[i32]) -> Wishes {
        let wish = ActingWish { since: 7, acting: acting.to_vec(), asked_at: None };
        Wishes { up_thru: 8, acting: BTreeMap::from([(PG, wish)]), ..Wishes::default() }
    }

    #[test]
    fn up_thru_wish_repeats_until_map_has_it() {
        let (mut wishes, mut map) = (wishes(&[]), map());
        let asked: Vec<_> = (0..4).map(|second| wishes.due_up_thru(at(second), &map, 0)).collect();
        assert_eq!(asked, [Some(8), None, Some(8), None]);
        wishes.ask_again();
        assert_eq!(wishes.due_up_thru(at(3), &map, 0), Some(8));
        map.osds[0].info.up_thru = 8;
        assert_eq!(wishes.due_up_thru(at(9), &map, 0), None);
    }

    #[test]
    fn acting_wish_repeats_until_map_has_it() {
        let (mut wishes, mut map) = (wishes(&[2, 0]), map());
        let wanted = BTreeMap::from([(PG, vec![2, 0])]);
        for (second, due) in [(0, true), (1, false), (3, true), (5, false)] {
            let expected = if due { wanted.clone() } else { BTreeMap::new() };
            assert_eq!(wishes.due_temps(at(second), &map, |_| Some(7)), expected, "{second} s");
        }
        map.pg_temp.insert(PG, vec![2, 0]);
        assert_eq!(wishes.due_temps(at(9), &map, |_| Some(7)), BTreeMap::new());
        assert!(wishes.acting.is_empty());
    }

    #[test]
    fn acting_wish_ends_with_its_interval() {
        let mut wishes = wishes(&[2, 0]);
        assert_eq!(wishes.due_temps(at(0), &map(), |_| Some(8)), BTreeMap::new());
        assert!(wishes.acting.is_empty());
    }

    #[test]
    fn empty_acting_wish_removes_pg_temp() {
        let (mut wishes, mut map) = (wishes(&[]), map());
        map.pg_temp.insert(PG, vec![2]);
        assert_eq!(wishes.due_temps(at(0), &map, |_| Some(7)), BTreeMap::from([(PG, vec![])]));
        map.pg_temp.clear();
        assert_eq!(wishes.due_temps(at(9), &map, |_| Some(7)), BTreeMap::new());
    }
}
