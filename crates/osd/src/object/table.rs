//! The objects of a PG that are in memory, and whose turn it is on each.
//!
//! On one object, requests start in the order they came. Reads share; a write waits for the reads before it, and
//! reads wait until the writes before them are durable, so that nobody sees what a crash could still take back.
//! Writes follow one another without waiting for their commits: the store keeps their order, and so do replies.
//! Different objects do not wait for each other.
//!
//! A request that copies another object waits for it and holds its own object meanwhile. The reads that such copies send begin
//! before everything that waits on their object: all of that is concurrent with them. Otherwise two objects that become copies of
//! each other, or an object that becomes a copy of its own clone, would wait for ever.

use super::Watch;
use crate::fast_map::FastMap;
use crate::planted::{self, PlantedBug};
use crate::slab::{Key, Slab};
use hashbrown::HashTable;
use std::collections::VecDeque;
use store::ObjectId;
use wire::types::{EntityName, HObject, ObjectFlags, ObjectInfo, SnapSet};

/// An object's existence and info, as far as they are in memory. A head that was deleted and has clones is present, as a whiteout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// Its info has not been read yet: the first request reads it along.
    Unknown,
    Absent,
    Present(Box<ObjectInfo>),
}

impl ObjectState {
    pub fn info(&self) -> Option<&ObjectInfo> {
        match self {
            ObjectState::Present(info) => Some(info),
            ObjectState::Unknown | ObjectState::Absent => None,
        }
    }

    /// The info of an object that exists for clients.
    pub fn live(&self) -> Option<&ObjectInfo> {
        self.info().filter(|info| !info.flags.contains(ObjectFlags::WHITEOUT))
    }
}

/// Sharing of an object between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectTurn {
    Read,
    Write,
    /// A read by an OSD that copies the object.
    Copy,
}

/// Requests that wait until an object is recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectBlock {
    #[default]
    None,
    /// A member lacks the object, or a backfill is copying it.
    Writes,
    /// This OSD lacks the object.
    All,
}

pub struct ObjectContext {
    pub id: ObjectId,
    pub block: ObjectBlock,
    pub state: ObjectState,
    /// Of a head with snapshots, once its info is known.
    pub snaps: Option<Box<SnapSet>>,
    /// Its info says that it has snapshots: they are read with it.
    pub expects_snaps: bool,
    pub watches: FastMap<(u64, EntityName), Watch>,
    /// Requests that have begun and whose answer from the store is outstanding: reads.
    readers: u32,
    /// Writes that have been submitted and are not durable.
    writers: u32,
    /// One request reads what it needs before it can change the object, or reads the object's info: nobody else
    /// may begin.
    exclusive: bool,
    /// A request waits for the object that it copies. Nobody else may begin, but for reads of such requests.
    is_copying: bool,
    /// In the order in which they came, which the first field counts.
    waiting: VecDeque<(u64, Key, ObjectTurn)>,
    /// Reads of requests that copy the object.
    copies: VecDeque<Key>,
    /// Touched since the sweep last passed.
    recent: bool,
    /// Of a replica: the object has changed since requests began to read it.
    is_stale: bool,
}

/// Roughly what a context takes besides its names.
const CONTEXT_BYTES: usize = 512;

impl ObjectContext {
    fn new(id: ObjectId) -> ObjectContext {
        ObjectContext {
            id,
            block: ObjectBlock::None,
            state: ObjectState::Unknown,
            snaps: None,
            expects_snaps: false,
            watches: FastMap::default(),
            readers: 0,
            writers: 0,
            exclusive: false,
            is_copying: false,
            waiting: VecDeque::new(),
            copies: VecDeque::new(),
            recent: true,
            is_stale: false,
        }
    }

    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Forgets the info of an object that has changed. False: requests that have begun still use it.
    pub fn forget_stale(&mut self) -> bool {
        if self.is_stale && self.readers == 0 && !self.exclusive {
            (self.is_stale, self.state, self.snaps) = (false, ObjectState::Unknown, None);
        }
        !self.is_stale
    }

