//! Logs as release 0.1.0 wrote them: keys without the epoch, and no tail. They are read, and their keys replaced.

mod harness;

use bytes::Bytes;
use codec::{Encode, Features};
use harness::*;
use osd::pg::log::{LogCounts, LogLimits};
use osd::shard::{PgOrder, ShardConfig};
use store::{Answer, Change, Collection, Completion, MemoryStore, ObjectId, ObjectStore, Query};
use store::{ReadRequest, Transaction};
use wire::types::{Eversion, HObject, OpCode, OsdOp, RecoveredCounts};

const OLD_KEY: usize = 9;
const KEY: usize = 13;
/// Bytes that later versions added to a header: the log's tail, the place that a backfill has reached, and
/// counts of recovered objects and of the log.
fn added_len() -> usize {
    let place = HObject::max().to_vec(Features::NONE).len();
    let counts = RecoveredCounts::default().to_vec(Features::NONE).len();
    let log = LogCounts::default().to_vec(Features::NONE).len();
    Eversion::ZERO.to_vec(Features::NONE).len() + place + counts + log
}

fn wait(store: &mut MemoryStore) -> Vec<Completion> {
    let mut done = Vec::new();
    while store.poll(&mut done) {}
    done
}

/// The header and the entries of the PG's records.
fn records(store: &mut MemoryStore) -> (Bytes, Vec<(Bytes, Bytes)>) {
    let object = ObjectId::pg_meta(pg());
    let queries = vec![Query::OmapHeader, Query::whole_omap()];
    store.read(0, ReadRequest { collection: Collection::Pg(pg()), object, queries });
    match wait(store).pop() {
        Some(Completion::Read { answers: Ok(answers), .. }) => match <[Answer; 2]>::try_from(answers) {
            Ok([Answer::OmapHeader(header), Answer::OmapList { entries, .. }]) => (header, entries),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn is_of_log(key: &Bytes) -> bool {
    matches!(key[0], b'l' | b'd')
}

/// Gives the PG the records that release 0.1.0 would have written. Only the newest `old_keys` keys become old ones: keys are
/// renamed in ascending order.
fn make_old(store: &mut MemoryStore, old_keys: usize) {
    let (header, entries) = records(store);
    assert_eq!(header[..2], [5, 3], "version 5");
    let body = header.slice(6..header.len() - added_len());
    let old_header = [&[1, 1][..], &(body.len() as u32).to_le_bytes(), &body].concat().into();
    let object = ObjectId::pg_meta(pg());
    let mut changes = vec![Change::OmapSetHeader { object: object.clone(), header: old_header }];
    let entries: Vec<_> = entries.into_iter().filter(|(key, _)| is_of_log(key)).collect();
    for (key, value) in entries.into_iter().rev().take(old_keys) {
        assert_eq!(key.len(), KEY);
        let old_key = [&key[..1], &key[5..]].concat().into();
        changes.push(Change::OmapRemove { object: object.clone(), keys: vec![key] });
        changes.push(Change::OmapSet { object: object.clone(), entries: vec![(old_key, value)] });
    }
    store.submit(0, Transaction { collection: Collection::Pg(pg()), changes });
    wait(store);
}

fn number_of_keys(store: &mut MemoryStore, len: usize) -> usize {
    records(store).1.iter().filter(|(key, _)| is_of_log(key) && key.len() == len).count()
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

/// `old_keys`: as many keys are old. Fewer than all are left by a restart in the middle of the renaming.
fn old_log_is_read_and_renamed(old_keys: usize) {
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
    let keys = number_of_keys(&mut host.store, KEY);
    assert!(keys >= 600, "entries and duplicates: {keys}");
    let before = records(&mut host.store);
    make_old(&mut host.store, old_keys);
    assert_eq!(number_of_keys(&mut host.store, OLD_KEY), old_keys.min(keys));

    let mut host = serving(limits, host.store, false);
    host.settle();
    assert_eq!(number_of_keys(&mut host.store, OLD_KEY), 0);
    assert!(records(&mut host.store) == before, "the records are as if they had never been old");

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
    let kept = number_of_keys(&mut host.store, KEY);
    assert!(kept <= limits.max_entries + limits.max_duplicates + 2 * limits.batch, "{kept} keys are left");
}

#[test]
fn log_of_release_0_1_0_is_read_and_renamed() {
    old_log_is_read_and_renamed(usize::MAX);
}

#[test]
fn renaming_goes_on_after_a_restart() {
    old_log_is_read_and_renamed(256);
}
