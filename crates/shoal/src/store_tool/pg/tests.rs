//! Round trips between real files of block stores and images of memory stores; damaged, cut-off and interrupted ones.

use super::access::Access;
use super::file::{ExportReader, Record, RecordReader, RecordWriter, Totals};
use super::{change, copy, example, export, import, show};
use crate::host::disk::Owner;
use crate::host::making::{Making, make};
use crate::host::store_files;
use bytes::Bytes;
use osd::pg::meta::{self, Stored};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use store::memory::Config;
use store::{
    Answer, Change, Collection, MemoryStore, ObjectId, ObjectStore, Query, ReadRequest, Transaction,
};
use wire::types::{Eversion, StoreLife};

/// Bytes that no other part of a store file has.
const PATTERN: &[u8] = b"a pattern that is looked for on the device";

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("shoal-store-pg-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// A block store with the records of OSD `osd`, whose newest map is `epoch`.
    fn store(&self, osd: u8, epoch: u32) -> (PathBuf, Access) {
        let path = self.0.join(format!("osd.{osd}"));
        let owner = Owner { name: format!("osd.{osd}"), osd_uuid: "u".into(), fsid: "f".into() };
        let (shards, size, identity) = (2, 96 << 20, [osd; 16]);
        let making = Making {
            owner,
            shards,
            size,
            force: false,
            discard: false,
            identity,
            encryption: None,
            further: Vec::new(),
        };
        make(&path, &making).unwrap();
        let mut store = Access::open(&path).unwrap();
        store.apply(example::write_daemon(osd, epoch)).unwrap();
        (path, store)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn collection() -> Collection {
    Collection::Pg(example::pg())
}

/// Three objects: with data and attributes, with an omap of several steps, and a large one with holes.
fn pg_transactions() -> Vec<Transaction> {
    let (one, two, three) = (example::object(1), example::object(2), example::object(3));
    let write = |object: &ObjectId, offset, data: Vec<u8>| Change::Write {
        object: object.clone(),
        offset,
        data: Bytes::from(data).into(),
    };
    let mut create = vec![Change::CreateCollection { split_bits: example::SPLIT_BITS }];
    create.extend(example::pg_changes());
    let keys = (0..200u8).map(|n| (Bytes::from(vec![n]), Bytes::from(vec![n; 3]))).collect();
    let all = vec![
        create,
        vec![
            write(&one, 0, PATTERN.repeat(3000)),
            Change::SetAttr { object: one, name: "_x".into(), value: "y".into() },
        ],
        vec![
            Change::OmapSetHeader { object: two.clone(), header: "header".into() },
            Change::OmapSet { object: two, entries: keys },
        ],
        vec![
            write(&three, 0, vec![7; 10_000]),
            write(&three, 5 << 20, vec![8; 700_000]),
            Change::Truncate { object: three, size: 9 << 20 },
        ],
    ];
    all.into_iter().map(|changes| Transaction { collection: collection(), changes }).collect()
}

fn with_pg(mut store: Access) -> Access {
    pg_transactions().into_iter().for_each(|transaction| store.apply(transaction).unwrap());
    store
}

fn exported(store: &mut Access) -> Vec<u8> {
    let mut file = Vec::new();
    let exported = export::export(store, example::pg(), &mut file, &mut |_| ()).unwrap();
    assert_eq!((exported.totals.objects, exported.lost), (3, vec![]));
    file
}

fn import_bytes(store: &mut Access, file: &[u8]) -> anyhow::Result<import::Imported> {
    let file = file.to_vec();
    let mut open = || -> anyhow::Result<Box<dyn Read>> { Ok(Box::new(Cursor::new(file.clone()))) };
    import::import(store, &mut open, &mut |_| (), &mut |_| ())
}

/// Everything that the store has of an object.
fn contents(store: &mut Access, object: &ObjectId) -> Vec<Answer> {
    let queries = vec![
        Query::Stat,
        Query::Extents { offset: 0, len: u64::MAX },
        Query::Data { offset: 0, len: u64::MAX },
        Query::Attrs,
        Query::OmapHeader,
        Query::whole_omap(),
    ];
    let request = ReadRequest { collection: collection(), object: object.clone(), queries };
    let joined = |answer| match answer {
        Answer::Data(data) => Answer::Data(data.to_bytes().into()),
        other => other,
    };
    store.ask(request).unwrap().unwrap().into_iter().map(joined).collect()
}

fn all_contents(store: &mut Access) -> Vec<Vec<Answer>> {
    (1..=3).map(|number| contents(store, &example::object(number))).collect()
}

fn is_there(store: &Access) -> bool {
    store.collections().iter().any(|(there, _)| *there == collection())
}

/// Ends of the file's records.
fn boundaries(file: &[u8]) -> Vec<usize> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 1..at + 5].try_into().unwrap()) as usize;
        at += 5 + len + 4;
        out.push(at);
    }
    out
}

