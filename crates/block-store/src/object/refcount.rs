//! Reference counts of blocks that clones share.
//!
//! One record covers 64 neighbouring blocks and lists those with more than one owner; all others have one.

use crate::varint;
use codec::{DecodeError, Reader};
use smallvec::SmallVec;

const VERSION: u8 = 1;
/// Blocks whose counts share a record.
pub const GROUP_BLOCKS: u64 = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refcounts {
    /// Block within the group, and its count of at least 2; ascending.
    counts: SmallVec<[(u8, u64); 16]>,
}

impl Refcounts {
    pub fn get(&self, block: u64) -> u64 {
        let at = (block % GROUP_BLOCKS) as u8;
        self.counts.binary_search_by_key(&at, |c| c.0).map_or(1, |i| self.counts[i].1)
    }

    pub fn set(&mut self, block: u64, count: u64) {
        let at = (block % GROUP_BLOCKS) as u8;
        match self.counts.binary_search_by_key(&at, |c| c.0) {
            Ok(i) if count < 2 => {
                self.counts.remove(i);
            }
            Ok(i) => self.counts[i].1 = count,
            Err(_) if count < 2 => {}
            Err(i) => self.counts.insert(i, (at, count)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Blocks of `group` with more than one owner, and their counts.
    pub fn shared(&self, group: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().map(move |&(at, count)| (group * GROUP_BLOCKS + at as u64, count))
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for &(at, count) in &self.counts {
            out.push(at);
            varint::put(&mut out, count);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Refcounts, DecodeError> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if version != VERSION {
            return Err(DecodeError::TooOld { what: "counts of owners", version });
        }
        let mut out = Refcounts::default();
        while !r.is_empty() {
            let (at, count) = (r.u8()?, varint::take(&mut r)?);
            let ascends = out.counts.last().is_none_or(|last| last.0 < at);
            if !ascends || at as u64 >= GROUP_BLOCKS || count < 2 {
                return Err(DecodeError::Invalid { what: "count of owners", value: count, offset: 1 });
            }
            out.counts.push((at, count));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_round_trip_and_one_owner_takes_no_room() {
        let mut counts = Refcounts::default();
        counts.set(64 + 7, 3);
        counts.set(64 + 3, 2);
        counts.set(64 + 9, 1);
        let again = Refcounts::decode(&counts.encode()).unwrap();
        assert_eq!(again, counts);
        assert_eq!([3, 7, 9].map(|b| again.get(b)), [2, 3, 1]);
        assert_eq!(again.shared(1).collect::<Vec<_>>(), [(67, 2), (71, 3)]);
        counts.set(3, 1);
        counts.set(7, 1);
        assert!(counts.is_empty());
    }
}
