//! Bytes on their way to a socket: small pieces joined, large ones as they are.

use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Copying a piece up to this length is cheaper than another entry in the vector of a write.
const COPY_LEN_MAX: usize = 1024;
/// Small pieces are joined in buffers of this size, taken when first needed and let go when written.
const JOIN_LEN: usize = 16 << 10;

#[derive(Default)]
pub struct WriteQueue {
    sealed: VecDeque<Bytes>,
    /// Still growing; comes after everything sealed.
    tail: BytesMut,
    len: usize,
    /// Of all bytes that were ever queued, so many have left.
    written: u64,
}

impl WriteQueue {
    pub fn new() -> WriteQueue {
        WriteQueue::default()
    }

    /// Bytes not yet written.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes written since the queue began.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Copy.
    pub fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len());
        self.tail.put_slice(bytes);
        self.len += bytes.len();
    }

    /// Keep, or copy when small.
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_LEN_MAX {
            return self.put(&bytes);
        }
        self.seal();
        self.len += bytes.len();
        self.sealed.push_back(bytes);
    }

    /// Fill the queue into `slices`; says how many there are.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let all = self.sealed.iter().map(|b| &b[..]).chain((!self.tail.is_empty()).then_some(&self.tail[..]));
        all.zip(slices).map(|(piece, slot)| *slot = IoSlice::new(piece)).count()
    }

    /// Forget the first `n` bytes: they are written.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn advance(&mut self, mut n: usize) {
        self.len = self.len.checked_sub(n).expect("no more is written than was queued");
        self.written += n as u64;
        while let Some(first) = self.sealed.front_mut() {
            if n < first.len() {
                bytes::Buf::advance(first, n);
                return;
            }
            n -= first.len();
            self.sealed.pop_front();
        }
        if n == self.tail.len() {
            self.tail = BytesMut::new();
        } else {
            bytes::Buf::advance(&mut self.tail, n);
        }
    }

    /// Take everything, in order.
    pub fn take(&mut self) -> impl Iterator<Item = Bytes> {
        self.seal();
        self.written += self.len as u64;
        self.len = 0;
        std::mem::take(&mut self.sealed).into_iter()
    }

    pub fn clear(&mut self) {
        *self = WriteQueue::default();
    }

    /// Room for `n` contiguous bytes, to be written by `fill`, which must append exactly that many.
    pub(super) fn write_contiguous(&mut self, n: usize, fill: impl FnOnce(&mut BytesMut, usize)) {
        self.room(n);
        let at = self.tail.len();
        fill(&mut self.tail, at);
        debug_assert_eq!(self.tail.len(), at + n);
        self.len += n;
    }

    fn room(&mut self, n: usize) {
        if self.tail.capacity() - self.tail.len() < n {
            self.seal();
            self.tail = BytesMut::with_capacity(n.max(JOIN_LEN));
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let rest = self.tail.split_off(self.tail.len());
            let full = std::mem::replace(&mut self.tail, rest);
            self.sealed.push_back(full.freeze());
        }
    }
}

impl std::fmt::Debug for WriteQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteQueue({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_keeps_order_however_taken() {
        let big = |b: u8| Bytes::from(vec![b; COPY_LEN_MAX + 1]);
        let fill = || {
            let mut q = WriteQueue::new();
            q.put(b"one");
            q.push(big(2));
            q.push(Bytes::from_static(b"three"));
            q.push(big(4));
            q.put(&[5; 3 * JOIN_LEN]);
            q
        };
        let whole: Vec<u8> = fill().take().flat_map(|b| b.to_vec()).collect();
        assert_eq!(whole.len(), fill().len());
        for step in [1, 7, 1000, 5000, whole.len()] {
            let (mut q, mut got) = (fill(), Vec::new());
            while !q.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let n = q.io_slices(&mut slices);
                let seen: Vec<u8> = slices[..n].iter().flat_map(|s| s.iter().copied()).take(step).collect();
                got.extend_from_slice(&seen);
                q.advance(seen.len());
            }
            assert!(got == whole, "in steps of {step}");
        }
    }

    #[test]
    fn large_piece_is_not_copied() {
        let mut q = WriteQueue::new();
        let piece = Bytes::from(vec![1; 5000]);
        let at = piece.as_ptr();
        q.put(b"head");
        q.push(piece);
        assert_eq!(q.take().nth(1).unwrap().as_ptr(), at);
    }
}
