//! The object map of an image: two bits for each of its objects, in one object's data.
//!
//! ```text
//! | u32 14, envelope: u64 count (18 B) | states, four a byte | u32 length | u32 header crc | u32 blocks | u32 crc ... |
//! ```
//! A byte holds the first of its four objects in its highest bits. There is a crc32c (from seed 0) for each block of
//! 4,096 bytes of states. A client gets the map without the part after the states.
//!
//! Maps reach 64 MB. No method looks at one object after another: states change a byte at a time by table, and an
//! update reads and writes only the blocks of its range.

use super::MethodResult;
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{DecodeError, Features, Reader, Writer};
use wire::frames::crc32c;

const HEADER_LEN: u64 = 18;
const BLOCK_LEN: usize = 4096;
const PER_BYTE: u64 = 4;
/// Maximum number of objects (`MAX_OBJECT_MAP_OBJECT_COUNT`).
const COUNT_MAX: u64 = 256_000_000;

const EXISTS: u8 = 1;
const EXISTS_CLEAN: u8 = 3;

/// States of an image's objects. Bits of the last byte behind `count` keep what they were.
#[derive(Clone, Default, PartialEq, Debug)]
struct ObjectMap {
    count: u64,
    states: Vec<u8>,
}

fn bytes_for(count: u64) -> u64 {
    count.div_ceil(PER_BYTE)
}

/// `ceph_crc32c(0, block)`: a crc is affine in its seed.
fn block_crc(block: &[u8]) -> u32 {
    crc32c(block) ^ crc32c(&[0; BLOCK_LEN][..block.len()])
}

fn crcs(states: &[u8]) -> Vec<u32> {
    states.chunks(BLOCK_LEN).map(block_crc).collect()
}

/// The state of four objects in one byte.
fn repeated(state: u8) -> u8 {
    (state & 3) * 0b0101_0101
}

fn encode_header(count: u64, w: &mut Writer) {
    w.blob_of(|w| w.envelope(1, 1, |w| w.u64(count)));
}

fn decode_header(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut header = Reader::new(r.blob()?);
    header.envelope("object map", 1, |r, _| r.u64())
}

impl ObjectMap {
    fn decode(r: &mut Reader<'_>) -> Result<ObjectMap, DecodeError> {
        let count = decode_header(r)?;
        if count > COUNT_MAX {
            return Err(r.invalid("objects of a map", count));
        }
        let header_crc = block_crc(&encoded_header(count)[4..]);
        let states = r.take("states", bytes_for(count) as usize)?.to_vec();
        let mut footer = Reader::new(r.blob()?);
        if !footer.is_empty() {
            let stored = footer.u32()?;
            if stored != header_crc {
                return Err(r.invalid("crc of the header", stored));
            }
            footer.u32()?;
            for crc in crcs(&states) {
                let stored = footer.u32()?;
                if stored != crc {
                    return Err(r.invalid("crc of a block", stored));
                }
            }
        }
        Ok(ObjectMap { count, states })
    }

    /// As the object's data.
    fn encode(&self) -> Bytes {
        let mut w = Writer::with_capacity(Features::NONE, self.states.len() + BLOCK_LEN);
        encode_header(self.count, &mut w);
        w.raw(&self.states);
        w.blob_of(|w| {
            w.u32(block_crc(&encoded_header(self.count)[4..]));
            w.put(&crcs(&self.states));
        });
        w.into_bytes()
    }

    /// As a client gets it.
    fn encode_without_crcs(&self) -> Bytes {
        let mut w = Writer::with_capacity(Features::NONE, self.states.len() + 32);
        encode_header(self.count, &mut w);
        w.raw(&self.states);
        w.u32(0);
        w.into_bytes()
    }

    fn get(&self, object: u64) -> u8 {
        (self.states[(object / PER_BYTE) as usize] >> shift(object)) & 3
    }

    /// Objects of whole bytes between `from` and `to`, and the single ones at both ends.
    fn change(&mut self, from: u64, to: u64, table: &[u8; 256], change: impl Fn(u8) -> u8) -> bool {
        let (whole_from, whole_to) =
            (from.next_multiple_of(PER_BYTE).min(to), (to / PER_BYTE * PER_BYTE).max(from));
        let mut changed = false;
        let ends = if whole_from <= whole_to {
            (from..whole_from).chain(whole_to..to)
        } else {
            (from..to).chain(0..0)
        };
        for object in ends {
            let (before, shift) = (self.get(object), shift(object));
            let after = change(before) & 3;
            changed |= before != after;
            let byte = &mut self.states[(object / PER_BYTE) as usize];
            *byte = (*byte & !(3 << shift)) | (after << shift);
        }
        if whole_from < whole_to {
            for byte in &mut self.states[(whole_from / PER_BYTE) as usize..(whole_to / PER_BYTE) as usize] {
                let after = table[usize::from(*byte)];
                changed |= *byte != after;
                *byte = after;
            }
        }
        changed
    }

