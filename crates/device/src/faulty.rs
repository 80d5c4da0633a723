//! Bit rot on top of any device: reads return flipped bits until the block is written again.

use super::dice::Dice;
use super::{BlockDevice, Done, Request};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Flipped bits, by byte of the device. Shared with the test that flips them.
#[derive(Clone, Default)]
pub struct Rot(Rc<RefCell<BTreeMap<u64, u8>>>);

impl Rot {
    /// Flips a bit. Writing the byte again heals it.
    pub fn flip(&self, offset: u64, bit: u8) {
        *self.0.borrow_mut().entry(offset).or_default() ^= 1 << (bit % 8);
    }

    /// Flips `count` random bits in `start..end` and returns their bytes.
    pub fn flip_random(&self, start: u64, end: u64, count: usize, dice: &mut Dice) -> Vec<u64> {
        let places: Vec<u64> = (0..count).map(|_| start + dice.below(end - start)).collect();
        places.iter().for_each(|&at| self.flip(at, dice.below(8) as u8));
        places
    }

    /// Bytes that read wrong now.
    pub fn places(&self) -> Vec<u64> {
        self.0.borrow().iter().filter(|(_, bits)| **bits != 0).map(|(at, _)| *at).collect()
    }

    fn written(&self, offset: u64, len: u64) {
        let places = &mut *self.0.borrow_mut();
        let healed: Vec<u64> = places.range(offset..offset + len).map(|(at, _)| *at).collect();
        for at in healed {
            places.remove(&at);
        }
    }

    fn apply(&self, offset: u64, data: Bytes) -> Bytes {
        let places = self.0.borrow();
        let mut rotten = places.range(offset..offset + data.len() as u64).peekable();
        if rotten.peek().is_none() {
            return data;
        }
        let mut data = data.to_vec();
        rotten.for_each(|(at, bits)| data[(at - offset) as usize] ^= bits);
        data.into()
    }
}

/// A device with rot.
pub struct Faulty<D> {
    inner: D,
    rot: Rot,
    /// Offsets of reads in flight, by token.
    reads: BTreeMap<u64, u64>,
}

impl<D: BlockDevice> Faulty<D> {
    pub fn new(inner: D, rot: Rot) -> Faulty<D> {
        Faulty { inner, rot, reads: BTreeMap::new() }
    }
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn size_of(&self, number: usize) -> Option<u64> {
        self.inner.size_of(number)
    }

    fn submit(&mut self, token: u64, request: Request) {
        match &request {
            Request::Read { offset, .. } => drop(self.reads.insert(token, *offset)),
            Request::Write { offset, data, .. } => self.rot.written(*offset, data.len() as u64),
            Request::Discard { offset, len } => self.rot.written(*offset, *len),
            Request::Flush => {}
        }
        self.inner.submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        let first = out.len();
        let more = self.inner.poll(out);
        for done in &mut out[first..] {
            let read_at = self.reads.remove(&done.token);
            if let (Some(offset), Ok(data)) = (read_at, &mut done.result) {
                *data = self.rot.apply(offset, std::mem::take(data));
            }
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Pace, Simulated};
    use crate::{BLOCK, Durability};

    fn read(device: &mut impl BlockDevice, offset: u64) -> Bytes {
        device.submit(7, Request::Read { offset, len: BLOCK });
        let mut out = Vec::new();
        while device.poll(&mut out) {}
        out.pop().unwrap().result.unwrap()
    }

    #[test]
    fn flipped_bit_is_read_until_written_again() {
        let rot = Rot::default();
        let mut device = Faulty::new(Simulated::new(1 << 20, Pace::AtOnce, 1), rot.clone());
        let write =
            Request::Write { offset: 4096, data: vec![1; BLOCK].into(), durability: Durability::Later };
        device.submit(1, write.clone());
        rot.flip(4100, 7);
        let rotten = read(&mut device, 4096);
        assert_eq!((rotten[3], rotten[4]), (1, 0x81));
        device.submit(1, write);
        assert_eq!(read(&mut device, 4096)[4], 1);
        assert_eq!(rot.places(), []);
    }
}
