//! The spread of placement groups over OSDs: how even it is, and what another map would move
//! (`OSDMap::summarize_mapping_stats`).

use crate::Mapper;
use std::collections::BTreeMap;
use wire::types::{OsdMap, PgId, PoolId};

/// Copies of PGs on the OSDs that are up and in. The figures are single precision, as stock's.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    /// Copies of all PGs, over all pools that count.
    pub copies: u32,
    pub mean: f32,
    pub deviation: f32,
    /// The deviation that a random placement has.
    pub deviation_expected: f32,
    /// The OSD with the fewest copies, and their number; `None` where no OSD is up and in.
    pub fewest: Option<(i32, u32)>,
    pub most: Option<(i32, u32)>,
}

/// The same pools under another map.
#[derive(Clone, PartialEq, Debug)]
pub struct Shift {
    pub before: Spread,
    /// Copies that leave their OSD.
    pub moved: u32,
    pub deviation: f32,
    /// New numbers of the OSDs that have the fewest and the most before.
    pub fewest: u32,
    pub most: u32,
}

/// Copies of each OSD that is up and in. `counts` decides which pools count.
fn copies_by_osd(map: &OsdMap, raw: &BTreeMap<PgId, Vec<i32>>) -> BTreeMap<i32, u32> {
    let serving = (0..map.max_osd()).filter(|osd| map.is_up(*osd) && map.is_in(*osd));
    let mut copies: BTreeMap<i32, u32> = serving.map(|osd| (osd, 0)).collect();
    for osd in raw.values().flatten() {
        if let Some(count) = copies.get_mut(osd) {
            *count += 1;
        }
    }
    copies
}

/// The up set of each PG of the pools that count.
fn up_sets(map: &OsdMap, counts: &dyn Fn(PoolId) -> bool) -> BTreeMap<PgId, Vec<i32>> {
    let mut mapper = Mapper::default();
    let pools = map.pools.iter().filter(|(pool, _)| counts(**pool));
    let pgs = pools.flat_map(|(&pool, info)| (0..info.pg_num).map(move |seed| PgId { pool, seed }));
    pgs.map(|pg| (pg, mapper.map(map, pg).up.clone())).collect()
}

fn deviation(copies: &BTreeMap<i32, u32>, mean: f32) -> f32 {
    let square = |count: &u32| (*count as f32 - mean) * (*count as f32 - mean);
    let squares: f32 = copies.values().map(square).sum();
    (squares / copies.len().max(1) as f32).sqrt()
}

impl Spread {
    /// `counts` says which pools count.
    pub fn of(map: &OsdMap, counts: &dyn Fn(PoolId) -> bool) -> Spread {
        Spread::from_up_sets(map, counts, &up_sets(map, counts)).0
    }

    fn from_up_sets(
        map: &OsdMap,
        counts: &dyn Fn(PoolId) -> bool,
        up: &BTreeMap<PgId, Vec<i32>>,
    ) -> (Spread, BTreeMap<i32, u32>) {
        let by_osd = copies_by_osd(map, up);
        let pools = map.pools.iter().filter(|(pool, _)| counts(**pool));
        let copies: u32 = pools.map(|(_, pool)| pool.pg_num * u32::from(pool.size)).sum();
        let osds = by_osd.len();
        let mean = copies as f32 / osds.max(1) as f32;
        let expected = (f64::from(mean) * (1.0 - 1.0 / osds.max(1) as f64)).sqrt() as f32;
        // Of equal numbers the first OSD's counts.
        let fewest = by_osd.iter().min_by_key(|(osd, count)| (**count, **osd));
        let most = by_osd.iter().min_by_key(|(osd, count)| (u32::MAX - **count, **osd));
        let spread = Spread {
            copies,
            mean,
            deviation: deviation(&by_osd, mean),
            deviation_expected: expected,
            fewest: fewest.map(|(osd, count)| (*osd, *count)),
            most: most.map(|(osd, count)| (*osd, *count)),
        };
        (spread, by_osd)
    }
}

