//! Bitmap of blocks, with the number of clear bits per chunk, so that a search skips full chunks.

use super::Run;

/// Bits of a chunk.
const CHUNK_BITS: u64 = 1 << 12;

pub struct Bitmap {
    words: Vec<u64>,
    /// Number of clear bits, by chunk.
    clear_in_chunk: Vec<u32>,
    clear: u64,
    len: u64,
}

impl Bitmap {
    /// A bitmap with all bits clear.
    pub fn new(len: u64) -> Bitmap {
        let chunks = len.div_ceil(CHUNK_BITS);
        let clear_in_chunk = (0..chunks).map(|i| (len - i * CHUNK_BITS).min(CHUNK_BITS) as u32).collect();
        Bitmap { words: vec![0; len.div_ceil(64) as usize], clear_in_chunk, clear: len, len }
    }

    pub fn len(&self) -> u64 {
        self.len
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
            let chunk = &mut self.clear_in_chunk[(at / CHUNK_BITS) as usize];
            *chunk = if value { *chunk - flipped } else { *chunk + flipped };
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
            if at.is_multiple_of(CHUNK_BITS) && self.chunk_is_all((at / CHUNK_BITS) as usize, !value) {
                at += CHUNK_BITS;
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

    fn chunk_is_all(&self, chunk: usize, value: bool) -> bool {
        let clear = self.clear_in_chunk[chunk] as u64;
        match value {
            true => clear == 0,
            false => clear == (self.len - chunk as u64 * CHUNK_BITS).min(CHUNK_BITS),
        }
    }

    /// Start of the first run of at least `min` clear bits, at or after `from`. Words without such a run cost a few steps each,
    /// however many short runs they have.
    pub fn find_clear(&self, from: u64, min: u64) -> Option<u64> {
        debug_assert!(min > 0);
        if from >= self.len {
            return None;
        }
        let mut word_at = (from / 64) as usize;
        let mut before_from = (1u64 << (from % 64)) - 1;
        // Clear bits directly before the word.
        let mut clear_before = 0;
        while let Some(word) = self.words.get(word_at) {
            let base = word_at as u64 * 64;
            if base.is_multiple_of(CHUNK_BITS) && self.chunk_is_all((base / CHUNK_BITS) as usize, true) {
                (word_at, before_from, clear_before) = (word_at + (CHUNK_BITS / 64) as usize, 0, 0);
                continue;
            }
            let behind_end = if self.len - base < 64 { u64::MAX << (self.len - base) } else { 0 };
            let set = word | std::mem::take(&mut before_from) | behind_end;
            if clear_before + set.trailing_zeros() as u64 >= min {
                return Some(base - clear_before);
            }
            if set == 0 {
                clear_before += 64;
            } else {
                if let Some(bit) = first_of_clear(set, min) {
                    return Some(base + bit);
                }
                clear_before = set.leading_zeros() as u64;
            }
            word_at += 1;
        }
        None
    }

    /// Length of the longest run of clear bits.
    pub fn longest_clear(&self) -> u64 {
        let (mut at, mut longest) = (0, 0);
        while let Some(start) = self.find_clear(at, longest + 1) {
            at = self.next_set_before(start, self.len);
            longest = at - start;
        }
        longest
    }

    /// The run of clear bits around a clear bit.
    pub fn clear_around(&self, bit: u64) -> Run {
        let mut start = bit;
        while start > 0 {
            let word = self.words[((start - 1) / 64) as usize];
            // Bits from the top of the word down to, not including, `start`.
            let below = word << (63 - (start - 1) % 64);
            if below != 0 {
                start -= below.leading_zeros() as u64;
                break;
            }
            start -= (start - 1) % 64 + 1;
        }
        Run::new(start, self.next_set_before(bit, self.len) - start)
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

    /// All bits, lowest first; empty if none is set.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.clear == self.len {
            return Vec::new();
        }
        self.words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// A bitmap of so many bits from [`Bitmap::to_bytes`]. `None` if the bytes belong to another length.
    pub fn from_bytes(len: u64, bytes: &[u8]) -> Option<Bitmap> {
        let mut out = Bitmap::new(len);
        if !bytes.is_empty() && bytes.len() != out.words.len() * 8 {
            return None;
        }
        for (i, chunk) in bytes.chunks_exact(8).enumerate() {
            let mut word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
            while word != 0 {
                let bit = i as u64 * 64 + word.trailing_zeros() as u64;
                if bit >= len {
                    return None;
                }
                out.put(Run::new(bit, 1), true);
                word &= word - 1;
            }
        }
        Some(out)
    }
}

/// The first of at least `min` neighbouring clear bits within a word.
fn first_of_clear(word: u64, min: u64) -> Option<u64> {
    if (word.count_zeros() as u64) < min {
        return None;
    }
    // Bit `i` stays if the `have` bits from it on are clear.
    let (mut clear, mut have) = (!word, 1);
    while have < min {
        let more = have.min(min - have);
        clear &= clear >> more;
        have += more;
    }
    (clear != 0).then(|| clear.trailing_zeros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list_of_bools(
            len in 1u64..40_000,
            steps in prop::collection::vec((any::<u32>(), prop_oneof![0u64..90, 0u64..3000], any::<bool>()), 0..60),
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
            for min in [1, 2, 7, 16, 63, 64, 65, 200, 5000] {
                let found = (from..len).find(|&b| {
                    b + min <= len && model[b as usize..(b + min) as usize].iter().all(|set| !set)
                });
                prop_assert_eq!(map.find_clear(from, min), found, "{} bits", min);
            }
            let mut again = vec![false; len as usize];
            map.set_runs().for_each(|r| again[r.start as usize..r.end() as usize].fill(true));
            prop_assert_eq!(&again, &model);
            let longest = model.split(|set| *set).map(<[bool]>::len).max();
            prop_assert_eq!(Some(map.longest_clear() as usize), longest);
            if let Some(bit) = expected {
                let start = (0..bit).rev().find(|&b| model[b as usize]).map_or(0, |set| set + 1);
                let end = (bit..len).find(|&b| model[b as usize]).unwrap_or(len);
                prop_assert_eq!(map.clear_around(bit), Run::new(start, end - start));
            }
            let copy = Bitmap::from_bytes(len, &map.to_bytes()).unwrap();
            prop_assert_eq!(copy.words, map.words);
            prop_assert_eq!(copy.clear_in_chunk, map.clear_in_chunk);
        }
    }
}
