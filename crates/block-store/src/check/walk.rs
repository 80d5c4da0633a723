//! How a check gets at a shard.

use crate::format::Totals;
use crate::index::Bad;
use crate::object::key::Key;
use crate::plan::Collections;
use crate::space::Run;
use store::Compressed;

/// What a check looks at.
pub trait Walk {
    /// Some entries of `from..to` of the index, and where to go on.
    fn entries(
        &mut self,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Key>, Bad>;
    /// The same, going on where a part of the index cannot be read.
    fn readable_entries(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]))
    -> Option<Key>;
    /// Read blocks of data, ascending, as the store would: each is given with its place in the list, `None` when it cannot
    /// be read, in any order.
    fn blocks(&mut self, units: &[u64], each: &mut dyn FnMut(usize, Option<&[u8]>));
    fn collections(&self) -> &Collections;
    fn totals(&self) -> Totals;
    /// What compression has come to, of all pools.
    fn compressed(&self) -> Compressed;
    fn data_space(&self) -> Run;
    /// The blocks that the bitmap says hold data.
    fn stored_runs(&self) -> Vec<Run>;
    /// Blocks of the data space that something else than data lies in.
    fn other_runs(&self) -> Vec<Run>;
}
