//! Logs as older programs wrote them, among the entries of the meta object's omap: with keys of today's versions, and as release
//! 0.1.0 did, with keys without the epoch and a header without the log's tail. They are read, and moved into records of the
//! collection.

mod harness;

use bytes::Bytes;
use codec::{Encode, Features};
use harness::*;
use osd::pg::log::{LogCounts, LogLimits};
use osd::pg::log_records::{self, Record};
use osd::pg::meta;
use osd::shard::{PgOrder, ShardConfig};
use osd::stopped::{MetaRecords, PgCopy};
use store::{Change, Collection, Completion, MemoryStore, ObjectId, ObjectStore, Transaction};
use wire::types::{Eversion, HObject, OpCode, OsdOp, RecoveredCounts};

/// Bytes that later versions added to a header: the log's tail, the place that a backfill has reached, and
/// counts of recovered objects, of the log and of clones.
fn added_len() -> usize {
    let place = HObject::max().to_vec(Features::NONE).len();
    let counts = RecoveredCounts::default().to_vec(Features::NONE).len();
    let log = LogCounts::default().to_vec(Features::NONE).len();
    Eversion::ZERO.to_vec(Features::NONE).len() + place + counts + log + SNAPSHOTS_LEN
}

fn wait(store: &mut MemoryStore) -> Vec<Completion> {
    let mut done = Vec::new();
    while store.poll(&mut done) {}
    done
}

/// The PG's records of itself.
fn records(store: &mut MemoryStore) -> MetaRecords {
    store.read(0, PgCopy::request(pg()));
    match wait(store).pop() {
        Some(Completion::Read { answers: Ok(answers), .. }) => MetaRecords::from_answers(answers).unwrap().0,
        other => panic!("{other:?}"),
    }
}

/// The program that wrote the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Release0_1_0,
    /// The last one with the log in the omap.
    Version5,
}

/// Version 7 of the progress came with counts of clones and whiteouts, version 8 with the mark of a complete snapshot index.
const SNAPSHOTS_LEN: usize = 16 + 1;

fn with_body(versions: &[u8; 2], body: Bytes) -> Bytes {
    [&versions[..], &(body.len() as u32).to_le_bytes(), &body].concat().into()
}

/// Gives the PG the records that an older program would have written. `left`: log records that an interrupted move has left.
fn make_old(store: &mut MemoryStore, writer: Writer, left: usize) {
    let MetaRecords { header, log, .. } = records(store);
    assert_eq!(header[..2], [8, 6], "version 8");
    let tail = store_tail(&header);
    let object = ObjectId::pg_meta(pg());
    let old_header: Bytes = match writer {
        Writer::Version5 => with_body(&[5, 3], header.slice(6..header.len() - SNAPSHOTS_LEN)),
        Writer::Release0_1_0 => with_body(&[1, 1], header.slice(6..header.len() - added_len())),
    };
    let key = |kind: u8, version: Eversion| {
        let epoch = if writer == Writer::Version5 { &version.epoch.to_be_bytes()[..] } else { &[] };
        Bytes::from([&[kind][..], epoch, &version.version.to_be_bytes()].concat())
    };
    let old = |(version, bytes): &store::LogRecord| match log_records::decode(*version, bytes).unwrap() {
        Record::Entry(entry) if *version > tail => {
            (key(b'l', *version), meta::entry_to_wire(&entry).to_vec(Features::NONE).into())
        }
        Record::Entry(entry) => {
            (key(b'd', *version), meta::duplicate_to_wire(&entry.into()).to_vec(Features::NONE).into())
        }
        Record::Duplicate(duplicate) => {
            (key(b'd', *version), meta::duplicate_to_wire(&duplicate).to_vec(Features::NONE).into())
        }
    };
    let entries = log.iter().map(old).collect();
    let mut changes = vec![
        Change::OmapSetHeader { object: object.clone(), header: old_header },
        Change::OmapSet { object, entries },
        Change::LogClear,
    ];
    changes.push(Change::LogAppend { records: log[..left].to_vec() });
    store.submit(0, Transaction { collection: Collection::Pg(pg()), changes });
    wait(store);
}

/// The log's tail in a header.
fn store_tail(header: &Bytes) -> Eversion {
    codec::decode_exact::<meta::PgProgress>(header).unwrap().log_tail
}

fn old_keys(records: &MetaRecords) -> usize {
    records.entries.iter().filter(|(key, _)| matches!(key[0], b'l' | b'd')).count()
}

fn serving(limits: LogLimits, store: MemoryStore, is_new: bool) -> Host {
    let mut host = Host::with(ShardConfig { log: limits, ..config() }, store);
    host.open(1, 4100);
    let since = host.view.epoch;
    host.map(vec![match is_new {
        true => PgOrder::alone(pg(), 0, since),
        false => PgOrder::alone(pg(), 0, since),
    }]);
    host
}

fn old_log_is_moved(writer: Writer, left: usize) {
    const WRITES: u64 = 700;
    let limits = LogLimits { max_entries: 400, max_duplicates: 200, batch: 10, ..LogLimits::default() };
    let mut host = serving(limits, memory_store(), true);
    let mut requests = Vec::new();
    for _ in 0..WRITES {
        let request =
            host.request(object("a"), vec![OsdOp::extent(OpCode::APPEND, 0, 1, Bytes::from_static(b"x"))]);
        let tid = host.send(1, request.clone());
        host.settle();
        requests.push((tid, request));
    }
    let before = records(&mut host.store);
    assert!(before.log.len() >= 600, "entries and duplicates: {}", before.log.len());
    make_old(&mut host.store, writer, left);
    let old = records(&mut host.store);
    assert_eq!((old_keys(&old), old.log.len()), (before.log.len(), left));

    let mut host = serving(limits, host.store, false);
    host.settle();
    let after = records(&mut host.store);
    assert_eq!(old_keys(&after), 0);
    // An older program kept no snapshot index.
    let progress: meta::PgProgress = codec::decode_exact(&before.header).unwrap();
    let header = Bytes::from(meta::PgProgress { is_indexed: false, ..progress }.to_vec(Features::NONE));
    assert!((after.header, after.entries) == (header, before.entries), "as if they had never been old");
    // Trimmed entries have become bare duplicates.
    let versions = |log: &[store::LogRecord]| log.iter().map(|(version, _)| *version).collect::<Vec<_>>();
    assert_eq!(versions(&after.log), versions(&before.log));

    // One that is a duplicate, and one that is an entry.
    for at in [WRITES as usize - 500, WRITES as usize - 3] {
        let (tid, request) = requests[at].clone();
        host.resend(1, tid, request);
        host.settle();
        assert_eq!(host.reply(tid).result, 0);
    }
    let stat = host.ask("a", vec![OsdOp::bare(OpCode::STAT)]).ops[0].output.to_bytes();
    assert_eq!(stat[..8], WRITES.to_le_bytes()[..], "no append is done twice");

    for _ in 0..WRITES {
        host.ask("a", vec![write_full(b"later")]);
    }
    let kept = records(&mut host.store).log.len();
    assert!(kept <= limits.max_entries + limits.max_duplicates + 2 * limits.batch, "{kept} records are left");
}

#[test]
fn log_of_release_0_1_0_is_moved() {
    old_log_is_moved(Writer::Release0_1_0, 0);
}

#[test]
fn log_in_the_omap_is_moved() {
    old_log_is_moved(Writer::Version5, 0);
}

#[test]
fn interrupted_move_of_a_log_begins_anew() {
    old_log_is_moved(Writer::Version5, 256);
}
