//! Nodes of tables by way of the cache: what is there, what is being read, and who waits for it.

use super::cached::{BUDGET_MIN, Cache, Entry, Name};
use super::node::{Kind, Node};
use super::table::{At, BlockAt, Segment, Table, open_node};
use super::{Bad, Ticket, filter, token};
use crate::io::{Io, Owner};
use bytes::Bytes;
use device::DeviceError;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a node is not at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is being read, and the ticket waits for it.
    Pending,
    Bad(Bad),
}

/// What a table says of a key.
pub enum Found {
    Value(Bytes),
    Deleted,
    Nothing,
}

/// A block whose reading fails so often in a row is lost: what depends on it is given up, as if it were rotten.
const FAILURES_MAX: u32 = 3;

/// One asker's blocks beyond this many may go again before it has its answer.
const TOUCHED_MAX: usize = 1 << 13;
/// So many may be named twice before that is looked for.
const TOUCHED_TWICE: usize = 1024;

pub struct Reads {
    cache: Cache,
    loads: BTreeMap<u64, Load>,
    waits: BTreeMap<Ticket, Wait>,
    ready: Vec<Ticket>,
    /// Blocks that the tickets in `ready` will ask for.
    pins_next: Vec<(Ticket, SmallVec<[Name; 4]>)>,
    /// Blocks that the tickets handed out last ask for now, by ticket.
    pins_held: Vec<(Ticket, SmallVec<[Name; 4]>)>,
    /// Blocks that `asker` has used so far, in all the questions it asks in a row.
    touched: Vec<Name>,
    /// At so many those named twice are thinned out.
    touched_max: usize,
    asker: Option<Ticket>,
    next_token: u64,
}

/// One request to the device, for one node or several that lie side by side.
struct Load {
    /// Keeps the table's space from being given back under the read.
    table: Arc<Table>,
    nodes: SmallVec<[At; 1]>,
    kind: Kind,
    /// Who waits for which.
    tickets: SmallVec<[(Ticket, Name); 2]>,
    /// How often it has failed.
    failures: u32,
}

#[derive(Default)]
struct Wait {
    outstanding: u32,
    /// Pinned, some of them twice.
    landed: SmallVec<[Name; 4]>,
    /// How many there were without those, when that was looked at.
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
            waits: BTreeMap::new(),
            ready: Vec::new(),
            pins_next: Vec::new(),
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

    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// A question begins.
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

    /// The question ends with `Pending`: what was used for it, and for those asked with the same ticket before, stays
    /// until they are asked again, so that each time gets further than the last, however small the cache.
    pub fn hold_touched(&mut self, ticket: Ticket) {
        let Some(wait) = self.waits.get_mut(&ticket) else { return };
        // Also what it waited for before and did not come by this time: an answer that was remembered may be forgotten.
        let first = self.pins_held.partition_point(|(whose, _)| *whose < ticket);
        for (_, names) in self.pins_held[first..].iter_mut().take_while(|(whose, _)| *whose == ticket) {
            wait.landed.append(names);
        }
        // Twice pinned is twice let go of.
        wait.landed.extend(self.touched.drain(..).filter(|name| self.cache.pin(*name)));
        if wait.landed.len() > TOUCHED_TWICE.max(2 * wait.distinct) {
            wait.thin_out(&mut self.cache);
        }
    }

    /// What `table` says of `key`, whose [`filter::hash`] is `hash`.
    pub fn look_up(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        hash: u64,
        ticket: Ticket,
        io: &mut Io,
    ) -> Result<Found, Stop> {
        let root = self.root(table, ticket, io)?;
        let Some(i) = root.covering(key) else { return Ok(Found::Nothing) };
        let segment = Segment::of_root(root, i).map_err(Stop::Bad)?;
        let guide = self.node(table, segment.guide(), Kind::Guide, ticket, io)?;
        if !filter::may_hold(guide.filter(), hash) {
            return Ok(Found::Nothing);
        }
        let Some(i) = guide.covering(key) else { return Ok(Found::Nothing) };
        let at = BlockAt::of_guide(guide, i).map_err(Stop::Bad)?.within(&segment);
        let block = self.node(table, at, Kind::Entries, ticket, io)?;
        Ok(match block.seek(key) {
            (i, true) => block.value_shared(i).map_or(Found::Deleted, Found::Value),
            (_, false) => Found::Nothing,
        })
    }

