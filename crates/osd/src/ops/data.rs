//! Operations on an object's bytes.

use super::Limits;
use super::execution::{Execution, kib};
use super::handler::{Handler, OpOutcome, OpOutput, OpStop, done};
use super::reads::{DataRead, ExtentsRead};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Features, Reader, Rope, Writer};
use store::Change;
use wire::types::{ObjectFlags, ObjectInfo, OpCode, OpFlags, OsdOp, osd_op::Extent};

/// A comparison that fails at byte `n` results in `-(MAX_ERRNO + n)`.
const MAX_ERRNO: i32 = 4095;

/// Length 0 means all there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read(Extent);

impl Handler for Read {
    type Reads = DataRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Read(extent_of(op)))
    }

    fn reads(&self, _: &Limits) -> DataRead {
        DataRead { offset: self.0.offset, len: whole_if_zero(self.0.len) }
    }

    fn execute(&self, list: &mut Execution<'_>, data: Rope) -> OpOutcome {
        let extent = Extent { len: if self.0.len == 0 { list.info.size } else { self.0.len }, ..self.0 };
        list.data_offset.get_or_insert(extent.offset);
        let (_, len) = list.readable(extent);
        let data = trimmed(data, len);
        list.count_read(data.len());
        Ok(data.into())
    }
}

/// A map of extents, then the bytes of those extents joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseRead(Extent);

impl Handler for SparseRead {
    type Reads = (ExtentsRead, DataRead);

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(SparseRead(extent_of(op)))
    }

    fn reads(&self, _: &Limits) -> Self::Reads {
        let Extent { offset, len, .. } = self.0;
        (ExtentsRead { offset, len }, DataRead { offset, len })
    }

    fn execute(&self, list: &mut Execution<'_>, (extents, data): (Vec<(u64, u64)>, Rope)) -> OpOutcome {
        let (offset, len) = list.readable(self.0);
        let extents = clipped(extents, offset, len);
        let total: u64 = extents.iter().map(|(_, len)| len).sum();

        let mut w = Writer::new(Features::NONE);
        encode_extents(&mut w, &extents);
        w.count(total as usize);
        let mut out = Rope::from(w.into_vec());
        for (start, len) in extents {
            let piece = data.slice((start - self.0.offset) as usize, len as usize);
            out.append(piece.expect("an extent lies within the data read from the same moment"));
        }
        list.count_read(total as usize);
        Ok(out.into())
    }
}

/// The stored parts of the range, without the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapExtents(Extent);

impl Handler for MapExtents {
    type Reads = ExtentsRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(MapExtents(extent_of(op)))
    }

    fn reads(&self, _: &Limits) -> ExtentsRead {
        ExtentsRead { offset: self.0.offset, len: self.0.len }
    }

    fn execute(&self, list: &mut Execution<'_>, extents: Vec<(u64, u64)>) -> OpOutcome {
        let mut w = Writer::new(Features::NONE);
        encode_extents(&mut w, &clipped(extents, self.0.offset, self.0.len));
        list.count_read(w.len());
        Ok(Rope::from(w.into_vec()).into())
    }
}

/// Bytes beyond the object's end compare as zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareExtent {
    extent: Extent,
    expected: Bytes,
}

impl Handler for CompareExtent {
    type Reads = DataRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(CompareExtent { extent: extent_of(op), expected: op.input.clone() })
    }

    fn reads(&self, _: &Limits) -> DataRead {
        DataRead { offset: self.extent.offset, len: whole_if_zero(self.extent.len) }
    }

    fn execute(&self, list: &mut Execution<'_>, data: Rope) -> OpOutcome {
        let (_, len) = list.readable(self.extent);
        let data = trimmed(data, len);
        list.count_read(data.len());
        let stored = data.pieces().iter().flat_map(|p| p.iter().copied()).chain(std::iter::repeat(0));
        match self.expected.iter().copied().zip(stored).position(|(want, have)| want != have) {
            None => done(),
            Some(at) => Err(OpStop::Failed(OpOutput { result: -MAX_ERRNO - at as i32, output: Rope::new() })),
        }
    }
}

/// Size and modification time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat;

impl Handler for Stat {
    type Reads = ();

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(Stat)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.stats.reads += 1;
        list.must_exist()?;
        let mut w = Writer::with_capacity(Features::NONE, 16);
        w.u64(list.info.size);
        w.put(&list.info.mtime);
        Ok(Rope::from(w.into_vec()).into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    extent: Extent,
    data: Rope,
}

impl Handler for Write {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let extent = extent_of(op);
        exact_payload(extent.len, &op.input)?;
        Ok(Write { extent, data: payload(op) })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.write(self.extent, self.data.clone())
    }
}

/// Replaces all bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFull(Rope);

impl Handler for WriteFull {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        exact_payload(extent_of(op).len, &op.input)?;
        Ok(WriteFull(payload(op)))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.write_full(self.0.clone())
    }
}

/// Writes a pattern again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteSame {
    offset: u64,
    len: u64,
    pattern: Bytes,
}

