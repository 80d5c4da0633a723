//! Reads: resolved in the index at one moment, then read from the device.

use super::{DataRequest, Failure, Shard};
use crate::index::Ticket;
use crate::io::Owner;
use crate::planted::{self, PlantedBug};
use crate::reading::{Damage, InMemory, ReadStop, resolve};
use crate::view::View;
use bytes::Bytes;
use store::{Completion, Query, ReadError, ReadRequest};

/// Most damage reports that are kept until the host takes them.
const DAMAGE_MAX: usize = 10_000;

impl Shard {
    /// Begins a read. Returns false if its ticket waits for the index.
    pub(super) fn begin_read(&mut self, ticket: Ticket, tag: u64, request: &ReadRequest) -> bool {
        if self.torn == Some(request.collection) {
            self.ready.push(Completion::Read { tag, answers: Err(ReadError::Io) });
            return true;
        }
        self.index.begin_caller(None);
        let Shard { index, io, staged, clean, collections, pg_logs, .. } = self;
        let mut view = View { index, io, ticket };
        let mut memory = InMemory { staged, clean };
        let resolved = match resolve(tag, request, &mut view, &mut memory, collections, pg_logs) {
            Ok(resolved) => resolved,
            Err(ReadStop::Wait) => return false,
            Err(ReadStop::Error(error)) => {
                let only_lists = request.queries.iter().all(Query::is_of_collection);
                if matches!(error, ReadError::Corrupt | ReadError::Io) && !only_lists {
                    self.note_damage(Damage {
                        collection: request.collection,
                        object: request.object.clone(),
                        offset: 0,
                        device_offset: None,
                    });
                }
                self.ready.push(Completion::Read { tag, answers: Err(error) });
                return true;
            }
        };
        let to_read: u64 = resolved.reads.iter().map(|run| run.len).sum();
        self.counts.blocks_in_memory += resolved.blocks - to_read;
        self.counts.blocks_read += to_read;
        if resolved.reads_left == 0 {
            let mut damage = Vec::new();
            let answers = resolved.finish(&mut self.clean, &mut |damaged| damage.push(damaged));
            damage.into_iter().for_each(|damaged| self.note_damage(damaged));
            self.ready.push(Completion::Read { tag, answers });
            return true;
        }
        // Released blocks are not allocated again until the read has completed.
        let pinned = match planted::has(PlantedBug::ReadNotPinned) {
            true => u64::MAX,
            false => self.log.gathering(),
        };
        self.space.pin(pinned);
        let reading = self.token();
        for (read, run) in resolved.reads.iter().enumerate() {
            self.next_token += 1;
            self.data_requests.insert(self.next_token, DataRequest::Read { reading, read });
            self.io.read(Owner::Data, self.next_token, run.offset(), run.bytes() as usize);
        }
        self.reading.insert(reading, (resolved, pinned));
        true
    }

    fn note_damage(&mut self, damaged: Damage) {
        if self.failed == Some(Failure::Unreadable) {
            return; // The device has failed, and not the object.
        }
        tracing::debug!(?damaged, "data is unreadable or does not match its checksum");
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(damaged);
        }
    }

    pub(super) fn on_read(&mut self, reading: u64, read: usize, contents: Option<Bytes>) {
        let (resolved, _) = self.reading.get_mut(&reading).expect("a read in flight");
        resolved.on_read(read, contents);
        if resolved.reads_left > 0 {
            return;
        }
        let (resolved, pinned) = self.reading.remove(&reading).expect("looked at just now");
        self.space.unpin(pinned);
        let tag = resolved.tag;
        let Shard { clean, index, cache_budget, .. } = self;
        clean.set_budget(clean_budget(*cache_budget, index.cache_bytes()));
        let mut damage = Vec::new();
        let answers = resolved.finish(clean, &mut |damaged| damage.push(damaged));
        damage.into_iter().for_each(|damaged| self.note_damage(damaged));
        self.ready.push(Completion::Read { tag, answers });
    }
}

/// Share of the budget for clean data. Index blocks have priority: each of them saves many more device reads.
pub(super) fn clean_budget(budget: usize, index: usize) -> usize {
    budget.saturating_sub(index).max(budget / 8)
}
