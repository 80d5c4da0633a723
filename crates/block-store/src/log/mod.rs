//! The write-ahead log: a ring of records. A record holds the effects of a batch of transactions and makes them durable.

mod entry;
mod patch;
mod record;
mod replay;
mod ring;

pub use entry::{
    Entries, Entry, log_len, put_delete, put_delete_range, put_direct, put_free, put_inline, put_log,
    put_patched, put_put, put_take,
};
pub use patch::{PatchError, patched};
pub use record::{FIRST_INCARNATION, Record, RecordBuilder, RecordFront, RecordHead, has_record_magic};
pub use replay::{Mark, Replay, ReplayError};
pub use ring::Ring;
