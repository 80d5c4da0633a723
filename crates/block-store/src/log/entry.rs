//! Entries of a log record: physical redo, in order, idempotent.

use super::patch::put_patch;
use crate::object::key;
use crate::pg_log::{LogChange, Spill};
use crate::space::Run;
use crate::varint;
use bytes::Bytes;
use codec::{DecodeError, Reader};
use smallvec::smallvec;
use store::Collection;
use wire::types::Eversion;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const TAKE: u8 = 3;
const FREE: u8 = 4;
const INLINE: u8 = 5;
const DIRECT: u8 = 6;
const DELETE_RANGE: u8 = 7;
const LOG_APPEND: u8 = 8;
const LOG_TRIM: u8 = 9;
const LOG_REWIND: u8 = 10;
const LOG_CLEAR: u8 = 11;
const LOG_SPILL: u8 = 12;
const PATCH: u8 = 13;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Puts a key of the index.
    Put { key: &'a [u8], value: &'a [u8] },
    /// Puts a key of the index: its value is changed by a [patch](super::patched).
    Patch { key: &'a [u8], patch: &'a [u8] },
    /// Deletes a key of the index.
    Delete { key: &'a [u8] },
    /// Deletes all keys of `from..to` that the index has.
    DeleteRange { from: &'a [u8], to: &'a [u8] },
    /// Marks blocks as used by data.
    Take(Run),
    /// Marks blocks as free of data.
    Free(Run),
    /// Puts the next `len` bytes of the record's data, padded with zeroes, into the blocks from `start` on.
    Inline { start: u64, len: u64 },
    /// Data was written to its blocks with the batch; their checksums tell if it arrived.
    Direct { start: u64, crcs: Vec<u32> },
    /// Changes a collection's log; an append has one record.
    Log(Collection, LogChange),
}

pub fn put_put(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.push(PUT);
    varint::put_bytes(out, key);
    varint::put_bytes(out, value);
}

/// A put of a key whose value was `base`: as a patch, if that is shorter.
pub fn put_patched(out: &mut Vec<u8>, key: &[u8], base: &[u8], value: &[u8], scratch: &mut Vec<u8>) {
    scratch.clear();
    if put_patch(scratch, base, value) {
        out.push(PATCH);
        varint::put_bytes(out, key);
        varint::put_bytes(out, scratch);
    } else {
        put_put(out, key, value);
    }
}

pub fn put_delete(out: &mut Vec<u8>, key: &[u8]) {
    out.push(DELETE);
    varint::put_bytes(out, key);
}

pub fn put_delete_range(out: &mut Vec<u8>, from: &[u8], to: &[u8]) {
    out.push(DELETE_RANGE);
    varint::put_bytes(out, from);
    varint::put_bytes(out, to);
}

pub fn put_take(out: &mut Vec<u8>, run: Run) {
    put_numbers(out, TAKE, run.start, run.len);
}

pub fn put_free(out: &mut Vec<u8>, run: Run) {
    put_numbers(out, FREE, run.start, run.len);
}

pub fn put_inline(out: &mut Vec<u8>, start: u64, len: u64) {
    put_numbers(out, INLINE, start, len);
}

pub fn put_direct(out: &mut Vec<u8>, start: u64, crcs: &[u32]) {
    put_numbers(out, DIRECT, start, crcs.len() as u64);
    crcs.iter().for_each(|crc| out.extend_from_slice(&crc.to_le_bytes()));
}

/// An append of several records becomes an entry for each.
pub fn put_log(out: &mut Vec<u8>, id: Collection, change: &LogChange) {
    let begin = |out: &mut Vec<u8>, kind: u8| {
        out.push(kind);
        key::put_short_collection(out, id);
    };
    match change {
        LogChange::Append(records) => {
            for (key, record) in records {
                begin(out, LOG_APPEND);
                put_log_key(out, *key);
                varint::put_bytes(out, record);
            }
        }
        LogChange::Trim(to) => {
            begin(out, LOG_TRIM);
            put_log_key(out, *to);
        }
        LogChange::Rewind(to) => {
            begin(out, LOG_REWIND);
            put_log_key(out, *to);
        }
        LogChange::Clear => begin(out, LOG_CLEAR),
        LogChange::Spill(Spill { last, start, blocks, released, lost }) => {
            begin(out, LOG_SPILL);
            put_log_key(out, *last);
            [*start, *blocks, *released, u64::from(*lost)].into_iter().for_each(|n| varint::put(out, n));
        }
    }
}

/// Upper bound of the bytes of [`put_log`].
pub fn log_len(change: &LogChange) -> usize {
    match change {
        LogChange::Append(records) => records.iter().map(|(_, record)| record.len() + LOG_ENTRY_MAX).sum(),
        _ => LOG_ENTRY_MAX + 40,
    }
}

/// Upper bound of the bytes of an append without its record: kind, collection, key and length.
const LOG_ENTRY_MAX: usize = 56;

fn put_log_key(out: &mut Vec<u8>, key: Eversion) {
    varint::put(out, key.epoch.into());
    varint::put(out, key.version);
}

fn put_numbers(out: &mut Vec<u8>, kind: u8, a: u64, b: u64) {
    out.push(kind);
    varint::put(out, a);
    varint::put(out, b);
}

/// Iterator over the entries of a record's body.
pub struct Entries<'a>(Reader<'a>);

