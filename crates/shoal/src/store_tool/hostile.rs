//! Bytes of an attacker as the file of an import: called by the fuzz targets and by the replay of their corpora.

use super::pg::example;
use super::pg::file::{ExportReader, Record as PgRecord, RecordReader, RecordWriter};
use super::record::Record;
use osd::stopped::{Source, import};
use wire::frames::crc32c;

/// Reads a stream of records that the bytes describe: for each a kind, a length of one byte, and the body. The checksums
/// are right, since an attacker can compute them too.
///
/// # Panics
/// If a record changes by being written.
pub fn records(data: &[u8]) {
    let stream = stream(data, Vec::new(), false);
    let mut from = stream.as_slice();
    while let Ok(record) = Record::read(&mut from) {
        let mut once = Vec::new();
        record.write(&mut once).expect("a vector takes every byte");
        let again = Record::read(&mut once.as_slice()).expect("a record reads what it wrote");
        assert_eq!(again, record);
    }
}

/// Reads an exported PG whose records the bytes describe, as those of [`records`], with right checksums. The first byte says
/// how many records of a true export come before them: 0 to 4.
///
/// # Panics
/// If a record changes by being written, or if a file is read to its end and does not hold what it says.
pub fn pg_export(data: &[u8]) {
    let Some((true_records, data)) = data.split_first() else { return };
    let mut file = Vec::new();
    let mut writer = RecordWriter::new(&mut file);
    for record in beginning().iter().take((true_records % 6).into()) {
        writer.write(record).expect("a vector takes every byte");
    }
    let file = stream(data, file, true);

    let mut from = RecordReader::new(file.as_slice());
    while let Ok(record) = from.read() {
        let mut once = Vec::new();
        RecordWriter::new(&mut once).write(&record).expect("it was read from a file");
        let again = RecordReader::new(once.as_slice()).read().expect("a record reads what it wrote");
        assert_eq!(again, record);
    }
    let Ok(mut export) = ExportReader::open(file.as_slice()) else { return };
    let mut items = 0u64;
    while let Ok(Some(_)) = export.next_item() {
        items += 1;
    }
    assert!(items >= export.totals.lost, "{:?} in {items} items", export.totals);
}

/// The records before the objects of a true export.
pub fn beginning() -> [PgRecord; 5] {
    let meta = example::meta_records();
    let copy = meta.to_copy(example::pg(), example::SPLIT_BITS).expect("it is whole");
    let daemon = example::daemon(0, example::EPOCH);
    let source = Source::of(&daemon, &copy).expect("the map knows its OSD");
    let map = import::encode_map(&example::map(example::EPOCH));
    [
        PgRecord::Head { source: source.to_bytes() },
        PgRecord::Map { map },
        PgRecord::MetaHeader { header: meta.header },
        PgRecord::Meta { entries: meta.entries },
        PgRecord::Log { records: meta.log },
    ]
}

/// `chained`: the checksum of each record covers that of the one before.
fn stream(mut data: &[u8], mut stream: Vec<u8>, chained: bool) -> Vec<u8> {
    while let Some((&[kind, len], rest)) = data.split_first_chunk::<2>() {
        let (body, next) = rest.split_at(rest.len().min(len.into()));
        let last: [u8; 4] = stream.last_chunk().copied().unwrap_or_default();
        let from = stream.len();
        stream.push(kind);
        stream.extend((body.len() as u32).to_le_bytes());
        stream.extend_from_slice(body);
        let crc = match chained {
            true => crc32c(&[&last[..], &stream[from..]].concat()),
            false => crc32c(&stream[from..]),
        };
        stream.extend(crc.to_le_bytes());
        data = next;
    }
    stream
}
