//! An object's record: size, attributes, and the numbers of its pages and its omap.

use crate::varint;
use bytes::Bytes;
use codec::{DecodeError, Reader};

/// 1: the first. 2: a lost object. 3: with hints, and a flag for a lost object. 4: with layers. A record is written in the
/// lowest version that can hold it.
const VERSION: u8 = 1;
const VERSION_LOST: u8 = 2;
const VERSION_HINTS: u8 = 3;
const VERSION_LAYERS: u8 = 4;
const HAS_OMAP: u8 = 1;
const HAS_ID: u8 = 2;
const IS_LOST: u8 = 4;
const DATA_IS_LAYERED: u8 = 8;
const OMAP_IS_LAYERED: u8 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Number of its pages. Never reused: a clone, or an object created after a removal, has another.
    pub number: u64,
    /// Its number may have a record of a [`super::layer::Layer`].
    pub is_layered: bool,
    pub size: u64,
    /// Stored bytes, the sum over its pages.
    pub data_bytes: u64,
    pub omap: Option<OmapState>,
    /// Sorted by name.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// The key of a PG meta object, as in area 0: its index key does not contain it.
    pub own_key: Option<Bytes>,
    /// Its record or omap was unreadable when a write needed it. The record has only later changes, and every read fails
    /// until the object is removed.
    pub is_lost: bool,
    /// Flags of [`store::hint`] that affect compression.
    pub hints: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmapState {
    /// Number of its keys. Never reused: after a clear the omap has another.
    pub number: u64,
    /// Its number may have a record of a [`super::layer::Layer`].
    pub is_layered: bool,
    /// This and the next fields are 0 for a PG meta object: counting would read the old value before each change, and every
    /// write changes that object.
    pub keys: u64,
    /// Bytes of keys, values and header.
    pub bytes: u64,
    pub header_len: u64,
}

impl OmapState {
    pub fn empty(number: u64) -> OmapState {
        OmapState { number, is_layered: false, keys: 0, bytes: 0, header_len: 0 }
    }
}

impl ObjectRecord {
    /// True if keys and bytes of the omap are counted; see [`OmapState`].
    pub fn omap_is_counted(&self) -> bool {
        self.own_key.is_none()
    }

    pub fn attr(&self, name: &[u8]) -> Option<&Bytes> {
        self.attrs.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|i| &self.attrs[i].1)
    }

    pub fn set_attr(&mut self, name: Bytes, value: Bytes) {
        match self.attrs.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(i) => self.attrs[i].1 = value,
            Err(i) => self.attrs.insert(i, (name, value)),
        }
    }

    pub fn remove_attr(&mut self, name: &[u8]) {
        if let Ok(i) = self.attrs.binary_search_by(|(n, _)| (**n).cmp(name)) {
            self.attrs.remove(i);
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let attrs: usize = self.attrs.iter().map(|(n, v)| n.len() + v.len() + 6).sum();
        let mut out = Vec::with_capacity(48 + attrs + self.own_key.as_ref().map_or(0, |k| k.len() + 2));
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let layers = bit(self.is_layered, DATA_IS_LAYERED)
            | bit(self.omap.is_some_and(|omap| omap.is_layered), OMAP_IS_LAYERED);
        let has_hints = self.hints != 0 || layers != 0;
        out.push(match self.is_lost {
            _ if layers != 0 => VERSION_LAYERS,
            _ if has_hints => VERSION_HINTS,
            true => VERSION_LOST,
            false => VERSION,
        });
        let flags = bit(self.omap.is_some(), HAS_OMAP) | bit(self.own_key.is_some(), HAS_ID);
        out.push(flags | layers | bit(has_hints && self.is_lost, IS_LOST));
        if has_hints {
            varint::put(&mut out, self.hints as u64);
        }
        for number in [self.number, self.size, self.data_bytes] {
            varint::put(&mut out, number);
        }
        if let Some(omap) = &self.omap {
            for number in [omap.number, omap.keys, omap.bytes, omap.header_len] {
                varint::put(&mut out, number);
            }
        }
        if let Some(key) = &self.own_key {
            varint::put_bytes(&mut out, key);
        }
        varint::put(&mut out, self.attrs.len() as u64);
        for (name, value) in &self.attrs {
            varint::put_bytes(&mut out, name);
            varint::put_bytes(&mut out, value);
        }
        out
    }

    /// Decodes a record; attributes share the memory of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<ObjectRecord, DecodeError> {
        let mut r = Reader::new(bytes);
        let (version, flags) = (r.u8()?, r.u8()?);
        if !(VERSION..=VERSION_LAYERS).contains(&version) {
            return Err(DecodeError::Incompatible {
                what: "object record",
                compat: version,
                supported: VERSION_LAYERS,
            });
        }
        let hints = if version >= VERSION_HINTS { varint::take(&mut r)? as u32 } else { 0 };
        let mut out = ObjectRecord {
            hints,
            number: varint::take(&mut r)?,
            size: varint::take(&mut r)?,
            data_bytes: varint::take(&mut r)?,
            is_layered: version >= VERSION_LAYERS && flags & DATA_IS_LAYERED != 0,
            is_lost: version == VERSION_LOST || version >= VERSION_HINTS && flags & IS_LOST != 0,
            ..ObjectRecord::default()
        };
        if flags & HAS_OMAP != 0 {
            out.omap = Some(OmapState {
                number: varint::take(&mut r)?,
                is_layered: version >= VERSION_LAYERS && flags & OMAP_IS_LAYERED != 0,
                keys: varint::take(&mut r)?,
                bytes: varint::take(&mut r)?,
                header_len: varint::take(&mut r)?,
            });
        }
        if flags & HAS_ID != 0 {
            out.own_key = Some(bytes.slice_ref(varint::take_bytes(&mut r, "own key")?));
        }
        let count = varint::take(&mut r)?;
        out.attrs.reserve(count.min(8) as usize);
        for _ in 0..count {
            let name = bytes.slice_ref(varint::take_bytes(&mut r, "attribute")?);
            let value = bytes.slice_ref(varint::take_bytes(&mut r, "attribute's value")?);
            out.attrs.push((name, value));
        }
        r.expect_end()?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_comes_back() {
        let mut record = ObjectRecord { number: 300, size: 1 << 40, data_bytes: 7, ..Default::default() };
        assert_eq!(ObjectRecord::decode(&record.encode().into()), Ok(record.clone()));
        record.omap = Some(OmapState { keys: 1, bytes: 900, ..OmapState::empty(5) });
        record.own_key = Some("key".into());
        record.set_attr("b".into(), "1".into());
        record.set_attr("a".into(), Bytes::new());
        record.set_attr(Bytes::from_static(b"\xff\0\n"), Bytes::new());
        assert_eq!(ObjectRecord::decode(&record.encode().into()), Ok(record.clone()));
        record.hints = store::hint::COMPRESSIBLE;
        assert_eq!(ObjectRecord::decode(&record.encode().into()), Ok(record.clone()));
        record.is_lost = true;
        assert_eq!(ObjectRecord::decode(&record.encode().into()), Ok(record.clone()));
        (record.is_layered, record.hints) = (true, 0);
        assert_eq!(ObjectRecord::decode(&record.encode().into()), Ok(record.clone()));
        record.omap.as_mut().expect("it was set").is_layered = true;
        assert_eq!(ObjectRecord::decode(&record.encode().into()), Ok(record));
    }

    proptest! {
        #[test]
        fn anything_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = VERSION + *first % 4;
            }
            let _ = ObjectRecord::decode(&bytes.into());
        }
    }
}
