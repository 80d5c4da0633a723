//! Queues of the gateway in several objects: a head that counts the parts, and parts that hold entries.
//!
//! ```text
//! head: the encoded counters, which clients change under a version.
//!
//! part: 0          512            min_offset      next_offset
//!       | header | | trimmed entries | entry, entry, ... |
//! entry: | u64 magic | u64 44 | u64 header length | u64 data length | u64 index | u32 0 | header | data |
//! ```
//! Clients write an entry into the part that is the head's, and begin another one when the OSD answers `ERANGE`. They
//! trim entries from the oldest part on; a full part that is trimmed to its end is removed.

mod entries;
pub mod head;
pub mod part;

/// Bytes in front of a part's first entry.
const PART_HEADER_LEN: u64 = 512;
/// Bytes of an entry in front of its header.
const ENTRY_START_LEN: u64 = 44;
/// Bytes of an entry beside its data.
const ENTRY_OVERHEAD: u64 = ENTRY_START_LEN + 14;
