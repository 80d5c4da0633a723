//! Places for recovery and backfill: so many PGs hold one at once, the others wait by priority and arrival.
//!
//! A core has two sets of places: one for PGs that it is the primary of, and one for PGs whose primaries recover a member of
//! this core. Every operation takes logarithmic time.

use crate::slab::Key;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The order of PGs: by priority, then by arrival. The smallest goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    urgency: Reverse<u8>,
    turn: u64,
}

#[derive(Default, Debug)]
pub(super) struct Places {
    /// PGs with a place, or that wait for one.
    ranks: BTreeMap<Key, Rank>,
    held: BTreeSet<(Rank, Key)>,
    waiting: BTreeSet<(Rank, Key)>,
    next_turn: u64,
}

/// PGs that got a place, and PGs that lost theirs and wait again.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub granted: Vec<Key>,
    pub revoked: Vec<Key>,
}

impl Places {
    /// A PG wants a place. [`Places::settle`] decides. A PG that has asked before keeps its turn.
    pub fn ask(&mut self, key: Key, priority: u8) {
        let urgency = Reverse(priority);
        let Some(old) = self.ranks.get(&key).copied() else {
            let rank = Rank { urgency, turn: self.next_turn };
            self.next_turn += 1;
            self.ranks.insert(key, rank);
            self.waiting.insert((rank, key));
            return;
        };
        let rank = Rank { urgency, ..old };
        self.ranks.insert(key, rank);
        let set = if self.held.remove(&(old, key)) { &mut self.held } else { &mut self.waiting };
        set.remove(&(old, key));
        set.insert((rank, key));
    }

    /// A PG wants no place any more.
    pub fn leave(&mut self, key: Key) {
        if let Some(rank) = self.ranks.remove(&key) {
            let _ = self.held.remove(&(rank, key)) || self.waiting.remove(&(rank, key));
        }
    }

    /// Gives the free ones of `max` places to the first that wait. Those of a higher priority take the places of others.
    pub fn settle(&mut self, max: usize) -> Settled {
        let mut settled = Settled::default();
        while let Some(&(rank, key)) = self.waiting.first() {
            if self.held.len() >= max {
                match self.held.last().copied() {
                    Some((last, evicted)) if last.urgency > rank.urgency => {
                        self.held.remove(&(last, evicted));
                        self.waiting.insert((last, evicted));
                        settled.revoked.push(evicted);
                    }
                    _ => break,
                }
            }
            self.waiting.remove(&(rank, key));
            self.held.insert((rank, key));
            settled.granted.push(key);
        }
        settled
    }

    pub fn holds(&self, key: Key) -> bool {
        self.ranks.get(&key).is_some_and(|rank| self.held.contains(&(*rank, key)))
    }

    /// The PG has a place or waits for one.
    pub fn knows(&self, key: Key) -> bool {
        self.ranks.contains_key(&key)
    }

    /// PGs with a place.
    pub fn holders(&self) -> impl Iterator<Item = Key> + '_ {
        self.held.iter().map(|(_, key)| *key)
    }

    pub fn holders_len(&self) -> usize {
        self.held.len()
    }

    /// PGs that have a place and then those that wait for one, each in its order: its priority, and whether it waits.
    pub fn known(&self) -> impl Iterator<Item = (Key, u8, bool)> + '_ {
        let told = |is_queued| move |(rank, key): &(Rank, Key)| (*key, rank.urgency.0, is_queued);
        self.held.iter().map(told(false)).chain(self.waiting.iter().map(told(true)))
    }

    /// PGs with a place, and PGs that wait for one.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    fn keys() -> Vec<Key> {
        let mut slab = Slab::new();
        (0..5).map(|n| slab.insert(n)).collect()
    }

    fn granted(keys: &[Key]) -> Settled {
        Settled { granted: keys.to_vec(), revoked: Vec::new() }
    }

    #[test]
    fn places_go_by_priority_and_then_by_arrival() {
        let (k, mut places) = (keys(), Places::default());
        places.ask(k[0], 100);
        assert_eq!(places.settle(1), granted(&[k[0]]));
        for (key, priority) in [(1, 90), (2, 100), (3, 100)] {
            places.ask(k[key], priority);
            assert_eq!(places.settle(1), granted(&[]));
        }
        for (from, to) in [(0, 2), (2, 3), (3, 1)] {
            places.leave(k[from]);
            assert_eq!(places.settle(1), granted(&[k[to]]));
        }
        places.leave(k[1]);
        assert_eq!((places.settle(1), places.len()), (granted(&[]), 0));
    }

    #[test]
    fn higher_priority_takes_the_lowest_place() {
        let (k, mut places) = (keys(), Places::default());
        for (key, priority) in [(0, 140), (1, 100), (2, 100)] {
            places.ask(k[key], priority);
        }
        assert_eq!(places.settle(2), granted(&[k[0], k[1]]));
        places.ask(k[3], 180);
        assert_eq!(places.settle(2), Settled { granted: vec![k[3]], revoked: vec![k[1]] });
        // It lost its place and keeps its turn.
        places.leave(k[3]);
        assert_eq!(places.settle(2), granted(&[k[1]]));
        // A PG that waits is raised above the others.
        places.ask(k[2], 254);
        assert_eq!(places.settle(2), Settled { granted: vec![k[2]], revoked: vec![k[1]] });
        // One that holds a place is lowered, and then it is the first to go.
        places.ask(k[0], 50);
        assert_eq!(places.settle(2), Settled { granted: vec![k[1]], revoked: vec![k[0]] });
        assert!(places.holds(k[1]) && places.knows(k[0]) && !places.holds(k[0]));
    }

    #[test]
    fn lower_maximum_takes_no_place_away() {
        let (k, mut places) = (keys(), Places::default());
        k.iter().for_each(|key| places.ask(*key, 100));
        assert_eq!(places.settle(3), granted(&k[..3]));
        places.leave(k[0]);
        assert_eq!(places.settle(2), granted(&[]));
        assert_eq!(places.holders().collect::<Vec<_>>(), k[1..3].to_vec());
        assert_eq!(places.settle(4), granted(&k[3..]));
    }

    #[test]
    fn leaving_of_a_stranger_changes_nothing() {
        let (k, mut places) = (keys(), Places::default());
        places.ask(k[0], 100);
        places.leave(k[1]);
        assert_eq!(places.settle(1), granted(&[k[0]]));
        assert_eq!(places.holders_len(), 1);
    }
}
