//! Bitmap of blocks, with the number of clear bits per zone, so that a search skips full zones.

use super::Run;

/// Blocks of a zone: 64 MiB. The bits of a zone are one index record.
pub const ZONE_BLOCKS: u64 = 1 << 14;
const ZONE_WORDS: usize = (ZONE_BLOCKS / 64) as usize;

pub struct Bitmap {
    words: Vec<u64>,
    /// Number of clear bits, by zone.
    clear_in_zone: Vec<u32>,
    clear: u64,
    len: u64,
}

impl Bitmap {
    /// A bitmap with all bits clear.
    pub fn new(len: u64) -> Bitmap {
        let zones = len.div_ceil(ZONE_BLOCKS);
        let clear_in_zone = (0..zones).map(|z| (len - z * ZONE_BLOCKS).min(ZONE_BLOCKS) as u32).collect();
        Bitmap { words: vec![0; len.div_ceil(64) as usize], clear_in_zone, clear: len, len }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn zones(&self) -> usize {
        self.clear_in_zone.len()
    }

    /// Number of clear bits.
    pub fn clear(&self) -> u64 {
        self.clear
    }

    pub fn is_set(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Sets or clears a run of bits. Returns the number of changed bits.
    pub fn put(&mut self, run: Run, value: bool) -> u64 {
        assert!(run.end() <= self.len, "{run:?} of {} bits", self.len);
        let (mut at, mut changed) = (run.start, 0);
        while at < run.end() {
            let bit = at % 64;
            let count = (64 - bit).min(run.end() - at);
            let mask = if count == 64 { u64::MAX } else { ((1 << count) - 1) << bit };
            let word = &mut self.words[(at / 64) as usize];
            let before = *word;
            *word = if value { before | mask } else { before & !mask };
            let flipped = (before ^ *word).count_ones();
            let zone = &mut self.clear_in_zone[(at / ZONE_BLOCKS) as usize];
            *zone = if value { *zone - flipped } else { *zone + flipped };
            changed += flipped as u64;
            at += count;
        }
        self.clear = if value { self.clear - changed } else { self.clear + changed };
        changed
    }

    /// The first run of clear bits at or after `from`, of at most `max` bits.
    pub fn next_clear(&self, from: u64, max: u64) -> Option<Run> {
        let start = self.next_with(from, false)?;
        let limit = self.len.min(start.saturating_add(max));
        let end = self.next_set_before(start, limit);
        Some(Run::new(start, end - start))
    }

    /// The first set bit at or after `from`, or `limit`.
    fn next_set_before(&self, from: u64, limit: u64) -> u64 {
        let mut at = from;
        while at < limit {
            let rest = self.words[(at / 64) as usize] >> (at % 64);
            if rest != 0 {
                return limit.min(at + rest.trailing_zeros() as u64);
            }
            at += 64 - at % 64;
        }
        limit
    }

    /// The first set bit at or after `from`.
    pub fn next_set(&self, from: u64) -> Option<u64> {
        self.next_with(from, true)
    }

    /// True if no bit of the run is set.
    pub fn is_clear(&self, run: Run) -> bool {
        self.next_set_before(run.start, run.end()) == run.end()
    }

    fn next_with(&self, from: u64, value: bool) -> Option<u64> {
        let mut at = from;
        while at < self.len {
            if at.is_multiple_of(ZONE_BLOCKS) && self.zone_is_all((at / ZONE_BLOCKS) as usize, !value) {
                at += ZONE_BLOCKS;
                continue;
            }
            let word = self.words[(at / 64) as usize];
            let rest = (if value { word } else { !word }) >> (at % 64);
            if rest != 0 {
                let found = at + rest.trailing_zeros() as u64;
                return (found < self.len).then_some(found);
            }
            at += 64 - at % 64;
        }
        None
    }

    fn zone_is_all(&self, zone: usize, value: bool) -> bool {
        let clear = self.clear_in_zone[zone] as u64;
        match value {
            true => clear == 0,
            false => clear == (self.len - zone as u64 * ZONE_BLOCKS).min(ZONE_BLOCKS),
        }
    }

    /// Runs of set bits, ascending.
    pub fn set_runs(&self) -> impl Iterator<Item = Run> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next_with(at, true)?;
            let end = self.next_with(start, false).unwrap_or(self.len);
            at = end;
            Some(Run::new(start, end - start))
        })
    }

    /// The index record of a zone; `None` if all bits are clear.
    pub fn zone_bytes(&self, zone: usize) -> Option<Vec<u8>> {
        let words = self.zone_words(zone);
        if words.iter().all(|w| *w == 0) {
            return None;
        }
        Some(words.iter().flat_map(|w| w.to_le_bytes()).collect())
    }

    /// Sets the bits of an index record. Returns false if it is malformed.
    pub fn load_zone(&mut self, zone: usize, bytes: &[u8]) -> bool {
        if zone >= self.zones() || bytes.len() != self.zone_words(zone).len() * 8 {
            return false;
        }
        let first = zone as u64 * ZONE_BLOCKS;
        for (i, chunk) in bytes.chunks_exact(8).enumerate() {
            let mut word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
            while word != 0 {
                let bit = first + i as u64 * 64 + word.trailing_zeros() as u64;
                if bit >= self.len {
                    return false;
                }
                self.put(Run::new(bit, 1), true);
                word &= word - 1;
            }
        }
        true
    }

    fn zone_words(&self, zone: usize) -> &[u64] {
        let first = zone * ZONE_WORDS;
        &self.words[first..self.words.len().min(first + ZONE_WORDS)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list_of_bools(
            len in 1u64..40_000,
            steps in prop::collection::vec((any::<u32>(), 0u64..3000, any::<bool>()), 0..40),
            from in any::<u32>(),
        ) {
            let (mut map, mut model) = (Bitmap::new(len), vec![false; len as usize]);
            for (start, count, value) in steps {
                let start = start as u64 % len;
                let run = Run::new(start, count.min(len - start));
                let slice = &mut model[run.start as usize..run.end() as usize];
                let changed = slice.iter().filter(|b| **b != value).count() as u64;
                slice.fill(value);
                prop_assert_eq!(map.put(run, value), changed);
            }
            prop_assert_eq!(map.clear(), model.iter().filter(|b| !**b).count() as u64);
            let from = from as u64 % len;
            let expected = (from..len).find(|&b| !model[b as usize]);
            let found = map.next_clear(from, 100);
            prop_assert_eq!(found.map(|r| r.start), expected);
            if let Some(run) = found {
                let end = (run.start..len).find(|&b| model[b as usize]).unwrap_or(len);
                prop_assert_eq!(run.end(), end.min(run.start + 100));
            }
            let mut again = vec![false; len as usize];
            map.set_runs().for_each(|r| again[r.start as usize..r.end() as usize].fill(true));
            prop_assert_eq!(&again, &model);
            let mut copy = Bitmap::new(len);
            for zone in 0..map.zones() {
                if let Some(bytes) = map.zone_bytes(zone) {
                    prop_assert!(copy.load_zone(zone, &bytes));
                }
            }
            prop_assert_eq!(copy.words, map.words);
            prop_assert_eq!(copy.clear_in_zone, map.clear_in_zone);
        }
    }
}