    /// No request reads or changes the object now. Those that wait may be blocked.
    pub fn is_free(&self) -> bool {
        !self.exclusive && !self.is_copying && self.readers == 0 && self.copies.is_empty()
    }

    /// A write of the OSD itself may begin.
    pub fn may_write(&self) -> bool {
        self.may_begin(ObjectTurn::Write)
    }

    fn may_begin(&self, turn: ObjectTurn) -> bool {
        match turn {
            _ if self.exclusive || self.block == ObjectBlock::All => false,
            ObjectTurn::Copy => self.writers == 0,
            _ if self.is_copying => false,
            ObjectTurn::Write if self.block == ObjectBlock::Writes => false,
            ObjectTurn::Read => self.writers == 0 || planted::has(PlantedBug::ReadUncommitted),
            // A copy waits for the writes that are not durable: no more of them may come.
            ObjectTurn::Write => self.readers == 0 && self.copies.is_empty(),
        }
    }

    /// Returns true if `request` may begin now. Otherwise it is queued for [`ObjectContext::next_request`]. `order` rises
    /// from request to request.
    pub fn enter(&mut self, request: Key, turn: ObjectTurn, order: u64) -> bool {
        self.recent = true;
        if turn == ObjectTurn::Copy {
            let may_begin = self.may_begin(turn);
            if !may_begin {
                self.copies.push_back(request);
            }
            return may_begin;
        }
        if self.waiting.is_empty() && self.may_begin(turn) {
            return true;
        }
        self.waiting.push_back((order, request, turn));
        false
    }

    /// A request that had begun waits again, before all that came after it.
    pub fn put_back(&mut self, request: Key, turn: ObjectTurn, order: u64) {
        if turn == ObjectTurn::Copy {
            return self.copies.push_front(request);
        }
        let at = self.waiting.partition_point(|(other, ..)| *other < order);
        self.waiting.insert(at, (order, request, turn));
    }

    /// The request that may begin now, if one waits and may.
    pub fn next_request(&mut self) -> Option<Key> {
        if !self.copies.is_empty() && self.may_begin(ObjectTurn::Copy) {
            return self.copies.pop_front();
        }
        let (_, _, turn) = *self.waiting.front()?;
        if !self.may_begin(turn) {
            return None;
        }
        self.waiting.pop_front().map(|(_, key, _)| key)
    }

    pub fn begin_read(&mut self) {
        self.readers += 1;
    }

    pub fn end_read(&mut self) {
        self.readers -= 1;
    }

    pub fn begin_exclusive(&mut self) {
        debug_assert!(!self.exclusive);
        self.exclusive = true;
    }

    pub fn end_exclusive(&mut self) {
        debug_assert!(self.exclusive);
        self.exclusive = false;
    }

    /// A request begins to wait for the object that it copies.
    pub fn begin_copying(&mut self) {
        debug_assert!(!self.is_copying && !self.exclusive);
        self.is_copying = true;
    }

    pub fn end_copying(&mut self) {
        debug_assert!(self.is_copying);
        self.is_copying = false;
    }

    pub fn begin_write(&mut self) {
        self.writers += 1;
    }

    pub fn end_write(&mut self) {
        self.writers -= 1;
    }

    /// A request has begun to read in order to change the object.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// A write is being prepared, or is not durable yet.
    pub fn is_written(&self) -> bool {
        self.exclusive || self.writers > 0
    }

    /// Another copy replaces the one that was not there: the next request reads its info.
    pub fn forget_absence(&mut self) {
        if self.state == ObjectState::Absent {
            (self.state, self.snaps) = (ObjectState::Unknown, None);
        }
    }

    pub fn is_waited_for(&self) -> bool {
        self.is_copying || !self.waiting.is_empty() || !self.copies.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        !self.has_requests() && self.watches.is_empty()
    }