    /// True if each object from `from` on has the state.
    fn is_all(&self, from: u64, state: u8) -> bool {
        let whole_from = from.next_multiple_of(PER_BYTE).min(self.count);
        let whole_to = (self.count / PER_BYTE * PER_BYTE).max(whole_from);
        let bytes = &self.states[(whole_from / PER_BYTE) as usize..(whole_to / PER_BYTE) as usize];
        (from..whole_from).chain(whole_to..self.count).all(|object| self.get(object) == state)
            && bytes.iter().all(|byte| *byte == repeated(state))
    }

    fn resize(&mut self, count: u64, state: u8) {
        let before = self.count;
        self.count = count;
        self.states.resize(bytes_for(count) as usize, repeated(state));
        if before < count {
            let set = |_| state & 3;
            self.change(before, count.min(before.next_multiple_of(PER_BYTE)), &[0; 256], set);
            // Bits behind the last object are zero in a map that grows.
            let tail = count..count.next_multiple_of(PER_BYTE);
            for object in tail {
                self.states[(object / PER_BYTE) as usize] &= !(3 << shift(object));
            }
        }
    }
}

fn shift(object: u64) -> u64 {
    (PER_BYTE - 1 - object % PER_BYTE) * 2
}

fn encoded_header(count: u64) -> Vec<u8> {
    let mut w = Writer::new(Features::NONE);
    encode_header(count, &mut w);
    w.into_vec()
}

/// `change`, applied to the four states of each possible byte.
fn byte_table(change: impl Fn(u8) -> u8) -> [u8; 256] {
    std::array::from_fn(|byte| {
        [6, 4, 2, 0].into_iter().fold(0, |out, shift| out | (change((byte as u8 >> shift) & 3) & 3) << shift)
    })
}

/// `ENOENT` for an empty object, `EINVAL` when it is damaged.
fn stored(call: &mut MethodCall<'_>) -> Result<ObjectMap, MethodStop> {
    call.must_exist()?;
    let size = call.context.size;
    if size == 0 {
        return Err(Errno::NOENT.into());
    }
    // The states take a byte for four objects, the crcs less than one.
    let bytes = call.data(0, size.min(COUNT_MAX))?.to_bytes();
    ObjectMap::decode(&mut Reader::new(&bytes)).map_err(|_| Errno::INVAL.into())
}

pub fn object_map_load(call: &mut MethodCall<'_>) -> MethodResult {
    let map = stored(call)?;
    call.reply(map.encode_without_crcs());
    Ok(0)
}

pub fn object_map_save(call: &mut MethodCall<'_>) -> MethodResult {
    let map = call.parse(ObjectMap::decode)?;
    call.write_full(map.encode())?;
    Ok(0)
}

/// `ESTALE` if an object that would be cut off is in another state than `state`.
pub fn object_map_resize(call: &mut MethodCall<'_>) -> MethodResult {
    let (count, state): (u64, u8) = call.argument()?;
    if count > COUNT_MAX {
        return Err(Errno::INVAL.into());
    }
    let mut map = match stored(call) {
        Err(MethodStop::Failed(Errno::NOENT)) => ObjectMap::default(),
        other => other?,
    };
    if count < map.count && !map.is_all(count, state) {
        return Err(Errno::STALE.into());
    }
    map.resize(count, state);
    call.write_full(map.encode())?;
    Ok(0)
}

