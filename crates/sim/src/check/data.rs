//! Object bytes in the checker's model: runs of [`Fill`]s instead of the bytes themselves.
//!
//! A write's bytes are a function of its token and of the position within the write, so a run of three numbers stands
//! for any number of bytes, and a read is compared without materializing what was expected.

use super::Token;

/// The bytes of one write: `len` bytes that are unique to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fill {
    pub token: Token,
    pub len: u64,
}

/// Bits of a word's index within its fill. The token has the other bits.
const INDEX_BITS: u32 = 20;
/// Odd, so that multiplication is invertible; [`MIX_INVERSE`] inverts it.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX_INVERSE: u64 = 0xf1de_83e1_9937_733d;
const WORD: u64 = 8;

impl Fill {
    pub fn bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len as usize + WORD as usize);
        for index in 0..self.len.div_ceil(WORD) {
            out.extend_from_slice(&word(self.token, index));
        }
        out.truncate(self.len as usize);
        out
    }
}

/// Word `index` of a token's bytes.
fn word(token: Token, index: u64) -> [u8; 8] {
    debug_assert!(index < 1 << INDEX_BITS && token < 1 << (64 - INDEX_BITS));
    (token << INDEX_BITS | index).wrapping_mul(MIX).to_le_bytes()
}

/// Consecutive bytes of one fill, or zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Run {
    /// [`ZEROS`] for zeros.
    token: Token,
    /// The run's offset within the fill. 0 for zeros.
    from: u64,
    len: u64,
}

const ZEROS: Token = 0;

impl Run {
    fn zeros(len: u64) -> Run {
        Run { token: ZEROS, from: 0, len }
    }

    fn after(self, skipped: u64) -> Run {
        let from = if self.token == ZEROS { 0 } else { self.from + skipped };
        Run { from, len: self.len - skipped, ..self }
    }

    fn continues(self, next: Run) -> bool {
        self.token == next.token && (self.token == ZEROS || self.from + self.len == next.from)
    }

    fn is(self, bytes: &[u8]) -> bool {
        debug_assert_eq!(bytes.len() as u64, self.len);
        if self.token == ZEROS {
            return bytes.iter().all(|b| *b == 0);
        }
        let (mut index, within) = (self.from / WORD, (self.from % WORD) as usize);
        let mut rest = bytes;
        if within > 0 {
            let head = (WORD as usize - within).min(rest.len());
            if rest[..head] != word(self.token, index)[within..within + head] {
                return false;
            }
            (rest, index) = (&rest[head..], index + 1);
        }
        let (words, tail) = rest.as_chunks::<8>();
        let whole = words.iter().enumerate().all(|(i, w)| *w == word(self.token, index + i as u64));
        whole && *tail == word_or_empty(self.token, index + words.len() as u64, tail.len())[..tail.len()]
    }

    fn byte(self, at: u64) -> u8 {
        let position = self.from + at;
        match self.token {
            ZEROS => 0,
            token => word(token, position / WORD)[(position % WORD) as usize],
        }
    }
}

/// The last word may lie beyond what a fill can number when nothing of it is wanted.
fn word_or_empty(token: Token, index: u64, wanted: usize) -> [u8; 8] {
    if wanted == 0 { [0; 8] } else { word(token, index) }
}

/// The bytes of an object.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Data {
    /// Adjacent runs of one fill are merged, so that equal bytes are equal runs.
    runs: Vec<Run>,
    len: u64,
}

impl Data {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn truncate(&mut self, size: u64) {
        if size > self.len {
            return self.push(Run::zeros(size - self.len));
        }
        let mut kept = std::mem::take(self);
        for run in kept.runs.drain(..) {
            self.push(Run { len: run.len.min(size - self.len), ..run });
        }
    }

    pub fn write(&mut self, offset: u64, fill: Fill) {
        self.splice(offset, Run { token: fill.token, from: 0, len: fill.len });
    }

    /// Zeros within the present length.
    pub fn zero(&mut self, offset: u64, len: u64) {
        self.splice(offset, Run::zeros(len));
    }

    fn splice(&mut self, offset: u64, new: Run) {
        if offset > self.len {
            self.truncate(offset);
        }
        let old = std::mem::take(self);
        let end = offset + new.len;
        let mut is_placed = false;
        let mut at = 0;
        for run in old.runs {
            if at < offset {
                self.push(Run { len: run.len.min(offset - at), ..run });
            }
            if at + run.len >= offset && !is_placed {
                self.push(new);
                is_placed = true;
            }
            if at + run.len > end {
                self.push(run.after(end.saturating_sub(at)));
            }
            at += run.len;
        }
        if !is_placed {
            self.push(new);
        }
    }

    fn push(&mut self, run: Run) {
        if run.len == 0 {
            return;
        }
        self.len += run.len;
        match self.runs.last_mut().filter(|last| last.continues(run)) {
            Some(last) => last.len += run.len,
            None => self.runs.push(run),
        }
    }

    /// The number of bytes of a range that exist.
    pub fn readable(&self, offset: u64, len: u64) -> u64 {
        len.min(self.len.saturating_sub(offset))
    }

    /// True if a read at `offset` gives `bytes`: all of them exist and are equal.
    pub fn is_at(&self, offset: u64, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        for run in self.runs_from(offset) {
            let len = (run.len as usize).min(rest.len());
            if !(Run { len: len as u64, ..run }).is(&rest[..len]) {
                return false;
            }
            rest = &rest[len..];
            if rest.is_empty() {
                return true;
            }
        }
        rest.is_empty()
    }

