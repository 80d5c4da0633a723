//! Access of fsck to a shard.

use crate::format::Totals;
use crate::index::Bad;
use crate::object::key::Key;
use crate::plan::Collections;
use crate::space::Run;
use store::Compressed;

/// A shard at rest, as fsck reads it.
pub trait Walk {
    /// Visits some index entries of `from..to`; returns the key to go on from.
    fn entries(
        &mut self,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Key>, Bad>;
    /// Like [`Walk::entries`], and goes on behind unreadable parts of the index.
    fn readable_entries(&mut self, from: &[u8], to: &[u8], each: &mut dyn FnMut(&[u8], &[u8]))
    -> Option<Key>;
    /// Reads data blocks, given in ascending order. Each is passed to `each` with its place in the list, in any order; `None`
    /// if it cannot be read.
    fn blocks(&mut self, units: &[u64], each: &mut dyn FnMut(usize, Option<&[u8]>));
    fn collections(&self) -> &Collections;
    fn totals(&self) -> Totals;
    /// Compression totals of all pools.
    fn compressed(&self) -> Compressed;
    /// Blocks of leased zones, ascending.
    fn zones(&self) -> Vec<Run>;
    /// Blocks that hold data, from the bitmap.
    fn stored_runs(&self) -> Vec<Run>;
    /// Blocks of leased zones that hold index tables and manifests.
    fn other_runs(&self) -> Vec<Run>;
}
