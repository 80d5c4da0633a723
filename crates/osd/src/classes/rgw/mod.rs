//! The gateway's bucket index, and its logs of garbage, lifecycle, usage and resharding.
//!
//! An index object's omap holds a bucket's entries under the keys and in the encodings of Ceph's `cls/rgw/cls_rgw.cc` of
//! 20.2, and statistics in its header. A change of an object is prepared here, then the object is written, then the
//! change is completed here. A gateway that dies between leaves a prepared change, and the next listing's gateway
//! suggests what became of it.
//!
//! | File | Methods |
//! |---|---|
//! | `index` | `bucket_init_index`, prepare and complete, statistics, check and rebuild |
//! | `listing` | `bucket_list` |
//! | `suggest` | `dir_suggest_changes` |
//! | `versions` | instances of versioned objects and their logical heads (OLH) |
//! | `entries` | `bi_*`, without the log |
//! | `index_log` | `bi_log_*` |
//! | `reshard` | `reshard_*`, `*_bucket_resharding` |
//! | `object`, `upload` | head objects, parts of multipart uploads |
//! | `garbage`, `lifecycle`, `usage` | `gc_*`, `lc_*`, `*usage_log_*` |

pub(super) mod entries;
pub(super) mod garbage;
pub(super) mod index;
pub(super) mod index_log;
mod keys;
pub(super) mod lifecycle;
pub(super) mod listing;
pub(super) mod object;
pub(super) mod reshard;
mod stored;
pub(super) mod suggest;
pub(super) mod upload;
pub(super) mod usage;
pub(super) mod versions;

use super::omap::Entry;
use super::{MethodCall, MethodStop};
use crate::errno::Errno;

type MethodResult = Result<i32, MethodStop>;

/// Entries that one read of an omap returns (`osd_max_omap_entries_per_request`).
const READ_MAX: usize = 1024;

/// The index takes no changes while its entries move (`CLS_RGW_ERR_BUSY_RESHARDING`).
const BUSY_RESHARDING: Errno = Errno(2300);

/// Entries behind `after` that start with `prefix`, as one read of stock's; none without an object. The flag says that more
/// follow, also when `max` is 0.
fn read_omap(
    call: &mut MethodCall<'_>,
    after: &[u8],
    prefix: &[u8],
    max: usize,
) -> Result<(Vec<Entry>, bool), MethodStop> {
    if max == 0 {
        let (first, _) = call.omap_page(after, prefix, 1, false)?;
        return Ok((Vec::new(), !first.is_empty()));
    }
    call.omap_list(after, prefix, max.min(READ_MAX), true)
}
