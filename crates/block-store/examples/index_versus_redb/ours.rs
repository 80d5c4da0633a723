//! `block_store::index`, driven to completion.

use crate::file::FileDevice;
use crate::{Candidate, Changes, MEMORY_BYTES};
use block_store::index::{Get, Index, Limit, LogMark, Options, Purpose, Scan, TakeSpace, Ticket};
use block_store::io::{Io, Owner};
use device::BLOCK;

pub struct Ours {
    index: Index,
    io: Io,
    space: Space,
    mark: LogMark,
    manifest: bytes::Bytes,
}

/// Next-fit allocation.
struct Space {
    free: Vec<bool>,
    next: usize,
}

impl TakeSpace for Space {
    fn take(&mut self, len: u64, _: Purpose) -> Option<u64> {
        let want = len as usize / BLOCK;
        for _ in 0..2 {
            let mut start = self.next;
            while start + want <= self.free.len() {
                match self.free[start..start + want].iter().rposition(|free| !free) {
                    Some(taken) => start += taken + 1,
                    None => {
                        self.free[start..start + want].fill(false);
                        self.next = start + want;
                        return Some((start * BLOCK) as u64);
                    }
                }
            }
            self.next = 0;
        }
        None
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        self.free[offset as usize / BLOCK..(offset + len) as usize / BLOCK].fill(true);
    }
}

fn options() -> Options {
    let memtable_bytes = 24 << 20;
    Options { memtable_bytes, cache_bytes: MEMORY_BYTES - 2 * memtable_bytes, ..Options::default() }
}

impl Ours {
    pub fn new(device: FileDevice) -> Ours {
        // The first two blocks belong to the header.
        let space = Space { free: vec![true; (16 << 30) / BLOCK], next: 0 };
        let io = Io::new(Box::new(device));
        Ours { index: Index::new(options()), io, space, mark: LogMark(0), manifest: bytes::Bytes::new() }
    }

    fn turn(&mut self) -> bool {
        let mut done = Vec::new();
        self.io.poll(&mut done);
        for done in done.into_iter().filter(|done| done.owner == Owner::Index) {
            self.index.on_done(done.token, done.result, &mut self.io);
        }
        self.index.ready(&mut Vec::new());
        self.index.maintain(self.mark, &mut self.io, &mut self.space) || self.io.under_way() > 0
    }
}

impl Candidate for Ours {
    fn name(&self) -> &'static str {
        "our own"
    }

    fn apply(&mut self, changes: Changes) {
        self.mark.0 += 1;
        self.index.apply(changes, self.mark);
        self.turn();
        while !self.index.has_room() {
            self.turn();
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        loop {
            match self.index.get(key, Ticket(1), &mut self.io) {
                Get::Found(value) => return Some(value.to_vec()),
                Get::Absent => return None,
                Get::Pending => drop(self.turn()),
                Get::Bad(bad) => panic!("{bad}"),
            }
        }
    }

    fn scan(&mut self, from: &[u8], to: &[u8], count: usize) -> usize {
        let (mut from, mut seen) = (from.to_vec(), 0);
        while seen < count {
            let limit = Limit::new(count - seen, 1 << 20);
            let answer = self.index.scan(&from, to, limit, Ticket(1), &mut self.io, &mut |key, value| {
                std::hint::black_box((key, value));
                seen += 1;
            });
            match answer {
                Scan::End => break,
                Scan::More(next) => from = next,
                Scan::Pending => drop(self.turn()),
                Scan::Bad(bad) => panic!("{bad}"),
            }
        }
        seen
    }

    fn checkpoint(&mut self) {
        self.index.freeze();
        while self.index.flushed_mark() < self.mark {
            self.turn();
        }
        let manifest = self.index.manifest();
        let mut blob = manifest.blob.to_vec();
        blob.resize(blob.len().next_multiple_of(BLOCK), 0);
        let at = self.space.take(blob.len() as u64, Purpose::Flush).expect("room");
        let len = blob.len() as u64;
        self.io.write(Owner::Header, 1, at, blob.into(), device::Durability::Later);
        self.io.flush(Owner::Header, 2);
        // The header that names the manifest.
        let header = vec![0; BLOCK];
        let slot = self.space.take(BLOCK as u64, Purpose::Flush).expect("room");
        self.io.write(Owner::Header, 3, slot, header.into(), device::Durability::Later);
        self.io.flush(Owner::Header, 4);
        self.turn();
        self.index.manifest_is_durable(manifest.version, &mut self.space);
        self.space.give_back(at, len);
        self.space.give_back(slot, BLOCK as u64);
        self.manifest = manifest.blob;
    }

    fn settle(&mut self) {
        while self.turn() {}
    }

    fn reopen(&mut self) {
        self.index = Index::open(options(), &self.manifest).expect("a sound manifest");
        self.space.free.fill(true);
        for (offset, len) in self.index.runs() {
            self.space.free[offset as usize / BLOCK..(offset + len) as usize / BLOCK].fill(false);
        }
    }

    fn space(&self) -> u64 {
        self.index.usage().device
    }
}
