//! The bytes of an object: sparse extents over shared buffers.

use super::extent_map::ExtentMap;
use bytes::Bytes;
use codec::Rope;

/// Length below which pieces are copied when they are stored, because a [`Bytes`] may keep a much larger buffer alive.
/// Longer ones are kept: the messenger guarantees that a long payload owns its buffer.
pub(super) const COPY_BELOW: usize = 64 << 10;

/// Holes read as slices of this.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// The stored bytes of one object, by offset. Extents do not overlap and are not empty; gaps read as zeroes.
///
/// A short write is copied into the existing extent, or grows the extent that it follows, if that one owns its buffer: one
/// copy, no allocation, no fragmentation by overwrites and small appends. If the buffer is shared with a clone or a
/// pending read, the extent is split instead.
#[derive(Clone, Default)]
pub(super) struct Extents {
    by_offset: ExtentMap<Extent>,
    bytes_stored: u64,
}

#[derive(Clone)]
struct Extent {
    data: Bytes,
    /// Size of the buffer that `data` keeps alive; at most twice its length.
    backing: usize,
    /// Checksum that came with the bytes, while all of them are unchanged.
    sum: Option<u32>,
}

impl Extent {
    fn new(piece: Bytes, sum: Option<u32>) -> Extent {
        let data = if piece.len() < COPY_BELOW { Bytes::copy_from_slice(&piece) } else { piece };
        Extent { backing: data.len(), data, sum }
    }

    fn len(&self) -> u64 {
        self.data.len() as u64
    }

    /// Keeps only `start..end`, in a new buffer if less than half of the old one is still used.
    fn cut(&mut self, start: u64, end: u64) {
        self.sum = None;
        let kept = &self.data[start as usize..end as usize];
        if kept.len() * 2 < self.backing {
            self.data = Bytes::copy_from_slice(kept);
            self.backing = self.data.len();
        } else {
            self.data = self.data.slice(start as usize..end as usize);
        }
    }

    /// Changes bytes in place; the extent has the checksum `sum` afterwards. Returns false if the buffer is shared.
    fn overwrite(&mut self, at: u64, piece: &[u8], sum: Option<u32>) -> bool {
        self.sum = sum;
        match std::mem::take(&mut self.data).try_into_mut() {
            Ok(mut own) => {
                own[at as usize..][..piece.len()].copy_from_slice(piece);
                self.data = own.freeze();
                true
            }
            Err(shared) => {
                self.data = shared;
                false
            }
        }
    }

    /// Appends `piece`, and doubles a full buffer, so that many small appends have linear cost. Returns false if the buffer is
    /// shared.
    fn append(&mut self, piece: &[u8]) -> bool {
        self.sum = None;
        match std::mem::take(&mut self.data).try_into_mut() {
            Ok(mut own) => {
                if own.capacity() - own.len() < piece.len() {
                    let len = own.len() + piece.len();
                    let mut grown = bytes::BytesMut::with_capacity((2 * len).min(COPY_BELOW.max(len)));
                    grown.extend_from_slice(&own);
                    self.backing = grown.capacity();
                    own = grown;
                }
                own.extend_from_slice(piece);
                self.data = own.freeze();
                true
            }
            Err(shared) => {
                self.data = shared;
                false
            }
        }
    }
}

impl Extents {
    pub(super) fn bytes_stored(&self) -> u64 {
        self.bytes_stored
    }

    pub(super) fn write(&mut self, offset: u64, data: Rope) {
        let (mut at, sum) = (offset, data.sum());
        for piece in data.into_pieces() {
            let len = piece.len() as u64;
            if piece.len() >= COPY_BELOW || !self.write_within(at, &piece, sum) {
                self.punch(at, at + len);
                self.insert(at, Extent::new(piece, sum));
            }
            at += len;
        }
    }

    /// Puts a short piece into, or at the end of, the extent before it. Returns false if no extent can take it.
    fn write_within(&mut self, at: u64, piece: &[u8], sum: Option<u32>) -> bool {
        let piece_end = at + piece.len() as u64;
        let Some((start, extent)) = self.by_offset.last_before_mut(at.saturating_add(1)) else {
            return false;
        };
        let end = start + extent.len();
        if piece_end <= end {
            let is_whole = (at, piece_end) == (start, end);
            return extent.overwrite(at - start, piece, sum.filter(|_| is_whole));
        }
        if at != end || piece_end - start > COPY_BELOW as u64 {
            return false;
        }
        if !extent.append(piece) {
            return false;
        }
        self.bytes_stored += piece.len() as u64;
        // Extents under the grown part are removed.
        self.punch_after(start, end, piece_end);
        true
    }

