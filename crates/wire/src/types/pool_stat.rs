//! Counts of objects, for a PG, a pool, a store (`object_stat_sum_t`, `object_stat_collection_t`,
//! `store_statfs_t`, `pool_stat_t`).

use codec::{Decode, DecodeError, Encode, Reader};

/// Lists each counter once: the struct, its sums and its differences follow from the list.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, o: $name) { $(self.$field = self.$field.wrapping_add(o.$field);)* }
        }

        impl std::ops::SubAssign for $name {
            fn sub_assign(&mut self, o: $name) { $(self.$field = self.$field.wrapping_sub(o.$field);)* }
        }
    };
}

counters! {
    /// Counters of a set of objects. They may go below zero for a moment, which is why they are signed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
    #[envelope(version = 20, compat = 14)]
    ObjectStatSum {
        num_bytes: i64,
        num_objects: i64,
        num_object_clones: i64,
        /// Objects times copies.
        num_object_copies: i64,
        num_objects_missing_on_primary: i64,
        num_objects_degraded: i64,
        num_objects_unfound: i64,
        num_rd: i64,
        num_rd_kb: i64,
        num_wr: i64,
        num_wr_kb: i64,
        num_scrub_errors: i64,
        num_objects_recovered: i64,
        num_bytes_recovered: i64,
        num_keys_recovered: i64,
        num_shallow_scrub_errors: i64,
        num_deep_scrub_errors: i64,
        num_objects_dirty: i64,
        num_whiteouts: i64,
        num_objects_omap: i64,
        num_objects_hit_set_archive: i64,
        num_objects_misplaced: i64,
        num_bytes_hit_set_archive: i64,
        num_flush: i64,
        num_flush_kb: i64,
        num_evict: i64,
        num_evict_kb: i64,
        num_promote: i64,
        num_flush_mode_high: i32,
        num_flush_mode_low: i32,
        num_evict_mode_some: i32,
        num_evict_mode_full: i32,
        num_objects_pinned: i64,
        num_objects_missing: i64,
        #[since(16)]
        num_legacy_snapsets: i64,
        #[since(17)]
        num_large_omap_objects: i64,
        #[since(18)]
        num_objects_manifest: i64,
        #[since(19)]
        num_omap_bytes: i64,
        #[since(19)]
        num_omap_keys: i64,
        #[since(20)]
        num_objects_repaired: i64,
    }
}

/// A sum; once it was also split by category, and an empty map of those is still written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectStatCollection {
    pub sum: ObjectStatSum,
}

impl Encode for ObjectStatCollection {
    fn encode(&self, w: &mut codec::Writer) {
        w.envelope(2, 2, |w| {
            w.put(&self.sum);
            w.u32(0);
        });
    }
}

impl Decode for ObjectStatCollection {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("object_stat_collection_t", 2, |r, _| {
            let sum = codec::field(r, "sum", true, ObjectStatSum::default)?;
            for _ in 0..r.count("categories", 4)? {
                r.string()?;
                r.get::<ObjectStatSum>()?;
            }
            Ok(ObjectStatCollection { sum })
        })
    }
}

counters! {
    /// A store's space, in bytes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
    #[envelope(version = 1, compat = 1)]
    StoreStatfs {
        total: u64,
        available: u64,
        internally_reserved: u64,
        allocated: i64,
        data_stored: i64,
        data_compressed: i64,
        data_compressed_allocated: i64,
        data_compressed_original: i64,
        omap_allocated: i64,
        internal_metadata: i64,
    }
}

impl StoreStatfs {
    /// Bytes in use that the store did not reserve for itself.
    pub fn used(&self) -> u64 {
        self.total.wrapping_sub(self.available).wrapping_sub(self.internally_reserved)
    }

    /// Bytes in use, the store's own reserve included.
    pub fn used_raw(&self) -> u64 {
        self.total.wrapping_sub(self.available)
    }
}

/// A pool's figures, summed over its PGs and over the OSDs that told what the pool takes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 7, compat = 5)]
pub struct PoolStat {
    pub stats: ObjectStatCollection,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    /// PGs times replicas, by the up and by the acting sets.
    #[since(6)]
    pub up: i32,
    #[since(6)]
    pub acting: i32,
    #[since(7)]
    pub store_stats: StoreStatfs,
    /// Number of OSDs in the sum `store_stats`.
    #[since(7)]
    pub num_store_stats: i32,
}
