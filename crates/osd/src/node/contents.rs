//! One core's part of the OSD's store: the numbers of its store shards, and their contents at a start.

use machine::CoreId;
use store::{Collection, ObjectStore, Placed, Shards};

/// The store shards of `core`, by number on a device with `shards` of them. Every shard has one core, also on an OSD with
/// fewer cores than shards.
pub fn shards_of(core: CoreId, cores: u16, shards: usize) -> impl Iterator<Item = usize> {
    (core.0.into()..shards).step_by(cores.into())
}

/// Contents of one core's part of the store when the OSD starts, after the stale copies were removed.
#[derive(Clone, Debug, Default)]
pub struct StoreContents {
    pub collections: Vec<(Collection, Placed)>,
    /// Stale copies that could not be removed. These PGs cannot move to this core.
    pub obstructed: Vec<Collection>,
    /// The core has several store shards, which share no transaction.
    pub is_divided: bool,
    /// Maximum bytes of omap keys and values in one transaction.
    pub metadata_max: u64,
}

impl StoreContents {
    /// Contents of a store of one shard, which has no stale copies.
    pub fn of_store(store: &impl ObjectStore) -> StoreContents {
        let (collections, metadata_max) = (store.placed(), store.metadata_max());
        StoreContents { collections, metadata_max, ..StoreContents::default() }
    }

    pub fn of_shards<S: ObjectStore>(shards: &Shards<S>) -> StoreContents {
        let is_divided = shards.iter().count() > 1;
        StoreContents {
            obstructed: shards.obstructed().collect(),
            is_divided,
            ..StoreContents::of_store(shards)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_store_shard_has_one_core() {
        for (cores, shards) in [(1, 1), (1, 4), (2, 5), (3, 3)] {
            let of_core = |core| shards_of(CoreId(core), cores, shards).collect::<Vec<_>>();
            let all: Vec<usize> = (0..cores).flat_map(of_core).collect();
            assert_eq!(
                (all.len(), all.into_iter().collect()),
                (shards, (0..shards).collect::<BTreeSet<_>>())
            );
            assert!((0..cores).all(|core| !of_core(core).is_empty()), "{cores} cores, {shards} shards");
        }
        assert_eq!(shards_of(CoreId(1), 2, 6).collect::<Vec<_>>(), [1, 3, 5]);
    }
}