    /// Removes `start..end` from extents behind the one at `owner`.
    fn punch_after(&mut self, owner: u64, start: u64, end: u64) {
        debug_assert!(owner < start);
        while let Some(at) = self.by_offset.first_in(start, end) {
            self.remove_front(at, end);
        }
    }

    /// Makes `start..end` a hole.
    pub(super) fn punch(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((at, extent)) = self.by_offset.last_before_mut(start)
            && at + extent.len() > start
        {
            let extent_end = at + extent.len();
            let tail = (extent_end > end).then(|| {
                let mut tail = extent.clone();
                tail.cut(end - at, extent_end - at);
                tail
            });
            extent.cut(0, start - at);
            self.bytes_stored -= extent_end.min(end) - start;
            if let Some(tail) = tail {
                self.by_offset.insert(end, tail);
            }
        }
        while let Some(at) = self.by_offset.first_in(start, end) {
            self.remove_front(at, end);
        }
    }

    /// Removes the extent at `at` up to `end` and keeps the bytes beyond.
    fn remove_front(&mut self, at: u64, end: u64) {
        let Some(mut extent) = self.by_offset.remove(at) else { return };
        let extent_end = at + extent.len();
        if extent_end <= end {
            self.bytes_stored -= extent.len();
            return;
        }
        self.bytes_stored -= end - at;
        extent.cut(end - at, extent_end - at);
        self.by_offset.insert(end, extent);
    }

    /// Removes all bytes from `size` on.
    pub(super) fn truncate(&mut self, size: u64) {
        self.punch(size, u64::MAX);
    }

    fn insert(&mut self, at: u64, extent: Extent) {
        self.bytes_stored += extent.len();
        self.by_offset.insert(at, extent);
    }

    /// The bytes of `start..end`, with zeroes for holes.
    pub(super) fn read(&self, start: u64, end: u64) -> Rope {
        if let Some((at, extent)) = self.by_offset.last_before(start.saturating_add(1))
            && (at, at + extent.len()) == (start, end)
        {
            return Rope::summed(extent.data.clone(), extent.sum);
        }
        let mut out = Rope::new();
        let mut at = start;
        for (offset, data) in self.overlapping(start, end) {
            push_zeroes(&mut out, offset - at);
            at = offset + data.len() as u64;
            out.push(data);
        }
        push_zeroes(&mut out, end.saturating_sub(at));
        out
    }

    /// Stored bytes of `start..end` as `(offset, bytes)`.
    pub(super) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Bytes)> + '_ {
        let first = match self.by_offset.last_before(start) {
            Some((at, extent)) if at + extent.len() > start => at,
            _ => start,
        };
        self.by_offset.range(first, end.max(first)).map(move |(at, extent)| {
            let from = start.max(at);
            let to = end.min(at + extent.len());
            (from, extent.data.slice((from - at) as usize..(to - at) as usize))
        })
    }

    /// Stored extents of `start..end` as `(offset, len)`, adjacent ones joined.
    pub(super) fn map(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (offset, data) in self.overlapping(start, end) {
            match out.last_mut() {
                Some((at, len)) if *at + *len == offset => *len += data.len() as u64,
                _ => out.push((offset, data.len() as u64)),
            }
        }
        out
    }

    /// All extents, for an image.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Bytes)> {
        self.by_offset.iter().map(|(at, extent)| (at, &extent.data))
    }

    /// Inserts a buffer that owns its memory into a hole. Returns false if bytes are stored there.
    pub(super) fn restore(&mut self, at: u64, data: Bytes) -> bool {
        let Some(end) = at.checked_add(data.len() as u64) else { return false };
        if data.is_empty() || self.overlapping(at, end).next().is_some() {
            return false;
        }
        self.insert(at, Extent { backing: data.len(), data, sum: None });
        true
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self, size: u64) {
        let (mut at, mut bytes) = (0, 0);
        for (offset, extent) in self.by_offset.iter() {
            assert!(!extent.data.is_empty(), "no extent is empty");
            assert!(offset >= at, "extents do not overlap");
            assert!(extent.backing <= 2 * extent.data.len(), "a slice pins at most twice its length");
            at = offset + extent.len();
            bytes += extent.len();
        }
        assert!(at <= size, "no extent goes beyond the object's end");
        assert_eq!(bytes, self.bytes_stored, "the count of stored bytes is right");
    }
}

