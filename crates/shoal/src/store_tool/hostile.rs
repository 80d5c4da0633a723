//! Bytes of an attacker as the file of an import: called by the fuzz target and by the replay of its corpus.

use super::record::Record;
use wire::frames::crc32c;

/// Reads a stream of records that the bytes describe: for each a kind, a length of one byte, and the body. The checksums
/// are right, since an attacker can compute them too.
///
/// # Panics
/// If a record changes by being written.
pub fn records(data: &[u8]) {
    let stream = stream(data);
    let mut from = stream.as_slice();
    while let Ok(record) = Record::read(&mut from) {
        let mut once = Vec::new();
        record.write(&mut once).expect("a vector takes every byte");
        let again = Record::read(&mut once.as_slice()).expect("a record reads what it wrote");
        assert_eq!(again, record);
    }
}

fn stream(mut data: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((&[kind, len], rest)) = data.split_first_chunk::<2>() {
        let (body, next) = rest.split_at(rest.len().min(len.into()));
        let from = stream.len();
        stream.push(kind);
        stream.extend((body.len() as u32).to_le_bytes());
        stream.extend_from_slice(body);
        let crc = crc32c(&stream[from..]);
        stream.extend(crc.to_le_bytes());
        data = next;
    }
    stream
}
