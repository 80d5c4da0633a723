//! Changes of objects as one OSD sends them to another, which applies them to its copy.
//!
//! ```text
//! u8   version: 1
//! u32  objects; of each: hobject_t, u64 generation
//! u32  changes; of each: u8 kind, its fields; an object is its number in the list above (u32)
//! ```
//!
//! All integers are little-endian; a text or blob is a u32 length and its bytes. The data of writes follows apart, joined in
//! order, so that it travels from socket to device without a copy and aligned as it came. A write names its length, and the
//! checksum of its data if that is known: the client's own, from its frame.
//!
//! Only changes of client objects have a wire form. Each OSD keeps its own records of a PG, and makes, splits and removes
//! collections as the map tells it. The receiver says which objects may be changed: those of the PG that the message names.

use crate::{Change, ObjectId};
use bytes::Bytes;
use codec::{Decode, DecodeError, Features, Reader, Rope, Writer};
use thiserror::Error;
use wire::types::HObject;

const VERSION: u8 = 1;
/// The end of the largest object that can be named: offsets are signed in Ceph's clients.
const BYTES_MAX: u64 = i64::MAX as u64;
/// Bytes of the shortest change: its kind and an object.
const CHANGE_BYTES_MIN: usize = 5;
/// More than a request can ask for: it has at most 65,535 operations, and none makes more than four changes. Decoded, a change
/// takes many times the bytes of its wire form.
const CHANGES_MAX: usize = 1 << 18;

/// Changes, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireForm {
    pub changes: Bytes,
    /// Data of all writes, joined.
    pub data: Rope,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum WireFormError {
    #[error("changes of objects: {0}")]
    Decode(#[from] DecodeError),
    #[error("{0} is not an object of this PG")]
    Foreign(String),
    #[error("{0} bytes of data are left over")]
    Leftover(usize),
    #[error("{0} bytes of data are missing")]
    Missing(u64),
}

/// A change of a collection, or of a PG's own records, is no change of an object.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("only changes of client objects are sent to other OSDs")]
pub struct NotOfObjects;

mod kind {
    pub const TOUCH: u8 = 1;
    pub const WRITE: u8 = 2;
    /// A write with the checksum of its data.
    pub const WRITE_SUMMED: u8 = 3;
    pub const ZERO: u8 = 4;
    pub const TRUNCATE: u8 = 5;
    pub const REMOVE: u8 = 6;
    pub const CLONE: u8 = 7;
    pub const CLONE_RANGE: u8 = 8;
    pub const RENAME: u8 = 9;
    pub const SET_ATTR: u8 = 10;
    pub const REMOVE_ATTR: u8 = 11;
    pub const REMOVE_ATTRS: u8 = 12;
    pub const OMAP_SET: u8 = 13;
    pub const OMAP_REMOVE: u8 = 14;
    pub const OMAP_REMOVE_RANGE: u8 = 15;
    pub const OMAP_SET_HEADER: u8 = 16;
    pub const OMAP_CLEAR: u8 = 17;
    pub const ALLOC_HINT: u8 = 18;
}

impl WireForm {
    pub fn encode(changes: &[Change]) -> Result<WireForm, NotOfObjects> {
        let mut encoder =
            Encoder { objects: Vec::new(), body: Writer::new(Features::NONE), data: Rope::new() };
        for change in changes {
            encoder.put(change)?;
        }
        let Encoder { objects, body, data } = encoder;
        let mut w = Writer::with_capacity(Features::NONE, body.len() + 16 + 96 * objects.len());
        w.u8(VERSION);
        w.count(objects.len());
        for ObjectId { object, generation } in objects {
            w.put(object);
            w.u64(*generation);
        }
        w.count(changes.len());
        w.raw(body.as_slice());
        Ok(WireForm { changes: w.into_bytes(), data })
    }

    /// `may_change`: the object belongs to the PG that the message names.
    pub fn decode(&self, may_change: impl Fn(&HObject) -> bool) -> Result<Vec<Change>, WireFormError> {
        let mut r = Reader::new(&self.changes);
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid("version", version).into());
        }
        let count = bounded_count(&mut r, "objects", HObject::MIN_LEN + 8)?;
        let mut objects = Vec::with_capacity(count);
        for _ in 0..count {
            let id = ObjectId { object: r.get()?, generation: r.u64()? };
            if id.is_pg_meta() || !may_change(&id.object) {
                return Err(WireFormError::Foreign(format!("{id:?}")));
            }
            objects.push(id);
        }
        let count = bounded_count(&mut r, "changes", CHANGE_BYTES_MIN)?;
        let mut changes = Vec::with_capacity(count);
        let mut decoder = Decoder { form: self, objects, data_at: 0, r };
        for _ in 0..count {
            changes.push(decoder.change()?);
        }
        decoder.r.expect_end()?;
        match self.data.len() - decoder.data_at {
            0 => Ok(changes),
            left => Err(WireFormError::Leftover(left)),
        }
    }
}

