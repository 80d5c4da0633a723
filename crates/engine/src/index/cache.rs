//! Blocks and guides in memory, within a budget: which go when there are too many?
//!
//! S3-FIFO: what is new waits in a short queue; what was used again by its end moves to the main queue, the rest goes
//! and leaves its name in a list of ghosts, and whose ghost is there goes to the main queue at once. The main queue is
//! a clock. So a long scan passes through the short queue and pushes nothing out, and a hit costs a counter.

use super::Bad;
use super::node::Node;
use hashbrown::HashTable;
use std::collections::VecDeque;

/// A block of a table. Table numbers are never used again, so a name means the same bytes for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub table: u64,
    pub unit: u64,
}

#[derive(Clone, Debug)]
pub enum Entry {
    Node(Node),
    /// Could not be read, or not believed. Only those see it who waited for it; it is read again for others.
    Bad(Bad),
}

struct Slot {
    name: Name,
    entry: Entry,
    bytes: usize,
    uses: u8,
    pins: u32,
    short: bool,
}

pub struct Cache {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    names: HashTable<u32>,
    short: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<Name>,
    ghost_names: HashTable<Name>,
    bytes: usize,
    short_bytes: usize,
    budget: usize,
}

/// Whatever the budget: enough for what a few hundred look-ups wait for at the same time.
const BUDGET_MIN: usize = if cfg!(test) { 96 << 10 } else { 1 << 20 };
/// What the map, the queues and the slot take for one block.
const OVERHEAD: usize = 96;
const USES_MAX: u8 = 3;

