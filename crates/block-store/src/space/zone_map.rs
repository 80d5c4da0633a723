//! The zones of a store: their numbers and their blocks.

use super::Run;
use device::joined::device_of_block;
use smallvec::SmallVec;
use std::ops::Range;

/// Number of a zone, counted over all areas of the store in their order.
pub type ZoneId = u32;

/// Blocks of the smallest zone: a word of its bitmap.
pub const ZONE_BLOCKS_MIN: u64 = 64;
/// Blocks of the largest zone: 1 GiB.
pub const ZONE_BLOCKS_MAX: u64 = 1 << 18;

/// Areas of the device, each divided into zones from its first block on. The last zone of an area may be short.
#[derive(Clone, Debug)]
pub struct ZoneMap {
    zone_blocks: u64,
    /// Areas with the number of their first zone, ascending in both.
    areas: Vec<(Run, ZoneId)>,
    count: ZoneId,
    /// First zone of the db device, or `count`. Zones from it on are for the index alone.
    db_start: ZoneId,
}

impl ZoneMap {
    /// Areas ascend and are disjoint.
    pub fn new(zone_blocks: u64, areas: impl IntoIterator<Item = Run>) -> ZoneMap {
        let mut map = ZoneMap { zone_blocks, areas: Vec::new(), count: 0, db_start: 0 };
        for area in areas {
            map.areas.push((area, map.count));
            map.count += area.len.div_ceil(zone_blocks) as ZoneId;
            if device_of_block(area.start) == 0 {
                map.db_start = map.count;
            }
        }
        map
    }

    pub fn zone_blocks(&self) -> u64 {
        self.zone_blocks
    }

    /// Number of zones.
    pub fn count(&self) -> ZoneId {
        self.count
    }

    /// Zones of the db device.
    pub fn db_zones(&self) -> Range<ZoneId> {
        self.db_start..self.count
    }

    /// True for a zone of the db device.
    #[inline]
    pub fn is_db(&self, zone: ZoneId) -> bool {
        zone >= self.db_start
    }

    /// Blocks of all zones.
    pub fn blocks(&self) -> u64 {
        self.areas.iter().map(|(area, _)| area.len).sum()
    }

    /// Zones of the area with this place in the superblock's table.
    pub fn zones_of_area(&self, area: usize) -> Range<ZoneId> {
        let Some((run, first)) = self.areas.get(area) else { return 0..0 };
        *first..*first + run.len.div_ceil(self.zone_blocks) as ZoneId
    }

    /// The blocks of a zone; `None` if there is no such zone.
    pub fn run(&self, zone: ZoneId) -> Option<Run> {
        if zone >= self.count {
            return None;
        }
        let at = self.areas.partition_point(|(_, first)| *first <= zone);
        let (area, first) = self.areas[at - 1];
        let start = area.start + (zone - first) as u64 * self.zone_blocks;
        Some(Run::new(start, self.zone_blocks.min(area.end() - start)))
    }

    /// Number of blocks of a zone; 0 if there is no such zone.
    pub fn blocks_of(&self, zone: ZoneId) -> u64 {
        self.run(zone).map_or(0, |run| run.len)
    }

    /// The zone of a block.
    #[inline]
    pub fn zone_of(&self, block: u64) -> Option<ZoneId> {
        let at = match &self.areas[..] {
            [_] => 0,
            areas => areas.partition_point(|(area, _)| area.end() <= block),
        };
        let (area, first) = self.areas.get(at)?;
        let within = block.checked_sub(area.start).filter(|within| *within < area.len)?;
        Some(first + (within / self.zone_blocks) as ZoneId)
    }

    /// The parts of a run by zone; `None` if some of it is in no zone. Runs of version 1 cross the borders of zones.
    #[inline]
    pub fn parts(&self, run: Run) -> Option<SmallVec<[(ZoneId, Run); 2]>> {
        let end = run.start.checked_add(run.len)?;
        let (mut at, mut out) = (run.start, SmallVec::new());
        while at < end {
            let zone = self.zone_of(at)?;
            let part_end = self.run(zone).expect("the zone of a block").end().min(end);
            out.push((zone, Run::new(at, part_end - at)));
            at = part_end;
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_an_area_is_in_one_zone() {
        let areas = [Run::new(10, 150), Run::new(200, 64), Run::new(300, 1)];
        let map = ZoneMap::new(64, areas);
        assert_eq!((map.count(), map.blocks()), (5, 215));
        assert_eq!(map.run(2), Some(Run::new(138, 22)), "the last zone of an area is short");
        assert_eq!((map.run(3), map.run(5)), (Some(Run::new(200, 64)), None));
        assert_eq!((map.zones_of_area(1), map.zones_of_area(3)), (3..4, 0..0));
        for block in 0..320 {
            let zone = map.zone_of(block);
            assert_eq!(zone.is_some(), areas.iter().any(|area| area.blocks().contains(&block)), "{block}");
            assert!(zone.is_none_or(|zone| map.run(zone).unwrap().blocks().contains(&block)));
        }
    }

    #[test]
    fn zones_of_db_device_follow_those_of_main_device() {
        let db = 1 << 44;
        let map = ZoneMap::new(64, [Run::new(10, 150), Run::new(db + 5, 128)]);
        assert_eq!((map.count(), map.db_zones()), (5, 3..5));
        assert_eq!((map.zone_of(db + 4), map.zone_of(db + 5), map.zone_of(160)), (None, Some(3), None));
        assert_eq!([2, 3].map(|zone| map.is_db(zone)), [false, true]);
        assert_eq!(ZoneMap::new(64, [Run::new(10, 150)]).db_zones(), 3..3);
    }

    #[test]
    fn run_divides_at_borders_of_zones() {
        let map = ZoneMap::new(64, [Run::new(10, 150), Run::new(160, 64)]);
        let parts = map.parts(Run::new(70, 100)).unwrap();
        let expected =
            [(0, Run::new(70, 4)), (1, Run::new(74, 64)), (2, Run::new(138, 22)), (3, Run::new(160, 10))];
        assert_eq!(parts.as_slice(), expected);
        assert_eq!(map.parts(Run::new(0, 20)), None);
        assert_eq!(map.parts(Run::new(200, 25)), None);
        assert_eq!(map.parts(Run::new(u64::MAX, 2)), None);
    }
}
