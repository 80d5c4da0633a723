//! CRUSH's answers for one pool, in flat arrays.
//!
//! A row is one input of CRUSH: the PGs that share a placement ancestor share it, so a split runs no CRUSH before
//! `pgp_num` follows.
//!
//! CRUSH reads the weights of few OSDs: those that it chooses, and those that it passes over because they are out in
//! part or whole. The chosen ones stand in the row. The others are noted in 32 bits a row, one for all OSDs of the same
//! remainder. A row whose CRUSH has not read an OSD's weight does not depend on it, whatever the rule.

use super::changes::OsdChanges;
use crate::crush::{DeviceWeights, Workspace};
use crate::osd_map::run_crush;
use std::cell::RefCell;
use wire::types::{OsdMap, PgId, PgPool, PoolId};

/// Fills the rest of a row that is shorter than the pool's size. CRUSH returns no such number.
const ABSENT: i32 = i32::MIN;

#[derive(Clone, Default)]
pub(super) struct PoolRows {
    /// Places in a row: the pool's size.
    width: usize,
    /// Row after row.
    osds: Vec<i32>,
    /// By row: the OSDs that were passed over, each as [`bit`].
    passed_over: Vec<u32>,
}

/// CRUSH with its memory.
#[derive(Default)]
pub(super) struct CrushRunner {
    workspace: Workspace,
    /// The OSDs whose weights were read.
    asked: RefCell<Vec<i32>>,
}

/// The bit of an OSD in [`PoolRows::passed_over`].
pub(super) fn bit(osd: i32) -> u32 {
    1 << (osd & 31)
}

impl PoolRows {
    pub(super) fn compute(map: &OsdMap, id: PoolId, pool: &PgPool, runner: &mut CrushRunner) -> PoolRows {
        let mut rows = PoolRows { width: pool.size.into(), ..PoolRows::default() };
        rows.resize(map, id, pool, runner);
        rows
    }

    /// The number of rows that a pool needs.
    pub(super) fn count_for(pool: &PgPool) -> u32 {
        pool.pgp_num.max(1).min(pool.pg_num)
    }

    pub(super) fn count(&self) -> u32 {
        self.passed_over.len() as u32
    }

    pub(super) fn memory_bytes(&self) -> usize {
        4 * (self.osds.capacity() + self.passed_over.capacity())
    }

    /// CRUSH's answer; empty for a row that is not there.
    pub(super) fn row(&self, row: u32) -> &[i32] {
        let start = row as usize * self.width;
        let places = self.osds.get(start..start + self.width).unwrap_or_default();
        let end = places.iter().rposition(|osd| *osd != ABSENT).map_or(0, |last| last + 1);
        &places[..end]
    }

    /// Of the first `end` rows, in ascending order: those that read the weight of an OSD whose weight changed, and those
    /// that hold an OSD whose state changed.
    pub(super) fn affected_by(&self, osds: &OsdChanges, end: u32) -> (Vec<u32>, Vec<u32>) {
        let (mut stale, mut touched) = (Vec::new(), Vec::new());
        if osds.is_empty() {
            return (stale, touched);
        }
        let end = end.min(self.count());
        for (row, passed_over) in (0..end).zip(&self.passed_over) {
            let start = row as usize * self.width;
            let kinds = self.osds[start..start + self.width].iter().fold(0, |all, osd| all | osds.of(*osd));
            if kinds & OsdChanges::WEIGHT != 0 || passed_over & osds.weight_bits() != 0 {
                stale.push(row);
            }
            if kinds & OsdChanges::STATE != 0 {
                touched.push(row);
            }
        }
        (stale, touched)
    }

    /// Runs CRUSH for a row again. True if its answer is another one.
    pub(super) fn remap(
        &mut self,
        row: u32,
        map: &OsdMap,
        id: PoolId,
        pool: &PgPool,
        runner: &mut CrushRunner,
    ) -> bool {
        let (raw, passed_over) = runner.run(map, pool, PgId { pool: id, seed: row });
        self.passed_over[row as usize] = passed_over;
        let places = &mut self.osds[row as usize * self.width..][..self.width];
        let (filled, rest) = places.split_at_mut(raw.len());
        let is_same = filled == raw && rest.iter().all(|osd| *osd == ABSENT);
        filled.copy_from_slice(raw);
        rest.fill(ABSENT);
        !is_same
    }

    /// Adds and removes rows at the end, for a pool whose number of PGs changed.
    pub(super) fn resize(&mut self, map: &OsdMap, id: PoolId, pool: &PgPool, runner: &mut CrushRunner) {
        let count = PoolRows::count_for(pool);
        if count < self.count() {
            self.passed_over.truncate(count as usize);
            self.osds.truncate(count as usize * self.width);
        }
        let added = (count - self.count()) as usize;
        self.passed_over.reserve_exact(added);
        self.osds.reserve_exact(added * self.width);
        for row in self.count()..count {
            let (raw, passed_over) = runner.run(map, pool, PgId { pool: id, seed: row });
            self.passed_over.push(passed_over);
            self.osds.extend_from_slice(raw);
            self.osds.resize(self.passed_over.len() * self.width, ABSENT);
        }
    }
}

impl CrushRunner {
    /// CRUSH's answer for a PG, and the OSDs that it passed over.
    fn run(&mut self, map: &OsdMap, pool: &PgPool, pg: PgId) -> (&[i32], u32) {
        self.asked.borrow_mut().clear();
        let weights = NotedWeights { map, asked: &self.asked };
        let raw = run_crush(map, pool, pg, &weights, &mut self.workspace);
        let asked = self.asked.borrow();
        let passed_over = asked.iter().filter(|osd| !raw.contains(osd)).fold(0, |all, osd| all | bit(*osd));
        (raw, passed_over)
    }
}

/// A map's weights, with a note of each OSD that was asked for.
struct NotedWeights<'a> {
    map: &'a OsdMap,
    asked: &'a RefCell<Vec<i32>>,
}

impl DeviceWeights for NotedWeights<'_> {
    fn weight(&self, device: usize) -> Option<u32> {
        self.asked.borrow_mut().push(device as i32);
        self.map.osds.get(device).map(|row| row.weight)
    }
}
