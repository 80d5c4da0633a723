//! OSDMap epochs on their way to clients and daemons (`MOSDMap`).

use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::{Epoch, Uuid};
use bytes::Bytes;
use codec::{DecodeError, Reader};
use std::collections::BTreeMap;

/// Whole maps and changes, by epoch, each as the receiver's features have it: encoded once and shared by all
/// receivers whose [`crate::features::osdmap_significant`] bits agree.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MOSDMap {
    pub fsid: Uuid,
    pub incremental_maps: BTreeMap<Epoch, Bytes>,
    pub maps: BTreeMap<Epoch, Bytes>,
    /// The receiver may forget epochs below this.
    pub trim_lower_bound: Epoch,
    pub newest_map: Epoch,
}

impl MOSDMap {
    pub fn first(&self) -> Option<Epoch> {
        [self.maps.keys().next(), self.incremental_maps.keys().next()].into_iter().flatten().min().copied()
    }

    pub fn last(&self) -> Option<Epoch> {
        [self.maps.keys().next_back(), self.incremental_maps.keys().next_back()]
            .into_iter()
            .flatten()
            .max()
            .copied()
    }
}

impl MessageBody for MOSDMap {
    const TYPE: u16 = 41;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.put(&self.fsid);
        w.put(&self.incremental_maps);
        w.put(&self.maps);
        w.u32(self.trim_lower_bound);
        w.u32(self.newest_map);
        // Removed snapshots of skipped epochs, which nobody has filled since Octopus.
        w.u32(0);
    }

    /// Versions below 3 had other maps in them; a sender's compat tells nobody who still writes them.
    fn decode(header: &Header, payload: &Payload) -> Result<MOSDMap, DecodeError> {
        let r = &mut Reader::new(&payload.front);
        let fsid = r.get()?;
        let incremental_maps = slices(r, payload)?;
        let maps = slices(r, payload)?;
        let bounds = header.version >= 2;
        Ok(MOSDMap {
            fsid,
            incremental_maps,
            maps,
            trim_lower_bound: codec::field(r, "trim_lower_bound", bounds, Epoch::default)?,
            newest_map: codec::field(r, "newest_map", bounds, Epoch::default)?,
        })
    }
}

/// A map of blobs that stay slices of the message's front.
fn slices(r: &mut Reader<'_>, payload: &Payload) -> Result<BTreeMap<Epoch, Bytes>, DecodeError> {
    let mut out = BTreeMap::new();
    for _ in 0..r.count("maps", 8)? {
        let epoch = r.u32()?;
        out.insert(epoch, payload.front.slice_ref(r.blob()?));
    }
    Ok(out)
}