fn bounded_count(r: &mut Reader<'_>, what: &'static str, len_min: usize) -> Result<usize, DecodeError> {
    match r.count(what, len_min)? {
        count if count <= CHANGES_MAX => Ok(count),
        count => Err(r.invalid(what, count as u64)),
    }
}

struct Encoder<'a> {
    objects: Vec<&'a ObjectId>,
    body: Writer,
    data: Rope,
}

impl<'a> Encoder<'a> {
    fn begin(&mut self, kind: u8, object: &'a ObjectId) -> Result<&mut Writer, NotOfObjects> {
        self.body.u8(kind);
        self.object(object)
    }

    /// A transaction names few objects, mostly one.
    fn object(&mut self, object: &'a ObjectId) -> Result<&mut Writer, NotOfObjects> {
        if object.is_pg_meta() {
            return Err(NotOfObjects);
        }
        let known = self.objects.iter().rposition(|known| *known == object);
        let number = known.unwrap_or_else(|| {
            self.objects.push(object);
            self.objects.len() - 1
        });
        self.body.u32(number as u32);
        Ok(&mut self.body)
    }

    fn put(&mut self, change: &'a Change) -> Result<(), NotOfObjects> {
        match change {
            Change::Touch { object } => drop(self.begin(kind::TOUCH, object)?),
            Change::Write { object, offset, data } => {
                let (kind, sum) = match data.sum() {
                    Some(sum) => (kind::WRITE_SUMMED, Some(sum)),
                    None => (kind::WRITE, None),
                };
                let w = self.begin(kind, object)?;
                w.u64(*offset);
                w.u64(data.len() as u64);
                sum.into_iter().for_each(|sum| w.u32(sum));
                self.data.append(data.clone());
            }
            Change::Zero { object, offset, len } => {
                let w = self.begin(kind::ZERO, object)?;
                w.u64(*offset);
                w.u64(*len);
            }
            Change::Truncate { object, size } => self.begin(kind::TRUNCATE, object)?.u64(*size),
            Change::Remove { object } => drop(self.begin(kind::REMOVE, object)?),
            Change::Clone { from, to } => {
                self.begin(kind::CLONE, from)?;
                self.object(to)?;
            }
            Change::CloneRange { from, to, from_offset, len, to_offset } => {
                self.begin(kind::CLONE_RANGE, from)?;
                let w = self.object(to)?;
                [from_offset, len, to_offset].into_iter().for_each(|number| w.u64(*number));
            }
            Change::Rename { from, to } => {
                self.begin(kind::RENAME, from)?;
                self.object(to)?;
            }
            Change::SetAttr { object, name, value } => {
                let w = self.begin(kind::SET_ATTR, object)?;
                w.blob(name);
                w.blob(value);
            }
            Change::RemoveAttr { object, name } => self.begin(kind::REMOVE_ATTR, object)?.blob(name),
            Change::RemoveAttrs { object } => drop(self.begin(kind::REMOVE_ATTRS, object)?),
            Change::OmapSet { object, entries } => {
                let w = self.begin(kind::OMAP_SET, object)?;
                w.count(entries.len());
                entries.iter().flat_map(|(key, value)| [key, value]).for_each(|blob| w.blob(blob));
            }
            Change::OmapRemove { object, keys } => {
                let w = self.begin(kind::OMAP_REMOVE, object)?;
                w.count(keys.len());
                keys.iter().for_each(|key| w.blob(key));
            }
            Change::OmapRemoveRange { object, from, to } => {
                let w = self.begin(kind::OMAP_REMOVE_RANGE, object)?;
                w.blob(from);
                w.blob(to);
            }
            Change::OmapSetHeader { object, header } => {
                self.begin(kind::OMAP_SET_HEADER, object)?.blob(header);
            }
            Change::OmapClear { object } => drop(self.begin(kind::OMAP_CLEAR, object)?),
            Change::AllocHint { object, object_size, write_size, flags } => {
                let w = self.begin(kind::ALLOC_HINT, object)?;
                w.u64(*object_size);
                w.u64(*write_size);
                w.u32(*flags);
            }
            Change::CreateCollection { .. }
            | Change::BeginArrival { .. }
            | Change::Arrive
            | Change::RemoveCollection
            | Change::SplitCollection { .. }
            | Change::MergeCollection { .. }
            | Change::LogAppend { .. }
            | Change::LogTrim { .. }
            | Change::LogRewind { .. }
            | Change::LogClear => return Err(NotOfObjects),
        }
        Ok(())
    }
}