#[test]
fn imported_copy_equals_the_exported_one() {
    let scratch = Scratch::new("round-trip");
    let (_, store) = scratch.store(0, example::EPOCH);
    let mut source = with_pg(store);
    let file = exported(&mut source);
    let (path, mut target) = scratch.store(3, example::EPOCH);
    let imported = import_bytes(&mut target, &file).unwrap();
    assert_eq!(imported.totals.objects, 3);
    target.close().unwrap();

    let mut target = Access::open(&path).unwrap();
    assert_eq!(all_contents(&mut target), all_contents(&mut source));
    let (_, before) = copy(&mut source, example::pg()).unwrap();
    let (there, after) = copy(&mut target, example::pg()).unwrap();
    assert_eq!(there.split_bits, example::SPLIT_BITS);
    let stored = |records: super::MetaRecords| {
        Stored::from_records(&records.header, records.entries, records.log).unwrap()
    };
    let (before, after) = (stored(before), stored(after));
    assert_eq!(after.history.imported, StoreLife { osd: 0, first: 3, last: example::EPOCH });
    assert_eq!((after.progress, after.history.activated), (before.progress, before.history.activated));
    assert!(after.log.entries().eq(before.log.entries()));
    assert!(!show::list_text(&show::list(&mut target)).contains("incomplete"));

    let refused = format!("{:#}", import_bytes(&mut target, &file).unwrap_err());
    assert!(refused.contains("this OSD has PG 1.1 already: remove that copy first"), "{refused}");
    change::remove(&mut target, example::pg()).unwrap();
    assert!(!is_there(&target));
    import_bytes(&mut target, &file).unwrap();
    assert_eq!(all_contents(&mut target), all_contents(&mut source));
}

#[test]
fn store_in_use_is_refused() {
    let scratch = Scratch::new("in-use");
    let (path, _store) = scratch.store(0, example::EPOCH);
    let refused = Access::open(&path).err().unwrap().to_string();
    assert!(refused.contains("in use"), "{refused}");
}

#[test]
fn cut_off_file_changes_nothing() {
    let scratch = Scratch::new("cut-off");
    let (_, store) = scratch.store(0, example::EPOCH);
    let file = exported(&mut with_pg(store));
    let (_, mut target) = scratch.store(3, example::EPOCH);
    let ends = boundaries(&file);
    assert!(ends.len() > 10, "{ends:?}");
    for end in ends {
        for at in [end.saturating_sub(1), end, end + 3].into_iter().filter(|at| *at < file.len()) {
            let refused = format!("{:#}", import_bytes(&mut target, &file[..at]).unwrap_err());
            assert!(refused.contains("cut off"), "at {at}: {refused}");
            assert!(!is_there(&target));
        }
    }
    assert!(import_bytes(&mut target, &[&file[..], b"x"].concat()).is_err(), "a byte too many");
    assert_eq!(target.collections().len(), 1);
}

/// A small export: every byte of it.
#[test]
fn every_flipped_byte_is_noticed() {
    let mut file = Vec::new();
    let mut writer = RecordWriter::new(&mut file);
    let beginning = crate::store_tool::hostile::beginning();
    beginning.iter().for_each(|record| writer.write(record).unwrap());
    writer.write(&Record::End { totals: Totals::default() }).unwrap();
    import::check(&file[..]).unwrap();
    for at in 0..file.len() {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(import::check(&flipped[..]).is_err(), "byte {at}");
    }
}

#[test]
fn records_out_of_place_are_noticed() {
    let scratch = Scratch::new("places");
    let (_, store) = scratch.store(0, example::EPOCH);
    let file = exported(&mut with_pg(store));
    let ends = boundaries(&file);
    let starts: Vec<usize> = [0].into_iter().chain(ends.iter().copied()).collect();
    let record = |n: usize| &file[starts[n]..ends[n]];
    for n in 0..ends.len() - 1 {
        let without = [&file[..starts[n]], &file[ends[n]..]].concat();
        let doubled = [&file[..ends[n]], &file[starts[n]..]].concat();
        let exchanged = [&file[..starts[n]], record(n + 1), record(n), &file[ends[n + 1]..]].concat();
        for (what, changed) in [("lost", without), ("doubled", doubled), ("exchanged", exchanged)] {
            assert!(import::check(&changed[..]).is_err(), "record {n} {what}");
        }
    }
}

