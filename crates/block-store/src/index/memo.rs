//! Answers of the tables to callers that wait, by key.
//!
//! A transaction of a thousand keys is planned again after each wait for the device. Its repeated queries find their
//! answers here instead of in every table. An answer is valid until a flush adds newer tables; memtables are newer, and are
//! searched first.
//!
//! A caller that asks in several turns is planned again while blocks are being read for it. The keys that wait for these are known
//! here, too, by their hashes. Two keys of one hash do no harm: one of them waits longer.

use super::Ticket;
use super::recent::Answer;
use bytes::Bytes;
use hashbrown::{HashTable, hash_table};
use std::collections::BTreeMap;

/// Queries of one caller in a row that are not remembered: [`super::recent`] has them.
const SKIPPED: usize = 64;
/// Pending queries of one caller in a row that are asked again.
const PENDING_SKIPPED: usize = 16;
/// Answers of one caller that are remembered.
const ANSWERS_OF_ONE_MAX: usize = 1 << 15;
/// Answers of all waiting callers, some 20 MB. At more the newest callers' are forgotten: the oldest ones get further, so that
/// callers that have no room together do not take it from each other in turns.
const ANSWERS_MAX: usize = 1 << 17;
/// Forgotten answers that one turn frees, some 50 us.
const FREED_AT_ONCE: usize = 512;

#[derive(Default)]
pub struct Memos {
    asker: Option<Ticket>,
    /// Table answers that the asker has had in a row.
    asked: usize,
    /// Queries of the asker in a row that wait for blocks.
    pending: usize,
    /// Of the asker.
    own: Memo,
    /// The asker waits: its answers are kept.
    waits: bool,
    kept: BTreeMap<Ticket, Memo>,
    kept_answers: usize,
    /// Freed in steps: those of one caller take milliseconds.
    forgotten: Vec<hash_table::IntoIter<Answer>>,
}

#[derive(Default)]
struct Memo {
    answers: HashTable<Answer>,
    /// Hashes of keys whose blocks are being read.
    being_read: HashTable<u64>,
}

impl Memo {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.being_read.is_empty()
    }
}

impl Memos {
    /// A query of this caller begins.
    #[inline]
    pub fn begin(&mut self, ticket: Ticket) {
        if self.asker != Some(ticket) {
            self.change_asker(ticket);
        }
    }

    /// A caller begins its queries. One that did not wait needs no answers again, and the next may have its ticket.
    pub fn begin_caller(&mut self) {
        if !self.waits {
            self.asker = None;
        }
    }

    fn change_asker(&mut self, ticket: Ticket) {
        let before = self.asker.replace(ticket);
        if std::mem::take(&mut self.waits)
            && let Some(before) = before.filter(|_| !self.own.is_empty())
        {
            self.kept_answers += self.own.answers.len();
            self.kept.insert(before, std::mem::take(&mut self.own));
            while self.kept_answers > ANSWERS_MAX
                && let Some((_, forgotten)) = self.kept.pop_last()
            {
                self.kept_answers -= forgotten.answers.len();
                self.free_later(forgotten.answers);
            }
        }
        (self.asked, self.pending) = (0, 0);
        self.own.being_read.clear();
        match self.own.answers.len() {
            0..=FREED_AT_ONCE => self.own.answers.clear(),
            _ => {
                let answers = std::mem::take(&mut self.own.answers);
                self.free_later(answers);
            }
        }
        if !self.kept.is_empty()
            && let Some(memo) = self.kept.remove(&ticket)
        {
            self.kept_answers -= memo.answers.len();
            self.own = memo;
        }
    }

    /// The asker does not wait for blocks: all keys are to be asked for.
    #[inline]
    pub fn forget_asked(&mut self) {
        self.pending = 0;
        self.own.being_read.clear();
    }

    /// True if blocks are being read for the asker's query of this key.
    #[inline]
    pub fn has_asked(&self, hash: u64) -> bool {
        !self.own.being_read.is_empty() && self.own.being_read.find(hash, |known| *known == hash).is_some()
    }

    /// The asker's query of this key waits for blocks.
    pub fn note_asked(&mut self, hash: u64) {
        self.pending += 1;
        if self.pending > PENDING_SKIPPED && self.own.being_read.len() < ANSWERS_OF_ONE_MAX {
            self.own.being_read.insert_unique(hash, hash, |known| *known);
        }
    }

    #[inline]
    pub fn find(&self, key: &[u8], hash: u64) -> Option<&Option<Bytes>> {
        if self.own.answers.is_empty() {
            return None;
        }
        self.own.answers.find(hash, |answer| answer.is_of(key, hash)).map(|answer| &answer.value)
    }