    pub fn has_requests(&self) -> bool {
        self.readers > 0 || self.writers > 0 || self.exclusive || self.is_waited_for()
    }

    fn bytes(&self) -> usize {
        let o = &self.id.object;
        CONTEXT_BYTES + 2 * (o.name.len() + o.key.len() + o.namespace.len())
    }
}

/// An object's hash fills 32 bits and a PG's objects share some of the low ones; the table looks at the low and the
/// highest bits of 64.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

/// All contexts of a PG, bounded by memory: what has been idle longest goes first, approximately (a clock).
#[derive(Default)]
pub struct ObjectTable {
    contexts: Slab<ObjectContext>,
    /// By the hash that the object has anyway, which is kept beside the key: a growing table then touches no context.
    by_name: HashTable<(u32, Key)>,
    bytes: usize,
    /// Contexts in the order in which the sweep looks at them.
    sweep: VecDeque<Key>,
}

impl ObjectTable {
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// The context of `object`, or of the head whose clone it is.
    pub fn find(&self, object: &HObject) -> Option<Key> {
        let same = |(hash, key): &(u32, Key)| {
            *hash == object.hash && self.contexts[*key].id.object.is_same_but_snap(object)
        };
        self.by_name.find(spread(object.hash), same).map(|(_, key)| *key)
    }

    /// The context of `object`, made when there is none. Beyond `budget` bytes idle ones are dropped.
    pub fn open(&mut self, object: &HObject, budget: usize) -> Key {
        if let Some(key) = self.find(object) {
            return key;
        }
        if self.bytes > budget {
            self.shrink(budget);
        }
        let context = ObjectContext::new(object.clone().into());
        self.bytes += context.bytes();
        let key = self.contexts.insert(context);
        self.by_name.insert_unique(spread(object.hash), (object.hash, key), |(hash, _)| spread(*hash));
        self.sweep.push_back(key);
        key
    }

    /// Drops every idle context.
    pub fn drop_idle(&mut self) {
        self.shrink(0);
    }

    /// Each context is looked at twice at most, so a table full of busy ones costs one pass and stays.
    fn shrink(&mut self, budget: usize) {
        for _ in 0..2 * self.sweep.len() {
            if self.bytes <= budget {
                return;
            }
            let Some(key) = self.sweep.pop_front() else { return };
            let context = &mut self.contexts[key];
            if context.is_idle() && !std::mem::take(&mut context.recent) {
                self.forget(key);
            } else {
                self.sweep.push_back(key);
            }
        }
    }

    fn forget(&mut self, key: Key) {
        if let Some(context) = self.contexts.remove(key) {
            self.bytes -= context.bytes();
            let hash = context.id.object.hash;
            if let Ok(found) = self.by_name.find_entry(spread(hash), |(_, k)| *k == key) {
                found.remove();
            }
        }
    }

    /// The object has changed behind the backs of its readers.
    pub fn make_stale(&mut self, object: &HObject) {
        if !self.contexts.is_empty()
            && let Some(key) = self.find(object)
        {
            self.contexts[key].is_stale = true;
        }
    }

