//! A shard as a check looks at it.

use super::Shard;
use crate::check::{Depth, Report, Walk, check};
use crate::format::Totals;
use crate::index::{Bad, Holes, Limit, Scan, Ticket};
use crate::io::Owner;
use crate::object::key::Key;
use crate::plan::Collections;
use crate::space::Run;
use bytes::Bytes;

/// The index's ticket of the check.
const CHECKER: Ticket = Ticket(u64::MAX);

impl Shard {
    /// Check a shard in which nothing is under way, waiting for the device as opening does.
    ///
    /// # Panics
    /// While something is under way.
    pub fn check(&mut self, depth: Depth, wait: &mut dyn FnMut()) -> Report {
        assert!(self.io.under_way() == 0 && self.log.is_idle(), "a check is for a store at rest");
        check(&mut AtRest { shard: self, wait }, depth)
    }
}

struct AtRest<'a> {
    shard: &'a mut Shard,
    wait: &'a mut dyn FnMut(),
}

impl AtRest<'_> {
    /// Completions of the index to it; one of the check's own reads is returned.
    fn poll(&mut self) -> Option<Option<Bytes>> {
        let mut finished = Vec::new();
        self.shard.io.poll(&mut finished);
        if finished.is_empty() {
            (self.wait)();
        }
        let mut own = None;
        for one in finished {
            match one.owner {
                Owner::Index => self.shard.index.on_done(one.token, one.result, &mut self.shard.io),
                _ => own = Some(one.result.ok()),
            }
        }
        own
    }

    fn scan(
        &mut self,
        from: &[u8],
        to: &[u8],
        holes: Holes,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Key>, Bad> {
        let limit = Limit { entries: 1024, bytes: 1 << 20 };
        loop {
            let Shard { index, io, .. } = &mut *self.shard;
            match index.scan_over((from, to), (limit, holes), CHECKER, io, each) {
                Scan::End => return Ok(None),
                Scan::More(next) => return Ok(Some(next)),
                Scan::Bad(bad) => return Err(bad),
                Scan::Pending => {
                    let mut ready = Vec::new();
                    while !ready.contains(&CHECKER) {
                        self.poll();
                        self.shard.index.ready(&mut ready);
                    }
                }
            }
        }
    }
}

impl Walk for AtRest<'_> {
    fn entries(
        &mut self,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Key>, Bad> {
        self.scan(from, to, Holes::Stop, each)
    }

    fn readable_entries(
        &mut self,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Option<Key> {
        self.scan(from, to, Holes::Hide, each).expect("what cannot be read is passed")
    }

    fn block(&mut self, unit: u64) -> Option<Bytes> {
        if let Some(block) = self.shard.staged.block(unit) {
            return Some(block);
        }
        let run = Run::new(unit, 1);
        self.shard.io.read(Owner::Data, 0, run.offset(), run.bytes() as usize);
        loop {
            if let Some(data) = self.poll() {
                return data;
            }
        }
    }

    fn collections(&self) -> &Collections {
        &self.shard.collections
    }

    fn totals(&self) -> Totals {
        self.shard.totals
    }

    fn data_space(&self) -> Run {
        self.shard.part.data()
    }

    fn stored_runs(&self) -> Vec<Run> {
        self.shard.space.stored_runs().collect()
    }

    fn other_runs(&self) -> Vec<Run> {
        let tables = self.shard.index.runs().map(|(offset, len)| Run::of_bytes(offset, len));
        tables.chain(self.shard.checkpoints.manifest_run()).collect()
    }
}
