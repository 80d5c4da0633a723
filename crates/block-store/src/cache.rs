//! What is kept in memory, within a budget: which goes when there is too much?
//!
//! S3-FIFO: what is new waits in a short queue; what was used again by its end moves to the main queue, the rest goes
//! and leaves its name in a list of ghosts, and whose ghost is there goes to the main queue at once. The main queue is
//! a clock. So a long scan passes through the short queue and pushes nothing out, and a hit costs a counter.

use hashbrown::HashTable;
use std::collections::VecDeque;

/// What an entry is found by.
pub trait Name: Copy + Eq {
    fn hash(self) -> u64;
}

pub trait Entry {
    /// The memory it takes.
    fn bytes(&self) -> usize;

    /// An answer for those alone who wait for it (have it pinned): for others it is looked for again.
    fn is_passing(&self) -> bool {
        false
    }
}

/// Mixes two numbers into a hash.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ b.rotate_left(40)) as u128 * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

struct Slot<N, E> {
    name: N,
    entry: E,
    bytes: usize,
    uses: u8,
    pins: u32,
    short: bool,
}

/// A slot in a queue, and which filling of the slot is meant: what is taken away before its turn leaves its place.
#[derive(Clone, Copy)]
struct Place {
    slot: u32,
    filling: u32,
}

pub struct Cache<N, E> {
    slots: Vec<Option<Slot<N, E>>>,
    /// How often each slot was filled.
    fillings: Vec<u32>,
    free: Vec<u32>,
    names: HashTable<u32>,
    short: VecDeque<Place>,
    main: VecDeque<Place>,
    ghosts: VecDeque<N>,
    ghost_names: HashTable<N>,
    bytes: usize,
    short_bytes: usize,
    budget: usize,
    budget_min: usize,
}

/// What the map, the queues and the slot take for one entry.
pub const OVERHEAD: usize = 96;
const USES_MAX: u8 = 3;

impl<N: Name, E: Entry> Cache<N, E> {
    /// `budget_min` is kept whatever budget is set.
    pub fn new(budget: usize, budget_min: usize) -> Cache<N, E> {
        Cache {
            slots: Vec::new(),
            fillings: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            short: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_names: HashTable::new(),
            bytes: 0,
            short_bytes: 0,
            budget: budget.max(budget_min),
            budget_min,
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn set_budget(&mut self, bytes: usize, gone: &mut impl FnMut(N, E)) {
        self.budget = bytes.max(self.budget_min);
        self.shrink(gone);
    }

    /// The slot of an entry, for [`Cache::entry`]; counts as a use.
    #[inline]
    pub fn find(&mut self, name: N) -> Option<u32> {
        let number = self.number_of(name)?;
        let found = self.slots[number as usize].as_mut()?;
        if found.pins == 0 && found.entry.is_passing() {
            return None;
        }
        found.uses = (found.uses + 1).min(USES_MAX);
        Some(number)
    }

    #[inline]
    pub fn entry(&self, slot: u32) -> &E {
        &self.slots[slot as usize].as_ref().expect("a slot just found").entry
    }

    /// An entry, to change it; not a use.
    pub fn entry_mut(&mut self, name: N) -> Option<&mut E> {
        self.slot_of(name).map(|slot| &mut slot.entry)
    }

    /// Add what was read; `pins` are those that must see it before it may go. What has to go for it is given to `gone`.
    pub fn insert(&mut self, name: N, entry: E, pins: u32, gone: &mut impl FnMut(N, E)) {
        // Who kept the old one while it was read again lets go of the new one.
        let pins = pins + self.slot_of(name).map_or(0, |slot| slot.pins);
        self.take(name);
        let bytes = OVERHEAD + entry.bytes();
        let ghost = self.ghost_names.find_entry(name.hash(), |ghost| *ghost == name);
        let short = ghost.map(|ghost| ghost.remove()).is_err();
        let slot = Slot { name, entry, bytes, uses: 0, pins, short };
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.fillings.push(0);
            (self.slots.len() - 1) as u32
        });
        self.slots[number as usize] = Some(slot);
        let filling = &mut self.fillings[number as usize];
        *filling = filling.wrapping_add(1);
        let place = Place { slot: number, filling: *filling };
        let slots = &self.slots;
        self.names.insert_unique(name.hash(), number, |i| name_of(slots, *i).hash());
        self.bytes += bytes;
        if short {
            self.short_bytes += bytes;
            self.short.push_back(place);
        } else {
            self.main.push_back(place);
        }
        self.shrink(gone);
    }

