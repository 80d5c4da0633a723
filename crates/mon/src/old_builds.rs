//! OSDs of builds that cannot merge PGs. While one of them is up, no PGs merge: it would keep both copies as they are.

use crate::state::State;
use command::builds::MERGES_PGS;
use std::collections::BTreeMap;
use wire::types::{OsdMap, PoolId};

/// OSDs that a message names.
const NAMED_MAX: usize = 8;

fn merges_pgs(metadata: &BTreeMap<String, String>) -> bool {
    metadata.contains_key(MERGES_PGS)
}

/// The OSDs that are up and cannot merge PGs. Costs a look at each OSD.
pub fn osds_without_merges(state: &State) -> Vec<i32> {
    let map = state.osdmap();
    let is_old = |osd: &i32| map.is_up(*osd) && !state.osd.metadata.get(osd).is_some_and(merges_pgs);
    map.osd_ids().filter(is_old).collect()
}

/// The reason why no PGs merge now.
pub fn obstacle_to_merges(state: &State) -> Option<String> {
    let osds = osds_without_merges(state);
    let names: Vec<String> = osds.iter().take(NAMED_MAX).map(|osd| format!("osd.{osd}")).collect();
    let more = if osds.len() > NAMED_MAX { " and others" } else { "" };
    let text = || {
        let names = names.join(", ");
        format!(
            "the build of {names}{more} cannot merge PGs; restart these OSDs with the build of the monitors"
        )
    };
    (!osds.is_empty()).then(text)
}

/// A pool whose PGs merged while the OSD was down, which its build would not notice.
pub fn missed_merge(map: &OsdMap, osd: i32, metadata: &BTreeMap<String, String>) -> Option<PoolId> {
    let row = map.osd(osd).filter(|row| row.info.up_from > 0 && !map.is_up(osd))?;
    let mut pools = map.pools.iter().filter(|_| !merges_pgs(metadata));
    pools.find(|(_, pool)| pool.last_pg_merge.ready_epoch >= row.info.down_at).map(|(id, _)| *id)
}
