//! Scrub: the surveys that members of a placement group send to its primary, and the records of inconsistent objects.
//!
//! The statements are shoal's own. [`InconsistentObject::to_stock`] is Ceph's `inconsistent_obj_t`, which `rados
//! list-inconsistent-obj` prints.

use super::{Eversion, HObject, MissingObject, SnapId, UTime};
use bytes::Bytes;
use codec::{Decode, Encode, Features, Writer};

/// A request for a survey of the objects of a range, at most `max`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SurveyRequest {
    /// Tells the survey from others of the primary. The answer repeats it.
    pub id: u64,
    pub begin: HObject,
    pub end: HObject,
    pub max: u32,
    /// Data and omap are read and digested, too.
    pub is_deep: bool,
}

/// The objects of a copy from `begin` up to `end`, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SurveyAnswer {
    pub id: u64,
    /// The survey is complete up to here.
    pub end: HObject,
    pub objects: Vec<ObjectSurvey>,
    /// The range cannot be listed, and `objects` says nothing.
    pub has_failed: bool,
}

/// One copy of an object: digests, and no data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ObjectSurvey {
    pub object: HObject,
    /// Faults that the copy shows by itself, as [`shard_error`] numbers them.
    pub faults: u64,
    pub size: u64,
    /// The `_` attribute (`object_info_t`). Empty: there is none.
    pub info: Bytes,
    /// Of the names and values of all other attributes.
    pub attrs_digest: u32,
    /// `ceph_crc32c(-1, data)`.
    pub data_digest: Option<u32>,
    /// Of the header, and of each key and value with their lengths, from -1.
    pub omap_digest: Option<u32>,
    pub omap_keys: u64,
    pub omap_bytes: u64,
    /// The `snapset` attribute of a head. Empty: there is none. `None`: the program that made the survey does not tell.
    #[since(2)]
    pub snap_set: Option<Bytes>,
}

/// A primary's order to count the receiver's copies of objects as missing: a scrub found them bad, and good ones follow.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct BadCopies {
    /// Tells the order from others of the primary. The answer repeats it.
    pub id: u64,
    pub objects: Vec<MissingObject>,
}

/// The last scrubs of a PG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ScrubStamps {
    pub last_scrub: Eversion,
    pub last_scrub_at: UTime,
    pub last_deep_scrub: Eversion,
    pub last_deep_scrub_at: UTime,
    /// Of the last scrub without errors.
    pub last_clean_at: UTime,
    /// Errors by the last scrub of each kind. An inconsistent object has one error for each bad copy, at least one, and one for
    /// each contradiction between its snapshot set and its clones. These are shallow errors.
    pub shallow_errors: u64,
    pub deep_errors: u64,
    /// Objects that the last scrub compared.
    pub objects: u64,
    pub duration_ms: u64,
    /// Bytes and keys of omaps, as the last deep scrub counted them.
    pub omap_bytes: u64,
    pub omap_keys: u64,
    /// Objects that scrubs have repaired since the PG began.
    pub repaired: u64,
    /// Scrubs that ended.
    pub scrubs: u64,
    /// The last repair left errors.
    pub has_failed_repair: bool,
}

/// Faults of one copy (`librados::err_t`).
pub mod shard_error {
    pub const MISSING: u64 = 1 << 1;
    pub const STAT: u64 = 1 << 2;
    pub const READ: u64 = 1 << 3;
    pub const DATA_DIGEST: u64 = 1 << 9;
    pub const OMAP_DIGEST: u64 = 1 << 10;
    pub const SIZE: u64 = 1 << 11;
    pub const INFO_MISSING: u64 = 1 << 14;
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    pub const SNAP_SET_MISSING: u64 = 1 << 16;
    pub const SNAP_SET_CORRUPTED: u64 = 1 << 17;
    pub const SIZE_OF_INFO: u64 = 1 << 18;
    /// Those that only a deep scrub finds.
    pub const DEEP: u64 = READ | DATA_DIGEST | OMAP_DIGEST;
}

/// Differences between copies (`librados::obj_err_t`).
pub mod object_error {
    pub const INFO: u64 = 1 << 1;
    pub const DATA_DIGEST: u64 = 1 << 4;
    pub const OMAP_DIGEST: u64 = 1 << 5;
    pub const SIZE: u64 = 1 << 6;
    pub const ATTR_VALUE: u64 = 1 << 7;
    pub const SNAP_SET: u64 = 1 << 9;
    /// Those that only a deep scrub finds.
    pub const DEEP: u64 = DATA_DIGEST | OMAP_DIGEST;
}

/// Contradictions between a snapshot set and the clones that are there (`librados::inconsistent_snapset_t`).
pub mod snap_set_error {
    pub const SNAP_SET_MISSING: u64 = 1 << 0;
    pub const SNAP_SET_CORRUPTED: u64 = 1 << 1;
    pub const CLONE_MISSING: u64 = 1 << 2;
    /// The set has clones, and no sequence.
    pub const SNAP_SET_ERROR: u64 = 1 << 3;
    pub const HEADLESS_CLONE: u64 = 1 << 5;
    pub const SIZE: u64 = 1 << 6;
    pub const INFO_MISSING: u64 = 1 << 7;
    pub const INFO_CORRUPTED: u64 = 1 << 8;
    pub const EXTRA_CLONES: u64 = 1 << 9;
}