impl Handler for WriteSame {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let p = op.params.write_same();
        if p.len != 0 {
            exact_payload(p.data_len, &op.input)?;
            if p.data_len == 0 || !p.len.is_multiple_of(p.data_len) {
                return Err(Errno::INVAL);
            }
        }
        Ok(WriteSame { offset: p.offset, len: p.len, pattern: op.input.clone() })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let &WriteSame { offset, len, ref pattern } = self;
        if len == 0 {
            return done();
        }
        // Before memory is taken for the repetitions.
        list.within_limits(offset, len)?;
        let mut data = Vec::with_capacity(len as usize);
        while (data.len() as u64) < len {
            data.extend_from_slice(pattern);
        }
        list.write(Extent { offset, len, truncate_size: 0, truncate_seq: 0 }, data.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append(Rope);

impl Handler for Append {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        exact_payload(extent_of(op).len, &op.input)?;
        Ok(Append(payload(op)))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let extent = Extent {
            offset: list.info.size,
            len: self.0.len() as u64,
            truncate_size: 0,
            truncate_seq: list.info.truncate_seq as u32,
        };
        list.write(extent, self.0.clone())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zero(Extent);

impl Handler for Zero {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Zero(extent_of(op)))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let Extent { offset, len, .. } = self.0;
        let max = list.limits.max_object_size;
        let reaches_end = offset.saturating_add(len) >= list.info.size;
        if list.exists && offset < max && len >= 1 && len <= max && reaches_end {
            // Zeroes up to the end are a shorter object; zeroes beyond it are nothing.
            if offset >= list.info.size {
                return done();
            }
            return list.truncate(Extent { offset, truncate_seq: 0, ..self.0 });
        }
        list.within_limits(offset, len)?;
        if len > 0 && list.exists {
            list.changes.push(Change::Zero { object: list.id.clone(), offset, len });
            list.stats.writes += 1;
        }
        done()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    exclusive: bool,
}

impl Handler for Create {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        if !op.input.is_empty() {
            // A category: a feature that is gone, whose name must still decode.
            Reader::new(&op.input).bytes()?;
        }
        Ok(Create { exclusive: op.flags.contains(OpFlags::EXCL) })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        if list.exists && self.exclusive {
            return Err(Errno::EXIST.into());
        }
        list.ensure_exists();
        list.touched = true;
        done()
    }
}

/// Cuts the object, or extends it with zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate(Extent);

impl Handler for Truncate {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let extent = extent_of(op);
        Ok(Truncate(match op.code {
            OpCode::TRIMTRUNC => Extent { offset: extent.truncate_size, ..extent },
            _ => extent,
        }))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.truncate(self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete;

impl Handler for Delete {
    type Reads = ();

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(Delete)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.must_exist()?;
        list.delete()
    }
}

/// The range, with Ceph's oldest way of saying "no truncation" made plain.
fn extent_of(op: &OsdOp) -> Extent {
    let extent = op.params.extent();
    if extent.truncate_seq == 1 && extent.truncate_size == u64::MAX {
        return Extent { truncate_seq: 0, truncate_size: 0, ..extent };
    }
    extent
}

fn exact_payload(promised: u64, input: &Bytes) -> Result<(), Errno> {
    if promised == input.len() as u64 { Ok(()) } else { Err(Errno::INVAL) }
}

fn payload(op: &OsdOp) -> Rope {
    Rope::summed(op.input.clone(), op.input_sum)
}

fn whole_if_zero(len: u64) -> u64 {
    if len == 0 { u64::MAX } else { len }
}

/// Helpers of several operations.
impl Execution<'_> {
    /// The part of `extent` that may be read: within the object, and within a truncation that the client knows of
    /// and this object has not seen yet.
    fn readable(&self, extent: Extent) -> (u64, u64) {
        let mut size = self.info.size;
        let end = extent.offset.saturating_add(extent.len);
        if self.info.truncate_seq < extent.truncate_seq as u64 && end > extent.truncate_size {
            size = size.min(extent.truncate_size);
        }
        if extent.offset >= size {
            (extent.offset, 0)
        } else {
            (extent.offset, extent.len.min(size - extent.offset))
        }
    }

    fn within_limits(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let max = self.limits.max_object_size;
        let fits = offset < max && len <= max && offset + len <= max;
        if fits { Ok(()) } else { Err(Errno::FBIG) }
    }

    /// Replaces all bytes.
    pub(super) fn write_full(&mut self, data: Rope) -> OpOutcome {
        let len = data.len() as u64;
        self.within_limits(0, len)?;
        if len == 0 {
            self.ensure_exists();
        } else {
            self.write_creates();
        }
        if len < self.info.size {
            self.changes.push(Change::Truncate { object: self.id.clone(), size: len });
        }
        if len > 0 {
            self.changes.push(Change::Write { object: self.id.clone(), offset: 0, data });
        }
        self.touched = true;
        self.set_size(len);
        self.count_write(len);
        done()
    }