struct Decoder<'a> {
    form: &'a WireForm,
    objects: Vec<ObjectId>,
    /// Data that earlier writes have taken.
    data_at: usize,
    r: Reader<'a>,
}

impl Decoder<'_> {
    fn object(&mut self) -> Result<ObjectId, DecodeError> {
        let number = self.r.u32()?;
        self.objects.get(number as usize).cloned().ok_or_else(|| self.r.invalid("object", number))
    }

    /// A slice of the message.
    fn blob(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.r.blob()?.len();
        let end = self.r.offset();
        Ok(self.form.changes.slice(end - len..end))
    }

    /// The first and the length of a range of bytes.
    fn range(&mut self) -> Result<(u64, u64), DecodeError> {
        let (offset, len) = (self.r.u64()?, self.r.u64()?);
        match offset.checked_add(len) {
            Some(end) if end <= BYTES_MAX => Ok((offset, len)),
            _ => Err(self.r.invalid("length", len)),
        }
    }

    fn data(&mut self, len: u64) -> Result<Rope, WireFormError> {
        let left = self.form.data.len() - self.data_at;
        let taken = usize::try_from(len).ok().filter(|len| *len <= left);
        let len = taken.ok_or_else(|| WireFormError::Missing(len - left as u64))?;
        let data = self.form.data.slice(self.data_at, len).expect("it is there");
        self.data_at += len;
        Ok(data)
    }

    fn change(&mut self) -> Result<Change, WireFormError> {
        let kind = self.r.u8()?;
        let object = self.object()?;
        Ok(match kind {
            kind::TOUCH => Change::Touch { object },
            kind::WRITE | kind::WRITE_SUMMED => {
                let (offset, len) = self.range()?;
                let sum = if kind == kind::WRITE_SUMMED { Some(self.r.u32()?) } else { None };
                Change::Write { object, offset, data: self.data(len)?.with_sum(sum) }
            }
            kind::ZERO => {
                let (offset, len) = self.range()?;
                Change::Zero { object, offset, len }
            }
            kind::TRUNCATE => match self.r.u64()? {
                size if size <= BYTES_MAX => Change::Truncate { object, size },
                size => return Err(self.r.invalid("size", size).into()),
            },
            kind::REMOVE => Change::Remove { object },
            kind::CLONE => Change::Clone { from: object, to: self.object()? },
            kind::CLONE_RANGE => {
                let to = self.object()?;
                let (from_offset, len) = self.range()?;
                let to_offset = self.r.u64()?;
                if to_offset.checked_add(len).is_none_or(|end| end > BYTES_MAX) {
                    return Err(self.r.invalid("offset", to_offset).into());
                }
                Change::CloneRange { from: object, to, from_offset, len, to_offset }
            }
            kind::RENAME => Change::Rename { from: object, to: self.object()? },
            kind::SET_ATTR => Change::SetAttr { object, name: self.blob()?, value: self.blob()? },
            kind::REMOVE_ATTR => Change::RemoveAttr { object, name: self.blob()? },
            kind::REMOVE_ATTRS => Change::RemoveAttrs { object },
            kind::OMAP_SET => {
                let count = self.r.count("omap entries", 8)?;
                let entries = (0..count).map(|_| Ok((self.blob()?, self.blob()?)));
                Change::OmapSet { object, entries: entries.collect::<Result<_, DecodeError>>()? }
            }
            kind::OMAP_REMOVE => {
                let count = self.r.count("omap keys", 4)?;
                let keys = (0..count).map(|_| self.blob());
                Change::OmapRemove { object, keys: keys.collect::<Result<_, DecodeError>>()? }
            }
            kind::OMAP_REMOVE_RANGE => {
                Change::OmapRemoveRange { object, from: self.blob()?, to: self.blob()? }
            }
            kind::OMAP_SET_HEADER => Change::OmapSetHeader { object, header: self.blob()? },
            kind::OMAP_CLEAR => Change::OmapClear { object },
            kind::ALLOC_HINT => Change::AllocHint {
                object,
                object_size: self.r.u64()?,
                write_size: self.r.u64()?,
                flags: self.r.u32()?,
            },
            unknown => return Err(self.r.invalid("kind of change", unknown).into()),
        })
    }
}

