//! Bytes of log of a client's 4 KiB overwrite, by kind of entry, with values of the sizes that an OSD writes.
//!
//! The set is much larger than a memtable, so most values before are in tables. The same overwrites are measured as they were until
//! the PG log had a ring and the log had patches: values whole, log entries as omap keys.
//!
//! `cargo test -p block-store bytes_of_an_overwrite -- --nocapture`

use super::operations::{home, object, pg};
use super::{formatted, open, small};
use crate::log::{Entries, Entry, Record, RecordHead, patched};
use crate::read_superblock;
use crate::shard::{Options, Shard};
use bytes::Bytes;
use codec::{Encode, Features};
use device::BLOCK;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use std::collections::BTreeMap;
use store::{Change, Completion, ObjectId, ObjectStore, Transaction};
use wire::types::{EntityKind, EntityName, Eversion, HObject, ObjectInfo, PgCounts, ReqId, UTime};

const OBJECTS: u64 = 600;
const OBJECT_BLOCKS: u64 = 16;
const WRITES: u64 = 6_000;
/// Transactions of a batch.
const DEPTH: u64 = 16;
/// Bound of issue 17.
const BYTES_MAX: u64 = 400;

#[derive(Clone, Copy, PartialEq, Eq)]
enum PgLogAs {
    Ring,
    OmapKeys,
}

fn name(n: u64) -> ObjectId {
    let name = format!("rbd_data.1a2b3c4d5e6f.{n:016x}");
    object(&name, (n as u32).wrapping_mul(2_654_435_761))
}

fn info(object: &ObjectId, version: u64) -> Bytes {
    let at = |version| Eversion { epoch: 40, version };
    let time = UTime {
        sec: 1_795_000_000 + (version / 900) as u32,
        nsec: (version * 1_111_111 % 1_000_000_000) as u32,
    };
    let reqid = ReqId { name: EntityName::new(EntityKind::CLIENT, 4123), tid: version * 3, incarnation: 0 };
    let info = ObjectInfo {
        version: at(version),
        prior_version: at(version.saturating_sub(OBJECTS)),
        last_reqid: reqid,
        user_version: version,
        size: OBJECT_BLOCKS * BLOCK as u64,
        mtime: time,
        local_mtime: UTime { nsec: time.nsec ^ 0xfffff, ..time },
        ..ObjectInfo::new(object.object.clone())
    };
    info.to_vec(Features::ALL).into()
}

/// As long as a PG's progress, with what changes in it.
fn progress(version: u64) -> Bytes {
    let mut out = vec![7, 6, 176, 0, 0, 0];
    out.extend(Eversion { epoch: 40, version }.to_vec(Features::NONE));
    out.extend(version.to_le_bytes());
    let counts = PgCounts {
        objects: 48,
        bytes: 48 << 20,
        reads: 9,
        read_kib: 36,
        writes: version as i64,
        write_kib: 4 * version as i64,
        omap_objects: 0,
    };
    out.extend(counts.to_vec(Features::NONE));
    out.extend(
        Eversion { epoch: 40, version: (version / 100 * 100).saturating_sub(3000) }.to_vec(Features::NONE),
    );
    out.extend(HObject::max().to_vec(Features::NONE));
    out.extend([0; 24]);
    out.extend((3000 + version as u32 % 100).to_le_bytes());
    out.extend(3000u32.to_le_bytes());
    out.extend([0; 16]);
    out.into()
}

fn overwrite(n: u64, block: u64, version: u64, how: PgLogAs) -> Transaction {
    let (object, meta) = (name(n), ObjectId::pg_meta(pg(0)));
    let key =
        |kind: &[u8], version: u64| Bytes::from([kind, &[0, 0, 0, 40], &version.to_be_bytes()].concat());
    let mut changes = vec![
        Change::Write {
            object: object.clone(),
            offset: block * BLOCK as u64,
            data: vec![version as u8; BLOCK].into(),
        },
        Change::SetAttr { object: object.clone(), name: "_".into(), value: info(&object, version) },
        Change::OmapSetHeader { object: meta.clone(), header: progress(version) },
    ];
    // The length of the OSD's records is tested in osd/pg/log_records.rs.
    match how {
        PgLogAs::Ring => {
            let record = vec![version as u8; 64].into();
            changes.push(Change::LogAppend { records: vec![(Eversion { epoch: 40, version }, record)] });
            if version.is_multiple_of(100) && version > 1000 {
                changes.push(Change::LogTrim { to: Eversion { epoch: 40, version: version - 1000 } });
            }
        }
        PgLogAs::OmapKeys => {
            let mut entries = vec![(key(b"l", version), vec![version as u8; 230].into())];
            let mut gone = Vec::new();
            if version.is_multiple_of(100) && version > 1000 {
                for old in version - 1100..version - 1000 {
                    gone.push(key(b"l", old));
                    entries.push((key(b"d", old), vec![0; 75].into()));
                    gone.push(key(b"d", old.saturating_sub(500)));
                }
            }
            changes.push(Change::OmapSet { object: meta.clone(), entries });
            changes.push(Change::OmapRemove { object: meta, keys: gone });
        }
    }
    Transaction { collection: home(), changes }
}

