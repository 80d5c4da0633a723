//! Chunks of a log: records in whole blocks.
//!
//! A chunk is a number of parts, one for each spill that added to it. A part is a sequence of records, then zeroes up to the end of
//! a block. A record is a varint, one more than the length of its bytes; varints epoch and version; the bytes.

use crate::varint;
use bytes::Bytes;
use codec::{DecodeError, Reader};
use device::BLOCK;
use store::LogRecord;
use wire::types::Eversion;

/// Bytes of a record in a chunk.
pub fn encoded_len((key, bytes): &LogRecord) -> usize {
    varint::len(bytes.len() as u64 + 1)
        + varint::len(key.epoch.into())
        + varint::len(key.version)
        + bytes.len()
}

pub fn put_record(out: &mut Vec<u8>, (key, bytes): &LogRecord) {
    varint::put(out, bytes.len() as u64 + 1);
    varint::put(out, key.epoch.into());
    varint::put(out, key.version);
    out.extend_from_slice(bytes);
}

pub fn take_key(r: &mut Reader<'_>) -> Result<Eversion, DecodeError> {
    Ok(Eversion { epoch: varint::take_u32(r, "epoch")?, version: varint::take(r)? })
}

/// Decodes a record; `None` at zeroes. It is a copy: a slice would keep its neighbours in memory.
pub fn take_record(r: &mut Reader<'_>) -> Result<Option<LogRecord>, DecodeError> {
    let Some(len) = varint::take(r)?.checked_sub(1) else { return Ok(None) };
    let key = take_key(r)?;
    let (remaining, offset) = (r.remaining(), r.offset());
    let Some(len) = usize::try_from(len).ok().filter(|len| *len <= remaining) else {
        return Err(DecodeError::Truncated { what: "log record", needed: usize::MAX, remaining, offset });
    };
    Ok(Some((key, Bytes::copy_from_slice(r.take("log record", len)?))))
}

/// The records of a chunk with keys above `after`, up to `last`. Behind `last` there may be records that a rewind took away.
pub fn records_of(chunk: &[u8], after: Eversion, last: Eversion) -> Result<Vec<LogRecord>, DecodeError> {
    let mut out: Vec<LogRecord> = Vec::new();
    let mut r = Reader::new(chunk);
    let mut before = Eversion::ZERO;
    while !r.is_empty() {
        let Some(record) = take_record(&mut r)? else {
            let padding = (BLOCK - r.offset() % BLOCK) % BLOCK;
            r.skip(padding.min(r.remaining()))?;
            continue;
        };
        if record.0 > last {
            break;
        }
        if record.0 <= before {
            let offset = r.offset();
            return Err(DecodeError::Invalid {
                what: "order of log records",
                value: record.0.version,
                offset,
            });
        }
        before = record.0;
        if record.0 > after {
            out.push(record);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(epoch: u32, version: u64) -> Eversion {
        Eversion { epoch, version }
    }

    #[test]
    fn parts_of_a_chunk_begin_at_blocks() {
        let record = |version: u64, len| (key(2, version), Bytes::from(vec![version as u8; len]));
        let all = [record(5, 100), record(6, 0), record(300, 5000), record(301, 1)];
        let mut out = Vec::new();
        for part in all.chunks(2) {
            part.iter().for_each(|one| put_record(&mut out, one));
            out.resize(out.len().next_multiple_of(BLOCK), 0);
        }
        assert_eq!(all.iter().take(2).map(encoded_len).sum::<usize>(), 106);
        assert_eq!(records_of(&out, Eversion::ZERO, key(9, 0)).unwrap(), all);
        assert_eq!(records_of(&out, key(2, 5), key(2, 300)).unwrap(), all[1..3]);
        assert_eq!(records_of(&out, key(2, 5), key(2, 299)).unwrap(), all[1..2]);
        assert!(records_of(&out[..BLOCK + 100], Eversion::ZERO, key(9, 0)).is_err(), "a record is cut");
    }

    proptest! {
        #[test]
        fn arbitrary_chunks_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            let _ = records_of(&bytes, Eversion::ZERO, Eversion::MAX);
        }
    }
}
