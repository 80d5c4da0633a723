//! Bytes in several pieces, so that a payload travels from a socket to a device without being joined.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// A sequence of byte slices that reads as one. Most have one piece.
#[derive(Clone, Default)]
pub struct Rope {
    pieces: SmallVec<[Bytes; 2]>,
    len: usize,
    /// See [`Rope::sum`].
    sum: Option<u32>,
}

impl Rope {
    pub fn new() -> Rope {
        Rope::default()
    }

    /// Bytes whose checksum is known, if it is: see [`Rope::sum`].
    pub fn summed(bytes: Bytes, sum: Option<u32>) -> Rope {
        let mut rope = Rope::from(bytes);
        rope.sum = sum;
        rope
    }

    /// These bytes, now that their checksum is known.
    pub fn with_sum(mut self, sum: Option<u32>) -> Rope {
        self.sum = sum;
        self
    }

    /// The crc32c of all the bytes, started from all ones and not inverted at the end, as frames carry it, if
    /// it is known. Received data keeps the checksum of its frame: a reading client gets the checksum that the writing
    /// client computed, and no daemon computes it in between.
    pub fn sum(&self) -> Option<u32> {
        self.sum
    }

    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(piece);
            self.sum = None;
        }
    }

    pub fn append(&mut self, other: Rope) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            self.len += other.len;
            self.pieces.extend(other.pieces);
            self.sum = None;
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        self.pieces.into_iter()
    }

    /// The bytes `start..start + len` without copying; `None` when they are not all there.
    pub fn slice(&self, start: usize, len: usize) -> Option<Rope> {
        if start.checked_add(len)? > self.len {
            return None;
        }
        if len == self.len {
            return Some(self.clone());
        }
        let (mut skip, mut left, mut out) = (start, len, Rope::new());
        for piece in &self.pieces {
            if left == 0 {
                break;
            }
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let n = left.min(piece.len() - skip);
            out.push(piece.slice(skip..skip + n));
            left -= n;
            skip = 0;
        }
        Some(out)
    }

    /// One slice: free when there is one piece, a copy otherwise.
    pub fn to_bytes(&self) -> Bytes {
        match self.pieces.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut out = BytesMut::with_capacity(self.len);
                many.iter().for_each(|p| out.extend_from_slice(p));
                out.freeze()
            }
        }
    }
}

/// By the pieces; whether a checksum is known makes no difference.
impl PartialEq for Rope {
    fn eq(&self, other: &Rope) -> bool {
        self.pieces == other.pieces
    }
}

impl Eq for Rope {}

impl From<Bytes> for Rope {
    fn from(b: Bytes) -> Rope {
        let mut r = Rope::new();
        r.push(b);
        r
    }
}

impl From<Vec<u8>> for Rope {
    fn from(v: Vec<u8>) -> Rope {
        Bytes::from(v).into()
    }
}

impl FromIterator<Bytes> for Rope {
    fn from_iter<I: IntoIterator<Item = Bytes>>(iter: I) -> Rope {
        let mut r = Rope::new();
        iter.into_iter().for_each(|b| r.push(b));
        r
    }
}

impl std::fmt::Debug for Rope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rope({} bytes in {})", self.len, self.pieces.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_stays_with_its_bytes() {
        let summed = Rope::summed(Bytes::from_static(b"abc"), Some(7));
        assert_eq!(summed.slice(0, 3).unwrap().sum(), Some(7));
        assert_eq!(summed.slice(0, 2).unwrap().sum(), None);
        let mut joined = Rope::new();
        joined.append(summed.clone());
        joined.append(Rope::new());
        assert_eq!(joined.sum(), Some(7));
        joined.append(summed.clone());
        assert_eq!(joined.sum(), None);
        let mut pushed = summed;
        pushed.push(Bytes::from_static(b"d"));
        assert_eq!(pushed.sum(), None);
    }

    #[test]
    fn slice_across_pieces_equals_joined_bytes() {
        let r: Rope = [&b"abc"[..], b"defg", b"h"].into_iter().map(Bytes::from_static).collect();
        let whole = b"abcdefgh";
        for start in 0..=8 {
            for len in 0..=8 - start {
                assert_eq!(&r.slice(start, len).unwrap().to_bytes()[..], &whole[start..start + len]);
            }
        }
        assert!(r.slice(7, 2).is_none());
        assert!(r.slice(usize::MAX, 2).is_none());
    }
}
