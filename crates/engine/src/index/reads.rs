//! Nodes of tables by way of the cache: what is there, what is being read, and who waits for it.

use super::cache::{Cache, Entry, Name};
use super::node::{Kind, Node};
use super::table::{At, BlockAt, Segment, Table, open_node};
use super::{Bad, Ticket, filter, token};
use crate::device::DeviceError;
use crate::io::{Io, Owner};
use bytes::Bytes;
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

pub struct Reads {
    cache: Cache,
    loads: BTreeMap<u64, Load>,
    waits: BTreeMap<Ticket, Wait>,
    ready: Vec<Ticket>,
    /// Blocks that the tickets in `ready` will ask for.
    pins_next: Vec<Name>,
    /// Blocks that the tickets handed out last ask for now.
    pins_held: Vec<Name>,
    /// Blocks that the question being answered has used so far.
    touched: Vec<Name>,
    next_token: u64,
}

struct Load {
    /// Keeps the table's space from being given back under the read.
    table: Arc<Table>,
    at: At,
    kind: Kind,
    tickets: SmallVec<[Ticket; 2]>,
}

#[derive(Default)]
struct Wait {
    outstanding: u32,
    landed: SmallVec<[Name; 4]>,
}

impl Reads {
    pub fn new(cache_bytes: usize) -> Reads {
        Reads {
            cache: Cache::new(cache_bytes),
            loads: BTreeMap::new(),
            waits: BTreeMap::new(),
            ready: Vec::new(),
            pins_next: Vec::new(),
            pins_held: Vec::new(),
            touched: Vec::new(),
            next_token: 0,
        }
    }

    pub fn cache(&mut self) -> &mut Cache {
        &mut self.cache
    }

    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// A new question begins.
    pub fn begin(&mut self) {
        self.touched.clear();
    }

    /// The question ends with `Pending`: what it has used stays until it is asked again, so that each time gets
    /// further than the last, however small the cache.
    pub fn hold_touched(&mut self, ticket: Ticket) {
        let Some(wait) = self.waits.get_mut(&ticket) else { return };
        for name in self.touched.drain(..) {
            if !wait.landed.contains(&name) && self.cache.pin(name) {
                wait.landed.push(name);
            }
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
            None => Err(self.miss(table, table.root, Kind::Root, ticket, io)),
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
                Entry::Bad(bad) => Err(Stop::Bad(*bad)),
            },
            None => Err(self.miss(table, at, kind, ticket, io)),
        }
    }

    /// Start reading a node before it is asked for.
    pub fn prefetch(&mut self, table: &Arc<Table>, at: At, kind: Kind, io: &mut Io) {
        if self.is_known(Name { table: table.number, unit: at.unit }) || !is_sound(table, at, io) {
            return;
        }
        self.start(table, at, kind, SmallVec::new(), io);
    }

    /// A completion of a token of [`token::LOAD`].
    pub fn on_done(&mut self, token: u64, result: Result<Bytes, DeviceError>) {
        let load = self.loads.remove(&token).expect("a read that was started");
        let name = Name { table: load.table.number, unit: load.at.unit };
        let node = match result {
            Ok(bytes) => open_node(bytes, load.at, load.kind),
            Err(_) => Err(Bad::Io),
        };
        let entry = match node {
            Ok(root) if load.kind == Kind::Root => {
                // Read by one request only, so it is not there yet.
                let _ = load.table.root_node.set(root);
                None
            }
            Ok(node) => Some(Entry::Node(node)),
            Err(bad) => Some(Entry::Bad(bad)),
        };
        let pins = if entry.is_some() { load.tickets.len() as u32 } else { 0 };
        if let Some(entry) = entry {
            self.cache.insert(name, entry, pins);
        }
        for ticket in load.tickets {
            let wait = self.waits.get_mut(&ticket).expect("a ticket that waits");
            wait.outstanding -= 1;
            if pins > 0 {
                wait.landed.push(name);
            }
            if wait.outstanding == 0 {
                let wait = self.waits.remove(&ticket).expect("just seen");
                self.pins_next.extend(wait.landed);
                self.ready.push(ticket);
            }
        }
    }

    pub fn ready(&mut self, out: &mut Vec<Ticket>) {
        for name in self.pins_held.drain(..) {
            self.cache.unpin(name);
        }
        std::mem::swap(&mut self.pins_held, &mut self.pins_next);
        out.append(&mut self.ready);
    }

    #[cold]
    fn miss(&mut self, table: &Arc<Table>, at: At, kind: Kind, ticket: Ticket, io: &mut Io) -> Stop {
        let name = Name { table: table.number, unit: at.unit };
        // Roots are not looked for in the cache, save for what is wrong with them.
        if let Some(slot) = self.cache.find(name)
            && let Entry::Bad(bad) = self.cache.entry(slot)
        {
            return Stop::Bad(*bad);
        }
        if !is_sound(table, at, io) {
            return Stop::Bad(Bad::Corrupt);
        }
        match self.loads.values_mut().find(|load| load.name() == name) {
            Some(load) if load.tickets.contains(&ticket) => return Stop::Pending,
            Some(load) => load.tickets.push(ticket),
            None => self.start(table, at, kind, SmallVec::from_slice(&[ticket]), io),
        }
        self.waits.entry(ticket).or_default().outstanding += 1;
        Stop::Pending
    }

    fn start(&mut self, table: &Arc<Table>, at: At, kind: Kind, tickets: SmallVec<[Ticket; 2]>, io: &mut Io) {
        let token = self.next_token << token::SHIFT | token::LOAD;
        self.next_token += 1;
        self.loads.insert(token, Load { table: table.clone(), at, kind, tickets });
        io.read(Owner::Index, token, at.offset(), at.len());
    }

    fn is_known(&mut self, name: Name) -> bool {
        self.cache.find(name).is_some() || self.loads.values().any(|load| load.name() == name)
    }
}

impl Load {
    fn name(&self) -> Name {
        Name { table: self.table.number, unit: self.at.unit }
    }
}

/// Holes lead nowhere, damaged pointers anywhere.
fn is_sound(table: &Table, at: At, io: &Io) -> bool {
    !at.is_hole() && table.holds(at.unit, at.units as u64) && at.offset() + at.len() as u64 <= io.size()
}