    pub fn root<'a>(&mut self, table: &'a Arc<Table>, ticket: Ticket, io: &mut Io) -> Result<&'a Node, Stop> {
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
    ) -> Result<&Node, Stop> {
        self.node_ahead(table, at, kind, ticket, &mut std::iter::empty(), io)
    }

    /// The same; if it must be read, what of `ahead` lies behind it is read with it.
    #[inline]
    pub fn node_ahead(
        &mut self,
        table: &Arc<Table>,
        at: At,
        kind: Kind,
        ticket: Ticket,
        ahead: &mut dyn Iterator<Item = At>,
        io: &mut Io,
    ) -> Result<&Node, Stop> {
        if at.is_hole() {
            return Err(Stop::Bad(Bad::Corrupt));
        }
        let name = Name { table: table.number, unit: at.unit };
        match self.cache.find(name) {
            Some(slot) => match self.cache.entry(slot) {
                Entry::Node(node) => {
                    self.touched.push(name);
                    Ok(node)
                }
                Entry::Bad(bad) => {
                    // Who goes on without it may have to wait for something else, and comes by again.
                    self.touched.push(name);
                    Err(Stop::Bad(*bad))
                }
            },
            None => Err(self.miss(table, at, kind, ticket, ahead, io)),
        }
    }

    /// A completion of a token of [`token::LOAD`].
    pub fn on_done(&mut self, token: u64, result: Result<Bytes, DeviceError>, io: &mut Io) {
        let mut load = self.loads.remove(&token).expect("a read that was started");
        if result.is_err() && load.nodes.len() > 1 {
            return self.read_one_by_one(load, io);
        }
        if result == Err(DeviceError::Io) {
            load.failures += 1;
            if load.failures < FAILURES_MAX {
                return self.start(load, io);
            }
        }
        let mut start = 0;
        for at in &load.nodes {
            let end = start + at.len();
            let node = match &result {
                // A node of its own memory, where it did not come alone.
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
            // A sound root is not in the cache.
            if load.kind != Kind::Root || load.table.root_node.get().is_none() {
                wait.landed.push(name);
            }
            if wait.outstanding == 0 {
                let wait = self.waits.remove(&ticket).expect("just seen");
                self.pins_next.push((ticket, wait.landed));
                self.ready.push(ticket);
            }
        }
    }

    /// Where it is looked for next.
    fn land(&mut self, load: &Load, name: Name, node: Result<Node, Bad>) {
        let pins = load.tickets.iter().filter(|(_, wanted)| *wanted == name).count() as u32;
        match (load.kind, node) {
            (Kind::Root, Ok(root)) => {
                // A merge may have read it meanwhile: the same bytes.
                let _ = load.table.root_node.set(root);
            }
            (_, Ok(node)) => self.cache.insert(name, Entry::Node(node), pins, &mut drop_it),
            (_, Err(bad)) => self.cache.insert(name, Entry::Bad(bad), pins, &mut drop_it),
        }
    }

    /// One bad sector must not make its neighbours unreadable.
    fn read_one_by_one(&mut self, load: Load, io: &mut Io) {
        for at in load.nodes {
            let name = Name { table: load.table.number, unit: at.unit };
            let tickets: SmallVec<_> =
                load.tickets.iter().filter(|(_, wanted)| *wanted == name).copied().collect();
            if !tickets.is_empty() {
                let (table, nodes) = (load.table.clone(), SmallVec::from_slice(&[at]));
                self.start(Load { table, nodes, kind: load.kind, tickets, failures: 0 }, io);
            }
        }
    }

    pub fn ready(&mut self, out: &mut Vec<Ticket>) {
        for name in self.pins_held.drain(..).flat_map(|(_, names)| names) {
            self.cache.unpin(name);
        }
        std::mem::swap(&mut self.pins_held, &mut self.pins_next);
        // Thousands may wait again, and each looks for its own.
        self.pins_held.sort_unstable_by_key(|(ticket, _)| *ticket);
        out.append(&mut self.ready);
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
    ) -> Stop {
        let name = Name { table: table.number, unit: at.unit };
        // Roots are not looked for in the cache, save for what is wrong with them.
        if let Some(slot) = self.cache.find(name)
            && let Entry::Bad(bad) = self.cache.entry(slot)
        {
            self.touched.push(name);
            return Stop::Bad(*bad);
        }
        if !is_sound(table, at, io) {
            return Stop::Bad(Bad::Corrupt);
        }
        match self.loads.values_mut().find(|load| load.is_for(name)) {
            Some(load) if load.tickets.contains(&(ticket, name)) => return Stop::Pending,
            Some(load) => load.tickets.push((ticket, name)),
            None => {
                let nodes = self.with_neighbours(table, at, ahead, io);
                let (table, tickets) = (table.clone(), SmallVec::from_slice(&[(ticket, name)]));
                self.start(Load { table, nodes, kind, tickets, failures: 0 }, io);
            }
        }
        self.waits.entry(ticket).or_default().outstanding += 1;
        Stop::Pending
    }

    /// `at`, and what of `ahead` lies right behind it and is not known yet.
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
        io.read(Owner::Index, token, load.nodes[0].offset(), load.nodes.iter().map(At::len).sum());
        self.loads.insert(token, load);
    }

    fn is_known(&mut self, name: Name) -> bool {
        self.cache.find(name).is_some() || self.loads.values().any(|load| load.is_for(name))
    }
}

impl Load {
    fn is_for(&self, name: Name) -> bool {
        self.table.number == name.table && self.nodes.iter().any(|at| at.unit == name.unit)
    }
}

/// Holes lead nowhere, damaged pointers anywhere.
fn is_sound(table: &Table, at: At, io: &Io) -> bool {
    !at.is_hole() && table.holds(at.unit, at.units as u64) && at.offset() + at.len() as u64 <= io.size()
}