/// An object whose copies are not all good and equal, or that contradicts its snapshot set.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct InconsistentObject {
    pub object: HObject,
    /// As [`object_error`] numbers them.
    pub errors: u64,
    /// The user's version in the selected copy's info.
    pub version: u64,
    /// Empty: the copies are good and equal.
    pub copies: Vec<InconsistentCopy>,
    #[since(2)]
    pub snap_set: Option<InconsistentSnapSet>,
}

/// A head whose clones are not those of its snapshot set, or a clone that its head does not know as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct InconsistentSnapSet {
    /// As [`snap_set_error`] numbers them.
    pub errors: u64,
    /// Clones that the set does not name, descending.
    pub extra: Vec<SnapId>,
    /// Clones that the set names and that are not there, descending.
    pub missing: Vec<SnapId>,
    /// The `snapset` attribute of a head. Empty: there is none, or it cannot be read.
    pub snap_set: Bytes,
    /// Contradictions that this object has by itself.
    pub count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct InconsistentCopy {
    pub osd: i32,
    /// As [`shard_error`] numbers them.
    pub errors: u64,
    pub is_primary: bool,
    /// The object's info was taken from this copy.
    pub is_selected: bool,
    /// The copy differs from the good ones.
    pub is_bad: bool,
    pub size: u64,
    pub info: Bytes,
    pub data_digest: Option<u32>,
    pub omap_digest: Option<u32>,
}

impl InconsistentObject {
    pub fn union_errors(&self) -> u64 {
        self.copies.iter().fold(0, |union, copy| union | copy.errors)
    }

    /// A deep scrub found it, and a shallow one may not.
    pub fn is_deep(&self) -> bool {
        self.errors & object_error::DEEP != 0 || self.union_errors() & shard_error::DEEP != 0
    }

    /// Shallow and deep errors: bad copies, at least one if the copies differ, and contradictions of the snapshot set.
    pub fn count(&self) -> (u64, u64) {
        let of_set = self.snap_set.as_ref().map_or(0, |set| set.count);
        if self.copies.is_empty() {
            return (of_set, 0);
        }
        let of_copies = (self.copies.iter().filter(|copy| copy.is_bad).count() as u64).max(1);
        if self.is_deep() { (of_set, of_copies) } else { (of_set + of_copies, 0) }
    }

    /// `object_id_t`.
    fn put_id(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.blob(&self.object.name);
            w.blob(&self.object.namespace);
            w.blob(&self.object.key);
            w.u64(self.object.snap.0);
        });
    }

    /// `inconsistent_snapset_t` (`src/common/scrub_types.cc`), if the object contradicts its snapshot set.
    pub fn snap_set_to_stock(&self) -> Option<Bytes> {
        let set = self.snap_set.as_ref()?;
        let mut w = Writer::new(Features::NONE);
        w.envelope(2, 1, |w| {
            w.u64(set.errors);
            self.put_id(w);
            w.put(&set.extra);
            w.put(&set.missing);
            w.blob(&set.snap_set);
        });
        Some(w.into_bytes())
    }

    /// `inconsistent_obj_t` (`src/common/scrub_types.cc`).
    pub fn to_stock(&self) -> Bytes {
        let mut w = Writer::new(Features::NONE);
        w.envelope(2, 2, |w| {
            w.u64(self.errors);
            self.put_id(w);
            w.u64(self.version);
            w.count(self.copies.len());
            let mut copies: Vec<&InconsistentCopy> = self.copies.iter().collect();
            copies.sort_by_key(|copy| copy.osd);
            for copy in copies {
                w.envelope(1, 1, |w| {
                    w.put(&copy.osd);
                    // Replicated pools have no shards (`shard_id_t::NO_SHARD`).
                    w.u8(0xff);
                });
                copy.to_stock(w);
            }
            w.u64(self.union_errors());
        });
        w.into_bytes()
    }
}

impl InconsistentCopy {
    fn to_stock(&self, w: &mut Writer) {
        w.envelope(3, 3, |w| {
            w.u64(self.errors);
            w.u8(self.is_primary.into());
            // Stock ends here for a missing copy.
            if self.errors & shard_error::MISSING != 0 {
                return;
            }
            let has_info = !self.info.is_empty();
            w.count(usize::from(has_info));
            if has_info {
                w.string("_");
                w.blob(&self.info);
            }
            w.u64(self.size);
            for digest in [self.omap_digest, self.data_digest] {
                w.u8(digest.is_some().into());
                w.u32(digest.unwrap_or_default());
            }
            w.u8(self.is_selected.into());
        });
    }
}
