//! The oldest OSDMap that is still needed: PGs peer with the maps since they were clean, OSDs catch up from the map that
//! they have (`OSDMonitor::get_trim_to`).

use super::super::{Monitor, Turn};
use crate::proposal::Change;
use std::collections::BTreeMap;
use wire::messages::MOSDBeacon;
use wire::types::{Epoch, OsdMap, PoolId};

/// Epochs that OSDs told in their beacons. A start of the monitor forgets them, and nothing is trimmed until all PGs are
/// reported again.
#[derive(Debug, Default)]
pub(super) struct CleanEpochs {
    /// By pool and seed: the last epoch in which the PG was clean, 0 for one not reported. The report of an OSD that went
    /// down counts until another OSD reports the PG.
    pgs: BTreeMap<PoolId, Vec<Epoch>>,
    /// The map of each OSD that is up.
    osds: BTreeMap<i32, Epoch>,
}

impl CleanEpochs {
    pub fn report(&mut self, map: &OsdMap, osd: i32, beacon: &MOSDBeacon) {
        self.osds.insert(osd, beacon.paxos.version as Epoch);
        for pg in &beacon.pgs {
            let Some(pool) = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num) else { continue };
            let epochs = self.pgs.entry(pg.pool).or_default();
            epochs.resize(pool.pg_num as usize, 0);
            let epoch = &mut epochs[pg.seed as usize];
            *epoch = (*epoch).max(beacon.min_last_epoch_clean);
        }
    }

    /// No PG and no OSD needs an epoch before this one; 0 while a PG is not reported.
    pub fn lower_bound(&mut self, map: &OsdMap) -> Epoch {
        self.pgs.retain(|pool, _| map.pools.contains_key(pool));
        self.osds.retain(|osd, _| map.is_up(*osd));
        let of_pool = |(id, pool): (&PoolId, &wire::types::PgPool)| {
            let epochs = self.pgs.get(id).map_or(&[][..], Vec::as_slice);
            let all = epochs.get(..pool.pg_num as usize).unwrap_or(&[]);
            all.iter().copied().min().unwrap_or(0)
        };
        let pgs = map.pools.iter().map(of_pool);
        pgs.chain(self.osds.values().copied()).min().unwrap_or(map.epoch)
    }
}

impl Monitor {
    /// Lets old OSDMaps go, of which at least `mon_min_osdmap_epochs` stay.
    pub(super) fn tick_trim(&mut self, turn: &mut Turn<'_>) {
        let history = &self.states.head().osd;
        if !history.creating.is_empty() {
            return;
        }
        let newest = history.map().epoch;
        let kept = newest.saturating_sub(self.options.osdmap_epochs_min);
        let floor = self.osd.clean_epochs.lower_bound(self.states.head().osd.map()).min(kept);
        if self.states.head().osd.can_trim(floor) {
            self.propose(turn.now, vec![Change::OsdMapFloor { epoch: floor }]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{PgId, PgPool};

    fn beacon(version: u64, clean: Epoch, seeds: &[u32]) -> MOSDBeacon {
        MOSDBeacon {
            paxos: wire::messages::PaxosHeader { version },
            pgs: seeds.iter().map(|&seed| PgId { pool: 1, seed }).collect(),
            min_last_epoch_clean: clean,
            last_purged_snaps_scrub: Default::default(),
            beacon_interval_s: 5,
        }
    }

    fn map(pg_num: u32, up: usize) -> OsdMap {
        let mut map = OsdMap { epoch: 100, ..OsdMap::default() };
        map.pools.insert(1, PgPool { pg_num, ..PgPool::default() });
        map.osds.resize_with(up, Default::default);
        for row in &mut map.osds {
            row.state.0 = wire::types::OsdState::EXISTS | wire::types::OsdState::UP;
        }
        map
    }

    #[test]
    fn every_pg_and_every_osd_that_is_up_counts() {
        let mut epochs = CleanEpochs::default();
        epochs.report(&map(2, 2), 0, &beacon(90, 50, &[0]));
        assert_eq!(epochs.lower_bound(&map(2, 2)), 0, "one PG is not reported");
        epochs.report(&map(2, 2), 1, &beacon(40, 60, &[1]));
        assert_eq!(epochs.lower_bound(&map(2, 2)), 40, "osd.1 is behind");
        epochs.report(&map(2, 2), 1, &beacon(90, 60, &[1]));
        assert_eq!(epochs.lower_bound(&map(2, 2)), 50);
        // An older report of another OSD does not take a PG back.
        epochs.report(&map(2, 2), 1, &beacon(90, 20, &[0, 1]));
        assert_eq!(epochs.lower_bound(&map(2, 2)), 50);
        epochs.report(&map(2, 2), 0, &beacon(90, 80, &[0]));
        assert_eq!(epochs.lower_bound(&map(2, 2)), 60);
    }

    #[test]
    fn osd_that_went_down_counts_with_its_pgs_only() {
        let mut epochs = CleanEpochs::default();
        epochs.report(&map(2, 2), 0, &beacon(95, 90, &[0]));
        epochs.report(&map(2, 2), 1, &beacon(40, 70, &[1]));
        assert_eq!(epochs.lower_bound(&map(2, 1)), 70);
    }

    #[test]
    fn split_waits_for_the_reports_of_the_children() {
        let mut epochs = CleanEpochs::default();
        epochs.report(&map(1, 1), 0, &beacon(95, 90, &[0]));
        assert_eq!(epochs.lower_bound(&map(1, 1)), 90);
        assert_eq!(epochs.lower_bound(&map(2, 1)), 0);
        epochs.report(&map(2, 1), 0, &beacon(95, 92, &[0, 1]));
        assert_eq!(epochs.lower_bound(&map(2, 1)), 92);
        assert_eq!(epochs.lower_bound(&OsdMap { epoch: 7, ..OsdMap::default() }), 7, "no pool, no OSD");
    }
}