    /// An answer to the asker.
    #[inline]
    pub fn keep(&mut self, key: &[u8], hash: u64, value: &Option<Bytes>) {
        self.asked += 1;
        if self.asked > SKIPPED && self.own.answers.len() < ANSWERS_OF_ONE_MAX {
            let answer = Answer::new(key, hash, value.clone());
            self.own.answers.insert_unique(hash, answer, |answer| answer.hash);
        }
    }

    /// The asker waits, and will repeat its queries.
    pub fn hold(&mut self, ticket: Ticket) {
        self.waits |= self.asker == Some(ticket);
    }

    fn free_later(&mut self, answers: HashTable<Answer>) {
        self.forgotten.push(answers.into_iter());
    }

    /// Forgets all answers, after a flush.
    pub fn clear(&mut self) {
        let Memos { mut forgotten, own, kept, .. } = std::mem::take(self);
        let tables =
            kept.into_values().chain([own]).map(|memo| memo.answers).filter(|table| !table.is_empty());
        forgotten.extend(tables.map(HashTable::into_iter));
        self.forgotten = forgotten;
    }

    /// Frees some of the forgotten answers. Returns true if there are more.
    pub fn free(&mut self) -> bool {
        let Some(last) = self.forgotten.last_mut() else { return false };
        if last.by_ref().take(FREED_AT_ONCE).count() < FREED_AT_ONCE {
            self.forgotten.pop();
        }
        !self.forgotten.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(memos: &mut Memos, ticket: u64, count: u64) {
        memos.begin(Ticket(ticket));
        (0..count).for_each(|n| memos.keep(&n.to_be_bytes(), n, &None));
    }

    #[test]
    fn waiting_caller_finds_its_answers_again() {
        let mut memos = Memos::default();
        ask(&mut memos, 1, 100);
        memos.hold(Ticket(1));
        ask(&mut memos, 2, 100);
        memos.begin(Ticket(1));
        assert_eq!(memos.find(&99_u64.to_be_bytes(), 99), Some(&None));
        assert_eq!(memos.find(&1_u64.to_be_bytes(), 1), None, "one of the first");
        assert_eq!(memos.find(&99_u64.to_be_bytes(), 98), None, "another hash");
        memos.begin(Ticket(2));
        assert_eq!(memos.find(&99_u64.to_be_bytes(), 99), None, "it did not wait");
    }

    #[test]
    fn callers_of_one_ticket_that_do_not_wait_keep_no_answers() {
        let mut memos = Memos::default();
        for _ in 0..100 {
            memos.begin_caller();
            ask(&mut memos, 1, 100);
            assert_eq!(memos.own.answers.len(), 100 - SKIPPED);
        }
        memos.hold(Ticket(1));
        memos.begin_caller();
        memos.begin(Ticket(1));
        assert_eq!(memos.find(&99_u64.to_be_bytes(), 99), Some(&None), "it waited");
        memos.begin_caller();
        ask(&mut memos, 1, 3 * ANSWERS_OF_ONE_MAX as u64);
        assert!(memos.own.answers.len() <= ANSWERS_OF_ONE_MAX);
    }

    #[test]
    fn newest_callers_answers_go_when_there_are_too_many() {
        let mut memos = Memos::default();
        let callers = 3 * (ANSWERS_MAX / ANSWERS_OF_ONE_MAX) as u64;
        for ticket in (0..callers).rev() {
            ask(&mut memos, ticket, 2 * ANSWERS_OF_ONE_MAX as u64);
            memos.hold(Ticket(ticket));
        }
        memos.begin(Ticket(callers));
        let mut count = 0;
        for ticket in 0..callers {
            memos.begin(Ticket(ticket));
            let is_kept = memos.find(&99_u64.to_be_bytes(), 99).is_some();
            assert_eq!(is_kept, ticket < (ANSWERS_MAX / ANSWERS_OF_ONE_MAX) as u64, "{ticket}");
            count += memos.own.answers.len();
            memos.hold(Ticket(ticket));
        }
        assert_eq!(count, ANSWERS_MAX);
        memos.begin(Ticket(callers));
        assert_eq!(memos.kept_answers, ANSWERS_MAX);
    }

    #[test]
    fn forgotten_answers_are_freed_in_steps() {
        let mut memos = Memos::default();
        for ticket in 1..=3 {
            ask(&mut memos, ticket, SKIPPED as u64 + 2 * FREED_AT_ONCE as u64);
            memos.hold(Ticket(ticket));
        }
        memos.clear();
        let steps = (0..100).take_while(|_| memos.free()).count();
        assert!((6..=9).contains(&steps), "{steps} steps");
        assert!(!memos.free() && memos.forgotten.is_empty());
    }

    #[test]
    fn flush_forgets_all_answers() {
        let mut memos = Memos::default();
        ask(&mut memos, 1, 100);
        memos.hold(Ticket(1));
        memos.clear();
        memos.begin(Ticket(1));
        assert_eq!(memos.find(&99_u64.to_be_bytes(), 99), None);
    }
}