    /// Keep an entry until as many calls of [`Cache::unpin`]. False if it is not here.
    pub fn pin(&mut self, name: N) -> bool {
        self.slot_of(name).map(|slot| slot.pins += 1).is_some()
    }

    pub fn unpin(&mut self, name: N) {
        if let Some(slot) = self.slot_of(name) {
            slot.pins -= 1;
        }
    }

    /// Take an entry away.
    pub fn take(&mut self, name: N) -> Option<E> {
        let number = self.number_of(name)?;
        let entry = self.remove(number);
        // Places of what is gone are passed over when their turn comes; here, when most of them are such.
        if self.short.len() + self.main.len() > 2 * self.names.len() + 64 {
            let (slots, fillings) = (&self.slots, &self.fillings);
            self.short.retain(|place| is_filled(slots, fillings, *place));
            self.main.retain(|place| is_filled(slots, fillings, *place));
        }
        Some(entry)
    }

    #[inline]
    fn number_of(&self, name: N) -> Option<u32> {
        let is = |i: &u32| self.slots[*i as usize].as_ref().is_some_and(|slot| slot.name == name);
        self.names.find(name.hash(), is).copied()
    }

    fn slot_of(&mut self, name: N) -> Option<&mut Slot<N, E>> {
        let number = self.number_of(name)?;
        self.slots[number as usize].as_mut()
    }

    fn shrink(&mut self, gone: &mut impl FnMut(N, E)) {
        // Pinned entries go round; stop when nothing but those is left.
        let mut patience = 4 * (self.short.len() + self.main.len());
        while self.bytes > self.budget && patience > 0 {
            patience -= 1;
            if self.short_bytes * 10 > self.budget || self.main.is_empty() {
                self.step_short(gone);
            } else {
                self.step_main(gone);
            }
        }
    }

    fn step_short(&mut self, gone: &mut impl FnMut(N, E)) {
        let Some(place) = self.short.pop_front() else { return };
        if !is_filled(&self.slots, &self.fillings, place) {
            return;
        }
        let slot = self.slots[place.slot as usize].as_mut().expect("filled");
        // The first use is that of who asked for it.
        if slot.uses > 1 || slot.pins > 0 {
            self.short_bytes -= slot.bytes;
            slot.short = false;
            slot.uses = 0;
            self.main.push_back(place);
            return;
        }
        let name = slot.name;
        let entry = self.remove(place.slot);
        if !entry.is_passing() {
            self.remember(name);
        }
        gone(name, entry);
    }

    fn step_main(&mut self, gone: &mut impl FnMut(N, E)) {
        let Some(place) = self.main.pop_front() else { return };
        if !is_filled(&self.slots, &self.fillings, place) {
            return;
        }
        let slot = self.slots[place.slot as usize].as_mut().expect("filled");
        if slot.uses > 0 || slot.pins > 0 {
            slot.uses = slot.uses.saturating_sub(1);
            self.main.push_back(place);
        } else {
            let name = slot.name;
            gone(name, self.remove(place.slot));
        }
    }

    fn remove(&mut self, number: u32) -> E {
        let slot = self.slots[number as usize].take().expect("found, so there");
        self.bytes -= slot.bytes;
        if slot.short {
            self.short_bytes -= slot.bytes;
        }
        self.free.push(number);
        if let Ok(entry) = self.names.find_entry(slot.name.hash(), |i| *i == number) {
            entry.remove();
        }
        slot.entry
    }

