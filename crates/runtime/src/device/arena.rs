//! Memory that a ring's kernel side knows: the copies of small writes lie in it, so their pages are pinned once and not by
//! each request.
//!
//! Only bytes that are copied anyway are put here (log records, blocks beside one another). A read's buffer is not: it is
//! handed on without a copy, to caches and sockets, and would keep its place for as long as they keep it. A write that finds
//! no room takes memory from the allocator, which is slower by the pinning of its pages.

use device::BLOCK;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Blocks of an arena: 1 MiB. Two batches in flight are rarely more, and the kernel's usual limit on locked memory (8 MiB)
/// allows a few of them.
const BLOCKS: usize = 256;
const BYTES: usize = BLOCKS * BLOCK;
const WORD_BITS: usize = u64::BITS as usize;

/// One range of memory, in leases of whole blocks.
pub(super) struct Arena {
    start: NonNull<u8>,
    leases: Mutex<Leases>,
}

#[derive(Default)]
struct Leases {
    /// A bit for each block: taken.
    taken: [u64; BLOCKS / WORD_BITS],
    /// Block behind the last lease: the search begins there.
    next: usize,
}

/// Blocks of an arena that one write has. Dropping it gives them back.
pub(super) struct Lease {
    arena: Arc<Arena>,
    blocks: Range<usize>,
    /// Bytes at the front that the write has filled.
    len: usize,
}

fn layout() -> Layout {
    Layout::from_size_align(BYTES, BLOCK).expect("a constant size")
}

#[allow(unsafe_code, reason = "no safe type of the standard library has a chosen alignment")]
impl Arena {
    pub fn new() -> Arc<Arena> {
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout()) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout()));
        Arc::new(Arena { start, leases: Mutex::default() })
    }

    /// The memory as the kernel registers it.
    pub fn iovec(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: BYTES }
    }

    /// True if these bytes lie in the arena.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let (start, at) = (self.start.as_ptr().addr(), bytes.as_ptr().addr());
        at >= start && at + bytes.len() <= start + BYTES
    }

    /// Room for `len` bytes in one piece, if there is any.
    pub fn lease(self: &Arc<Arena>, len: usize) -> Option<Lease> {
        let count = len.div_ceil(BLOCK);
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = leases.take(count)?;
        drop(leases);
        Some(Lease { arena: self.clone(), blocks, len: 0 })
    }
}

impl Leases {
    /// Takes neighbouring blocks: behind the last lease, or else the first ones that are free.
    fn take(&mut self, count: usize) -> Option<Range<usize>> {
        if count == 0 || count > BLOCKS {
            return None;
        }
        let blocks = self.find(self.next, count).or_else(|| self.find(0, count))?;
        blocks.clone().for_each(|block| self.taken[block / WORD_BITS] |= 1 << (block % WORD_BITS));
        self.next = blocks.end % BLOCKS;
        Some(blocks)
    }

    fn find(&self, from: usize, count: usize) -> Option<Range<usize>> {
        let mut start = from;
        for block in from..BLOCKS {
            if self.is_taken(block) {
                start = block + 1;
            } else if block + 1 - start == count {
                return Some(start..block + 1);
            }
        }
        None
    }

    fn is_taken(&self, block: usize) -> bool {
        self.taken[block / WORD_BITS] >> (block % WORD_BITS) & 1 == 1
    }

    fn give_back(&mut self, blocks: Range<usize>) {
        blocks.for_each(|block| self.taken[block / WORD_BITS] &= !(1 << (block % WORD_BITS)));
    }
}

#[allow(unsafe_code, reason = "a part of the arena that no other lease has")]
impl Lease {
    fn start(&self) -> *mut u8 {
        // SAFETY: the blocks lie in the arena.
        unsafe { self.arena.start.as_ptr().add(self.blocks.start * BLOCK) }
    }

    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.blocks.len() * BLOCK - self.len,
            "the lease has room for the whole write"
        );
        // SAFETY: the room is checked, and `&mut self` is the only access to these blocks.
        unsafe { self.start().add(self.len).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        self.len += bytes.len();
    }
}

#[allow(unsafe_code, reason = "a slice of memory that it has alone")]
impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the arena is initialised from its start on, and these blocks change only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut leases = self.arena.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.give_back(self.blocks.clone());
    }
}

#[allow(unsafe_code, reason = "the counterpart of the allocation")]
impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout, once; a lease keeps the arena.
        unsafe { dealloc(self.start.as_ptr(), layout()) }
    }
}

// SAFETY: its bytes are reached through leases, each of which has its part alone.
#[allow(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for Arena {}
// SAFETY: as above; the table of leases is behind a lock.
#[allow(unsafe_code, reason = "a raw pointer is not Sync by itself")]
unsafe impl Sync for Arena {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_disjoint_and_given_back() {
        let arena = Arena::new();
        let mut all: Vec<Lease> = (0..BLOCKS / 4).map(|_| arena.lease(4 * BLOCK - 1).unwrap()).collect();
        assert!(arena.lease(1).is_none(), "it is full");
        for (n, lease) in all.iter_mut().enumerate() {
            lease.extend_from_slice(&[n as u8; 1000]);
            lease.extend_from_slice(&[n as u8; 24]);
        }
        for (n, lease) in all.iter().enumerate() {
            assert_eq!(lease.as_ref(), [n as u8; 1024]);
            assert!(arena.contains(lease.as_ref()) && lease.as_ref().as_ptr().addr().is_multiple_of(BLOCK));
        }
        drop(all.remove(3));
        drop(all.remove(5));
        assert!(arena.lease(5 * BLOCK).is_none(), "the free blocks are no neighbours");
        assert_eq!(arena.lease(4 * BLOCK).unwrap().blocks, 12..16);
        drop(all);
        assert!(arena.lease(BYTES).is_some());
        assert!(arena.lease(BYTES + 1).is_none() && arena.lease(0).is_none());
        assert!(!arena.contains(&[1]));
    }

    #[test]
    fn search_goes_on_behind_the_last_lease() {
        let arena = Arena::new();
        let first = arena.lease(BLOCK).unwrap();
        let second = arena.lease(BLOCK).unwrap();
        drop(first);
        assert_eq!(arena.lease(BLOCK).unwrap().blocks, 2..3);
        drop(second);
    }
}
