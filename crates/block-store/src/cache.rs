//! A cache with a memory budget and S3-FIFO eviction.
//!
//! A new entry is put into a short queue. At its end an entry that was used again moves to the main queue; any other is
//! evicted, and its name is remembered as a ghost. A new entry whose ghost is remembered goes to the main queue at once.
//! The main queue is a clock. So a long scan passes through the short queue and evicts no entry in use, and a hit costs
//! one counter.

use device::BLOCK;
use hashbrown::HashTable;
use std::collections::VecDeque;

/// Key of an entry.
pub trait Name: Copy + Eq {
    fn hash(self) -> u64;
}

pub trait Entry {
    /// Memory of the entry.
    fn bytes(&self) -> usize;

    /// True for an entry that serves only the reads that have it pinned. Later reads go to the device again.
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

/// A slot in a queue, with the number of its filling: a removed entry leaves its place in the queue.
#[derive(Clone, Copy)]
struct Place {
    slot: u32,
    filling: u32,
}

pub struct Cache<N, E> {
    slots: Vec<Option<Slot<N, E>>>,
    /// Number of fillings of each slot.
    fillings: Vec<u32>,
    free: Vec<u32>,
    names: HashTable<u32>,
    short: VecDeque<Place>,
    main: VecDeque<Place>,
    /// Hashes of names.
    ghosts: VecDeque<u64>,
    ghost_names: HashTable<u64>,
    bytes: usize,
    short_bytes: usize,
    /// Bytes of entries with pins.
    pinned_bytes: usize,
    budget: usize,
    budget_min: usize,
    /// Memory for all entries is taken at once.
    reserves: bool,
}

/// Memory of the map, the queues and the slot for one entry.
pub const OVERHEAD: usize = 96;
const USES_MAX: u8 = 3;
/// Entries that one call looks at for eviction, some 100 us.
const STEPS_OF_TRIM: usize = 512;
/// Ghosts that an eviction forgets.
const GHOSTS_FORGOTTEN_MAX: usize = 8;
/// Bytes of a page of memory.
const PAGE: usize = 4096;

impl<N: Name, E: Entry> Cache<N, E> {
    /// `budget_min` is the smallest budget, whatever is set.
    pub fn new(budget: usize, budget_min: usize) -> Cache<N, E> {
        let mut cache = Cache { budget_min, reserves: true, ..Cache::that_grows(budget.max(budget_min)) };
        cache.reserve();
        cache
    }

    /// A cache that takes memory for entries when it gets them.
    pub fn that_grows(budget: usize) -> Cache<N, E> {
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
            pinned_bytes: 0,
            budget,
            budget_min: 0,
            reserves: false,
        }
    }