/// Reads the log records of a disk.
fn records(disk: &Simulated) -> Vec<Record> {
    let superblock = read_superblock(&mut disk.clone(), &mut || ()).unwrap();
    let (log, identity) = (superblock.shards[0].log, superblock.identity.of_shard(0));
    let mut out = Vec::new();
    let mut block = log.start;
    while block < log.end() {
        let Some(head) = RecordHead::decode(&disk.peek(block * BLOCK as u64), identity) else {
            block += 1;
            continue;
        };
        let blocks = (0..head.blocks()).map(|n| disk.peek((block + n) * BLOCK as u64));
        let bytes: Vec<u8> = blocks.flatten().collect();
        block += head.blocks();
        out.extend(Record::decode(head, &bytes.into()));
    }
    out
}

fn kind_of(key: &[u8]) -> &'static str {
    match key[0] {
        0x20 => "object records",
        0x30 => "pages",
        0x40 if key.len() == 10 => "PG progress",
        0x40 => "PG log as omap keys",
        _ => "others",
    }
}

/// Bytes of entries by kind, and what values written whole would take instead of patches.
fn measure(how: PgLogAs) -> BTreeMap<&'static str, (u64, u64)> {
    let disk = formatted(512 << 20, 128 << 20, Pace::AtOnce, 5);
    let index = crate::index::Options { memtable_bytes: 128 << 10, ..small().index };
    let options = Options {
        inline_bytes_max: 1 << 20,
        log_bytes_max: 1 << 30,
        recent_bytes_max: 64 << 10,
        index,
        ..small()
    };
    let mut shard = open(&disk, options);
    let create =
        Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
    run(&mut shard, vec![create]);
    for n in 0..OBJECTS {
        let object = name(n);
        let data = vec![n as u8; (OBJECT_BLOCKS as usize) * BLOCK].into();
        let changes = vec![
            Change::Write { object: object.clone(), offset: 0, data },
            Change::SetAttr { object: object.clone(), name: "_".into(), value: info(&object, 0) },
            Change::SetAttr { object: object.clone(), name: "snapset".into(), value: vec![0; 35].into() },
        ];
        run(&mut shard, vec![Transaction { collection: home(), changes }]);
    }
    let mut dice = Dice::new(7);
    let (mut version, mut first) = (0, 0);
    while version < 2 * WRITES {
        if version >= WRITES && first == 0 {
            shard.force_checkpoint();
            super::settle(&mut shard);
            first = shard.log.durable() + 1;
        }
        let batch = (0..DEPTH).map(|_| {
            version += 1;
            overwrite(dice.below(OBJECTS), dice.below(OBJECT_BLOCKS), version, how)
        });
        let batch = batch.collect();
        run(&mut shard, batch);
    }
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut values: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut all = records(&disk);
    all.sort_by_key(|record| record.head.front.sequence);
    for record in all {
        let mut left = record.entries().len();
        let mut entries = Entries::new(record.entries());
        while let Some(entry) = entries.next() {
            let entry = entry.unwrap();
            let len = (left - entries.remaining()) as u64;
            left = entries.remaining();
            let mut whole = len;
            let kind = match entry {
                Entry::Put { key, value } => {
                    values.insert(key.to_vec(), value.to_vec());
                    kind_of(key)
                }
                Entry::Patch { key, patch } => {
                    // Values from before the measured part are of the same length.
                    let new = values.get(key).and_then(|base| patched(patch, base).ok());
                    whole = new.as_ref().map_or(whole, |new| (3 + key.len() + new.len()) as u64);
                    new.into_iter().for_each(|new| drop(values.insert(key.to_vec(), new)));
                    kind_of(key)
                }
                Entry::Delete { key } => kind_of(key),
                Entry::Log(..) => "PG log records",
                Entry::Take(_) | Entry::Free(_) | Entry::Inline { .. } | Entry::Direct { .. } => "blocks",
                Entry::DeleteRange { .. } => "others",
            };
            if record.head.front.sequence >= first {
                let sum = sums.entry(kind).or_default();
                (sum.0, sum.1) = (sum.0 + len, sum.1 + whole);
            }
        }
    }
    sums
}

fn run(shard: &mut Shard, transactions: Vec<Transaction>) {
    let count = transactions.len();
    for transaction in transactions {
        shard.submit(0, transaction);
    }
    let mut out = Vec::new();
    while out.iter().filter(|done| matches!(done, Completion::Committed { .. })).count() < count {
        shard.poll(&mut out);
    }
}

#[test]
fn bytes_of_an_overwrite_are_few() {
    let (before, now) = (measure(PgLogAs::OmapKeys), measure(PgLogAs::Ring));
    let each = |sums: &BTreeMap<&str, (u64, u64)>, kind| {
        sums.get(kind).map_or((0, 0), |(len, whole)| (len / WRITES, whole / WRITES))
    };
    let mut totals = (0, 0);
    println!("bytes of log an overwrite, before and now:");
    for kind in [
        "object records",
        "pages",
        "PG progress",
        "PG log as omap keys",
        "PG log records",
        "blocks",
        "others",
    ] {
        let (was, is) = (each(&before, kind).1, each(&now, kind).0);
        totals = (totals.0 + was, totals.1 + is);
        println!("{kind:>20} {was:>6} {is:>6}");
    }
    println!("{:>20} {:>6} {:>6}", "in all", totals.0, totals.1);
    assert!(totals.1 <= BYTES_MAX && !now.contains_key("PG log as omap keys"), "{totals:?}");
}
