//! What the data path needs of an OSDMap: digested once an epoch by the control machine and shared by all cores.

use crate::control::CopyStarts;
use crate::fast_map::{FastMap, FastSet};
use crate::node::Failsafe;
use crate::object::snapshots::SnapContext;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::{
    EntityAddr, Epoch, IntervalSet, OsdMap, OsdRow, OsdState, PgId, PgPool, PoolFlags, PoolId, SnapId, SpgId,
};

#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    pub epoch: Epoch,
    /// The first map that had this store's OSD up.
    pub store_since: Epoch,
    /// Copies that are younger than the store.
    pub copy_starts: Arc<CopyStarts>,
    /// The map itself, for peering and links.
    pub map: Arc<OsdMap>,
    pub pools: FastMap<PoolId, PoolView>,
    /// Which core has which PG of this OSD.
    pub routes: crate::Routes,
    /// Clients that may not touch anything any more: by whole address, or (nonce 0) by host.
    pub blocklist: FastSet<EntityAddr>,
    /// Hosts and networks, rare: `(address, prefix bits)`.
    pub blocklist_ranges: Vec<(std::net::IpAddr, u8)>,
    /// Sources of pending merges that something stands in the way of here.
    pub merge_obstacles: BTreeSet<PgId>,
    pub failsafe: Failsafe,
}

#[derive(Clone, Debug, Default)]
pub struct PoolView {
    pub name: String,
    pub pg_num: u32,
    /// Less than `pg_num` while the last PG is about to be merged.
    pub pg_num_pending: u32,
    /// The pool's option of this name: -10 to 10.
    pub recovery_priority: i64,
    /// Writes that need space wait at the client; those that come nevertheless are refused or dropped.
    pub full: bool,
    /// The first epoch in which it was full, the last time that it became so while this OSD ran; 0: it did not.
    pub full_since: Epoch,
    /// It is full because of its quota.
    pub full_quota: bool,
    /// Everything fails with an I/O error.
    pub eio: bool,
    /// What a client sent before this epoch, it sends again.
    pub last_force_op_resend: Epoch,
    pub snapshots: PoolSnapshots,
    /// For capabilities: application to its tags.
    pub applications: BTreeMap<String, BTreeMap<String, String>>,
}

/// A pool's snapshots.
#[derive(Clone, Debug, Default)]
pub struct PoolSnapshots {
    /// Objects of the pool may have snapshots.
    pub is_used: bool,
    /// The context of writes, of a pool whose snapshots are the pool's own.
    pub context: Option<Arc<SnapContext>>,
    /// Snapshots that are removed, and that some PG may not have trimmed.
    pub removed: IntervalSet,
}

impl PoolSnapshots {
    /// `removed`: the pool's snapshots in the map's queue.
    pub fn of(pool: &PgPool, removed: Option<&IntervalSet>) -> PoolSnapshots {
        let is_own = pool.flags.has(PoolFlags::POOL_SNAPS);
        let snaps = || pool.snaps.keys().rev().copied().collect();
        PoolSnapshots {
            is_used: is_own || pool.flags.has(PoolFlags::SELFMANAGED_SNAPS) || pool.snap_seq > SnapId(0),
            context: is_own.then(|| Arc::new(SnapContext { seq: pool.snap_seq, snaps: snaps() })),
            removed: removed.cloned().unwrap_or_default(),
        }
    }
}

impl ClusterView {
    /// A view whose map has these OSDs up for ever, for hosts without a monitor: benchmarks and tests.
    pub fn of_osds(osds: std::ops::Range<i32>) -> ClusterView {
        let mut row = OsdRow { state: OsdState(OsdState::EXISTS | OsdState::UP), ..OsdRow::default() };
        (row.info.up_from, row.info.up_thru) = (1, Epoch::MAX);
        let map = OsdMap { osds: osds.map(|_| row.clone()).collect(), ..OsdMap::default() };
        ClusterView { store_since: 1, map: Arc::new(map), ..ClusterView::default() }
    }

    /// Pools whose queue of removed snapshots differs in the next view.
    pub(super) fn changed_trim_queues(&self, next: &ClusterView) -> Vec<PoolId> {
        let none = IntervalSet::new();
        let before = |pool: &PoolId| self.pools.get(pool).map_or(&none, |pool| &pool.snapshots.removed);
        let is_changed = |(id, pool): &(&PoolId, &PoolView)| pool.snapshots.removed != *before(id);
        next.pools.iter().filter(is_changed).map(|(id, _)| *id).collect()
    }

    /// The map since which this OSD's store holds the PG ([`wire::types::PgCopyInfo::store_since`]).
    pub fn store_since_of(&self, pg: SpgId) -> Epoch {
        self.copy_starts.since(pg.pg, self.store_since)
    }

    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        if self.blocklist.is_empty() && self.blocklist_ranges.is_empty() {
            return false;
        }
        // The list does not say which protocol the client spoke.
        let any = EntityAddr { kind: wire::types::AddrKind::ANY, ..*addr };
        let host = EntityAddr { nonce: 0, socket: addr.socket.map(|s| (s.ip(), 0).into()), ..any };
        self.blocklist.contains(&any)
            || self.blocklist.contains(&host)
            || addr.socket.is_some_and(|s| {
                self.blocklist_ranges.iter().any(|(net, bits)| in_range(s.ip(), *net, *bits))
            })
    }
}

fn in_range(addr: std::net::IpAddr, net: std::net::IpAddr, bits: u8) -> bool {
    use std::net::IpAddr::{V4, V6};
    let (a, n, width) = match (addr, net) {
        (V4(a), V4(n)) => (a.to_bits() as u128, n.to_bits() as u128, 32),
        (V6(a), V6(n)) => (a.to_bits(), n.to_bits(), 128),
        _ => return false,
    };
    let drop = width - (bits as u32).min(width);
    drop == 128 || a >> drop == n >> drop
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::AddrKind;

    fn addr(text: &str, nonce: u32) -> EntityAddr {
        EntityAddr { kind: AddrKind::ANY, nonce, socket: Some(text.parse().unwrap()) }
    }

    #[test]
    fn one_instance_or_a_whole_host_or_a_network() {
        let mut view = ClusterView::default();
        view.blocklist.insert(addr("10.0.0.1:0", 7));
        let client = EntityAddr { kind: AddrKind::MSGR2, ..addr("10.0.0.1:0", 7) };
        assert!(view.is_blocklisted(&client));
        assert!(!view.is_blocklisted(&addr("10.0.0.1:0", 8)));
        view.blocklist.insert(addr("10.0.0.1:0", 0));
        assert!(view.is_blocklisted(&addr("10.0.0.1:345", 8)));
        view.blocklist_ranges.push(("192.168.0.0".parse().unwrap(), 16));
        assert!(view.is_blocklisted(&addr("192.168.3.4:1", 1)));
        assert!(!view.is_blocklisted(&addr("192.169.3.4:1", 1)));
    }
}