    /// Takes memory for as many entries of a block as the budget holds, so that no insert moves or rehashes all of them, nor is
    /// the first to touch a page. Twice as much in the tables: removed entries leave few traces there.
    fn reserve(&mut self) {
        let entries = self.budget / BLOCK;
        if !self.reserves || entries <= self.slots.len() {
            return;
        }
        let Cache { slots, fillings, free, names, short, main, ghosts, ghost_names, .. } = self;
        let before = slots.len() as u32;
        free.reserve(entries);
        slots.resize_with(entries, || None);
        fillings.resize(entries, 0);
        free.extend((before..entries as u32).rev());
        touch_queue(short, entries, Place { slot: 0, filling: 0 });
        touch_queue(main, 2 * entries, Place { slot: 0, filling: 0 });
        touch_queue(ghosts, entries, 0);
        let more = |used: usize| (2 * entries).saturating_sub(used);
        names.reserve(more(names.len()), |i| name_of(slots, *i).hash());
        ghost_names.reserve(more(ghost_names.len()), |ghost| *ghost);
        touch_table(names, 0);
        touch_table(ghost_names, 0);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if pinned entries take more than half of the budget.
    pub fn is_mostly_pinned(&self) -> bool {
        self.pinned_bytes > self.budget / 2
    }

    /// Sets the budget. A much smaller one is reached by and by: see [`Cache::trim`].
    pub fn set_budget(&mut self, bytes: usize, gone: &mut impl FnMut(N, E)) {
        self.budget = bytes.max(self.budget_min);
        self.reserve();
        self.trim(gone);
    }

    /// The slot of an entry, for [`Cache::entry`]. Counts as a use.
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

    /// The entry of a slot that [`Cache::find`] has returned earlier, if it is still there. Not a use.
    #[inline]
    pub fn entry_of(&self, slot: u32, name: N) -> Option<&E> {
        let slot = self.slots.get(slot as usize)?.as_ref();
        slot.filter(|slot| slot.name == name).map(|slot| &slot.entry)
    }

    /// An entry, without a use.
    pub fn peek(&self, name: N) -> Option<&E> {
        let number = self.number_of(name)?;
        self.slots[number as usize].as_ref().map(|slot| &slot.entry)
    }

    /// Changes an entry, and removes it if `change` returns false. Not a use, and evicts nothing: see [`Cache::trim`].
    #[inline]
    pub fn change(&mut self, name: N, change: impl FnOnce(&mut E) -> bool) {
        let Some(number) = self.number_of(name) else { return };
        let slot = self.slots[number as usize].as_mut().expect("named, so there");
        let stays = change(&mut slot.entry);
        let before = std::mem::replace(&mut slot.bytes, OVERHEAD + slot.entry.bytes());
        self.bytes = self.bytes + slot.bytes - before;
        if slot.short {
            self.short_bytes = self.short_bytes + slot.bytes - before;
        }
        if slot.pins > 0 {
            self.pinned_bytes = self.pinned_bytes + slot.bytes - before;
        }
        if !stays {
            self.take(name);
        }
    }

    /// An entry to change. Not a use.
    pub fn entry_mut(&mut self, name: N) -> Option<&mut E> {
        self.slot_of(name).map(|slot| &mut slot.entry)
    }

    /// Inserts an entry with `pins` pins. Evicted entries are passed to `gone`.
    pub fn insert(&mut self, name: N, entry: E, pins: u32, gone: &mut impl FnMut(N, E)) {
        // The pins of a replaced entry are released on the new one.
        let pins = pins + self.slot_of(name).map_or(0, |slot| slot.pins);
        self.take(name);
        let bytes = OVERHEAD + entry.bytes();
        let ghost = self.ghost_names.find_entry(name.hash(), |ghost| *ghost == name.hash());
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
        if pins > 0 {
            self.pinned_bytes += bytes;
        }
        if short {
            self.short_bytes += bytes;
            self.short.push_back(place);
        } else {
            self.main.push_back(place);
        }
        self.trim(gone);
    }

    /// Pins an entry until [`Cache::unpin`]. Returns false if there is none.
    pub fn pin(&mut self, name: N) -> bool {
        let Some(slot) = self.slot_of(name) else { return false };
        slot.pins += 1;
        if slot.pins == 1 {
            let bytes = slot.bytes;
            self.pinned_bytes += bytes;
        }
        true
    }

    pub fn unpin(&mut self, name: N) {
        let Some(slot) = self.slot_of(name) else { return };
        slot.pins -= 1;
        if slot.pins == 0 {
            let bytes = slot.bytes;
            self.pinned_bytes -= bytes;
        }
    }

    /// Removes an entry.
    pub fn take(&mut self, name: N) -> Option<E> {
        let number = self.number_of(name)?;
        let entry = self.remove(number);
        // Places of removed entries are skipped when they are reached; here, when they are the majority.
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

    /// Evicts some entries, while they are more than the budget. Returns true if another call would get further; pinned ones
    /// stay.
    pub fn trim(&mut self, gone: &mut impl FnMut(N, E)) -> bool {
        let mut got_further = false;
        for _ in 0..STEPS_OF_TRIM {
            if self.bytes <= self.budget {
                return false;
            }
            got_further |= match self.short_bytes * 10 > self.budget || self.main.is_empty() {
                true => self.step_short(gone),
                false => self.step_main(gone),
            };
        }
        got_further
    }

    /// Looks at the first of the short queue. Returns false if there is none.
    fn step_short(&mut self, gone: &mut impl FnMut(N, E)) -> bool {
        let Some(place) = self.short.pop_front() else { return false };
        if !is_filled(&self.slots, &self.fillings, place) {
            return true;
        }
        let slot = self.slots[place.slot as usize].as_mut().expect("filled");
        // The first use is that of the reader that loaded it.
        if slot.uses > 1 || slot.pins > 0 {
            self.short_bytes -= slot.bytes;
            slot.short = false;
            slot.uses = 0;
            self.main.push_back(place);
            return true;
        }
        let name = slot.name;
        let entry = self.remove(place.slot);
        if !entry.is_passing() {
            self.remember(name.hash());
        }
        gone(name, entry);
        true
    }

    /// Looks at the first of the main queue. Returns false if there is none, or it is pinned and unused.
    fn step_main(&mut self, gone: &mut impl FnMut(N, E)) -> bool {
        let Some(place) = self.main.pop_front() else { return false };
        if !is_filled(&self.slots, &self.fillings, place) {
            return true;
        }
        let slot = self.slots[place.slot as usize].as_mut().expect("filled");
        let is_used = slot.uses > 0;
        if is_used || slot.pins > 0 {
            slot.uses = slot.uses.saturating_sub(1);
            self.main.push_back(place);
            return is_used;
        }
        let name = slot.name;
        gone(name, self.remove(place.slot));
        true
    }

    fn remove(&mut self, number: u32) -> E {
        let slot = self.slots[number as usize].take().expect("found, so there");
        self.bytes -= slot.bytes;
        if slot.short {
            self.short_bytes -= slot.bytes;
        }
        if slot.pins > 0 {
            self.pinned_bytes -= slot.bytes;
        }
        self.free.push(number);
        if let Ok(entry) = self.names.find_entry(slot.name.hash(), |i| *i == number) {
            entry.remove();
        }
        slot.entry
    }

    fn remember(&mut self, name: u64) {
        // As many as entries of the main queue.
        for _ in 0..GHOSTS_FORGOTTEN_MAX {
            if self.ghosts.len() <= self.main.len().max(64) {
                break;
            }
            let old = self.ghosts.pop_front().expect("not empty");
            if let Ok(entry) = self.ghost_names.find_entry(old, |ghost| *ghost == old) {
                entry.remove();
            }
        }
        self.ghosts.push_back(name);
        self.ghost_names.entry(name, |ghost| *ghost == name, |ghost| *ghost).or_insert(name);
    }
}

/// Grows a queue to a capacity, and writes to all of it.
fn touch_queue<T: Copy>(queue: &mut VecDeque<T>, capacity: usize, filler: T) {
    let len = queue.len();
    queue.resize(capacity.max(len), filler);
    queue.truncate(len);
}

/// Writes to every page of an empty table.
pub fn touch_table<T: Copy>(table: &mut HashTable<T>, filler: T) {
    if !table.is_empty() {
        return;
    }
    // The low bits of a hash are the place of its entry, of as many as the next power of two.
    for place in (0..table.capacity().next_power_of_two()).step_by((PAGE / size_of::<T>()).max(1)) {
        table.insert_unique(place as u64, filler, |_| 0);
    }
    table.clear();
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
    fn scan_does_not_evict_used_entries() {
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
    fn passing_entry_is_seen_by_its_waiters_only() {
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
    fn pinned_entry_stays_until_unpinned() {
        let mut cache = cache();
        (0..1000).for_each(|i| insert(&mut cache, i, 1));
        assert!(cache.bytes() > BUDGET && cache.is_mostly_pinned());
        assert!(cache.pin(7));
        cache.unpin(7);
        assert_eq!(cache.pinned_bytes, cache.bytes());
        assert!((0..1000).all(|i| cache.find(i).is_some()));
        (0..1000).for_each(|i| cache.unpin(i));
        assert_eq!(cache.pinned_bytes, 0);
        let mut gone = 0;
        cache.set_budget(0, &mut |_, _| gone += 1);
        while cache.trim(&mut |_, _| gone += 1) {}
        assert!(cache.bytes() <= BUDGET && cache.bytes() > BUDGET / 2);
        let left = (0..1000).filter(|i| cache.find(*i).is_some()).count();
        assert_eq!((cache.bytes, gone), (left * (OVERHEAD + ONE), 1000 - left));
    }

    #[test]
    fn smaller_budget_is_reached_in_steps() {
        const ENTRIES: u64 = 3000;
        let mut cache: Cache<u64, Kept> = Cache::new(1 << 20, 0);
        (0..ENTRIES).for_each(|name| insert(&mut cache, name, 0));
        let (before, mut gone) = (cache.bytes, 0);
        cache.set_budget(0, &mut |_, _| gone += 1);
        assert_eq!(cache.bytes, before - STEPS_OF_TRIM * (OVERHEAD + ONE));
        while cache.trim(&mut |_, _| gone += 1) {}
        assert_eq!((cache.bytes, gone), (0, ENTRIES));
    }

    #[test]
    fn changed_entry_counts_with_its_new_size() {
        let mut cache: Cache<u64, Kept> = Cache::that_grows(BUDGET);
        (0..3).for_each(|name| insert(&mut cache, name, 0));
        cache.change(1, |entry| {
            *entry = Kept::Bytes(3 * ONE);
            true
        });
        let bytes = 3 * OVERHEAD + 5 * ONE;
        assert_eq!((cache.bytes, cache.short_bytes), (bytes, bytes));
        cache.change(1, |_| false);
        cache.change(7, |_| panic!("it is not there"));
        let bytes = 2 * (OVERHEAD + ONE);
        assert_eq!((cache.bytes, cache.short_bytes, cache.peek(1)), (bytes, bytes, None));
    }

    #[test]
    fn cache_of_pinned_entries_has_nothing_to_trim() {
        let mut cache = cache();
        (0..2000).for_each(|name| insert(&mut cache, name, 1));
        let mut calls = 0;
        while cache.trim(&mut |_, _| panic!("it is pinned")) {
            calls += 1;
        }
        assert!(calls <= 8, "{calls} calls");
    }

    #[test]
    fn removed_entries_leave_no_memory_behind() {
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
