//! One step of a copy between OSDs: the answer of `copy-get`, and the place where the next step begins.

use super::{ReqId, SnapId, UTime};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Rope, Writer};
use std::collections::BTreeMap;

/// The place that a copy has reached (`object_copy_cursor_t`): attributes, then bytes, then the omap.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CopyCursor {
    pub attr_complete: bool,
    pub data_offset: u64,
    pub data_complete: bool,
    /// The last key that was copied; empty: none.
    pub omap_offset: Bytes,
    pub omap_complete: bool,
}

impl CopyCursor {
    pub fn is_complete(&self) -> bool {
        self.attr_complete && self.data_complete && self.omap_complete
    }
}

/// Bits of [`CopyData::flags`].
pub mod copy_flags {
    pub const DATA_DIGEST: u32 = 1;
    pub const OMAP_DIGEST: u32 = 2;
}

/// A part of an object, with the object's metadata (`object_copy_data_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyData {
    pub size: u64,
    pub mtime: UTime,
    /// The client's attributes, without the prefix under which they are stored.
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub data: Rope,
    /// `map<string, blob>`, or nothing where the part has no entries.
    pub omap: Bytes,
    /// Where the next part begins.
    pub cursor: CopyCursor,
    pub omap_header: Bytes,
    /// Of a clone: its snapshots, descending.
    pub snaps: Vec<SnapId>,
    /// Of a head: the newest snapshot that a write has known.
    pub snap_seq: SnapId,
    /// [`copy_flags`].
    pub flags: u32,
    pub data_digest: u32,
    pub omap_digest: u32,
    /// The last requests on the object with the user versions that they made, which cache tiers keep.
    pub reqids: Vec<(ReqId, u64)>,
    pub truncate_seq: u64,
    pub truncate_size: u64,
    /// Results of those requests, by their place in `reqids`.
    pub reqid_results: BTreeMap<u32, i32>,
}

const VERSION: u8 = 8;
const COMPAT: u8 = 5;

impl CopyData {
    /// The encoded part, with the object's bytes where they are.
    pub fn to_rope(&self, features: Features) -> Rope {
        let (mut before, mut after) = (Writer::new(features), Writer::new(features));
        before.u64(self.size);
        before.put(&self.mtime);
        before.put(&self.attrs);
        before.count(self.data.len());
        after.put(&self.omap);
        after.put(&self.cursor);
        after.put(&self.omap_header);
        after.put(&self.snaps);
        after.put(&self.snap_seq);
        after.u32(self.flags);
        after.u32(self.data_digest);
        after.u32(self.omap_digest);
        after.put(&self.reqids);
        after.u64(self.truncate_seq);
        after.u64(self.truncate_size);
        after.put(&self.reqid_results);
        let mut head = Writer::with_capacity(features, before.len() + 6);
        head.u8(VERSION);
        head.u8(COMPAT);
        head.count(before.len() + self.data.len() + after.len());
        head.raw(before.as_slice());
        let mut out = Rope::from(head.into_vec());
        out.append(self.data.clone());
        out.push(after.into_bytes());
        out
    }

    /// Decodes a part that fills `bytes`. The object's bytes stay where they are.
    pub fn of(bytes: &Bytes) -> Result<CopyData, DecodeError> {
        let mut r = Reader::new(bytes);
        let part = CopyData::read(&mut r, |data| bytes.slice_ref(data))?;
        r.expect_end()?;
        Ok(part)
    }

    fn read(r: &mut Reader<'_>, keep: impl Fn(&[u8]) -> Bytes) -> Result<CopyData, DecodeError> {
        r.envelope("object_copy_data_t", VERSION, |r, v| {
            if v < COMPAT {
                return Err(r.invalid("object_copy_data_t of an old release", v));
            }
            let mut part = CopyData {
                size: r.u64()?,
                mtime: r.get()?,
                attrs: r.get()?,
                data: keep(r.blob()?).into(),
                omap: r.get()?,
                cursor: r.get()?,
                omap_header: r.get()?,
                snaps: r.get()?,
                snap_seq: r.get()?,
                ..CopyData::default()
            };
            (part.flags, part.data_digest, part.omap_digest) = (r.u32()?, r.u32()?, r.u32()?);
            if v >= 6 {
                part.reqids = r.get()?;
            }
            if v >= 7 {
                (part.truncate_seq, part.truncate_size) = (r.u64()?, r.u64()?);
            }
            if v >= 8 {
                part.reqid_results = r.get()?;
            }
            Ok(part)
        })
    }
}

impl Encode for CopyData {
    fn encode(&self, w: &mut Writer) {
        self.to_rope(w.features()).pieces().iter().for_each(|piece| w.raw(piece));
    }
}

impl Decode for CopyData {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        CopyData::read(r, Bytes::copy_from_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_decodes_as_it_was_encoded_and_shares_its_bytes() {
        let part = CopyData {
            size: 9,
            attrs: [(Bytes::from("a"), Bytes::from("1"))].into(),
            data: Rope::from(Bytes::from_static(b"contents")),
            cursor: CopyCursor { attr_complete: true, data_offset: 8, ..CopyCursor::default() },
            snap_seq: SnapId(3),
            truncate_seq: 4,
            ..CopyData::default()
        };
        let bytes = part.to_rope(Features::ALL).to_bytes();
        assert_eq!(bytes, part.to_vec(Features::ALL));
        let back = CopyData::of(&bytes).unwrap();
        assert_eq!(back, part);
        assert!(bytes.as_ptr_range().contains(&back.data.pieces()[0].as_ptr()), "a slice of the reply");
        assert!(CopyData::of(&bytes.slice(..bytes.len() - 1)).is_err());
        assert!(!back.cursor.is_complete());
    }
}