    pub(super) fn write(&mut self, extent: Extent, data: Rope) -> OpOutcome {
        let mut data = data;
        let Extent { offset, truncate_size, truncate_seq, .. } = extent;
        let truncate_seq = truncate_seq as u64;
        let seq = self.info.truncate_seq;
        let late = seq > truncate_seq && seq != 0;
        if late && offset.saturating_add(data.len() as u64) > self.info.size {
            // An old write that arrives after a truncation it did not know of: what lies beyond is gone.
            let keep = self.info.size.saturating_sub(offset);
            data = trimmed(data, keep);
        }
        if truncate_seq > seq {
            // A write that arrives before the truncation it knows of.
            if self.exists {
                self.changes.push(Change::Truncate { object: self.id.clone(), size: truncate_size });
                self.set_size(truncate_size);
            }
            let info = self.info.to_mut();
            info.truncate_seq = truncate_seq;
            info.truncate_size = truncate_size;
        }
        self.within_limits(offset, data.len() as u64)?;
        let len = data.len() as u64;
        if len == 0 {
            self.ensure_exists();
            if offset > self.info.size && !late {
                self.changes.push(Change::Truncate { object: self.id.clone(), size: offset });
                self.set_size(offset);
            } else {
                self.touched = true;
            }
        } else {
            self.write_creates();
            self.changes.push(Change::Write { object: self.id.clone(), offset, data });
            if offset + len > self.info.size {
                self.set_size(offset + len);
            }
        }
        self.count_write(len);
        done()
    }

    /// A change that writes bytes creates its object: no separate change is needed.
    fn write_creates(&mut self) {
        if !self.exists {
            self.exists = true;
            self.stats.objects += 1;
        }
    }

    pub(super) fn truncate(&mut self, extent: Extent) -> OpOutcome {
        let Extent { offset, truncate_seq, truncate_size, .. } = extent;
        if !self.exists {
            return done();
        }
        self.within_limits(offset, extent.len)?;
        if truncate_seq != 0 {
            if offset != truncate_size {
                return Err(Errno::INVAL.into());
            }
            if truncate_seq as u64 <= self.info.truncate_seq {
                return done();
            }
            let info = self.info.to_mut();
            info.truncate_seq = truncate_seq as u64;
            info.truncate_size = truncate_size;
        }
        self.changes.push(Change::Truncate { object: self.id.clone(), size: offset });
        self.set_size(offset);
        self.stats.writes += 1;
        done()
    }

    /// Removes the object, which exists.
    pub(super) fn delete(&mut self) -> OpOutcome {
        self.changes.push(Change::Remove { object: self.id.clone() });
        self.set_size(0);
        self.stats.objects -= 1;
        self.stats.writes += 1;
        self.exists = false;
        self.unmark_omap();
        self.forget_watchers();
        done()
    }

    /// The object has the bytes, attributes and omap of another one now.
    pub(super) fn take_contents_of(&mut self, other: &ObjectInfo) {
        self.set_size(other.size);
        let flags = [ObjectFlags::OMAP, ObjectFlags::DATA_DIGEST, ObjectFlags::OMAP_DIGEST];
        let had_omap = self.info.flags.contains(ObjectFlags::OMAP);
        self.stats.omap_objects += i64::from(other.flags.contains(ObjectFlags::OMAP)) - i64::from(had_omap);
        let info = self.info.to_mut();
        for flag in flags {
            match other.flags.contains(flag) {
                true => info.flags.set(flag),
                false => info.flags.clear(flag),
            }
        }
        (info.data_digest, info.omap_digest) = (other.data_digest, other.omap_digest);
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.stats.bytes += size as i64 - self.info.size as i64;
        if size != self.info.size {
            self.info.to_mut().size = size;
        }
    }

    pub(super) fn count_write(&mut self, bytes: u64) {
        self.stats.writes += 1;
        self.stats.write_kib += kib(bytes);
    }
}

fn trimmed(data: Rope, len: u64) -> Rope {
    if data.len() as u64 <= len {
        return data;
    }
    data.slice(0, len as usize).expect("shorter than the whole")
}

fn clipped(extents: Vec<(u64, u64)>, offset: u64, len: u64) -> Vec<(u64, u64)> {
    let end = offset.saturating_add(len);
    let clip = |(start, len): (u64, u64)| {
        let (from, to) = (start.max(offset), start.saturating_add(len).min(end));
        (from < to).then(|| (from, to - from))
    };
    extents.into_iter().filter_map(clip).collect()
}

/// `map<u64, u64>`: offset to length.
fn encode_extents(w: &mut Writer, extents: &[(u64, u64)]) {
    w.count(extents.len());
    for (offset, len) in extents {
        w.u64(*offset);
        w.u64(*len);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Operation;
    use super::*;

    #[test]
    fn write_must_bring_as_many_bytes_as_it_says() {
        let whole = OsdOp::extent(OpCode::WRITE, 5, 3, Bytes::from_static(b"abc"));
        let Operation::Write(write) = Operation::decode(&whole) else { panic!("a write") };
        assert_eq!((write.extent.offset, write.data.len()), (5, 3));
        let short = OsdOp::extent(OpCode::WRITE, 5, 4, Bytes::from_static(b"abc"));
        assert_eq!(Operation::decode(&short), Operation::Refused(Errno::INVAL));
    }
}
