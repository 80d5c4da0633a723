//! Recent answers of tables, by key.
//!
//! A client's write looks up an object twice: once for the OSD, and once for the plan of the transaction. An answer is valid
//! until a flush adds newer tables ([`Recent::clear`]); merges change no answer. Memtables are newer, and are searched
//! first.

use bytes::Bytes;
use smallvec::SmallVec;

const SLOTS: usize = 256;

/// Values of up to so many bytes are copied, so that they keep no block in memory.
const COPIED_MAX: usize = 1024;

/// A key and what the tables have of it.
pub struct Answer {
    pub hash: u64,
    key: SmallVec<[u8; 64]>,
    /// `None` if no table has the key.
    pub value: Option<Bytes>,
}

impl Answer {
    pub fn new(key: &[u8], hash: u64, value: Option<Bytes>) -> Answer {
        let value = value.map(|value| match value.len() {
            0..=COPIED_MAX => Bytes::copy_from_slice(&value),
            _ => value,
        });
        Answer { hash, key: key.into(), value }
    }

    #[inline]
    pub fn is_of(&self, key: &[u8], hash: u64) -> bool {
        self.hash == hash && self.key[..] == *key
    }
}

/// A direct-mapped cache: the newer answer replaces the older.
pub struct Recent {
    slots: Vec<Option<Answer>>,
}

impl Recent {
    pub fn new() -> Recent {
        Recent { slots: (0..SLOTS).map(|_| None).collect() }
    }

    #[inline]
    pub fn find(&self, key: &[u8], hash: u64) -> Option<&Option<Bytes>> {
        let answer = self.slots[hash as usize % SLOTS].as_ref()?;
        answer.is_of(key, hash).then_some(&answer.value)
    }

    pub fn keep(&mut self, key: &[u8], hash: u64, value: Option<Bytes>) {
        self.slots[hash as usize % SLOTS] = Some(Answer::new(key, hash, value));
    }

    /// Forgets all answers, after a flush.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_returned_for_its_key_until_cleared() {
        let mut recent = Recent::new();
        recent.keep(b"a", 7, None);
        recent.keep(b"b", 8, Some(Bytes::from_static(b"x")));
        assert_eq!(recent.find(b"a", 7), Some(&None));
        assert_eq!(recent.find(b"c", 7), None, "the same hash");
        assert_eq!(recent.find(b"b", 8), Some(&Some(Bytes::from_static(b"x"))));
        recent.keep(b"c", 7 + SLOTS as u64, None);
        assert_eq!(recent.find(b"a", 7), None, "replaced");
        recent.clear();
        assert_eq!(recent.find(b"b", 8), None);
    }
}
