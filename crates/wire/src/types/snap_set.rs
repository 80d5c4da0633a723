//! An object's snapshots: what is stored with it (`SnapSet`), and what clients are told (`clone_info`,
//! `obj_list_snap_response_t`).

use super::{IntervalSet, SnapId};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Clones of an object, and the ranges that each shares with the next newer one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapSet {
    /// The newest snapshot that a write has known.
    pub seq: SnapId,
    /// Ascending.
    pub clones: Vec<SnapId>,
    /// Ranges that a clone shares with the next newer clone, or with the head.
    pub clone_overlap: BTreeMap<SnapId, IntervalSet>,
    pub clone_size: BTreeMap<SnapId, u64>,
    /// Snapshots that a clone stands for, descending.
    pub clone_snaps: BTreeMap<SnapId, Vec<SnapId>>,
}

impl Encode for SnapSet {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.put(&self.seq);
            // The head exists; and a list of snapshots: both only for readers older than shoal.
            w.bool(true);
            w.count(0);
            w.put(&self.clones);
            w.put(&self.clone_overlap);
            w.put(&self.clone_size);
            w.put(&self.clone_snaps);
        });
    }
}

impl Decode for SnapSet {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("SnapSet", 3, 2, 2, |r, v| {
            let seq = r.get()?;
            r.bool()?;
            r.get::<Vec<SnapId>>()?;
            Ok(SnapSet {
                seq,
                clones: r.get()?,
                clone_overlap: r.get()?,
                clone_size: r.get()?,
                clone_snaps: if v >= 3 { r.get()? } else { BTreeMap::new() },
            })
        })
    }
}

/// One clone, or the head, as `list-snaps` reports it (`clone_info`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CloneInfo {
    pub clone: SnapId,
    /// Ascending.
    pub snaps: Vec<SnapId>,
    /// Start and length.
    pub overlap: Vec<(u64, u64)>,
    pub size: u64,
}

/// The answer of `list-snaps` (`obj_list_snap_response_t`): clones ascending, then the head.
#[derive(Clone, PartialEq, Eq, Debug, Encode)]
#[envelope(version = 2, compat = 1)]
pub struct SnapList {
    pub clones: Vec<CloneInfo>,
    pub seq: SnapId,
}

impl Decode for SnapList {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("obj_list_snap_response_t", 2, |r, v| {
            Ok(SnapList { clones: r.get()?, seq: if v >= 2 { r.get()? } else { SnapId::HEAD } })
        })
    }
}
