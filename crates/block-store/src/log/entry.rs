//! Entries of a log record: physical redo, in order, idempotent.

use crate::space::Run;
use crate::varint;
use codec::{DecodeError, Reader};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const TAKE: u8 = 3;
const FREE: u8 = 4;
const INLINE: u8 = 5;
const DIRECT: u8 = 6;
const DELETE_RANGE: u8 = 7;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Puts a key of the index.
    Put { key: &'a [u8], value: &'a [u8] },
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
}

pub fn put_put(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.push(PUT);
    varint::put_bytes(out, key);
    varint::put_bytes(out, value);
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

    fn decode(&mut self) -> Result<Entry<'a>, DecodeError> {
        let r = &mut self.0;
        let offset = r.offset();
        let kind = r.u8()?;
        Ok(match kind {
            PUT => Entry::Put { key: varint::take_bytes(r, "key")?, value: varint::take_bytes(r, "value")? },
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
            other => return Err(DecodeError::Invalid { what: "log entry", value: other as u64, offset }),
        })
    }
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

    #[test]
    fn entries_round_trip() {
        let mut out = Vec::new();
        put_put(&mut out, b"key", b"value");
        put_delete(&mut out, b"gone");
        put_delete_range(&mut out, b"from", b"to");
        put_take(&mut out, Run::new(1 << 40, 3));
        put_free(&mut out, Run::new(5, 1));
        put_inline(&mut out, 7, 4097);
        put_direct(&mut out, 9, &[1, u32::MAX]);
        let entries: Vec<Entry> = Entries::new(&out).map(|e| e.unwrap()).collect();
        let expected = [
            Entry::Put { key: b"key", value: b"value" },
            Entry::Delete { key: b"gone" },
            Entry::DeleteRange { from: b"from", to: b"to" },
            Entry::Take(Run::new(1 << 40, 3)),
            Entry::Free(Run::new(5, 1)),
            Entry::Inline { start: 7, len: 4097 },
            Entry::Direct { start: 9, crcs: vec![1, u32::MAX] },
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
