//! Access of fsck to a shard at rest.

use super::Shard;
use crate::check::{Depth, Report, Walk, check};
use crate::format::Totals;
use crate::index::{Bad, Holes, Limit, Scan, Ticket};
use crate::io::Owner;
use crate::object::key::Key;
use crate::plan::Collections;
use crate::space::Run;
use bytes::Bytes;
use device::BLOCK;
use store::Compressed;

/// Ticket of fsck in the index.
const CHECKER: Ticket = Ticket(u64::MAX);
const RUN_BLOCKS_MAX: u64 = 256;
/// Data reads of fsck in flight.
const READS_AT_ONCE: usize = 32;

impl Shard {
    /// Checks a shard at rest, with blocking reads.
    ///
    /// # Panics
    /// If requests or jobs are pending.
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
    /// Passes completions to the index; returns those of data reads, with their tokens.
    fn poll(&mut self) -> Vec<(u64, Option<Bytes>)> {
        let mut finished = Vec::new();
        self.shard.io.poll(&mut finished);
        if finished.is_empty() {
            (self.wait)();
        }
        let mut own = Vec::new();
        for one in finished {
            match one.owner {
                Owner::Index => self.shard.index.on_done(one.token, one.result, &mut self.shard.io),
                _ => own.push((one.token, one.result.ok())),
            }
        }
        own
    }

    /// Reads runs, several at a time; `each` gets the number of a run and its contents.
    fn read(&mut self, runs: &[Run], each: &mut dyn FnMut(usize, Option<Bytes>)) {
        let (mut next, mut done) = (0, 0);
        while done < runs.len() {
            while next < runs.len() && next - done < READS_AT_ONCE {
                let run = runs[next];
                self.shard.io.read(Owner::Data, next as u64, run.offset(), run.bytes() as usize);
                next += 1;
            }
            for (run, data) in self.poll() {
                done += 1;
                each(run as usize, data);
            }
        }
    }

    fn scan(
        &mut self,
        from: &[u8],
        to: &[u8],
        holes: Holes,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Key>, Bad> {
        let limit = Limit::new(1024, 1 << 20);
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

    fn blocks(&mut self, units: &[u64], each: &mut dyn FnMut(usize, Option<&[u8]>)) {
        let mut runs: Vec<Run> = Vec::new();
        // Places in the list of the blocks of each run.
        let mut places: Vec<Vec<usize>> = Vec::new();
        for (i, &unit) in units.iter().enumerate() {
            if let Some(block) = self.shard.staged.block(unit) {
                each(i, Some(&block));
                continue;
            }
            match (runs.last_mut(), places.last_mut()) {
                (Some(run), Some(members)) if unit + 1 == run.end() => members.push(i),
                (Some(run), Some(members)) if unit == run.end() && run.len < RUN_BLOCKS_MAX => {
                    run.len += 1;
                    members.push(i);
                }
                _ => {
                    runs.push(Run::new(unit, 1));
                    places.push(vec![i]);
                }
            }
        }
        let mut failed: Vec<usize> = Vec::new();
        self.read(&runs, &mut |run, data| {
            for &i in &places[run] {
                let at = (units[i] - runs[run].start) as usize * BLOCK;
                match &data {
                    Some(data) => each(i, Some(&data[at..at + BLOCK])),
                    None => failed.push(i),
                }
            }
        });
        // One bad sector must not affect its neighbours.
        let alone: Vec<Run> = failed.iter().map(|&i| Run::new(units[i], 1)).collect();
        self.read(&alone, &mut |run, data| each(failed[run], data.as_deref()));
    }

    fn collections(&self) -> &Collections {
        &self.shard.collections
    }

    fn totals(&self) -> Totals {
        self.shard.totals
    }

    fn compressed(&self) -> Compressed {
        self.shard.pools.values().fold(Compressed::default(), |sum, pool| sum.plus(*pool))
    }

    fn zones(&self) -> Vec<Run> {
        self.shard.space.leased_runs().collect()
    }

    fn stored_runs(&self) -> Vec<Run> {
        self.shard.space.stored_runs().collect()
    }

    fn other_runs(&self) -> Vec<Run> {
        let tables = self.shard.index.runs().map(|(offset, len)| Run::of_bytes(offset, len));
        tables.chain(self.shard.checkpoints.manifest_runs()).collect()
    }
}