impl<'a> Entries<'a> {
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        Entries(Reader::new(bytes))
    }

    /// Bytes of the entries that follow.
    #[cfg(test)]
    pub fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn decode(&mut self) -> Result<Entry<'a>, DecodeError> {
        let r = &mut self.0;
        let offset = r.offset();
        let kind = r.u8()?;
        Ok(match kind {
            PUT => Entry::Put { key: varint::take_bytes(r, "key")?, value: varint::take_bytes(r, "value")? },
            PATCH => {
                Entry::Patch { key: varint::take_bytes(r, "key")?, patch: varint::take_bytes(r, "patch")? }
            }
            DELETE => Entry::Delete { key: varint::take_bytes(r, "key")? },
            DELETE_RANGE => {
                Entry::DeleteRange { from: varint::take_bytes(r, "from")?, to: varint::take_bytes(r, "to")? }
            }
            TAKE => Entry::Take(take_run(r)?),
            FREE => Entry::Free(take_run(r)?),
            INLINE => Entry::Inline { start: varint::take(r)?, len: varint::take(r)? },
            DIRECT => {
                let (start, count) = (varint::take(r)?, varint::take(r)?);
                if count > (r.remaining() / 4) as u64 {
                    return Err(DecodeError::Invalid { what: "checksums", value: count, offset });
                }
                let crcs = (0..count).map(|_| r.u32()).collect::<Result<_, _>>()?;
                Entry::Direct { start, crcs }
            }
            LOG_APPEND..=LOG_SPILL => {
                let id = key::take_short_collection(r)?;
                Entry::Log(id, take_log_change(r, kind)?)
            }
            other => return Err(DecodeError::Invalid { what: "log entry", value: other as u64, offset }),
        })
    }
}

fn take_log_change(r: &mut Reader<'_>, kind: u8) -> Result<LogChange, DecodeError> {
    if kind == LOG_CLEAR {
        return Ok(LogChange::Clear);
    }
    let key = take_log_key(r)?;
    Ok(match kind {
        LOG_APPEND => {
            // A slice would keep the whole record in memory.
            let record = Bytes::copy_from_slice(varint::take_bytes(r, "log record")?);
            LogChange::Append(smallvec![(key, record)])
        }
        LOG_TRIM => LogChange::Trim(key),
        LOG_REWIND => LogChange::Rewind(key),
        _ => {
            let (start, blocks, released) = (varint::take(r)?, varint::take(r)?, varint::take(r)?);
            LogChange::Spill(Spill { last: key, start, blocks, released, lost: varint::take(r)? != 0 })
        }
    })
}

fn take_log_key(r: &mut Reader<'_>) -> Result<Eversion, DecodeError> {
    Ok(Eversion { epoch: varint::take_u32(r, "epoch")?, version: varint::take(r)? })
}

fn take_run(r: &mut Reader<'_>) -> Result<Run, DecodeError> {
    Ok(Run { start: varint::take(r)?, len: varint::take(r)? })
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DecodeError>;
    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.decode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::types::{PgId, SpgId};

    #[test]
    fn entries_round_trip() {
        let mut out = Vec::new();
        put_put(&mut out, b"key", b"value");
        let mut patch = Vec::new();
        put_patched(&mut out, b"key", b"value", b"other", &mut patch);
        put_patched(&mut out, b"key", &[1; 99], &[[1; 90], [2; 90]].concat()[..99], &mut patch);
        put_delete(&mut out, b"gone");
        put_delete_range(&mut out, b"from", b"to");
        put_take(&mut out, Run::new(1 << 40, 3));
        put_free(&mut out, Run::new(5, 1));
        put_inline(&mut out, 7, 4097);
        put_direct(&mut out, 9, &[1, u32::MAX]);
        let id = |seed| Collection::Pg(SpgId::from(PgId { pool: 3, seed }));
        let version = |version| Eversion { epoch: 70, version };
        let record = |n| (version(n), Bytes::from(vec![n as u8; n as usize]));
        let spill = Spill { last: version(9), start: 300, blocks: 16, released: 2, lost: false };
        let before = out.len();
        put_log(&mut out, id(5), &LogChange::Append(smallvec![record(1), record(200)]));
        assert_eq!(out.len() - before, 8 + 209, "few bytes beside the records");
        put_log(&mut out, id(5), &LogChange::Trim(version(1)));
        put_log(&mut out, id(70_000), &LogChange::Rewind(version(2)));
        put_log(&mut out, Collection::Meta, &LogChange::Clear);
        put_log(&mut out, id(5), &LogChange::Spill(spill));
        let entries: Vec<Entry> = Entries::new(&out).map(|e| e.unwrap()).collect();
        let expected = [
            Entry::Put { key: b"key", value: b"value" },
            Entry::Put { key: b"key", value: b"other" },
            Entry::Patch { key: b"key", patch: &patch },
            Entry::Delete { key: b"gone" },
            Entry::DeleteRange { from: b"from", to: b"to" },
            Entry::Take(Run::new(1 << 40, 3)),
            Entry::Free(Run::new(5, 1)),
            Entry::Inline { start: 7, len: 4097 },
            Entry::Direct { start: 9, crcs: vec![1, u32::MAX] },
            Entry::Log(id(5), LogChange::Append(smallvec![record(1)])),
            Entry::Log(id(5), LogChange::Append(smallvec![record(200)])),
            Entry::Log(id(5), LogChange::Trim(version(1))),
            Entry::Log(id(70_000), LogChange::Rewind(version(2))),
            Entry::Log(Collection::Meta, LogChange::Clear),
            Entry::Log(id(5), LogChange::Spill(spill)),
        ];
        assert_eq!(entries, expected);
    }

    proptest! {
        #[test]
        fn anything_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for entry in Entries::new(&bytes) {
                if entry.is_err() {
                    break;
                }
            }
        }
    }
}