/// Sets the state of a range of objects, of those in one state only if that is given. EXISTS there includes
/// EXISTS_CLEAN.
pub fn object_map_update(call: &mut MethodCall<'_>) -> MethodResult {
    let (from, to, state, current) =
        call.parse(|r| Ok((r.u64()?, r.u64()?, r.u8()?, r.get::<Option<u8>>()?)))?;
    call.must_exist()?;
    let damaged = MethodStop::Failed(Errno::INVAL);
    let header = call.data(0, HEADER_LEN)?.to_bytes();
    let count = decode_header(&mut Reader::new(&header)).map_err(|_| damaged)?;
    if from >= to || to > count || count > COUNT_MAX {
        return Err(Errno::RANGE.into());
    }
    let len = bytes_for(count);
    let block = BLOCK_LEN as u64;
    let first = from / PER_BYTE / block;
    let last = (to - 1) / PER_BYTE / block;
    let start = first * block;
    let end = ((last + 1) * block).min(len);
    // Behind the states: length, crc of the header, number of blocks.
    let crcs_at = HEADER_LEN + len + 12 + first * 4;
    let stored_crcs = call.data(crcs_at, (last - first + 1) * 4)?.to_bytes();
    let states = call.data(HEADER_LEN + start, end - start)?.to_bytes().to_vec();
    let encoded = |crcs: Vec<u32>| crcs.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
    if states.len() as u64 != end - start || stored_crcs != encoded(crcs(&states)) {
        return Err(damaged);
    }
    let base = start * PER_BYTE;
    let mut piece = ObjectMap { count: (states.len() as u64) * PER_BYTE, states };
    let change = |before: u8| {
        let applies = match current {
            None => true,
            Some(EXISTS) => before == EXISTS || before == EXISTS_CLEAN,
            Some(current) => before == current,
        };
        if applies { state } else { before }
    };
    if piece.change(from - base, to - base, &byte_table(change), change) {
        let crcs = encoded(crcs(&piece.states));
        call.write(HEADER_LEN + start, piece.states.into())?;
        call.write(crcs_at, crcs.into())?;
    }
    Ok(0)
}

/// After a snapshot: what exists is clean.
pub fn object_map_snap_add(call: &mut MethodCall<'_>) -> MethodResult {
    let mut map = stored(call)?;
    let change = |before| if before == EXISTS { EXISTS_CLEAN } else { before };
    if map.change(0, map.count, &byte_table(change), change) {
        call.write_full(map.encode())?;
    }
    Ok(0)
}

