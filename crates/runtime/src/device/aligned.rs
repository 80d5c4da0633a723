//! Memory for `O_DIRECT`, aligned to a block.
//!
//! There is no pool of such buffers: the allocator keeps freed pages for the next request (see [`crate::memory`]). A pool
//! would withhold them from all other uses, and would need a lock, since a buffer is dropped on the core that sends it.

use bytes::Bytes;
use device::BLOCK;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A buffer of fixed capacity that is filled from its front.
pub(super) struct Aligned {
    start: NonNull<u8>,
    capacity: usize,
    /// Bytes at the front that are initialised.
    len: usize,
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, BLOCK).expect("a request's length fits into memory")
}

#[allow(unsafe_code, reason = "no safe type of the standard library has a chosen alignment")]
impl Aligned {
    /// `capacity` is more than zero.
    pub fn with_capacity(capacity: usize) -> Aligned {
        assert!(capacity > 0);
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout(capacity)) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout(capacity)));
        Aligned { start, capacity, len: 0 }
    }

    pub fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: `len..capacity` lies in the allocation, and `&mut self` excludes other references.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr().add(self.len).cast(), self.capacity - self.len)
        }
    }

    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.spare()[..bytes.len()].write_copy_of_slice(bytes);
        self.len += bytes.len();
    }

    /// # Safety
    /// The first `count` bytes of [`Self::spare`] have been initialised.
    pub unsafe fn advance(&mut self, count: usize) {
        assert!(count <= self.capacity - self.len, "the kernel reports a read beyond the buffer");
        self.len += count;
    }

    /// Takes the buffer and leaves an empty one.
    pub fn take(&mut self) -> Aligned {
        std::mem::replace(self, Aligned { start: NonNull::dangling(), capacity: 0, len: 0 })
    }

    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

#[allow(unsafe_code, reason = "a slice of memory that it owns")]
impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised, and change only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[allow(unsafe_code, reason = "the counterpart of the allocation")]
impl Drop for Aligned {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated with the same layout, once.
            unsafe { dealloc(self.start.as_ptr(), layout(self.capacity)) }
        }
    }
}

// SAFETY: it owns its bytes alone, as a `Vec<u8>` does.
#[allow(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for Aligned {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_aligned_and_keeps_its_bytes() {
        for capacity in [BLOCK, 3 * BLOCK, 1 << 20] {
            let mut buffer = Aligned::with_capacity(capacity);
            assert!(buffer.spare().as_ptr().addr().is_multiple_of(BLOCK));
            buffer.extend_from_slice(b"some");
            buffer.extend_from_slice(b"thing");
            assert_eq!(buffer.spare().len(), capacity - 9);
            assert_eq!(buffer.freeze(), "something");
        }
    }
}
