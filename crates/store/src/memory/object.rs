//! One object: bytes, attributes and omap, and the effect of each change.

use super::extents::Extents;
use super::omap::{Omap, own};
use bytes::Bytes;
use codec::Rope;

/// Approximate overhead of an object, for space accounting.
const OBJECT_OVERHEAD: u64 = 256;

#[derive(Clone, Default)]
pub(super) struct Object {
    size: u64,
    extents: Extents,
    /// Sorted by name.
    attrs: Vec<(Bytes, Bytes)>,
    attr_bytes: u64,
    /// Boxed: most objects have none.
    omap: Option<Box<Omap>>,
}

/// Bytes of contents. A buffer shared by clones counts for each of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Footprint {
    pub(super) data: u64,
    pub(super) omap: u64,
    pub(super) metadata: u64,
}

impl Footprint {
    pub(super) fn total(&self) -> u64 {
        self.data + self.omap + self.metadata
    }

    pub(super) fn add(&mut self, o: Footprint) {
        self.data += o.data;
        self.omap += o.omap;
        self.metadata += o.metadata;
    }

    pub(super) fn remove(&mut self, o: Footprint) {
        self.data -= o.data;
        self.omap -= o.omap;
        self.metadata -= o.metadata;
    }
}

impl Object {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn footprint(&self) -> Footprint {
        Footprint {
            data: self.extents.bytes_stored(),
            omap: self.omap.as_ref().map_or(0, |o| o.bytes()),
            metadata: OBJECT_OVERHEAD + self.attr_bytes,
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: Rope) {
        if data.is_empty() {
            return;
        }
        self.size = self.size.max(range_end(offset, data.len() as u64));
        self.extents.write(offset, data);
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = range_end(offset, len);
        self.extents.punch(offset, end);
        self.size = self.size.max(end);
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.extents.truncate(size);
        }
        self.size = size;
    }

    /// `offset..offset + len` clipped to the object, as `start..end`.
    fn clip(&self, offset: u64, len: u64) -> (u64, u64) {
        let end = offset.saturating_add(len).min(self.size);
        (offset.min(end), end)
    }

    pub(super) fn read(&self, offset: u64, len: u64) -> Rope {
        let (start, end) = self.clip(offset, len);
        self.extents.read(start, end)
    }

    pub(super) fn extent_map(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let (start, end) = self.clip(offset, len);
        self.extents.map(start, end)
    }

    /// Stored bytes of a range, and the end of the clipped range, for a clone that keeps holes.
    pub(super) fn stored(&self, offset: u64, len: u64) -> (Vec<(u64, Bytes)>, u64) {
        let (start, end) = self.clip(offset, len);
        (self.extents.overlapping(start, end).collect(), end)
    }

    pub(super) fn set_attr(&mut self, name: Bytes, value: Bytes) {
        self.attr_bytes += value.len() as u64;
        match self.attrs.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(i) => {
                self.attr_bytes -= self.attrs[i].1.len() as u64;
                self.attrs[i].1 = own(value);
            }
            Err(i) => {
                self.attr_bytes += name.len() as u64;
                self.attrs.insert(i, (name, own(value)));
            }
        }
    }

    pub(super) fn remove_attr(&mut self, name: &[u8]) {
        if let Ok(i) = self.attrs.binary_search_by(|(n, _)| (**n).cmp(name)) {
            let (name, value) = self.attrs.remove(i);
            self.attr_bytes -= (name.len() + value.len()) as u64;
        }
    }

    pub(super) fn remove_attrs(&mut self) {
        self.attrs.clear();
        self.attr_bytes = 0;
    }

    pub(super) fn attr(&self, name: &[u8]) -> Option<&Bytes> {
        self.attrs.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|i| &self.attrs[i].1)
    }

    pub(super) fn attrs(&self) -> &[(Bytes, Bytes)] {
        &self.attrs
    }

    pub(super) fn omap(&self) -> Option<&Omap> {
        self.omap.as_deref()
    }

    /// The omap, if there is one.
    pub(super) fn omap_existing(&mut self) -> Option<&mut Omap> {
        self.omap.as_deref_mut()
    }

    pub(super) fn omap_mut(&mut self) -> &mut Omap {
        self.omap.get_or_insert_default()
    }

    pub(super) fn omap_clear(&mut self) {
        self.omap = None;
    }

    pub(super) fn extents(&self) -> &Extents {
        &self.extents
    }

    /// For images: an object of `size` without contents.
    pub(super) fn with_size(size: u64) -> Object {
        Object { size, ..Object::default() }
    }

    /// For images: inserts an extent. Returns false if it does not fit.
    pub(super) fn restore_extent(&mut self, offset: u64, data: Bytes) -> bool {
        let fits = offset.checked_add(data.len() as u64).is_some_and(|end| end <= self.size);
        fits && self.extents.restore(offset, data)
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self) {
        self.extents.check(self.size);
        assert!(self.attrs.is_sorted_by(|a, b| a.0 < b.0), "attributes are sorted and unique");
        let attr_bytes: usize = self.attrs.iter().map(|(n, v)| n.len() + v.len()).sum();
        assert_eq!(self.attr_bytes, attr_bytes as u64, "the count of attribute bytes is right");
        if let Some(omap) = &self.omap {
            omap.check();
        }
    }
}

fn range_end(offset: u64, len: u64) -> u64 {
    offset.checked_add(len).expect("a range ends within 64 bits: the caller checks what clients ask for")
}
