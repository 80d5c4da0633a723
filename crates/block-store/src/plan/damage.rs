//! What a transaction does when part of the index that it needs does not match its checksum, or cannot be read.
//!
//! It is carried out all the same, whole, and what cannot be known becomes explicitly lost: its PG has counted on it, has
//! planned others after it, and other objects of the same transaction are as they should be. So nothing wrong is ever
//! read, a transaction is never torn, and damage ends where the object does.
//!
//! | what is rotten | what becomes of it |
//! |---|---|
//! | a page of an object that is written, zeroed or cut | its bytes are lost, but for those written now |
//! | a page, or a block, of which a range is copied | the copy's bytes are lost as well |
//! | an object's record | the object is lost: every read fails until it is removed |
//! | the record of a layer that is cloned | the clone is lost |
//! | the record of a layer whose object is written | the object is lost |
//! | the record of a layer whose object is removed | its pages and keys stay; fsck reports them |
//! | pages or keys of an object that is removed | what can be read is cleaned away later, the rest is never found again |
//! | a count of owners | their blocks are never let go of |
//! | keys of an omap that are set or removed | they are; counts of keys and bytes are too high |
//!
//! Where the device says that it cannot read, it is asked for seconds ([`crate::patience`]) before that counts as lost
//! ([`Bad::Io`]). Nothing is
//! given up in vain then: the loss is durable only when the same device has written and flushed the log, so it is that
//! block which is bad, and not the cable. A shard that stopped instead would stop again after every start, for the client
//! sends its request again. A device that is gone, and an entry that only a newer program can read, do fail the shard.

use super::Plan;
#[cfg(doc)]
use crate::index::Bad;
use crate::index::Holes;
use crate::object::key::Key;
use crate::view::Wait;
use ::bytes::Bytes;
use std::ops::Bound::{Excluded, Included};

pub(super) fn is_rot(wait: &Wait) -> bool {
    matches!(wait, Wait::Bad(bad) if bad.is_lost())
}

impl Plan<'_> {
    /// Like [`Plan::scan`], where that has found rot: whatever can be read of the range, in no order.
    pub(super) fn scan_rotten(
        &mut self,
        (from, to): (&[u8], &[u8]),
        max: usize,
        holes: Holes,
    ) -> Result<(Vec<(Key, Bytes)>, bool), Wait> {
        let mut out: Vec<(Key, Bytes)> = Vec::new();
        let more = self.view.scan_over(from, to, max, holes, &mut |key, value| {
            out.push((key.to_vec(), Bytes::copy_from_slice(value)));
        })?;
        let changed = self.effect.keys.range::<[u8], _>((Included(from), Excluded(to)));
        out.extend(changed.filter_map(|(key, value)| Some((key.clone(), value.clone()?))));
        Ok((out, more))
    }
}