    pub fn is_zero(&self, offset: u64, len: u64) -> bool {
        let mut left = len;
        for run in self.runs_from(offset) {
            if left == 0 {
                break;
            }
            let len = run.len.min(left);
            if !(0..len).all(|at| run.byte(at) == 0) {
                return false;
            }
            left -= len;
        }
        true
    }

    /// The first byte at which the data at `offset` differs from `expected`. Bytes beyond the end compare as zeros.
    pub fn first_difference(&self, offset: u64, expected: &[u8]) -> Option<u64> {
        let stored = self.runs_from(offset).flat_map(|run| (0..run.len).map(move |i| run.byte(i)));
        let mut pairs = expected.iter().zip(stored.chain(std::iter::repeat(0)));
        pairs.position(|(want, have)| *want != have).map(|at| at as u64)
    }

    fn runs_from(&self, offset: u64) -> impl Iterator<Item = Run> {
        let mut skip = offset;
        self.runs.iter().filter_map(move |run| {
            let skipped = skip.min(run.len);
            skip -= skipped;
            (skipped < run.len).then(|| run.after(skipped))
        })
    }

    /// The writes that are visible in a range, each with its number of bytes there.
    pub fn tokens(&self, offset: u64, len: u64) -> Vec<(Token, u64)> {
        let mut left = len;
        let mut seen = Vec::new();
        for run in self.runs_from(offset) {
            let len = run.len.min(left);
            left -= len;
            if run.token != ZEROS && len > 0 {
                seen.push((run.token, len));
            }
        }
        seen
    }
}

/// The writes that `bytes` consists of, in order of offset, each with its number of bytes. Bytes that match no write are
/// left out. The text of a violation shows them.
pub fn tokens_of(bytes: &[u8], newest: Token) -> Vec<(Token, u64)> {
    let mut seen: Vec<(Token, u64)> = Vec::new();
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk).wrapping_mul(MIX_INVERSE);
        let token = word >> INDEX_BITS;
        if token == ZEROS || token > newest {
            at += 1;
            continue;
        }
        let index = word & ((1 << INDEX_BITS) - 1);
        let is_new = seen.last().is_none_or(|(last, _)| *last != token) || index == 0;
        if is_new {
            seen.push((token, 0));
        }
        seen.last_mut().expect("just pushed").1 += WORD;
        at += WORD as usize;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Random;

    #[test]
    fn fills_are_told_apart_by_token_and_position() {
        let one = Fill { token: 1, len: 20 }.bytes();
        assert_eq!(one.len(), 20);
        assert_ne!(one, Fill { token: 2, len: 20 }.bytes());
        assert_ne!(one[..8], one[8..16]);
        assert_eq!(tokens_of(&one, 5), [(1, 16)]);
        assert_eq!(tokens_of(&[&[9; 3], &one[..]].concat(), 5), [(1, 16)]);
        assert_eq!(tokens_of(&[&one[..16], &one[..16]].concat(), 5), [(1, 16), (1, 16)]);
    }

    /// Random writes, zeros and truncations, beside a plain vector of bytes.
    #[test]
    fn runs_agree_with_plain_bytes() {
        let mut random = Random::from_number(7);
        let (mut data, mut plain) = (Data::default(), Vec::new());
        for token in 1..3000 {
            let (offset, len) = (random.below(60), 1 + random.below(40));
            match random.below(8) {
                0 => {
                    data.truncate(offset);
                    plain.resize(offset as usize, 0);
                }
                1 if offset + len <= data.len() => {
                    data.zero(offset, len);
                    plain[offset as usize..(offset + len) as usize].fill(0);
                }
                _ => {
                    let fill = Fill { token, len };
                    data.write(offset, fill);
                    plain.resize(plain.len().max((offset + len) as usize), 0);
                    plain[offset as usize..(offset + len) as usize].copy_from_slice(&fill.bytes());
                }
            }
            assert_eq!(data.len(), plain.len() as u64);
            let from = random.below(data.len() + 1) as usize;
            let to = from + random.below((plain.len() - from) as u64 + 1) as usize;
            assert!(data.is_at(from as u64, &plain[from..to]));
            let is_zero = plain[from..to].iter().all(|b| *b == 0);
            assert_eq!(data.is_zero(from as u64, (to - from) as u64), is_zero);
            let mut other = plain[from..to].to_vec();
            assert_eq!(data.first_difference(from as u64, &other), None);
            if let Some(byte) = other.last_mut() {
                *byte ^= 1;
                assert!(!data.is_at(from as u64, &other));
                assert_eq!(data.first_difference(from as u64, &other), Some((to - from) as u64 - 1));
            }
            assert!(!data.is_at(from as u64, &vec![0; plain.len() - from + 1]), "longer than what is there");
        }
    }

    #[test]
    fn equal_bytes_are_equal_runs() {
        let fill = Fill { token: 3, len: 30 };
        let mut whole = Data::default();
        whole.write(0, fill);
        let mut again = whole.clone();
        again.truncate(10);
        again.write(0, fill);
        assert_eq!(whole, again);
        again.zero(5, 5);
        again.zero(10, 5);
        let mut once = whole.clone();
        once.zero(5, 10);
        assert_eq!(again, once);
    }
}
