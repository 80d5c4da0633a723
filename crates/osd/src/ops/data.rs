//! Steps on an object's bytes.

use super::execution::{Execution, Failure, StepResult, kib};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Features, Rope, Writer};
use store::{Answer, Change};
use wire::types::{ObjectFlags, osd_op::Extent};

/// A comparison that fails at byte `n` results in `-(MAX_ERRNO + n)`.
const MAX_ERRNO: i32 = 4095;

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

    pub(super) fn read(&mut self, extent: Extent) -> StepResult {
        self.data_offset.get_or_insert(extent.offset);
        // Length 0 means all there is.
        let extent = if extent.len == 0 { Extent { len: self.info.size, ..extent } } else { extent };
        let (_, len) = self.readable(extent);
        let data = self.data_answer()?;
        let data = trimmed(data, len);
        self.count_read(data.len());
        Ok(data)
    }

    fn data_answer(&mut self) -> Result<Rope, Failure> {
        match self.answer() {
            Some(Answer::Data(data)) => Ok(data),
            Some(_) => unreachable!("the plan asked for data"),
            // Nothing there: no bytes, as for a read beyond the end.
            None => Ok(Rope::new()),
        }
    }

    fn extents_answer(&mut self) -> Vec<(u64, u64)> {
        match self.answer() {
            Some(Answer::Extents(extents)) => extents,
            Some(_) => unreachable!("the plan asked for extents"),
            None => Vec::new(),
        }
    }

    /// A map of extents, then the bytes of those extents joined.
    pub(super) fn sparse_read(&mut self, extent: Extent) -> StepResult {
        let (offset, len) = self.readable(extent);
        let extents = clipped(self.extents_answer(), offset, len);
        let data = self.data_answer()?;
        let total: u64 = extents.iter().map(|(_, len)| len).sum();

        let mut w = Writer::new(Features::NONE);
        encode_extents(&mut w, &extents);
        w.count(total as usize);
        let mut out = Rope::from(w.into_vec());
        for (start, len) in extents {
            let piece = data.slice((start - extent.offset) as usize, len as usize);
            out.append(piece.expect("an extent lies within the data read from the same moment"));
        }
        self.count_read(total as usize);
        Ok(out)
    }

    pub(super) fn map_extents(&mut self, extent: Extent) -> StepResult {
        let extents = self.extents_answer();
        let mut w = Writer::new(Features::NONE);
        encode_extents(&mut w, &clipped(extents, extent.offset, extent.len));
        self.count_read(w.len());
        Ok(w.into_vec().into())
    }

    /// Bytes beyond the object's end compare as zeroes.
    pub(super) fn compare_extent(&mut self, extent: Extent, expected: &Bytes) -> StepResult {
        let (_, len) = self.readable(extent);
        let data = trimmed(self.data_answer()?, len);
        self.count_read(data.len());
        let stored = data.pieces().iter().flat_map(|p| p.iter().copied()).chain(std::iter::repeat(0));
        match expected.iter().copied().zip(stored).position(|(want, have)| want != have) {
            None => Ok(Rope::new()),
            Some(at) => Err(Failure { result: -MAX_ERRNO - at as i32, output: Rope::new() }),
        }
    }

    pub(super) fn checksum_data(&mut self) -> Result<Rope, Failure> {
        self.data_answer()
    }

    pub(super) fn stat(&mut self) -> StepResult {
        self.stats.reads += 1;
        self.must_exist()?;
        let mut w = Writer::with_capacity(Features::NONE, 16);
        w.u64(self.info.size);
        w.put(&self.info.mtime);
        Ok(w.into_vec().into())
    }

    fn within_limits(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let max = self.limits.max_object_size;
        let fits = offset < max && len <= max && offset + len <= max;
        if fits { Ok(()) } else { Err(Errno::FBIG) }
    }

    pub(super) fn write(&mut self, extent: Extent, data: Rope) -> StepResult {
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
        Ok(Rope::new())
    }

    /// A change that writes bytes creates its object: no separate change is needed.
    fn write_creates(&mut self) {
        if !self.exists {
            self.exists = true;
            self.stats.objects += 1;
        }
    }

    pub(super) fn write_full(&mut self, data: Rope) -> StepResult {
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
        Ok(Rope::new())
    }

    pub(super) fn write_same(&mut self, offset: u64, len: u64, pattern: &Bytes) -> StepResult {
        if len == 0 {
            return Ok(Rope::new());
        }
        // Before memory is taken for the repetitions.
        self.within_limits(offset, len)?;
        let mut data = Vec::with_capacity(len as usize);
        while (data.len() as u64) < len {
            data.extend_from_slice(pattern);
        }
        self.write(Extent { offset, len, truncate_size: 0, truncate_seq: 0 }, data.into())
    }

    pub(super) fn append(&mut self, data: Rope) -> StepResult {
        let extent = Extent {
            offset: self.info.size,
            len: data.len() as u64,
            truncate_size: 0,
            truncate_seq: self.info.truncate_seq as u32,
        };
        self.write(extent, data)
    }

    pub(super) fn zero(&mut self, extent: Extent) -> StepResult {
        let Extent { offset, len, .. } = extent;
        let max = self.limits.max_object_size;
        let reaches_end = offset.saturating_add(len) >= self.info.size;
        if self.exists && offset < max && len >= 1 && len <= max && reaches_end {
            // Zeroes up to the end are a shorter object; zeroes beyond it are nothing.
            if offset >= self.info.size {
                return Ok(Rope::new());
            }
            return self.truncate(Extent { offset, truncate_seq: 0, ..extent });
        }
        self.within_limits(offset, len)?;
        if len > 0 && self.exists {
            self.changes.push(Change::Zero { object: self.id.clone(), offset, len });
            self.stats.writes += 1;
        }
        Ok(Rope::new())
    }

    pub(super) fn create(&mut self, exclusive: bool) -> StepResult {
        if self.exists && exclusive {
            return Err(Errno::EXIST.into());
        }
        self.ensure_exists();
        self.touched = true;
        Ok(Rope::new())
    }

    pub(super) fn truncate(&mut self, extent: Extent) -> StepResult {
        let Extent { offset, truncate_seq, truncate_size, .. } = extent;
        if !self.exists {
            return Ok(Rope::new());
        }
        self.within_limits(offset, extent.len)?;
        if truncate_seq != 0 {
            if offset != truncate_size {
                return Err(Errno::INVAL.into());
            }
            if truncate_seq as u64 <= self.info.truncate_seq {
                return Ok(Rope::new());
            }
            let info = self.info.to_mut();
            info.truncate_seq = truncate_seq as u64;
            info.truncate_size = truncate_size;
        }
        self.changes.push(Change::Truncate { object: self.id.clone(), size: offset });
        self.set_size(offset);
        self.stats.writes += 1;
        Ok(Rope::new())
    }

    pub(super) fn delete(&mut self) -> StepResult {
        self.must_exist()?;
        self.changes.push(Change::Remove { object: self.id.clone() });
        self.set_size(0);
        self.stats.objects -= 1;
        self.stats.writes += 1;
        self.exists = false;
        self.info.to_mut().flags.clear(ObjectFlags::OMAP);
        self.forget_watchers();
        Ok(Rope::new())
    }

    fn set_size(&mut self, size: u64) {
        self.stats.bytes += size as i64 - self.info.size as i64;
        if size != self.info.size {
            self.info.to_mut().size = size;
        }
    }

    fn count_write(&mut self, bytes: u64) {
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
