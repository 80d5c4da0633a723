//! Placement: deferred data is written from the log's copy in memory to its blocks.
//!
//! A pass goes over the device in block order, neighbours together, with few writes in flight: log records of clients share the
//! device with it and wait behind them. The more of the log waits for the pass, the more of its writes are in flight; when
//! transactions wait for room in the log, only their bytes are bounded.

use super::{DataRequest, Shard};
use crate::io::Owner;
use crate::space::Run;
use crate::staged::Stage;
use codec::Rope;
use device::{DeviceError, Durability};

/// With each fourth of the log that is in use, as many more writes may be in flight.
const LOG_PARTS: u64 = 4;

#[derive(Default)]
pub(super) struct Placement {
    /// Batches up to this one are to be placed; 0: none.
    mark: u64,
    /// First block that the pass has not seen.
    next_block: u64,
    in_flight_blocks: u64,
    in_flight_writes: u64,
}

impl Shard {
    /// Begins to place deferred data if there is much of it.
    pub(super) fn place_when_many(&mut self) {
        if self.staged.deferred_bytes() > self.options.deferred_bytes_max {
            self.place_deferred(self.log.durable());
        }
    }

    /// Deferred data of batches up to `mark` will be placed. [`Shard::place_some`] does it.
    pub(super) fn place_deferred(&mut self, mark: u64) {
        self.placement.mark = self.placement.mark.max(mark);
    }

    /// Continues the pass with as many writes as may be in flight.
    pub(super) fn place_some(&mut self) {
        let writes_max = self.placing_writes_max();
        while self.placement.mark > 0
            && self.placement.in_flight_blocks < self.options.place_blocks_max
            && self.placement.in_flight_writes < writes_max
        {
            if let Some((whole, data, runs)) = self.next_placement() {
                self.write_placement(whole, data, runs);
            } else if self.placement.next_block > 0 {
                // The mark may have risen since the pass began, so data before this place may be due as well.
                self.placement.next_block = 0;
            } else {
                self.placement.mark = 0;
            }
        }
    }

    fn placing_writes_max(&self) -> u64 {
        if self.log.wants_room {
            return u64::MAX;
        }
        let ring = &self.log.ring;
        let of_log = ring.used() * LOG_PARTS / ring.blocks().max(1);
        let of_deferred = self.staged.deferred_bytes() / self.options.deferred_bytes_max.max(1);
        self.options.place_writes_max * (1 + of_log + of_deferred)
    }

    /// Neighbouring deferred runs from the pass's place on.
    fn next_placement(&self) -> Option<(Run, Rope, Vec<u64>)> {
        let Placement { mark, next_block, in_flight_blocks, .. } = self.placement;
        let blocks_max = self.options.place_blocks_max - in_flight_blocks;
        let deferred = self.staged.from(next_block);
        let mut due = deferred.filter(|(_, run)| run.stage == Stage::Deferred && run.batch <= mark);
        let (start, first) = due.next()?;
        let (mut whole, mut data, mut runs) = (Run::new(start, first.blocks()), first.padded(), vec![start]);
        for (start, run) in due {
            if start != whole.end() || whole.len + run.blocks() > blocks_max {
                break;
            }
            whole.len += run.blocks();
            data.append(run.padded());
            runs.push(start);
        }
        Some((whole, data, runs))
    }

    fn write_placement(&mut self, whole: Run, data: Rope, runs: Vec<u64>) {
        runs.iter().for_each(|start| self.staged.begin_placing(*start));
        let pinned = self.log.gathering();
        self.space.pin(pinned);
        let token = self.token();
        self.placement.next_block = whole.end();
        self.placement.in_flight_blocks += whole.len;
        self.placement.in_flight_writes += 1;
        self.data_requests.insert(token, DataRequest::Place { runs, blocks: whole.len, pinned });
        self.io.write(Owner::Data, token, whole.offset(), data, Durability::Later);
    }

    pub(super) fn on_placed(
        &mut self,
        runs: Vec<u64>,
        blocks: u64,
        pinned: u64,
        result: Result<(), DeviceError>,
    ) {
        self.placement.in_flight_blocks -= blocks;
        self.placement.in_flight_writes -= 1;
        self.space.unpin(pinned);
        if let Err(error) = result {
            return self.fail(error);
        }
        for start in runs {
            self.staged.remove(start);
        }
    }
}
