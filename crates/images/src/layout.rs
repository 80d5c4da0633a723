//! The layout of an image: its bytes over its objects, in stripes (`file_layout_t`, `osdc/Striper.cc`).

/// A part of an object: `(object, offset in it, bytes)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectExtent {
    pub object: u64,
    pub offset: u64,
    pub len: u64,
}

/// A part of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ImageExtent {
    pub offset: u64,
    pub len: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    object_size: u64,
    stripe_unit: u64,
    stripe_count: u64,
}

impl Layout {
    /// Largest `order` of an image's objects: 32 MiB.
    pub(crate) const ORDER_MAX: u8 = 25;

    /// `None` for a layout that no image has.
    pub(crate) fn new(order: u8, stripes: Option<(u64, u64)>) -> Option<Layout> {
        if order > Layout::ORDER_MAX {
            return None;
        }
        let object_size = 1 << order;
        let (stripe_unit, stripe_count) = stripes.unwrap_or((object_size, 1));
        let fits = stripe_unit != 0
            && stripe_unit <= object_size
            && object_size.is_multiple_of(stripe_unit)
            && (1..=1 << 20).contains(&stripe_count);
        fits.then_some(Layout { object_size, stripe_unit, stripe_count })
    }

    pub(crate) fn object_size(self) -> u64 {
        self.object_size
    }

    /// Objects that the first `size` bytes of an image are on.
    pub(crate) fn objects_of(self, size: u64) -> u64 {
        let period = self.object_size.saturating_mul(self.stripe_count);
        let rest = size % period;
        let is_in_first_stripe = rest > 0 && rest < self.stripe_count.saturating_mul(self.stripe_unit);
        let unused = if is_in_first_stripe { self.stripe_count - rest.div_ceil(self.stripe_unit) } else { 0 };
        size.div_ceil(period).saturating_mul(self.stripe_count).saturating_sub(unused)
    }

    /// The parts of the image that an object has, with their offsets in the object, below `size`.
    pub(crate) fn parts_of_object(self, object: u64, size: u64) -> Vec<(u64, ImageExtent)> {
        let units_per_object = self.object_size / self.stripe_unit;
        let (set, position) = (object / self.stripe_count, object % self.stripe_count);
        let mut parts: Vec<(u64, ImageExtent)> = Vec::new();
        for unit in 0..units_per_object {
            let stripe = set.saturating_mul(units_per_object).saturating_add(unit);
            let at = (stripe.saturating_mul(self.stripe_count).saturating_add(position))
                .saturating_mul(self.stripe_unit);
            if at >= size {
                break;
            }
            let len = self.stripe_unit.min(size - at);
            match parts.last_mut() {
                Some((_, last)) if last.offset + last.len == at => last.len += len,
                _ => parts.push((unit * self.stripe_unit, ImageExtent { offset: at, len })),
            }
        }
        parts
    }

    /// The parts of objects that a part of the image is on, in the image's order, each with its offset from the beginning of
    /// the part.
    pub(crate) fn objects_of_extent(self, extent: ImageExtent) -> Vec<(u64, ObjectExtent)> {
        let units_per_object = self.object_size / self.stripe_unit;
        let end = extent.offset.saturating_add(extent.len);
        let mut at = extent.offset;
        let mut parts: Vec<(u64, ObjectExtent)> = Vec::new();
        while at < end {
            let (block, in_unit) = (at / self.stripe_unit, at % self.stripe_unit);
            let (stripe, position) = (block / self.stripe_count, block % self.stripe_count);
            let object = stripe / units_per_object * self.stripe_count + position;
            let offset = stripe % units_per_object * self.stripe_unit + in_unit;
            let len = (self.stripe_unit - in_unit).min(end - at);
            match parts.last_mut() {
                Some((_, last)) if last.object == object && last.offset + last.len == offset => {
                    last.len += len
                }
                _ => parts.push((at - extent.offset, ObjectExtent { object, offset, len })),
            }
            at += len;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_layout_puts_bytes_in_order() {
        let layout = Layout::new(12, None).unwrap();
        assert_eq!(
            (layout.objects_of(0), layout.objects_of(1), layout.objects_of(8192), layout.objects_of(8193)),
            (0, 1, 2, 3)
        );
        assert_eq!(layout.parts_of_object(1, 5000), [(0, ImageExtent { offset: 4096, len: 904 })]);
        assert_eq!(layout.parts_of_object(2, 5000), []);
        let across = layout.objects_of_extent(ImageExtent { offset: 4000, len: 200 });
        let first = ObjectExtent { object: 0, offset: 4000, len: 96 };
        assert_eq!(across, [(0, first), (96, ObjectExtent { object: 1, offset: 0, len: 104 })]);
    }

    #[test]
    fn striped_layout_is_its_own_inverse() {
        let layout = Layout::new(13, Some((1024, 3))).unwrap();
        let size = 3 * 8192 * 2 + 1500;
        assert_eq!(layout.objects_of(size), 8, "the last stripe is on two objects");
        let mut seen = vec![false; size as usize];
        for object in 0..layout.objects_of(size) {
            for (offset, part) in layout.parts_of_object(object, size) {
                let mut expected = offset;
                for (_, back) in layout.objects_of_extent(part) {
                    assert_eq!((back.object, back.offset), (object, expected));
                    expected += back.len;
                }
                for byte in part.offset..part.offset + part.len {
                    assert!(!std::mem::replace(&mut seen[byte as usize], true), "byte {byte} is there once");
                }
            }
        }
        assert!(seen.into_iter().all(|is_seen| is_seen));
    }

    #[test]
    fn layout_that_no_image_has_is_refused() {
        for (order, stripes) in [
            (26, None),
            (12, Some((0, 1))),
            (12, Some((3000, 1))),
            (12, Some((8192, 1))),
            (12, Some((4096, 0))),
        ] {
            assert_eq!(Layout::new(order, stripes), None, "{order} {stripes:?}");
        }
    }
}
