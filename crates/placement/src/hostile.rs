//! Bytes of an attacker as an OSDMap and the step after it: called by the fuzz target and by the replay of its corpus.

use crate::Mapper;
use codec::decode_exact;
use wire::types::{OsdMap, OsdMapIncremental, PgId};

/// Pools and PGs per map that are mapped.
const POOLS_MAX: usize = 4;
const PGS_MAX: u32 = 16;
/// CRUSH tries as often as the map says; more only takes longer.
const TRIES_MAX: u32 = 1000;

/// Four bytes are the length of a map, the rest after it is an incremental. Maps PGs before and after it is applied.
pub fn apply_and_map(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk::<4>() else { return };
    let (map, step) = rest.split_at(rest.len().min(u32::from_le_bytes(*len) as usize));
    let Ok(map) = decode_exact::<OsdMap>(map) else { return };
    map_some(&map);
    let Ok(step) = decode_exact::<OsdMapIncremental>(step) else { return };
    if let Ok(next) = map.apply(&step) {
        assert_eq!(next.epoch, step.epoch);
        map_some(&next);
    }
}

fn map_some(map: &OsdMap) {
    if map.crush.tunables.choose_total_tries > TRIES_MAX {
        return;
    }
    let mut mapper = Mapper::default();
    for (&pool, row) in map.pools.iter().take(POOLS_MAX) {
        for seed in 0..row.pg_num.min(PGS_MAX) {
            let placement = mapper.map(map, PgId { pool, seed });
            assert!(placement.up.iter().all(|osd| *osd < map.max_osd()), "{placement:?}");
        }
    }
}
