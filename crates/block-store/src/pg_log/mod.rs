//! Logs of collections: rings of records whose newest part is in memory and in the write-ahead log.
//!
//! ```text
//! append ─▶ write-ahead log (once) and memory ─ spill: whole blocks ─▶ chunks, in blocks of the data space
//!                                    └─ checkpoint: the rest, less than a block for most ─▶ the state's record in the index
//! trim, rewind, clear ─▶ memory; blocks of chunks without records are released by a later spill
//! ```
//!
//! - **State.** A log's [`state`] lists its chunks and has the records that are in no chunk. Every change of it is an entry of
//!   the write-ahead log. A checkpoint puts the states that changed into the index, as of its last batch. Recovery loads
//!   them, and applies the entries of later batches: the same code as in operation ([`PgLog::apply`]).
//! - **Chunks.** The blocks of all chunks of a log are the bytes of one hidden object of the collection, its *log object*
//!   ([`crate::object::key::log_object`]). So the bitmap, the checksums, fsck and the cleaner know them as they know data.
//!   Bytes are appended at the object's end, and released chunks become holes.
//! - **Two copies.** The log object has each chunk twice ([`LOG_COPIES`]), and a listing takes each part from the first copy
//!   that matches its checksums. Without its log a copy of a PG is worth nothing, so one rotten block must not take it.
//! - **Cost.** A record is logged once and written twice more with its neighbours, a block or more at a time. It enters
//!   neither memtable nor tables, unless a checkpoint finds it in memory. Nothing reads chunks but a listing.

mod chunk;
mod rings;
mod state;

pub use chunk::records_of;
pub use rings::PgLogs;
pub use state::{Chunk, LOG_COPIES, LogChange, PgLog, Spill, SpillData};