/// Right checksums, and contents that a store must never see.
#[test]
fn forged_contents_are_refused() {
    use store::wire_form::WireForm;
    let object = example::object(1);
    let changes = |changes: &[Change]| {
        let WireForm { changes, data } = WireForm::encode(changes).unwrap();
        Record::Changes { changes, data: data.to_bytes() }
    };
    let touch = || changes(&[Change::Touch { object: object.clone() }]);
    let named = |id: &ObjectId| Record::Object { id: id.clone() };
    let end = |objects| Record::End { totals: Totals { objects, ..Totals::default() } };
    let mut foreign = object.clone();
    foreign.object.hash = 2;
    let forged = [
        (vec![named(&object), touch(), end(2)], "and its end says"),
        (vec![named(&object), end(1)], "out of order"),
        (vec![touch(), end(0)], "before an object"),
        (vec![named(&foreign), touch(), end(1)], "not an object of PG"),
        (
            vec![named(&example::object(2)), changes(&[Change::Touch { object: object.clone() }])],
            "not an object",
        ),
        (vec![named(&object), changes(&[Change::Remove { object: object.clone() }])], "do not write"),
        (
            vec![
                named(&example::object(2)),
                changes(&[Change::Touch { object: example::object(2) }]),
                named(&object),
            ],
            "out of order",
        ),
        (vec![Record::Meta { entries: vec![] }, Record::MetaHeader { header: Bytes::new() }], "out of order"),
    ];
    for (records, why) in forged {
        let mut file = Vec::new();
        let mut writer = RecordWriter::new(&mut file);
        let beginning = crate::store_tool::hostile::beginning();
        beginning.iter().chain(&records).for_each(|record| writer.write(record).unwrap());
        let refused = format!("{:#}", import::check(&file[..]).unwrap_err());
        assert!(refused.contains(why), "{why}: {refused}");
    }
}

/// The process ends at each record of the second reading, as a killed one does.
#[test]
fn interrupted_import_leaves_no_copy() {
    let scratch = Scratch::new("interrupted");
    let (_, store) = scratch.store(0, example::EPOCH);
    let mut source = with_pg(store);
    let file = exported(&mut source);
    let (path, target) = scratch.store(3, example::EPOCH);
    target.close().unwrap();
    for end in boundaries(&file).into_iter().filter(|end| *end < file.len()) {
        let mut target = Access::open(&path).unwrap();
        let (origin, map, _) = import::check(&file[..]).unwrap();
        let plan = import::plan(&mut target, &origin, map).unwrap();
        target.remove_leftovers(collection()).unwrap();
        import::copy_in(&mut target, &file[..end], &origin, &plan, &mut |_| ()).unwrap_err();
        drop(target);
        let target = Access::open(&path).unwrap();
        assert!(!is_there(&target), "cut at {end}");
    }
    // All records are in the store, and the last transaction is not.
    let mut target = Access::open(&path).unwrap();
    let (origin, map, _) = import::check(&file[..]).unwrap();
    let plan = import::plan(&mut target, &origin, map).unwrap();
    target.remove_leftovers(collection()).unwrap();
    target.apply(plan.begin()).unwrap();
    let records = ExportReader::open(&file[..]).unwrap().meta;
    let mut last = plan.finish(&records, Vec::new()).unwrap();
    let arrival = last.pop().unwrap();
    assert!(arrival.changes.contains(&Change::Arrive));
    last.into_iter().for_each(|transaction| target.apply(transaction).unwrap());
    target.apply(plan.daemon_records()).unwrap();
    drop(target);

    let mut target = Access::open(&path).unwrap();
    assert!(!is_there(&target));
    import_bytes(&mut target, &file).unwrap();
    assert_eq!(all_contents(&mut target), all_contents(&mut source));
}

#[test]
fn unreadable_object_is_missing_after_the_import() {
    import_of_unreadable("unreadable", None);
}

/// The copy is behind: what it has of the object is not what an import lacks.
#[test]
fn unreadable_object_keeps_newer_missing_version() {
    import_of_unreadable("behind", Some(Eversion { epoch: 11, version: 4 }));
}

