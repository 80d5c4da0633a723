//! Parts of a multipart upload.

use crate::types::{Name, Opaque, UTime};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// Layout of an object's data (`RGWObjManifest`), kept as it came. Read of it is what names the part's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub encoded: Opaque,
    /// Start of the names of the data objects.
    pub prefix: Name,
    /// Names no data.
    pub is_empty: bool,
}

impl Encode for Manifest {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.encoded);
    }
}

impl Decode for Manifest {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let encoded: Opaque = r.get()?;
        let (prefix, is_empty) = Reader::new(&encoded.0).envelope("RGWObjManifest", 8, |r, version| {
            // The object's size.
            r.u64()?;
            let parts: BTreeMap<u64, Opaque> = r.get()?;
            if version < 3 {
                return Ok((Name::EMPTY, parts.is_empty()));
            }
            let is_explicit = r.bool()?;
            // The head object, its size and its limit.
            r.get::<Opaque>()?;
            r.u64()?;
            r.u64()?;
            let prefix = r.get()?;
            let rules: BTreeMap<u64, Opaque> = r.get()?;
            Ok((prefix, if is_explicit { parts.is_empty() } else { rules.is_empty() }))
        })?;
        Ok(Manifest { encoded, prefix, is_empty })
    }
}

/// A part of an upload (`RGWUploadPartInfo`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadPart {
    pub num: u32,
    pub size: u64,
    pub etag: Name,
    pub modified: UTime,
    pub manifest: Manifest,
    /// `RGWCompressionInfo`.
    pub compression: Opaque,
    pub accounted_size: u64,
    /// Prefixes of earlier uploads of the part, whose data is still to be removed.
    pub past_prefixes: BTreeSet<Name>,
    /// `rgw::cksum::Cksum`.
    pub checksum: Option<Opaque>,
}

/// `RGWCompressionInfo` of data that is not compressed.
fn no_compression() -> Opaque {
    let mut w = Writer::new(Features::NONE);
    w.envelope(2, 1, |w| {
        w.put("none");
        w.u64(0);
        w.count(0);
        w.bool(false);
    });
    Opaque(w.into_bytes())
}

impl Encode for UploadPart {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, 2, |w| {
            w.u32(self.num);
            w.u64(self.size);
            w.put(&self.etag);
            w.put(&self.modified);
            w.put(&self.manifest);
            w.put(&self.compression);
            w.u64(self.accounted_size);
            w.put(&self.past_prefixes);
            w.put(&self.checksum);
        });
    }
}

impl Decode for UploadPart {
    const MIN_LEN: usize = 6;
    /// A part without a manifest (version 2, before 2013) is refused.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("RGWUploadPartInfo", 6, |r, version| {
            if version < 3 {
                return Err(r.invalid("version of RGWUploadPartInfo", version));
            }
            let num = r.u32()?;
            let size = r.u64()?;
            Ok(UploadPart {
                num,
                size,
                etag: r.get()?,
                modified: r.get()?,
                manifest: r.get()?,
                compression: codec::field(r, "cs_info", version >= 4, no_compression)?,
                accounted_size: codec::field(r, "accounted_size", version >= 4, || size)?,
                past_prefixes: codec::field(r, "past_prefixes", version >= 5, BTreeSet::new)?,
                checksum: codec::field(r, "cksum", version >= 6, || None)?,
            })
        })
    }
}

/// `cls_rgw_mp_upload_part_info_update_op`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UploadPartOp {
    pub part_key: Name,
    pub part: UploadPart,
}

impl UploadPart {
    /// A part whose data has names with this prefix.
    pub fn with_prefix(prefix: &str) -> UploadPart {
        let mut w = Writer::new(Features::NONE);
        let empty_object = Opaque(Bytes::from_static(&[6, 6, 0, 0, 0, 0]));
        let rule = Opaque(Bytes::from_static(&[2, 1, 0, 0, 0, 0]));
        w.envelope(8, 6, |w| {
            w.u64(0);
            w.put(&BTreeMap::<u64, Opaque>::new());
            w.bool(false);
            w.put(&empty_object);
            w.u64(0);
            w.u64(0);
            w.put(prefix);
            w.put(&BTreeMap::from([(0u64, rule)]));
        });
        let manifest = Manifest { encoded: Opaque(w.into_bytes()), prefix: prefix.into(), is_empty: false };
        UploadPart {
            num: 1,
            size: 0,
            etag: Name::EMPTY,
            modified: UTime::ZERO,
            manifest,
            compression: no_compression(),
            accounted_size: 0,
            past_prefixes: BTreeSet::new(),
            checksum: None,
        }
    }
}