/// For the fuzz target: no bytes make the decoder panic, and what it accepts is encoded and decoded to the same. Two bytes say
/// how many of the others are the changes; data follows.
pub fn decode_hostile(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return };
    let len = usize::from(u16::from_le_bytes(*len));
    let (changes, data) = rest.split_at(len.min(rest.len()));
    let form =
        WireForm { changes: Bytes::copy_from_slice(changes), data: Bytes::copy_from_slice(data).into() };
    let Ok(changes) = form.decode(|_| true) else { return };
    let again = WireForm::encode(&changes).expect("a decoder makes changes of objects only");
    assert_eq!(again.decode(|_| true).as_ref(), Ok(&changes));
    assert_eq!(again.data.to_bytes(), form.data.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Collection;
    use proptest::prelude::*;
    use wire::types::{PgId, SnapId, SpgId};

    const POOL: i64 = 3;

    fn object(name: u8) -> ObjectId {
        HObject {
            pool: POOL,
            hash: u32::from(name),
            snap: SnapId::HEAD,
            name: format!("o{name}").as_str().into(),
            ..HObject::min()
        }
        .into()
    }

    fn any_object() -> impl Strategy<Value = ObjectId> {
        (0..4u8, prop_oneof![Just(ObjectId::NO_GENERATION), 0..9u64])
            .prop_map(|(name, generation)| ObjectId { generation, ..object(name) })
    }

    fn blob() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
    }

    fn rope() -> impl Strategy<Value = Rope> {
        (prop::collection::vec(blob(), 0..3), any::<Option<u32>>()).prop_map(|(pieces, sum)| {
            let mut rope = Rope::new();
            pieces.into_iter().for_each(|piece| rope.push(piece));
            rope.with_sum(sum)
        })
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let number = || 0..BYTES_MAX / 2;
        let object = any_object;
        prop_oneof![
            object().prop_map(|object| Change::Touch { object }),
            (object(), number(), rope()).prop_map(|(object, offset, data)| Change::Write {
                object,
                offset,
                data
            }),
            (object(), number(), number()).prop_map(|(object, offset, len)| Change::Zero {
                object,
                offset,
                len
            }),
            (object(), number()).prop_map(|(object, size)| Change::Truncate { object, size }),
            object().prop_map(|object| Change::Remove { object }),
            (object(), object()).prop_map(|(from, to)| Change::Clone { from, to }),
            (object(), object(), number(), number(), number()).prop_map(
                |(from, to, from_offset, len, to_offset)| {
                    Change::CloneRange { from, to, from_offset, len, to_offset }
                }
            ),
            (object(), object()).prop_map(|(from, to)| Change::Rename { from, to }),
            (object(), blob(), blob()).prop_map(|(object, name, value)| Change::SetAttr {
                object,
                name,
                value
            }),
            (object(), blob()).prop_map(|(object, name)| Change::RemoveAttr { object, name }),
            object().prop_map(|object| Change::RemoveAttrs { object }),
            (object(), prop::collection::vec((blob(), blob()), 0..4))
                .prop_map(|(object, entries)| Change::OmapSet { object, entries }),
            (object(), prop::collection::vec(blob(), 0..4))
                .prop_map(|(object, keys)| Change::OmapRemove { object, keys }),
            (object(), blob(), blob()).prop_map(|(object, from, to)| Change::OmapRemoveRange {
                object,
                from,
                to
            }),
            (object(), blob()).prop_map(|(object, header)| Change::OmapSetHeader { object, header }),
            object().prop_map(|object| Change::OmapClear { object }),
            (object(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
                |(object, object_size, write_size, flags)| {
                    Change::AllocHint { object, object_size, write_size, flags }
                }
            ),
        ]
    }

    fn sums(changes: &[Change]) -> Vec<Option<u32>> {
        let sum = |change: &Change| match change {
            Change::Write { data, .. } => Some(data.sum()),
            _ => None,
        };
        changes.iter().filter_map(sum).collect()
    }

    proptest! {
        #[test]
        fn changes_are_read_back(changes in prop::collection::vec(any_change(), 0..12)) {
            let form = WireForm::encode(&changes).unwrap();
            let read = form.decode(|object| object.pool == POOL).unwrap();
            prop_assert_eq!(sums(&read), sums(&changes));
            prop_assert_eq!(read, changes);
        }

        #[test]
        fn damaged_bytes_are_refused_or_read(
            changes in prop::collection::vec(any_change(), 0..6),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<Option<prop::sample::Index>>(),
        ) {
            let form = WireForm::encode(&changes).unwrap();
            let mut bytes = form.changes.to_vec();
            flips.into_iter().for_each(|(at, to)| {
                let at = at.index(bytes.len());
                bytes[at] = to;
            });
            cut.into_iter().for_each(|at| bytes.truncate(at.index(bytes.len())));
            let _ = WireForm { changes: bytes.into(), ..form }.decode(|_| true);
        }
    }

    #[test]
    fn object_is_named_once_and_data_is_not_copied() {
        let data = Bytes::from(vec![7; 8192]);
        let changes: Vec<Change> = (0..100)
            .map(|at| Change::Write { object: object(1), offset: at * 8192, data: data.clone().into() })
            .collect();
        let form = WireForm::encode(&changes).unwrap();
        assert!(form.changes.len() < 100 * 22 + 100, "{} bytes", form.changes.len());
        assert!(form.data.pieces().iter().all(|piece| piece.as_ptr() == data.as_ptr()));
    }

    #[test]
    fn objects_of_other_pgs_and_records_of_a_pg_are_refused() {
        let changes = [Change::Touch { object: object(1) }, Change::Remove { object: object(2) }];
        let form = WireForm::encode(&changes).unwrap();
        let refused = form.decode(|object| object.hash == 1).unwrap_err();
        assert!(matches!(refused, WireFormError::Foreign(_)), "{refused}");

        let pg = SpgId::from(PgId { pool: POOL, seed: 1 });
        let of_pg = Change::Touch { object: ObjectId::pg_meta(pg) };
        assert_eq!(WireForm::encode(&[of_pg]), Err(NotOfObjects));
        let split = Change::SplitCollection { split_bits: 1, seed: 0, into: Collection::Pg(pg) };
        assert_eq!(WireForm::encode(&[split]), Err(NotOfObjects));

        let mut bytes = form.changes.to_vec();
        let named = bytes.windows(2).position(|text| text == b"o1").unwrap();
        bytes.splice(named - 4..named + 2, 0u32.to_le_bytes());
        let length_of_object = 5 + 2;
        bytes[length_of_object] -= 2;
        let form = WireForm { changes: bytes.into(), ..form };
        let refused = form.decode(|_| true).unwrap_err();
        assert!(matches!(refused, WireFormError::Foreign(_)), "{refused}");
    }

    #[test]
    fn lengths_beyond_what_is_there_are_refused() {
        let write = |data: &'static [u8]| Change::Write {
            object: object(1),
            offset: 0,
            data: Bytes::from_static(data).into(),
        };
        let form = WireForm::encode(&[write(b"12345678")]).unwrap();
        let with_data = |data: &'static [u8]| {
            let form = WireForm { data: Bytes::from_static(data).into(), ..form.clone() };
            form.decode(|_| true).unwrap_err()
        };
        assert_eq!(with_data(b"1234567"), WireFormError::Missing(1));
        assert_eq!(with_data(b"123456789"), WireFormError::Leftover(1));

        let far = Change::Zero { object: object(1), offset: BYTES_MAX, len: 1 };
        let refused = WireForm::encode(&[far]).unwrap().decode(|_| true).unwrap_err();
        assert!(matches!(refused, WireFormError::Decode(DecodeError::Invalid { .. })), "{refused}");

        let many =
            [&[VERSION][..], &0u32.to_le_bytes(), &(1u32 << 19).to_le_bytes(), &vec![0; 5 << 19]].concat();
        let refused = WireForm { changes: many.into(), data: Rope::new() }.decode(|_| true).unwrap_err();
        let DecodeError::Invalid { what: "changes", value, .. } = (match refused {
            WireFormError::Decode(error) => error,
            other => panic!("{other}"),
        }) else {
            panic!("more changes than a request can make")
        };
        assert_eq!(value, 1 << 19);
    }
}