    pub fn get(&self, key: Key) -> Option<&ObjectContext> {
        self.contexts.get(key)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut ObjectContext> {
        self.contexts.get_mut(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &ObjectContext)> {
        self.contexts.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut ObjectContext)> {
        self.contexts.iter_mut()
    }
}

impl std::ops::Index<Key> for ObjectTable {
    type Output = ObjectContext;
    #[inline]
    fn index(&self, key: Key) -> &ObjectContext {
        &self.contexts[key]
    }
}

impl std::ops::IndexMut<Key> for ObjectTable {
    #[inline]
    fn index_mut(&mut self, key: Key) -> &mut ObjectContext {
        &mut self.contexts[key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(n: usize) -> Vec<Key> {
        let mut slab = Slab::new();
        (0..n).map(|_| slab.insert(())).collect()
    }

    fn object(name: &str) -> HObject {
        HObject { name: name.into(), ..HObject::min() }
    }

    #[test]
    fn reads_share_writes_follow_one_another_and_neither_overtakes() {
        let k = keys(5);
        let mut o = ObjectContext::new(object("a").into());
        assert!(o.enter(k[0], ObjectTurn::Read, 1));
        o.begin_read();
        assert!(o.enter(k[1], ObjectTurn::Read, 2));
        o.begin_read();
        assert!(!o.enter(k[2], ObjectTurn::Write, 3), "a write waits for the reads before it");
        assert!(!o.enter(k[3], ObjectTurn::Read, 4), "a read does not overtake a waiting write");
        o.end_read();
        assert_eq!(o.next_request(), None);
        o.end_read();
        assert_eq!(o.next_request(), Some(k[2]));
        o.begin_write();
        assert_eq!(o.next_request(), None, "a read waits until the write is durable");
        o.end_write();
        assert_eq!(o.next_request(), Some(k[3]));
        assert!(o.enter(k[4], ObjectTurn::Read, 5));
    }

    #[test]
    fn requests_put_back_keep_their_order() {
        let k = keys(4);
        for failed in [[1, 0, 2], [2, 1, 0], [0, 1, 2]] {
            let mut o = ObjectContext::new(object("a").into());
            for (order, request) in (0..).zip(&k[..3]) {
                assert!(o.enter(*request, ObjectTurn::Read, order));
                o.begin_read();
            }
            o.block = ObjectBlock::All;
            assert!(!o.enter(k[3], ObjectTurn::Read, 3));
            for at in failed {
                o.end_read();
                o.put_back(k[at], ObjectTurn::Read, at as u64);
            }
            o.block = ObjectBlock::None;
            let begun: Vec<Key> = std::iter::from_fn(|| o.next_request()).collect();
            assert_eq!(begun, k, "{failed:?}");
        }
    }

    #[test]
    fn writes_do_not_wait_for_each_others_commit() {
        let k = keys(2);
        let mut o = ObjectContext::new(object("a").into());
        assert!(o.enter(k[0], ObjectTurn::Write, 6));
        o.begin_write();
        assert!(o.enter(k[1], ObjectTurn::Write, 7));
    }

    #[test]
    fn read_of_a_copy_passes_requests_that_wait() {
        let k = keys(5);
        let mut o = ObjectContext::new(object("a").into());
        assert!(o.enter(k[0], ObjectTurn::Write, 1));
        o.begin_copying();
        assert!(!o.enter(k[1], ObjectTurn::Read, 2) && !o.enter(k[2], ObjectTurn::Write, 3));
        assert!(o.enter(k[3], ObjectTurn::Copy, 4), "the object is as it was");
        o.begin_read();
        o.end_copying();
        o.put_back(k[0], ObjectTurn::Write, 1);
        assert_eq!(o.next_request(), None, "the read has begun");
        o.end_read();
        assert_eq!(o.next_request(), Some(k[0]));
        o.begin_write();
        assert!(!o.enter(k[4], ObjectTurn::Copy, 5), "the write is not durable");
        assert_eq!(o.next_request(), None);
        o.end_write();
        assert_eq!((o.next_request(), o.next_request()), (Some(k[4]), Some(k[1])));
    }

    #[test]
    fn the_table_drops_what_is_idle_and_keeps_what_is_busy() {
        let mut table = ObjectTable::default();
        let busy = table.open(&object("busy"), usize::MAX);
        table[busy].begin_write();
        for n in 0..100 {
            table.open(&object(&n.to_string()), 10 * CONTEXT_BYTES);
        }
        assert!(table.len() <= 12, "{}", table.len());
        assert_eq!(table.find(&object("busy")), Some(busy));
    }
}