/// `missing`: the version of the object that the copy lacks before the export.
fn import_of_unreadable(name: &str, missing: Option<Eversion>) {
    let scratch = Scratch::new(name);
    let (path, store) = scratch.store(0, example::EPOCH);
    let mut store = with_pg(store);
    if let Some(need) = missing {
        let object = example::object(1).object;
        let changes = vec![meta::set_missing(&ObjectId::pg_meta(example::pg()), [(&object, &need)])];
        store.apply(Transaction { collection: collection(), changes }).unwrap();
    }
    store.close().unwrap();
    rot(&path);
    let mut source = Access::open(&path).unwrap();
    let mut file = Vec::new();
    let exported = export::export(&mut source, example::pg(), &mut file, &mut |_| ()).unwrap();
    assert_eq!((exported.totals.objects, exported.totals.lost), (3, 1), "{:?}", exported.lost);

    let (_, mut target) = scratch.store(3, example::EPOCH);
    let imported = import_bytes(&mut target, &file).unwrap();
    assert_eq!(imported.totals.lost, 1);
    let (there, _) = copy(&mut target, example::pg()).unwrap();
    assert_eq!(there.missing_len(), 1);
    let request =
        ReadRequest { collection: collection(), object: example::object(1), queries: vec![Query::Stat] };
    assert!(target.ask(request).unwrap().is_err(), "a part of it must not look like the object");
    let log = show::log(&mut target, example::pg()).unwrap();
    let need = missing.unwrap_or(Eversion { epoch: 10, version: 1 });
    assert!(log.contains(&format!("\"need\": \"{need}\"")), "{log}");
}

/// Flips a byte of the first object's data.
fn rot(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let places: Vec<usize> = (0..bytes.len() - PATTERN.len())
        .step_by(4096)
        .filter(|at| {
            let block = &bytes[*at..(at + 4096).min(bytes.len())];
            block.contains(&PATTERN[0]) && block.windows(PATTERN.len()).any(|window| window == PATTERN)
        })
        .collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[at + 100] ^= 1);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
}

#[test]
fn images_of_a_memory_store_are_exported_and_imported() {
    let scratch = Scratch::new("images");
    let image = |osd: u8, transactions: Vec<Transaction>| {
        let dir = scratch.0.join(format!("mem.{osd}"));
        std::fs::create_dir_all(&dir).unwrap();
        let mut store = MemoryStore::new(Config::with_total(1 << 30));
        for transaction in [example::write_daemon(osd, example::EPOCH)].into_iter().chain(transactions) {
            store.submit(0, transaction);
        }
        while store.poll(&mut Vec::new()) {}
        store_files::save(&dir, &[store]).unwrap();
        dir
    };
    let (from, to) = (image(0, pg_transactions()), image(3, Vec::new()));
    let mut source = Access::open(&from).unwrap();
    let file = exported(&mut source);
    let mut target = Access::open(&to).unwrap();
    import_bytes(&mut target, &file).unwrap();
    target.close().unwrap();
    let mut target = Access::open(&to).unwrap();
    assert_eq!(all_contents(&mut target), all_contents(&mut source));
    assert_eq!(store_files::image_count(&from), 1, "reading leaves the images");

    let empty = scratch.0.join("killed");
    std::fs::create_dir_all(&empty).unwrap();
    let refused = Access::open(&empty).err().unwrap().to_string();
    assert!(refused.contains("stop the OSD with SIGTERM first"), "{refused}");
}

#[test]
fn records_come_back() {
    let all = [
        Record::Head { source: "source".into() },
        Record::Map { map: "map".into() },
        Record::MetaHeader { header: Bytes::new() },
        Record::Meta { entries: vec![("a".into(), "b".into()), ("c".into(), Bytes::new())] },
        Record::Object { id: example::object(1) },
        Record::Changes { changes: "c".into(), data: "d".into() },
        Record::Lost { need: Eversion { epoch: 1, version: 2 } },
        Record::End { totals: Totals { objects: 1, data_bytes: 2, lost: 3 } },
    ];
    let mut file = Vec::new();
    let mut writer = RecordWriter::new(&mut file);
    all.iter().for_each(|record| writer.write(record).unwrap());
    let mut reader = RecordReader::new(&file[..]);
    all.iter().for_each(|record| assert_eq!(reader.read().unwrap(), *record));
}
