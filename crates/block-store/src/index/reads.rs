//! Nodes of tables through the cache: reads in flight, and the tickets that wait for them.

use super::cached::{BUDGET_MIN, Cache, Entry, Name};
use super::near::Near;
use super::node::{Kind, Node};
use super::table::{At, BlockAt, Segment, Table, open_node};
use super::{Bad, Ticket, filter, token};
use crate::io::{Io, Owner};
use bytes::Bytes;
use device::DeviceError;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Reason that a node is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Being read; the ticket waits for it.
    Pending,
    Bad(Bad),
}

/// Result of a look-up in one table.
pub enum Found {
    Value(Bytes),
    Deleted,
    Nothing,
}

/// Maximum pinned blocks per waiting ticket. Others may be evicted before the query is repeated.
const TOUCHED_MAX: usize = 1 << 13;
/// Oldest waiting tickets whose nodes stay, whatever they take: the cleaner's, which is older than any other, and one more.
const KEEPING: usize = 2;
/// Number of names at which duplicates are removed.
const TOUCHED_TWICE: usize = 1024;

pub struct Reads {
    cache: Cache,
    loads: BTreeMap<u64, Load>,
    /// Token of the load of each node that is being read.
    loading: BTreeMap<Name, u64>,
    waits: BTreeMap<Ticket, Wait>,
    /// Tickets that can go on, with their pinned blocks.
    ready: VecDeque<(Ticket, SmallVec<[Name; 4]>)>,
    /// Pinned blocks of the tickets that were returned last, by ticket.
    pins_held: Vec<(Ticket, SmallVec<[Name; 4]>)>,
    /// Blocks that `asker` has used in its consecutive queries.
    touched: Vec<Name>,
    /// Number of names at which duplicates are removed next.
    touched_max: usize,
    asker: Option<Ticket>,
    next_token: u64,
}

/// One device request, for one node or several neighbours.
struct Load {
    /// Keeps the table's space from being freed during the read.
    table: Arc<Table>,
    nodes: SmallVec<[At; 1]>,
    kind: Kind,
    /// Waiting tickets, with the node that each waits for.
    tickets: SmallVec<[(Ticket, Name); 2]>,
}

#[derive(Default)]
struct Wait {
    outstanding: u32,
    /// Pinned nodes, possibly repeated.
    landed: SmallVec<[Name; 4]>,
    /// Number of distinct ones at the last count.
    distinct: usize,
}

impl Wait {
    #[cold]
    fn thin_out(&mut self, cache: &mut Cache) {
        self.landed.sort_unstable();
        let mut last = None;
        self.landed.retain(|name| {
            let is_first = last.replace(*name) != Some(*name);
            if !is_first {
                cache.unpin(*name);
            }
            is_first
        });
        let all = std::mem::take(&mut self.landed);
        let (kept, gone) = all.split_at(all.len().min(TOUCHED_MAX));
        gone.iter().for_each(|name| cache.unpin(*name));
        self.landed.extend_from_slice(kept);
        self.distinct = self.landed.len();
    }
}

fn drop_it(_: Name, _: Entry) {}

impl Reads {
    pub fn new(cache_bytes: usize) -> Reads {
        Reads {
            cache: Cache::new(cache_bytes, BUDGET_MIN),
            loads: BTreeMap::new(),
            loading: BTreeMap::new(),
            waits: BTreeMap::new(),
            ready: VecDeque::new(),
            pins_held: Vec::new(),
            touched: Vec::new(),
            touched_max: TOUCHED_TWICE,
            asker: None,
            next_token: 0,
        }
    }

    pub fn set_cache_budget(&mut self, bytes: usize) {
        self.cache.set_budget(bytes, &mut drop_it);
    }