impl Cache {
    pub fn new(budget: usize) -> Cache {
        Cache {
            slots: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            short: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_names: HashTable::new(),
            bytes: 0,
            short_bytes: 0,
            budget: budget.max(BUDGET_MIN),
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn set_budget(&mut self, bytes: usize) {
        self.budget = bytes.max(BUDGET_MIN);
        self.shrink();
    }

    /// The place of a block, for [`Cache::entry`]; counts as a use.
    #[inline]
    pub fn find(&mut self, name: Name) -> Option<u32> {
        let slots = &mut self.slots;
        let slot = *self.names.find(hash(name), |i| is(slots, *i, name))?;
        let found = slots[slot as usize].as_mut()?;
        if found.pins == 0 && matches!(found.entry, Entry::Bad(_)) {
            return None;
        }
        found.uses = (found.uses + 1).min(USES_MAX);
        Some(slot)
    }

    #[inline]
    pub fn entry(&self, slot: u32) -> &Entry {
        &self.slots[slot as usize].as_ref().expect("a place just found").entry
    }

    /// Add what was read; `pins` are those that must see it before it may go.
    pub fn insert(&mut self, name: Name, entry: Entry, pins: u32) {
        self.forget_bad(name);
        let bytes = OVERHEAD
            + match &entry {
                Entry::Node(node) => node.bytes(),
                Entry::Bad(_) => 0,
            };
        let short =
            self.ghost_names.find_entry(hash(name), |ghost| *ghost == name).map(|e| e.remove()).is_err();
        let slot = Slot { name, entry, bytes, uses: 0, pins, short };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        };
        self.slots[number as usize] = Some(slot);
        let slots = &self.slots;
        self.names.insert_unique(hash(name), number, |i| hash(name_of(slots, *i)));
        self.bytes += bytes;
        if short {
            self.short_bytes += bytes;
            self.short.push_back(number);
        } else {
            self.main.push_back(number);
        }
        self.shrink();
    }

    /// Keep a block until as many calls of [`Cache::unpin`]. False if it is not here.
    pub fn pin(&mut self, name: Name) -> bool {
        self.slot_of(name).map(|slot| slot.pins += 1).is_some()
    }

    pub fn unpin(&mut self, name: Name) {
        if let Some(slot) = self.slot_of(name) {
            slot.pins -= 1;
        }
    }

    fn slot_of(&mut self, name: Name) -> Option<&mut Slot> {
        let slots = &mut self.slots;
        let slot = *self.names.find(hash(name), |i| is(slots, *i, name))?;
        slots[slot as usize].as_mut()
    }

    /// What was bad and is read again makes room for the new answer.
    fn forget_bad(&mut self, name: Name) {
        let slots = &mut self.slots;
        let Some(number) = self.names.find(hash(name), |i| is(slots, *i, name)).copied() else { return };
        self.short.retain(|i| *i != number);
        self.main.retain(|i| *i != number);
        let slot = slots[number as usize].as_ref().expect("named, so there");
        if slot.short {
            self.short_bytes -= slot.bytes;
        }
        self.remove(number);
    }

    fn shrink(&mut self) {
        // Pinned blocks go round; stop when nothing but those is left.
        let mut patience = 4 * (self.short.len() + self.main.len());
        while self.bytes > self.budget && patience > 0 {
            patience -= 1;
            if self.short_bytes * 10 > self.budget || self.main.is_empty() {
                self.step_short();
            } else {
                self.step_main();
            }
        }
    }

    fn step_short(&mut self) {
        let Some(number) = self.short.pop_front() else { return };
        let slot = self.slots[number as usize].as_mut().expect("queued, so there");
        self.short_bytes -= slot.bytes;
        // The first use is that of who asked for it.
        if slot.uses > 1 || slot.pins > 0 {
            slot.short = false;
            slot.uses = 0;
            self.main.push_back(number);
            return;
        }
        let (name, bad) = (slot.name, matches!(slot.entry, Entry::Bad(_)));
        self.remove(number);
        if !bad {
            self.remember(name);
        }
    }

    fn step_main(&mut self) {
        let Some(number) = self.main.pop_front() else { return };
        let slot = self.slots[number as usize].as_mut().expect("queued, so there");
        if slot.uses > 0 || slot.pins > 0 {
            slot.uses = slot.uses.saturating_sub(1);
            self.main.push_back(number);
        } else {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let slot = self.slots[number as usize].take().expect("queued, so there");
        self.bytes -= slot.bytes;
        self.free.push(number);
        if let Ok(entry) = self.names.find_entry(hash(slot.name), |i| *i == number) {
            entry.remove();
        }
    }

    fn remember(&mut self, name: Name) {
        // As many as the main queue holds.
        while self.ghosts.len() > self.main.len().max(64) {
            let old = self.ghosts.pop_front().expect("not empty");
            if let Ok(entry) = self.ghost_names.find_entry(hash(old), |ghost| *ghost == old) {
                entry.remove();
            }
        }
        self.ghosts.push_back(name);
        self.ghost_names.entry(hash(name), |ghost| *ghost == name, |ghost| hash(*ghost)).or_insert(name);
    }
}

fn hash(name: Name) -> u64 {
    let product = (name.unit ^ name.table.rotate_left(40)) as u128 * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

fn name_of(slots: &[Option<Slot>], number: u32) -> Name {
    slots[number as usize].as_ref().expect("named, so there").name
}

fn is(slots: &[Option<Slot>], number: u32, name: Name) -> bool {
    slots[number as usize].as_ref().is_some_and(|slot| slot.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::node::{Builder, Kind};

    fn node() -> Entry {
        let (mut builder, mut out) = (Builder::default(), Vec::new());
        builder.push(b"key", None);
        builder.finish(Kind::Entries, &[], &mut out);
        Entry::Node(Node::parse(out.into(), Kind::Entries).unwrap())
    }

    fn name(unit: u64) -> Name {
        Name { table: 1, unit }
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used() {
        let mut cache = Cache::new(BUDGET_MIN);
        for hot in 0..10 {
            cache.insert(name(hot), node(), 0);
        }
        for round in 0..20_000 {
            cache.insert(name(1000 + round), node(), 0);
            assert!(cache.find(name(1000 + round)).is_some());
            assert!(cache.bytes() <= BUDGET_MIN);
            for hot in (0..10).filter(|hot| hot % 5 == round % 5) {
                assert!(cache.find(name(hot)).is_some(), "{hot} went in round {round}");
            }
        }
    }

    #[test]
    fn what_was_bad_is_seen_by_those_who_waited_and_then_read_again() {
        let mut cache = Cache::new(BUDGET_MIN);
        cache.insert(name(1), Entry::Bad(Bad::Io), 1);
        assert!(cache.find(name(1)).is_some());
        cache.unpin(name(1));
        assert!(cache.find(name(1)).is_none());
        cache.insert(name(1), node(), 0);
        let slot = cache.find(name(1)).unwrap();
        assert!(matches!(cache.entry(slot), Entry::Node(_)));
        cache.insert(name(2), node(), 0);
        assert_eq!(cache.short.len(), 2);
        assert_eq!(cache.bytes, cache.short_bytes);
    }

    #[test]
    fn what_is_pinned_stays_until_let_go() {
        let mut cache = Cache::new(BUDGET_MIN);
        for i in 0..1000 {
            cache.insert(name(i), node(), 1);
        }
        assert!(cache.bytes() > BUDGET_MIN);
        assert!((0..1000).all(|i| cache.find(name(i)).is_some()));
        (0..1000).for_each(|i| cache.unpin(name(i)));
        cache.set_budget(0);
        assert!(cache.bytes() <= BUDGET_MIN && cache.bytes() > BUDGET_MIN / 2);
        let left = (0..1000).filter(|i| cache.find(name(*i)).is_some()).count();
        let Entry::Node(one) = node() else { unreachable!("a node") };
        assert_eq!(cache.bytes, left * (OVERHEAD + one.bytes()));
    }
}
