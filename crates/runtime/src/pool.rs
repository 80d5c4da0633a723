//! Pool of read buffers. A buffer is reused when every slice of it was dropped.
//!
//! A buffer from fresh memory costs a page fault for every 4 KiB read: as much as the copy out of the socket.

use bytes::BytesMut;
use std::collections::VecDeque;

/// Bytes of one read.
pub(crate) const READ_LEN: usize = 64 << 10;
/// Bytes of a buffer. Reads fill it from front to end.
const BUFFER_LEN: usize = 512 << 10;
/// Buffers kept for reuse. A buffer whose slices live longer than this many others leaves the pool.
const RETIRED_MAX: usize = 8;

#[derive(Default)]
pub(crate) struct Pool {
    current: BytesMut,
    /// Used up, oldest first; each is free when its last slice is dropped.
    retired: VecDeque<BytesMut>,
}

impl Pool {
    /// A buffer with room for a read behind `prefix`.
    pub fn room(&mut self, prefix: &[u8]) -> &mut BytesMut {
        let len = READ_LEN + prefix.len();
        if self.current.capacity() < len {
            let fresh = self.recycle(len);
            let full = std::mem::replace(&mut self.current, fresh);
            if full.capacity() > 0 || self.retired.len() < RETIRED_MAX {
                self.retired.push_back(full);
            }
            self.retired.truncate(RETIRED_MAX);
        }
        self.current.extend_from_slice(prefix);
        &mut self.current
    }

    /// The prefix and the bytes read behind it.
    pub fn take(&mut self) -> BytesMut {
        self.current.split()
    }

    fn recycle(&mut self, len: usize) -> BytesMut {
        for _ in 0..self.retired.len() {
            if let Some(mut oldest) = self.retired.pop_front() {
                if oldest.try_reclaim(BUFFER_LEN) {
                    return oldest;
                }
                self.retired.push_back(oldest);
            }
        }
        self.retired.pop_front();
        BytesMut::with_capacity(BUFFER_LEN.max(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_slices_are_gone() {
        let mut pool = Pool::default();
        let mut starts = Vec::new();
        for round in 0..50 {
            let room = pool.room(b"left over");
            assert!(room.capacity() - room.len() >= READ_LEN, "round {round}");
            room.extend_from_slice(&[1; READ_LEN]);
            let taken = pool.take();
            assert_eq!(taken.len(), READ_LEN + 9);
            starts.push(taken.as_ptr() as usize / BUFFER_LEN);
        }
        starts.sort();
        starts.dedup();
        assert!(starts.len() <= 4, "fifty reads used {} buffers", starts.len());
    }

    #[test]
    fn a_slice_that_is_kept_is_left_alone() {
        let mut pool = Pool::default();
        let mut kept = Vec::new();
        for n in 0..200u8 {
            pool.room(&[]).extend_from_slice(&[n; READ_LEN]);
            kept.push(pool.take().freeze().slice(..10));
        }
        assert!(kept.iter().enumerate().all(|(n, k)| k[..] == [n as u8; 10]));
    }
}