    /// Evicts some blocks, while they are more than the budget. Returns true if another call would get further.
    pub fn trim_cache(&mut self) -> bool {
        self.cache.trim(&mut drop_it)
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// A query begins.
    #[inline]
    pub fn begin(&mut self, ticket: Ticket) {
        if self.asker != Some(ticket) {
            self.asker = Some(ticket);
            self.touched.clear();
            self.touched_max = TOUCHED_TWICE;
        } else if self.touched.len() > self.touched_max {
            self.thin_out();
        }
    }

    #[cold]
    fn thin_out(&mut self) {
        self.touched.sort_unstable();
        self.touched.dedup();
        if self.touched.len() > TOUCHED_MAX {
            self.touched.clear();
        }
        self.touched_max = TOUCHED_TWICE.max(2 * self.touched.len());
    }

    /// Like [`Reads::hold_touched`], if the ticket waits: after several queries of which some are pending.
    pub fn hold_touched_of(&mut self, ticket: Ticket) {
        if self.asker == Some(ticket) {
            self.hold_touched(ticket);
        }
    }

    /// A query ends with `Pending`: the blocks that it and the preceding queries of the ticket used stay until they are
    /// repeated. So each repetition gets further, however small the cache is.
    pub fn hold_touched(&mut self, ticket: Ticket) {
        let Some(wait) = self.waits.get_mut(&ticket) else { return };
        // Also blocks of earlier waits that this repetition did not use: a remembered answer may have been forgotten.
        let first = self.pins_held.partition_point(|(whose, _)| *whose < ticket);
        for (_, names) in self.pins_held[first..].iter_mut().take_while(|(whose, _)| *whose == ticket) {
            wait.landed.append(names);
        }
        // A block pinned twice is unpinned twice.
        wait.landed.extend(self.touched.drain(..).filter(|name| self.cache.pin(*name)));
        if wait.landed.len() > TOUCHED_TWICE.max(2 * wait.distinct) {
            wait.thin_out(&mut self.cache);
        }
        self.unpin_newest();
    }

    /// Bounds what waiting tickets have pinned: a transaction of a thousand cold keys uses some 100 MB of nodes. The newest tickets'
    /// nodes may go, and are read again. The oldest keep theirs, so that one always gets further.
    fn unpin_newest(&mut self) {
        let Reads { cache, waits, .. } = self;
        for wait in waits.values_mut().skip(KEEPING).rev() {
            if !cache.is_mostly_pinned() {
                break;
            }
            wait.landed.drain(..).for_each(|name| cache.unpin(name));
            wait.distinct = 0;
        }
    }

    /// Looks up a key, with its [`filter::hash`], in `table`. Tells `near` the segment that it is in.
    pub fn look_up(
        &mut self,
        table: &Arc<Table>,
        near: Option<&mut Near>,
        (key, hash): (&[u8], u64),
        ticket: Ticket,
        io: &mut Io,
    ) -> Result<Found, Unavailable> {
        let root = self.root(table, ticket, io)?;
        let Some(i) = root.covering(key) else { return Ok(Found::Nothing) };
        let segment = Segment::of_root(root, i).map_err(Unavailable::Bad)?;
        let slot = self.guide(table, &segment, ticket, io)?;
        if let Some(near) = near {
            (near.segment, near.slot) = (segment, slot);
            root.key_into(i, &mut near.first);
            match i + 1 < root.count() {
                true => root.key_into(i + 1, &mut near.end),
                false => near.end.clone_from(&table.end),
            }
            near.is_set = true;
        }
        self.look_up_in((table, &segment, slot), (key, hash), ticket, io)
    }

    /// [`Reads::look_up`] in a segment that the caller has used before.
    pub fn look_up_near(
        &mut self,
        table: &Arc<Table>,
        near: &Near,
        (key, hash): (&[u8], u64),
        ticket: Ticket,
        io: &mut Io,
    ) -> Result<Found, Unavailable> {
        let name = Name { table: table.number, unit: near.segment.guide().unit };
        let slot = match self.cache.entry_of(near.slot, name) {
            Some(Entry::Node(_)) => near.slot,
            // It was evicted, and may be back.
            _ => self.guide(table, &near.segment, ticket, io)?,
        };
        self.look_up_in((table, &near.segment, slot), (key, hash), ticket, io)
    }

    /// The slot of the cache that has a segment's guide.
    fn guide(
        &mut self,
        table: &Arc<Table>,
        segment: &Segment,
        ticket: Ticket,
        io: &mut Io,
    ) -> Result<u32, Unavailable> {
        self.slot(table, segment.guide(), Kind::Guide, ticket, &mut std::iter::empty(), io)
    }

    /// Looks up a key in a segment with its guide in this slot of the cache.
    fn look_up_in(
        &mut self,
        (table, segment, slot): (&Arc<Table>, &Segment, u32),
        (key, hash): (&[u8], u64),
        ticket: Ticket,
        io: &mut Io,
    ) -> Result<Found, Unavailable> {
        let guide = self.node_in(slot);
        if !filter::may_hold(guide.filter(), hash) {
            return Ok(Found::Nothing);
        }
        let Some(i) = guide.covering(key) else { return Ok(Found::Nothing) };
        let at = BlockAt::of_guide(guide, i).map_err(Unavailable::Bad)?.within(segment);
        let block = self.node(table, at, Kind::Entries, ticket, io)?;
        Ok(match block.seek(key) {
            (i, true) => block.value_shared(i).map_or(Found::Deleted, Found::Value),
            (_, false) => Found::Nothing,
        })
    }

    /// True if the guide that covers a key is in memory.
    #[cold]
    pub fn has_guide(&mut self, table: &Table, key: &[u8]) -> bool {
        let segment = table.root_node.get().and_then(|root| Segment::of_root(root, root.covering(key)?).ok());
        segment.is_some_and(|segment| {
            self.cache.find(Name { table: table.number, unit: segment.guide().unit }).is_some()
        })
    }

    /// Starts the read of the root or the guide of a look-up that follows if newer tables lack the key. Its block of entries is
    /// not read: the filter in the guide may exclude the key.
    #[cold]
    pub fn look_ahead(&mut self, table: &Arc<Table>, key: &[u8], ticket: Ticket, io: &mut Io) {
        let Ok(root) = self.root(table, ticket, io) else { return };
        let Some(i) = root.covering(key) else { return };
        if let Ok(segment) = Segment::of_root(root, i) {
            // An unreadable guide is met by the look-up itself.
            let _ = self.node(table, segment.guide(), Kind::Guide, ticket, io);
        }
    }

    pub fn root<'a>(
        &mut self,
        table: &'a Arc<Table>,
        ticket: Ticket,
        io: &mut Io,
    ) -> Result<&'a Node, Unavailable> {
        match table.root_node.get() {
            Some(root) => Ok(root),
            None => Err(self.miss(table, table.root, Kind::Root, ticket, &mut std::iter::empty(), io)),
        }
    }

    #[inline]
    pub fn node(
        &mut self,
        table: &Arc<Table>,
        at: At,
        kind: Kind,
        ticket: Ticket,
        io: &mut Io,
    ) -> Result<&Node, Unavailable> {
        self.node_ahead(table, at, kind, ticket, &mut std::iter::empty(), io)
    }

    /// Like [`Reads::node`]; a device read includes the nodes of `ahead` that lie directly behind.
    #[inline]
    pub fn node_ahead(
        &mut self,
        table: &Arc<Table>,
        at: At,
        kind: Kind,
        ticket: Ticket,
        ahead: &mut dyn Iterator<Item = At>,
        io: &mut Io,
    ) -> Result<&Node, Unavailable> {
        let slot = self.slot(table, at, kind, ticket, ahead, io)?;
        Ok(self.node_in(slot))
    }

    /// The node in a slot that [`Reads::slot`] has returned.
    #[inline]
    fn node_in(&self, slot: u32) -> &Node {
        let Entry::Node(node) = self.cache.entry(slot) else { unreachable!("a node was found there") };
        node
    }

    /// The slot of the cache that has a node.
    #[inline]
    fn slot(
        &mut self,
        table: &Arc<Table>,
        at: At,
        kind: Kind,
        ticket: Ticket,
        ahead: &mut dyn Iterator<Item = At>,
        io: &mut Io,
    ) -> Result<u32, Unavailable> {
        if at.is_hole() {
            return Err(Unavailable::Bad(Bad::Corrupt));
        }
        let name = Name { table: table.number, unit: at.unit };
        let Some(slot) = self.cache.find(name) else {
            return Err(self.miss(table, at, kind, ticket, ahead, io));
        };
        // Also an unreadable one: the query may go on without it, wait for another node, and be repeated.
        self.touched.push(name);
        match self.cache.entry(slot) {
            Entry::Node(_) => Ok(slot),
            Entry::Bad(bad) => Err(Unavailable::Bad(*bad)),
        }
    }

    /// A completion of a token of [`token::LOAD`].
    pub fn on_done(&mut self, token: u64, result: Result<Bytes, DeviceError>, io: &mut Io) {
        let load = self.loads.remove(&token).expect("a read that was started");
        for name in load.names() {
            self.loading.remove(&name);
        }
        if result.is_err() && load.nodes.len() > 1 {
            return self.read_one_by_one(load, io);
        }
        let mut start = 0;
        for at in &load.nodes {
            let end = start + at.len();
            let node = match &result {
                // Own memory for each of several nodes.
                Ok(bytes) if load.nodes.len() > 1 => match bytes.get(start..end) {
                    Some(bytes) => open_node(Bytes::copy_from_slice(bytes), *at, load.kind),
                    None => Err(Bad::Io),
                },
                Ok(bytes) if load.kind == Kind::Root => load.table.open_root(bytes.clone()),
                Ok(bytes) => open_node(bytes.clone(), *at, load.kind),
                Err(DeviceError::Io) => Err(Bad::Io),
                Err(DeviceError::Gone | DeviceError::NoSpace) => Err(Bad::Gone),
            };
            start = end;
            self.land(&load, Name { table: load.table.number, unit: at.unit }, node);
        }
        for (ticket, name) in load.tickets {
            let wait = self.waits.get_mut(&ticket).expect("a ticket that waits");
            wait.outstanding -= 1;
            // Valid roots are not in the cache.
            if load.kind != Kind::Root || load.table.root_node.get().is_none() {
                wait.landed.push(name);
            }
            if wait.outstanding == 0 {
                let wait = self.waits.remove(&ticket).expect("just seen");
                self.ready.push_back((ticket, wait.landed));
            }
        }
        self.unpin_newest();
    }

    /// Stores a node where queries find it.
    fn land(&mut self, load: &Load, name: Name, node: Result<Node, Bad>) {
        let pins = load.tickets.iter().filter(|(_, wanted)| *wanted == name).count() as u32;
        match (load.kind, node) {
            (Kind::Root, Ok(root)) => {
                // A merge may have set it meanwhile, to the same bytes.
                let _ = load.table.root_node.set(root);
            }
            (_, Ok(node)) => self.cache.insert(name, Entry::Node(node), pins, &mut drop_it),
            (_, Err(bad)) => self.cache.insert(name, Entry::Bad(bad), pins, &mut drop_it),
        }
    }

    /// Repeats a failed read node by node: one bad sector must not affect its neighbours.
    fn read_one_by_one(&mut self, load: Load, io: &mut Io) {
        for at in load.nodes {
            let name = Name { table: load.table.number, unit: at.unit };
            let tickets: SmallVec<_> =
                load.tickets.iter().filter(|(_, wanted)| *wanted == name).copied().collect();
            if !tickets.is_empty() {
                let (table, nodes) = (load.table.clone(), SmallVec::from_slice(&[at]));
                self.start(Load { table, nodes, kind: load.kind, tickets }, io);
            }
        }
    }

    /// Unpins the blocks of the tickets that were returned since the last call.
    pub fn release_held(&mut self) {
        for name in self.pins_held.drain(..).flat_map(|(_, names)| names) {
            self.cache.unpin(name);
        }
    }

    /// The next ticket that can go on.
    pub fn next_ready(&mut self) -> Option<Ticket> {
        let (ticket, pins) = self.ready.pop_front()?;
        // Sorted: many tickets may search for their own.
        let at = self.pins_held.partition_point(|(held, _)| *held <= ticket);
        self.pins_held.insert(at, (ticket, pins));
        Some(ticket)
    }

    /// True if blocks are being read for it.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waits.contains_key(&ticket)
    }

    /// The ticket can go on in the next turn, whether or not it waits for blocks.
    pub fn go_on_later(&mut self, ticket: Ticket) {
        let is_ready = self.ready.back().is_some_and(|(last, _)| *last == ticket);
        if !is_ready {
            self.ready.push_back((ticket, SmallVec::new()));
        }
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    #[cold]
    fn miss(
        &mut self,
        table: &Arc<Table>,
        at: At,
        kind: Kind,
        ticket: Ticket,
        ahead: &mut dyn Iterator<Item = At>,
        io: &mut Io,
    ) -> Unavailable {
        let name = Name { table: table.number, unit: at.unit };
        // The cache has no roots, except unreadable ones.
        if let Some(slot) = self.cache.find(name)
            && let Entry::Bad(bad) = self.cache.entry(slot)
        {
            self.touched.push(name);
            return Unavailable::Bad(*bad);
        }
        if !is_sound(table, at, io) {
            return Unavailable::Bad(Bad::Corrupt);
        }
        match self.loading.get(&name).and_then(|token| self.loads.get_mut(token)) {
            Some(load) if load.tickets.contains(&(ticket, name)) => return Unavailable::Pending,
            Some(load) => load.tickets.push((ticket, name)),
            None => {
                let nodes = self.with_neighbours(table, at, ahead, io);
                let (table, tickets) = (table.clone(), SmallVec::from_slice(&[(ticket, name)]));
                self.start(Load { table, nodes, kind, tickets }, io);
            }
        }
        self.waits.entry(ticket).or_default().outstanding += 1;
        Unavailable::Pending
    }

    /// `at`, and the nodes of `ahead` directly behind it that are not in memory.
    fn with_neighbours(
        &mut self,
        table: &Arc<Table>,
        at: At,
        ahead: &mut dyn Iterator<Item = At>,
        io: &Io,
    ) -> SmallVec<[At; 1]> {
        let mut nodes: SmallVec<[At; 1]> = SmallVec::from_slice(&[at]);
        let mut end = at.unit + at.units as u64;
        for at in ahead {
            if at.unit != end
                || !is_sound(table, at, io)
                || self.is_known(Name { table: table.number, unit: at.unit })
            {
                break;
            }
            end += at.units as u64;
            nodes.push(at);
        }
        nodes
    }

    fn start(&mut self, load: Load, io: &mut Io) {
        let token = self.next_token << token::SHIFT | token::LOAD;
        self.next_token += 1;
        let (offset, len) = (load.nodes[0].offset(), load.nodes.iter().map(At::len).sum());
        match load.nodes.len() {
            1 => io.read(Owner::Index, token, offset, len),
            // If it fails, each of them is read by itself.
            _ => io.read_once(Owner::Index, token, offset, len),
        }
        self.loading.extend(load.names().map(|name| (name, token)));
        self.loads.insert(token, load);
    }

    fn is_known(&mut self, name: Name) -> bool {
        self.cache.find(name).is_some() || self.loading.contains_key(&name)
    }
}

impl Load {
    fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.nodes.iter().map(|at| Name { table: self.table.number, unit: at.unit })
    }
}

/// False for holes and for damaged pointers, which lead out of the table.
fn is_sound(table: &Table, at: At, io: &Io) -> bool {
    !at.is_hole() && table.holds(at.unit, at.units as u64) && at.offset() + at.len() as u64 <= io.size()
}