    fn remember(&mut self, name: N) {
        // As many as the main queue holds.
        while self.ghosts.len() > self.main.len().max(64) {
            let old = self.ghosts.pop_front().expect("not empty");
            if let Ok(entry) = self.ghost_names.find_entry(old.hash(), |ghost| *ghost == old) {
                entry.remove();
            }
        }
        self.ghosts.push_back(name);
        self.ghost_names.entry(name.hash(), |ghost| *ghost == name, |ghost| ghost.hash()).or_insert(name);
    }
}

fn is_filled<N, E>(slots: &[Option<Slot<N, E>>], fillings: &[u32], place: Place) -> bool {
    slots[place.slot as usize].is_some() && fillings[place.slot as usize] == place.filling
}

fn name_of<N: Name, E>(slots: &[Option<Slot<N, E>>], number: u32) -> N {
    slots[number as usize].as_ref().expect("named, so there").name
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Name for u64 {
        fn hash(self) -> u64 {
            mix(self, 0)
        }
    }

    #[derive(Debug, PartialEq)]
    enum Kept {
        Bytes(usize),
        Passing,
    }

    impl Entry for Kept {
        fn bytes(&self) -> usize {
            match self {
                Kept::Bytes(bytes) => *bytes,
                Kept::Passing => 0,
            }
        }

        fn is_passing(&self) -> bool {
            *self == Kept::Passing
        }
    }

    const BUDGET: usize = 96 << 10;
    const ONE: usize = 100;

    fn cache() -> Cache<u64, Kept> {
        Cache::new(0, BUDGET)
    }

    fn insert(cache: &mut Cache<u64, Kept>, name: u64, pins: u32) {
        cache.insert(name, Kept::Bytes(ONE), pins, &mut |_, _| {});
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used() {
        let mut cache = cache();
        (0..10).for_each(|hot| insert(&mut cache, hot, 0));
        for round in 0..20_000 {
            insert(&mut cache, 1000 + round, 0);
            assert!(cache.find(1000 + round).is_some());
            assert!(cache.bytes() <= BUDGET);
            for hot in (0..10).filter(|hot| hot % 5 == round % 5) {
                assert!(cache.find(hot).is_some(), "{hot} went in round {round}");
            }
        }
    }

    #[test]
    fn a_passing_answer_is_seen_by_those_who_waited_and_then_looked_for_again() {
        let mut cache = cache();
        cache.insert(1, Kept::Passing, 1, &mut |_, _| {});
        assert!(cache.find(1).is_some());
        cache.unpin(1);
        assert!(cache.find(1).is_none());
        insert(&mut cache, 1, 0);
        let slot = cache.find(1).unwrap();
        assert_eq!(*cache.entry(slot), Kept::Bytes(ONE));
        assert_eq!((cache.bytes, cache.short_bytes), (OVERHEAD + ONE, OVERHEAD + ONE));
    }

    #[test]
    fn what_is_pinned_stays_until_let_go() {
        let mut cache = cache();
        (0..1000).for_each(|i| insert(&mut cache, i, 1));
        assert!(cache.bytes() > BUDGET);
        assert!((0..1000).all(|i| cache.find(i).is_some()));
        (0..1000).for_each(|i| cache.unpin(i));
        let mut gone = 0;
        cache.set_budget(0, &mut |_, _| gone += 1);
        assert!(cache.bytes() <= BUDGET && cache.bytes() > BUDGET / 2);
        let left = (0..1000).filter(|i| cache.find(*i).is_some()).count();
        assert_eq!((cache.bytes, gone), (left * (OVERHEAD + ONE), 1000 - left));
    }

    #[test]
    fn what_is_taken_away_leaves_nothing_behind() {
        let mut cache = cache();
        for round in 0..100_000u64 {
            insert(&mut cache, round % 50, 0);
            cache.take(round * 7 % 50);
            assert!(cache.number_of(round * 7 % 50).is_none());
        }
        assert!(cache.short.len() + cache.main.len() <= 3 * 50 + 65, "{}", cache.short.len());
        assert_eq!(cache.bytes, cache.names.len() * (OVERHEAD + ONE));
        for name in 0..50 {
            cache.take(name);
        }
        assert_eq!((cache.bytes, cache.short_bytes, cache.names.len()), (0, 0, 0));
        assert!(cache.take(1).is_none());
    }
}
