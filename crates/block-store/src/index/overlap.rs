//! Ends of tables, so that a table covers few tables of the level below.
//!
//! A later merge reads a table and all that it covers in the level below. Keys come in clusters: those of objects, of omaps, of
//! zones. A table with the end of one cluster and the start of the next one would cover all that the level below has between
//! them, and its merge would rewrite that: the whole index, if nothing else there has changed. Such a table ends at the gap.

use super::Options;
use super::table::Table;
use std::sync::Arc;

pub struct Overlap {
    /// Ends and bytes of the tables below, from the last key on, in reverse order.
    ahead: Vec<(Vec<u8>, u64)>,
    /// Upper bound of the bytes of the tables below that the current table passes.
    covered: u64,
    max: u64,
}

impl Overlap {
    /// For the output of a merge or flush above these tables of one level.
    pub fn new(below: &[Arc<Table>], options: &Options) -> Overlap {
        Overlap {
            ahead: below.iter().rev().map(|table| (table.end.clone(), table.bytes())).collect(),
            covered: 0,
            max: max_bytes(options),
        }
    }

    /// Takes the next key, which goes into the current table. Returns true if the table should end before it.
    #[inline]
    pub fn is_too_wide(&mut self, key: &[u8]) -> bool {
        match self.ahead.last() {
            Some((end, _)) if &end[..] <= key => self.pass(key),
            _ => false,
        }
    }

    fn pass(&mut self, key: &[u8]) -> bool {
        while let Some((_, bytes)) = self.ahead.pop_if(|(end, _)| &end[..] <= key) {
            self.covered += bytes;
        }
        self.covered > self.max
    }

    /// A table begins with the last key.
    pub fn begin_table(&mut self) {
        self.covered = 0;
    }
}

/// Bytes of the level below that a table may cover, beside the two tables at its ends.
pub fn max_bytes(options: &Options) -> u64 {
    options.table_bytes.saturating_mul(options.fanout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::table::At;
    use std::sync::OnceLock;

    fn table(first: u8, end: u8, blocks: u64) -> Arc<Table> {
        Arc::new(Table {
            number: first.into(),
            first: vec![first],
            end: vec![end],
            root: At { unit: 0, units: 1, crc: 0 },
            entries: 1,
            deletions: 0,
            runs: vec![(0, blocks)],
            born: 0,
            root_node: OnceLock::new(),
        })
    }

    #[test]
    fn table_ends_when_it_has_passed_too_much() {
        let options = Options { table_bytes: 4096, fanout: 2, ..Options::default() };
        let below = [table(10, 20, 1), table(20, 30, 1), table(30, 40, 1), table(50, 60, 9)];
        let mut overlap = Overlap::new(&below, &options);
        let too_wide: Vec<bool> = [9, 19, 20, 39].iter().map(|key| overlap.is_too_wide(&[*key])).collect();
        assert_eq!(too_wide, [false; 4], "two tables are passed at 30");
        assert!(overlap.is_too_wide(&[45]), "three tables");
        overlap.begin_table();
        assert!(!overlap.is_too_wide(&[59]));
        assert!(overlap.is_too_wide(&[60]), "one table of nine blocks");
        overlap.begin_table();
        assert!(!overlap.is_too_wide(&[201]));
    }
}