/// After a snapshot is removed: what was clean since, and existed in it or was not part of it, exists.
pub fn object_map_snap_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let mut snapshot = call.parse(ObjectMap::decode)?;
    let mut map = stored(call)?;
    snapshot.resize(map.count.max(snapshot.count), EXISTS);
    let mut changed = false;
    for (at, (byte, other)) in map.states.iter_mut().zip(&snapshot.states).enumerate() {
        let in_map = (map.count - at as u64 * PER_BYTE).min(PER_BYTE);
        // The low bit of each state that counts.
        let low = repeated(1) & !(u8::MAX.checked_shr(2 * in_map as u32).unwrap_or(0));
        let is_clean = *byte & (*byte >> 1) & low;
        let existed = other & !(other >> 1) & low;
        let exists = is_clean & existed;
        changed |= exists != 0;
        *byte &= !(exists << 1);
    }
    if changed {
        call.write_full(map.encode())?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::Object;

    fn map_of(states: &[u8]) -> ObjectMap {
        let mut map = ObjectMap::default();
        map.resize(states.len() as u64, 0);
        for (at, state) in states.iter().enumerate() {
            map.states[at / 4] |= state << shift(at as u64);
        }
        map
    }

    fn holding(states: &[u8]) -> Object {
        let mut o = Object::existing();
        o.put_data(&map_of(states).encode());
        o
    }

    fn states(o: &mut Object) -> Vec<u8> {
        let bytes = o.call_bare("rbd", "object_map_load").unwrap();
        let map = ObjectMap::decode(&mut Reader::new(&bytes)).unwrap();
        (0..map.count).map(|at| map.get(at)).collect()
    }

    fn update(o: &mut Object, from: u64, to: u64, state: u8, current: Option<u8>) -> Result<Bytes, Errno> {
        o.call("rbd", "object_map_update", &((from, to), state, current))
    }

    #[test]
    fn form_is_that_of_stock() {
        // A map of five objects in states 0, 1, 2, 3 and 1.
        let bytes = map_of(&[0, 1, 2, 3, 1]).encode();
        let crc = |bytes: &[u8]| {
            let step = |crc: u32, bit: u32| (crc >> 1) ^ if (crc ^ bit) & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bytes.iter().fold(0, |crc, byte| (0..8).fold(crc, |crc, i| step(crc, u32::from(byte >> i))))
        };
        let header = [1, 1, 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let mut want = vec![14, 0, 0, 0];
        want.extend(header);
        want.extend([0b00_01_10_11, 0b01_00_00_00]);
        want.extend([12, 0, 0, 0]);
        want.extend(crc(&header).to_le_bytes());
        want.extend([1, 0, 0, 0]);
        want.extend(crc(&[0b00_01_10_11, 0b01_00_00_00]).to_le_bytes());
        assert_eq!(bytes, want);
    }

    #[test]
    fn size_changes_only_where_cut_objects_are_gone() {
        let mut o = Object::missing();
        o.call("rbd", "object_map_resize", &(5u64, 1u8)).unwrap();
        assert_eq!(states(&mut o), [1; 5]);
        o.call("rbd", "object_map_resize", &(9u64, 0u8)).unwrap();
        assert_eq!(states(&mut o), [1, 1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(o.call("rbd", "object_map_resize", &(4u64, 0u8)), Err(Errno::STALE));
        o.call("rbd", "object_map_resize", &(5u64, 0u8)).unwrap();
        o.call("rbd", "object_map_resize", &(2u64, 1u8)).unwrap();
        assert_eq!(states(&mut o), [1, 1]);
        assert_eq!(o.call("rbd", "object_map_resize", &(COUNT_MAX + 1, 1u8)), Err(Errno::INVAL));
    }

    #[test]
    fn saved_map_has_crcs_and_damaged_one_is_refused() {
        let mut o = Object::missing();
        let map = map_of(&[0, 1, 2, 3, 1]);
        assert_eq!(o.call_raw("rbd", "object_map_save", &map.encode_without_crcs()).result, 0);
        assert_eq!(o.data(), map.encode());
        assert_eq!(o.call_raw("rbd", "object_map_save", b"no map").result, Errno::INVAL.result());
    }

    #[test]
    fn update_changes_range_and_keeps_its_crcs() {
        let mut o = holding(&vec![0; 40_000]);
        update(&mut o, 16_383, 16_385, 1, None).unwrap();
        update(&mut o, 39_990, 40_000, 3, None).unwrap();
        let mut want = vec![0; 40_000];
        want[16_383..16_385].fill(1);
        want[39_990..].fill(3);
        assert_eq!(states(&mut o), want);
        update(&mut o, 0, 40_000, 2, Some(EXISTS)).unwrap();
        want.iter_mut().filter(|s| **s == 1 || **s == 3).for_each(|s| *s = 2);
        assert_eq!(states(&mut o), want);
        assert_eq!(update(&mut o, 5, 5, 1, None), Err(Errno::RANGE));
        assert_eq!(update(&mut o, 5, 40_001, 1, None), Err(Errno::RANGE));
        assert_eq!(update(&mut Object::missing(), 0, 1, 1, None), Err(Errno::NOENT));
    }

    #[test]
    fn damaged_map_is_refused() {
        let mut o = holding(&[1; 100]);
        let mut bytes = o.data().to_vec();
        bytes[20] ^= 1;
        o.put_data(&bytes);
        assert_eq!(o.call_bare("rbd", "object_map_load"), Err(Errno::INVAL));
        assert_eq!(update(&mut o, 0, 1, 0, None), Err(Errno::INVAL));
        o.put_data(b"");
        assert_eq!(o.call_bare("rbd", "object_map_load"), Err(Errno::NOENT));
    }

    #[test]
    fn snapshot_cleans_map_and_its_removal_soils_it() {
        let mut o = holding(&[0, 1, 2, 3, 1]);
        let before = map_of(&[0, 1, 2, 3, 1]).encode_without_crcs();
        o.call_bare("rbd", "object_map_snap_add").unwrap();
        assert_eq!(states(&mut o), [0, 3, 2, 3, 3]);
        let result = o.call_raw("rbd", "object_map_snap_remove", &before).result;
        assert_eq!((result, states(&mut o)), (0, vec![0, 1, 2, 3, 1]));
        // Objects that the snapshot did not have.
        let short = map_of(&[0]).encode_without_crcs();
        assert_eq!(o.call_raw("rbd", "object_map_snap_remove", &short).result, 0);
        assert_eq!(states(&mut o), [0, 1, 2, 1, 1]);
    }

    #[test]
    fn byte_table_agrees_with_single_states() {
        let change = |state| [2, 0, 3, 1][usize::from(state & 3)];
        let mut single = map_of(&(0..200).map(|i| (i * 7 % 4) as u8).collect::<Vec<_>>());
        let mut whole = single.clone();
        for object in 3..197 {
            single.change(object, object + 1, &[0; 256], change);
        }
        whole.change(3, 197, &byte_table(change), change);
        assert_eq!(single, whole);
    }
}
