//! Encryption at rest on top of any device: AES-256-XTS, block by block.
//!
//! Blocks are encrypted on their way to the device below and decrypted on their way back. Offsets, lengths, flushes and
//! discards pass unchanged, so the contract of the device below holds: a block may be torn, and is garbage from there on.
//! Blocks that were never written or are discarded read as anything, as without encryption.
//!
//! A write is encrypted into one new buffer, aligned for direct I/O. A read is decrypted in the device's buffer where that
//! has no other owner, and otherwise into a new one, in the same pass over the bytes.

mod xts;

pub use xts::{DATA_KEY_BYTES, DataKey};

use crate::{BLOCK, BlockDevice, Done, Request};
use bytes::{Bytes, BytesMut};
use codec::Rope;
use std::collections::BTreeMap;
use xts::{Direction, Xts};

/// A device of which the device below has the ciphertext.
pub struct Encrypted<D> {
    inner: D,
    encrypt: Xts,
    decrypt: Xts,
    /// Offsets of reads in flight, by token.
    reads: BTreeMap<u64, u64>,
}

impl<D: BlockDevice> Encrypted<D> {
    pub fn new(inner: D, key: &DataKey) -> Encrypted<D> {
        Encrypted {
            inner,
            encrypt: Xts::new(key, Direction::Encrypt),
            decrypt: Xts::new(key, Direction::Decrypt),
            reads: BTreeMap::new(),
        }
    }

    fn encrypted(&mut self, offset: u64, data: &Rope) -> Bytes {
        let len = data.len();
        let mut out: Vec<u8> = Vec::with_capacity(len + BLOCK);
        // The front is cut off so that the rest begins at a block's alignment.
        let front = out.as_ptr().align_offset(BLOCK);
        out.resize(front, 0);
        let mut number = offset / BLOCK as u64;
        // Bytes of a block that began in an earlier piece.
        let mut begun = 0;
        for piece in data.pieces() {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                if begun == 0 && rest.len() >= BLOCK {
                    let (block, after) = rest.split_at(BLOCK);
                    self.encrypt.append(number, block, &mut out);
                    (rest, number) = (after, number + 1);
                    continue;
                }
                let (part, after) = rest.split_at(rest.len().min(BLOCK - begun));
                out.extend_from_slice(part);
                (rest, begun) = (after, begun + part.len());
                if begun == BLOCK {
                    let at = out.len() - BLOCK;
                    self.encrypt.in_place(number, &mut out[at..]);
                    (begun, number) = (0, number + 1);
                }
            }
        }
        Bytes::from(out).slice(front..)
    }

    fn decrypted(&mut self, offset: u64, data: Bytes) -> Bytes {
        let numbers = offset / BLOCK as u64..;
        match data.try_into_mut() {
            Ok(mut own) => {
                for (number, block) in numbers.zip(own.chunks_exact_mut(BLOCK)) {
                    self.decrypt.in_place(number, block);
                }
                BytesMut::freeze(own)
            }
            Err(shared) => {
                let mut out = Vec::with_capacity(shared.len());
                for (number, block) in numbers.zip(shared.chunks_exact(BLOCK)) {
                    self.decrypt.append(number, block, &mut out);
                }
                out.into()
            }
        }
    }
}

impl<D: BlockDevice> BlockDevice for Encrypted<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn size_of(&self, number: usize) -> Option<u64> {
        self.inner.size_of(number)
    }

    fn submit(&mut self, token: u64, request: Request) {
        request.check(self.inner.size());
        let request = match request {
            Request::Write { offset, data, durability } => {
                Request::Write { offset, data: self.encrypted(offset, &data).into(), durability }
            }
            Request::Read { offset, .. } => {
                self.reads.insert(token, offset);
                request
            }
            Request::Flush | Request::Discard { .. } => request,
        };
        self.inner.submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        let first = out.len();
        let more = self.inner.poll(out);
        for done in &mut out[first..] {
            let read_at = self.reads.remove(&done.token);
            if let (Some(offset), Ok(data)) = (read_at, &mut done.result) {
                *data = self.decrypted(offset, std::mem::take(data));
            }
        }
        more
    }
}

/// The plaintext of a block of the device below, for tests that look at it.
#[cfg(any(test, feature = "simulated"))]
pub fn plaintext(key: &DataKey, offset: u64, block: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Xts::new(key, Direction::Decrypt).append(offset / BLOCK as u64, block, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use crate::conformance::{SIZE_MIN, suite};
    use crate::simulated::{Pace, Simulated};

    fn key(seed: u8) -> DataKey {
        DataKey::new(&std::array::from_fn(|i| i as u8 ^ seed)).unwrap()
    }

    #[test]
    fn encrypted_device_conforms() {
        for pace in [Pace::AtOnce, Pace::Shuffled { per_poll_max: 4 }] {
            suite(|| Encrypted::new(Simulated::new(SIZE_MIN, pace, 1), &key(0)), |_| ());
        }
    }

    #[test]
    fn device_below_has_ciphertext_by_place() {
        let disk = Simulated::new(1 << 20, Pace::AtOnce, 1);
        let mut device = Encrypted::new(disk.clone(), &key(0));
        let data = Bytes::from(vec![7; 2 * BLOCK]);
        device.submit(
            1,
            Request::Write { offset: 8192, data: data.clone().into(), durability: Durability::Later },
        );
        while device.poll(&mut Vec::new()) {}
        let (first, second) = (disk.peek(8192), disk.peek(8192 + 4096));
        assert_ne!(first, second, "equal blocks at two places");
        for block in [&first, &second] {
            // Equal parts of a block differ, too.
            let parts: std::collections::BTreeSet<&[u8]> = block.chunks(16).collect();
            assert_eq!(parts.len(), BLOCK / 16);
        }
        let mut other = Encrypted::new(disk, &key(1));
        other.submit(1, Request::Read { offset: 8192, len: 2 * BLOCK });
        let mut done = Vec::new();
        while other.poll(&mut done) {}
        assert_ne!(done.pop().unwrap().result.unwrap(), data, "with another key");
    }

    #[test]
    fn read_with_two_owners_leaves_the_bytes_of_the_other() {
        let mut device = Encrypted::new(Simulated::new(1 << 20, Pace::AtOnce, 1), &key(0));
        let plain = Bytes::from(vec![9; BLOCK]);
        let cipher = device.encrypted(0, &plain.clone().into());
        assert!(cipher.as_ptr().addr().is_multiple_of(BLOCK));
        let kept = cipher.clone();
        assert_eq!(device.decrypted(0, cipher.clone()), plain);
        assert_eq!(kept, cipher);
        drop(kept);
        let address = cipher.as_ptr();
        let out = device.decrypted(0, cipher);
        assert_eq!((out.as_ptr(), &out), (address, &plain), "in place");
    }
}
