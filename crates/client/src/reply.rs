//! Values that operations return, read from the bytes of a reply.

use bytes::Bytes;
use codec::{Decode, DecodeError, Reader};
use std::collections::{BTreeMap, BTreeSet};
use wire::messages::OsdOpResults;
use wire::types::{Epoch, UTime};

/// An OSD's answer to an [`crate::Operation`].
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// 0, a negative errno, or a positive value where a step returns one.
    pub result: i32,
    /// One a step, in order; or none when the operation failed as a whole.
    pub ops: OsdOpResults,
    /// The object's version, as callers count it.
    pub version: u64,
    /// The OSD's map.
    pub epoch: Epoch,
}

/// The steps' outputs by their places; a step that is not there has none.
impl Reply {
    pub fn is_ok(&self) -> bool {
        self.result >= 0
    }

    /// The bytes that a step returned.
    pub fn data(&self, step: usize) -> Bytes {
        self.ops.get(step).map_or_else(Bytes::new, |op| op.output.to_bytes())
    }

    /// Size and time of change, of a `stat`.
    pub fn stat(&self, step: usize) -> Result<(u64, UTime), DecodeError> {
        self.decode(step)
    }

    /// Of `get_xattrs` and of `omap_get`.
    pub fn map(&self, step: usize) -> Result<BTreeMap<Bytes, Bytes>, DecodeError> {
        self.decode(step)
    }

    /// Of `omap_keys`: the keys, and whether there are more.
    pub fn keys(&self, step: usize) -> Result<(BTreeSet<Bytes>, bool), DecodeError> {
        self.with_more(step)
    }

    /// Of `omap_entries`: the entries, and whether there are more.
    pub fn entries(&self, step: usize) -> Result<(BTreeMap<Bytes, Bytes>, bool), DecodeError> {
        self.with_more(step)
    }

    /// Of `sparse_read`: the parts that exist, by offset.
    pub fn sparse(&self, step: usize) -> Result<Vec<(u64, Bytes)>, DecodeError> {
        let bytes = self.data(step);
        let mut r = Reader::new(&bytes);
        let extents: BTreeMap<u64, u64> = r.get()?;
        let data = bytes.slice_ref(r.blob()?);
        let mut at = 0usize;
        let mut out = Vec::with_capacity(extents.len());
        for (offset, len) in extents {
            let end = usize::try_from(len)
                .ok()
                .and_then(|len| at.checked_add(len))
                .filter(|end| *end <= data.len());
            let Some(end) = end else {
                return Err(r.invalid("an extent beyond the data", len));
            };
            out.push((offset, data.slice(at..end)));
            at = end;
        }
        Ok(out)
    }

    /// A step's output as any wire type.
    pub fn decode<T: Decode>(&self, step: usize) -> Result<T, DecodeError> {
        Reader::new(&self.data(step)).get()
    }

    /// A container, and a flag that very old OSDs leave out.
    fn with_more<T: Decode>(&self, step: usize) -> Result<(T, bool), DecodeError> {
        let bytes = self.data(step);
        let mut r = Reader::new(&bytes);
        let value = r.get()?;
        let more = if r.is_empty() { false } else { r.bool()? };
        Ok((value, more))
    }
}