impl Shift {
    pub fn between(map: &OsdMap, after: &OsdMap, counts: &dyn Fn(PoolId) -> bool) -> Shift {
        let (old, new) = (up_sets(map, counts), up_sets(after, counts));
        let (before, _) = Spread::from_up_sets(map, counts, &old);
        let by_osd = copies_by_osd(after, &new);
        let leaving = |(pg, up): (&PgId, &Vec<i32>)| {
            let next = new.get(pg).map_or(&[][..], Vec::as_slice);
            up.iter().filter(|osd| **osd >= 0 && !next.contains(osd)).count() as u32
        };
        let count_of =
            |osd: Option<(i32, u32)>| osd.and_then(|(osd, _)| by_osd.get(&osd)).copied().unwrap_or(0);
        Shift {
            moved: old.iter().map(leaving).sum(),
            deviation: deviation(&by_osd, before.mean),
            fewest: count_of(before.fewest),
            most: count_of(before.most),
            before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crush::edit::{insert, new_map};
    use std::sync::Arc;
    use wire::types::{OsdInfo, OsdRow, OsdState, PgPool, PoolFlags};

    /// Four OSDs on one host; pool 1 with one PG and pool 2 with 64, of two copies each.
    fn map(weights: [u32; 4]) -> OsdMap {
        let mut crush = new_map("osd");
        let location = [("root", "default"), ("host", "vm")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        for osd in 0..4 {
            insert(&mut crush, osd, 511, &format!("osd.{osd}"), &location.clone().into(), false).unwrap();
        }
        let pool = |pg_num| PgPool {
            pg_num,
            pgp_num: pg_num,
            size: 2,
            min_size: 1,
            object_hash: 2,
            flags: PoolFlags(PoolFlags::HASHPSPOOL),
            ..PgPool::default()
        };
        let row = |weight: u32| OsdRow {
            state: OsdState(OsdState::EXISTS | OsdState::UP),
            weight,
            info: OsdInfo { up_from: 1, ..OsdInfo::default() },
            ..OsdRow::default()
        };
        OsdMap {
            epoch: 19,
            crush: Arc::new(crush),
            pools: [(1, pool(1)), (2, pool(64))].into(),
            osds: weights.map(row).into(),
            ..OsdMap::default()
        }
    }

    /// Equal but for the last bit of single precision, which depends on how a processor adds.
    fn is_near(found: f32, wanted: f32) -> bool {
        (found - wanted).abs() < 2.0 * f32::EPSILON * wanted
    }

    /// The figures that a cluster of 20.2.4 with these OSDs and pools gave for the same weights
    /// (`osd test-reweight-by-pg 101`, and with `0.1 2 p`).
    #[test]
    fn shift_is_that_of_a_stock_cluster() {
        const IN: u32 = OsdMap::WEIGHT_IN;
        let now = map([IN; 4]);
        let lower = IN - (0.05 * f64::from(IN)) as u32;
        let shift = Shift::between(&now, &map([lower, lower, IN, lower]), &|_| true);
        assert_eq!((shift.moved, shift.before.copies), (4, 130));
        assert_eq!(shift.before.mean, 32.5);
        assert!(is_near(shift.before.deviation, 7.2629194), "{shift:?}");
        assert!(is_near(shift.deviation, 6.0621777), "{shift:?}");
        assert!(is_near(shift.before.deviation_expected, 4.937104), "{shift:?}");
        assert_eq!((shift.before.fewest, shift.fewest), (Some((2, 20)), 22));
        assert_eq!((shift.before.most, shift.most), (Some((3, 38)), 36));

        let by_tenth = map([IN, (0.914276123046875 * f64::from(IN)) as u32, IN, 58_983]);
        let shift = Shift::between(&now, &by_tenth, &|pool| pool == 2);
        assert_eq!((shift.moved, shift.before.copies, shift.before.mean), (7, 128, 32.0));
        assert!(is_near(shift.before.deviation, 7.0356236), "{shift:?}");
        assert!(is_near(shift.deviation, 4.301163), "{shift:?}");
        assert_eq!((shift.fewest, shift.most), (25, 36));
    }

    #[test]
    fn spread_without_osds_has_no_extremes() {
        let mut empty = map([OsdMap::WEIGHT_IN; 4]);
        empty.osds.clear();
        let spread = Spread::of(&empty, &|_| true);
        assert_eq!((spread.fewest, spread.most, spread.deviation), (None, None, 0.0));
    }
}