fn push_zeroes(out: &mut Rope, mut len: u64) {
    while len > 0 {
        let n = len.min(ZEROES.len() as u64);
        out.push(Bytes::from_static(&ZEROES[..n as usize]));
        len -= n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(byte: u8, len: usize) -> Rope {
        vec![byte; len].into()
    }

    #[test]
    fn overwrite_inside_extent_keeps_its_buffer() {
        let mut e = Extents::default();
        e.write(0, rope(1, 256 << 10));
        let buffer = e.iter().next().unwrap().1.as_ptr();
        e.write(4096, rope(2, 4096));
        assert_eq!(e.iter().map(|(at, d)| (at, d.len())).collect::<Vec<_>>(), [(0, 256 << 10)]);
        assert_eq!(e.iter().next().unwrap().1.as_ptr(), buffer);
        assert_eq!(e.read(4095, 4098).to_bytes()[..], [1, 2, 2]);
        e.check(256 << 10);
    }

    #[test]
    fn pending_read_keeps_bytes_through_overwrite() {
        let mut e = Extents::default();
        e.write(0, rope(1, 8192));
        let seen = e.read(0, 8192);
        e.write(1000, rope(2, 10));
        assert_eq!(seen.to_bytes()[..], vec![1; 8192]);
        assert_eq!(e.read(999, 1011).to_bytes()[..], [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
        e.check(8192);
    }

    #[test]
    fn many_small_appends_make_few_extents() {
        let mut e = Extents::default();
        for i in 0..20_000u64 {
            e.write(i * 10, rope(i as u8, 10));
            e.check((i + 1) * 10);
        }
        assert!(e.iter().count() <= 4, "{} extents", e.iter().count());
        assert_eq!(e.bytes_stored(), 200_000);
    }

    #[test]
    fn small_remainder_is_copied_out_of_large_buffer() {
        let mut e = Extents::default();
        e.write(0, rope(1, 1 << 20));
        let shared = e.clone();
        e.truncate(4096);
        e.check(4096);
        let large = shared.iter().next().unwrap().1.as_ptr_range();
        assert!(!large.contains(&e.iter().next().unwrap().1.as_ptr()));
    }

    #[test]
    fn append_replaces_extents_that_it_covers() {
        let mut e = Extents::default();
        e.write(0, rope(1, 100));
        e.write(150, rope(2, 20));
        e.write(190, rope(3, 40));
        e.write(100, rope(4, 100));
        assert_eq!(e.map(0, 1000), [(0, 230)]);
        assert_eq!(e.read(99, 101).to_bytes()[..], [1, 4]);
        assert_eq!(e.read(199, 201).to_bytes()[..], [4, 3]);
        e.check(230);
    }

    #[test]
    fn checksum_is_returned_with_unchanged_bytes_only() {
        let summed = |byte, len, sum| Rope::summed(vec![byte; len].into(), Some(sum));
        for len in [4096, 256 << 10] {
            let end = len as u64;
            let mut e = Extents::default();
            e.write(0, summed(1, len, 7));
            assert_eq!(e.read(0, end).sum(), Some(7));
            assert_eq!(e.read(0, end - 1).sum(), None);
            assert_eq!(e.read(1, end).sum(), None);
            assert_eq!(e.read(0, end + 1).sum(), None);
            e.write(0, summed(2, len, 8));
            assert_eq!(e.read(0, end).sum(), Some(8));
            e.write(5, summed(3, 1, 9));
            assert_eq!(e.read(0, end).sum(), None);
            e.write(0, summed(4, len, 10));
            e.write(end, summed(4, 10, 11));
            assert_eq!(e.read(0, end + 10).sum(), None);
            e.truncate(end);
            let read = e.read(0, end);
            assert!(read.sum().is_none_or(|sum| sum == 10), "{:?}", read.sum());
            e.truncate(100);
            assert_eq!(e.read(0, 100).sum(), None);
        }
    }

    #[test]
    fn holes_read_as_zeroes_and_are_not_stored() {
        let mut e = Extents::default();
        e.write(10, rope(7, 5));
        e.write(200_000, rope(8, 5));
        assert_eq!(e.map(0, u64::MAX), [(10, 5), (200_000, 5)]);
        assert_eq!(e.map(12, 200_001), [(12, 3), (200_000, 1)]);
        let whole = e.read(0, 200_005).to_bytes();
        assert_eq!(whole.len(), 200_005);
        assert_eq!(whole.iter().filter(|b| **b != 0).count(), 10);
        assert_eq!(e.read(20, 30).to_bytes()[..], [0; 10]);
    }
}
