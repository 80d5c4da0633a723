//! Replay of the fuzz targets' corpora on stable Rust, for the targets above the wire and the store: `fuzz/corpus/TARGET/*`.
//!
//! The seeds were made by the ignored test here; run it again when a signature, a method or a record is added.

use bytes::Bytes;
use codec::{Encode, Features, Reader, Rope};
use osd::classes::hostile::method_tag;
use shoal::store_tool::record::Record;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use store::wire_form::WireForm;
use wire::types::{HObject, MgrMap, MonMap, OsdMapIncremental, PgId, PgPool, PoolKind, UTime};

const SEEDS_MIN: usize = 6;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn replay(target: &str, run: fn(&[u8])) {
    let mut files: Vec<PathBuf> = fs::read_dir(folder(target)).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= SEEDS_MIN, "{target} has {} seeds", files.len());
    for file in files {
        println!("{}", file.display());
        run(&fs::read(file).unwrap());
    }
}

#[test]
fn command_arguments_corpus_holds() {
    replay("command_arguments", command::hostile::arguments);
}

#[test]
fn mgr_caps_corpus_holds() {
    replay("mgr_caps", mgr::hostile::caps);
}

#[test]
fn proposal_corpus_holds() {
    replay("proposal", mon::hostile::proposal);
}

#[test]
fn quorum_message_corpus_holds() {
    replay("quorum_message", mon::hostile::quorum_message);
}

#[test]
fn quorum_disk_corpus_holds() {
    replay("quorum_disk", mon::hostile::quorum_disk);
}

#[test]
fn collected_maps_corpus_holds() {
    replay("collected_maps", mon::hostile::collected_maps);
}

#[test]
fn class_call_corpus_holds() {
    replay("class_call", osd::classes::hostile::call);
}

#[test]
fn snap_sets_corpus_holds() {
    replay("snap_sets", osd::object::hostile::snap_sets);
}

#[test]
fn map_step_corpus_holds() {
    replay("map_step", placement::hostile::apply_and_map);
}

#[test]
fn import_records_corpus_holds() {
    replay("import_records", shoal::store_tool::hostile::records);
}

#[test]
fn object_changes_corpus_holds() {
    replay("object_changes", store::wire_form::decode_hostile);
}

#[test]
fn pg_export_corpus_holds() {
    replay("pg_export", shoal::store_tool::hostile::pg_export);
}

/// A target whose folder is misspelt in `tests/fuzz` or in a replay would never run.
#[test]
fn every_target_has_a_corpus() {
    let names = |folder: PathBuf| -> BTreeSet<String> {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names(folder("")), names(folder("").join("../fuzz_targets")));
}

#[test]
#[ignore = "writes fuzz/corpus"]
fn write_seeds() {
    write("command_arguments", command_arguments());
    write("mgr_caps", mgr_caps());
    write("proposal", proposals());
    write("quorum_message", mon::hostile::quorum_messages());
    write("quorum_disk", mon::hostile::quorum_disks());
    write("collected_maps", mon::hostile::collections());
    write("class_call", class_calls());
    for (name, seed) in held_calls() {
        fs::write(folder("class_call").join(name), seed).unwrap();
    }
    write("snap_sets", osd::object::hostile::seeds());
    write("map_step", map_steps());
    write("import_records", import_records());
    write("object_changes", object_changes());
    write("pg_export", pg_exports());
}

fn write(target: &str, seeds: Vec<Vec<u8>>) {
    fs::create_dir_all(folder(target)).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder(target).join(format!("seed-{number:03}")), seed).unwrap();
    }
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn command_arguments() -> Vec<Vec<u8>> {
    texts(&[
        "{}",
        "[]",
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#,
        r#"{"prefix":"test","int":100,"float":-0.5,"choice":"b","texts":["x","y"],"osd":"osd.3","flag":true}"#,
        r#"{"int":1e300,"float":"NaN"}"#,
        r#"{"int":-9223372036854775808,"osd":18446744073709551615}"#,
        r#"{"int":"50","osd":"osd.","flag":"--flag","format":"json-pretty"}"#,
        r#"{"caps":["mon","allow r","osd"],"format":"json"}"#,
        r#"{"texts":[1,2.5,true,null]}"#,
        r#"{"choice":"c","int":[1]}"#,
        r#"{"a":{"b":1}}"#,
        "{\"\\u0000\":\"\\ud83d\\ude00\"}",
    ])
}

fn mgr_caps() -> Vec<Vec<u8>> {
    texts(&[
        "allow *",
        "allow rw",
        "allow profile read-only",
        "allow profile osd",
        "allow service osd rw; allow r",
        "allow module balancer rw",
        "allow command \"pg dump\" with dumpcontents=sum",
        "allow command \"pg dump\" with dumpcontents prefix s",
        "allow r network 10.0.0.0/8",
        "allow rwx network ::1/128, allow r",
        "allow r network 10.0.0.0/99",
        "allow command 'pg dump\" with",
        "allow service \"a\\\"b\" *",
    ])
}

fn proposals() -> Vec<Vec<u8>> {
    use mon::proposal::{Change, Proposal, SealedStep};
    let at = UTime { sec: 1_700_000_000, nsec: 5 };
    let state = mon::hostile::new_state();
    let map = state.osdmap();
    let mut step = OsdMapIncremental::after(map, at);
    let pool = PgPool {
        kind: PoolKind::REPLICATED,
        size: 1,
        min_size: 1,
        pg_num: 8,
        pgp_num: 8,
        ..PgPool::default()
    };
    step.new_pools.insert(1, pool);
    step.new_pool_names.insert(1, "p".into());
    step.new_pool_max = Some(1);
    step.seal(map).expect("the step fits");
    let changes = vec![
        vec![],
        vec![Change::MonMap { map: MonMap::default() }],
        vec![Change::OsdMap { step: SealedStep::of_sealed(step) }],
        vec![Change::OsdMetadata { osd: 3, metadata: Some([("hostname".into(), "h".into())].into()) }],
        vec![Change::MgrMap { map: Box::new(MgrMap::default()) }],
        vec![Change::MgrCommands { descriptions: vec![1, 2, 3].into() }],
        vec![Change::GlobalIdLimit { limit: 1 << 40 }],
        vec![Change::Config { by: "client.admin".into(), changes: vec![] }],
        vec![Change::ConfigKey { key: "a/b".into(), value: Some(vec![0xff].into()) }],
        vec![Change::ConfigKey { key: "a/b".into(), value: None }],
        vec![Change::MonMetadata { name: "a".into(), metadata: Default::default() }],
        vec![
            Change::Mute { code: "OSD_DOWN".into(), until: at, sticky: true, summary: "s".into(), count: 1 },
            Change::Unmute { code: "OSD_DOWN".into() },
            Change::PgCreated { pg: PgId { pool: 1, seed: 0 } },
        ],
    ];
    changes.into_iter().map(|changes| Proposal { at, base: None, changes }.to_vec(Features::ALL)).collect()
}

fn class_calls() -> Vec<Vec<u8>> {
    let lock = |name: &str| {
        let mut argument = vec![1, 1, 0, 0, 0, 0];
        argument.extend((name.len() as u32).to_le_bytes());
        argument.extend(name.as_bytes());
        argument.extend([1, 0, 0, 0, 0]);
        argument
    };
    let mut seeds = Vec::new();
    for (_, tag) in osd::classes::hostile::methods() {
        for (flags, argument) in [(0u8, vec![]), (1, lock("lock")), (3, Vec::from(7u64.to_le_bytes()))] {
            let mut seed = Vec::from(tag.to_le_bytes());
            seed.extend([flags, argument.len() as u8]);
            seed.extend(argument);
            seed.extend([1, 1, 4, 0, 0, 0, 9, 0, 0, 0]);
            seeds.push(seed);
        }
    }
    assert!(seeds.iter().any(|seed| seed.starts_with(&method_tag("lock", "lock").to_le_bytes())));
    seeds
}

/// Calls that find what they expect: a chunk's references in each form, a queue's head, a part with an entry.
fn held_calls() -> Vec<(String, Vec<u8>)> {
    use wire::types::cls::{cas, fifo};
    fn bytes<T: Encode>(value: &T) -> Vec<u8> {
        value.to_vec(Features::NONE)
    }
    let refs = |kind: u8, body: &[u8]| {
        let inner = [&[1, 1, body.len() as u8, 0, 0, 0], body].concat();
        [&[1, 1, inner.len() as u8 + 1, 0, 0, 0, kind], &inner[..]].concat()
    };
    let source = HObject { pool: 3, name: "o".into(), ..HObject::min() };
    let chunk = cas::CreateOrGetOp {
        source: source.clone(),
        flags: cas::FLAG_VERIFY,
        data: Bytes::from_static(b"data"),
    };
    let object = refs(1, &[&1u32.to_le_bytes()[..], &bytes(&source)].concat());
    let source = bytes(&cas::RefOp { source });

    let version = fifo::HeadVersion { instance: "i".into(), version: 1 };
    let entry = fifo::JournalEntry { op: fifo::JOURNAL_CREATE, part: 1, ..fifo::JournalEntry::default() };
    let info = fifo::HeadInfo {
        id: "q".into(),
        version: version.clone(),
        journal: fifo::Journal([entry.clone()].into()),
        ..fifo::HeadInfo::default()
    };
    let create = fifo::CreateMetaOp {
        id: "q".into(),
        max_part_size: 4096,
        max_entry_size: 64,
        ..fifo::CreateMetaOp::default()
    };
    let update =
        fifo::UpdateMetaOp { version, head: Some(2), journal_removed: vec![entry], ..Default::default() };
    let params = fifo::PartParams { max_part_size: 4096, max_entry_size: 64, full_size_threshold: 4000 };
    let header = fifo::PartHeader {
        params,
        magic: 7,
        min_offset: 512,
        last_offset: 512,
        next_offset: 571,
        max_index: 1,
        ..fifo::PartHeader::default()
    };
    let mut part = bytes(&header);
    part.resize(512, 0);
    part.extend([7u64, 44, 14, 1, 0].into_iter().flat_map(u64::to_le_bytes));
    part.extend(0u32.to_le_bytes());
    part.extend(bytes(&fifo::EntryHeader::default()));
    part.push(b'x');
    let push =
        fifo::PushPartOp { entries: vec![Bytes::from_static(b"x")], total_len: 1, ..Default::default() };
    let trim = |exclusive, offset| bytes(&fifo::TrimPartOp { offset, exclusive, ..Default::default() });
    let list = fifo::ListPartOp { max: 9, ..Default::default() };
    let (hashes, pools, count) =
        (refs(2, &[1, 32, 1, 6, 0, 0, 0, 0, 1]), refs(4, &[1, 1, 6, 1]), refs(5, &1u64.to_le_bytes()));
    let info = bytes(&info);
    let calls: Vec<(&str, &str, u8, Vec<u8>, &[u8])> = vec![
        ("cas", "chunk_create_or_get_ref", 0, bytes(&chunk), b""),
        ("cas", "chunk_create_or_get_ref", 3, bytes(&chunk), b"data"),
        ("cas", "chunk_get_ref", 1, source.clone(), &object),
        ("cas", "chunk_put_ref", 1, source.clone(), &object),
        ("cas", "chunk_put_ref", 1, source.clone(), &hashes),
        ("cas", "chunk_put_ref", 1, source.clone(), &pools),
        ("cas", "chunk_put_ref", 1, source, &count),
        ("cas", "references_chunk", 1, bytes(&"chunk".to_string()), b""),
        ("fifo", "create_meta", 0, bytes(&create), b""),
        ("fifo", "create_meta", 1, bytes(&create), &info),
        ("fifo", "get_meta", 1, bytes(&fifo::GetMetaOp::default()), &info),
        ("fifo", "update_meta", 1, bytes(&update), &info),
        ("fifo", "init_part", 0, bytes(&fifo::InitPartOp { params, ..Default::default() }), b""),
        ("fifo", "init_part", 1, bytes(&fifo::InitPartOp { params, ..Default::default() }), &part),
        ("fifo", "push_part", 1, bytes(&push), &part),
        ("fifo", "trim_part", 1, trim(true, 513), &part),
        ("fifo", "trim_part", 1, trim(false, 512), &part),
        ("fifo", "trim_part", 1, trim(false, 4096), &part),
        ("fifo", "part_list", 1, bytes(&list), &part),
        ("fifo", "get_part_info", 1, bytes(&fifo::GetPartInfoOp {}), &part),
    ];
    let mut seeds = Vec::new();
    for (class, method, flags, argument, held) in calls {
        let mut seed = Vec::from(method_tag(class, method).to_le_bytes());
        seed.extend([flags, u8::try_from(argument.len()).expect("a short argument")]);
        seed.extend(argument);
        seed.extend(held);
        seeds.push((format!("{class}.{method}-{:02}", seeds.len()), seed));
    }
    seeds
}

fn map_steps() -> Vec<Vec<u8>> {
    let recorded =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/recorded/osdmaps-20.2.4"));
    let recorded = recorded.expect("the recorded maps are there");
    let mut reader = Reader::new(&recorded);
    let (mut whole, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..reader.u32().unwrap() {
        let (epoch, kind) = (reader.u32().unwrap(), reader.u8().unwrap());
        let bytes = reader.blob().unwrap().to_vec();
        if kind == 1 { whole.push((epoch, bytes)) } else { steps.push((epoch, bytes)) }
    }
    let none = (0, Vec::new());
    let mut seeds = Vec::new();
    for (epoch, map) in &whole {
        let step = steps.iter().find(|(to, _)| *to == epoch + 1).unwrap_or(&none);
        let mut seed = Vec::from((map.len() as u32).to_le_bytes());
        seed.extend_from_slice(map);
        seed.extend_from_slice(&step.1);
        seeds.push(seed);
    }
    // A seed costs some kilobytes: a dozen of them shows every kind of step.
    let every = seeds.len().div_ceil(12);
    seeds.into_iter().step_by(every.max(1)).collect()
}

fn import_records() -> Vec<Vec<u8>> {
    let object = HObject { pool: 3, hash: 7, name: "o".into(), ..HObject::min() };
    let records = [
        Record::Store { label: "osd.0".into(), has_logs: false },
        Record::Collection { id: store::Collection::Meta, split_bits: 0 },
        Record::Collection { id: store::Collection::Pg(PgId { pool: 3, seed: 5 }.into()), split_bits: 3 },
        Record::Object { id: store::ObjectId::from(object), size: 9 },
        Record::Data { offset: 1 << 40, bytes: Bytes::from_static(b"data") },
        Record::Attr { name: "_".into(), value: Bytes::from_static(b"value") },
        Record::OmapHeader { header: Bytes::from_static(b"header") },
        Record::Omap { key: Bytes::from_static(b"key"), value: Bytes::new() },
        Record::End { objects: 1 },
    ];
    let described = |record: &Record| {
        let mut written = Vec::new();
        record.write(&mut written).expect("a vector takes every byte");
        let body = &written[5..written.len() - 4];
        [&[written[0], body.len() as u8], body].concat()
    };
    let mut seeds: Vec<Vec<u8>> = records.iter().map(described).collect();
    seeds.push(seeds.concat());
    seeds
}

/// Each record behind a true beginning of a PG's export, whole exports, and a beginning that is described.
fn pg_exports() -> Vec<Vec<u8>> {
    use shoal::store_tool::pg::example;
    use shoal::store_tool::pg::file::{Record, RecordWriter, Totals};
    let id = example::object(1);
    let changes = [
        store::Change::Touch { object: id.clone() },
        store::Change::Truncate { object: id.clone(), size: 9 },
        store::Change::Write { object: id.clone(), offset: 1, data: Bytes::from_static(b"data").into() },
        store::Change::SetAttr { object: id.clone(), name: "_".into(), value: "value".into() },
        store::Change::OmapSet { object: id.clone(), entries: vec![("k".into(), "v".into())] },
    ];
    let WireForm { changes, data } = WireForm::encode(&changes).expect("changes of objects");
    let (object, changes) = (Record::Object { id }, Record::Changes { changes, data: data.to_bytes() });
    let lost = Record::Lost { need: Default::default() };
    let end = |objects, data_bytes, lost| Record::End { totals: Totals { objects, data_bytes, lost } };
    let described = |record: &Record| {
        let mut written = Vec::new();
        RecordWriter::new(&mut written).write(record).expect("a vector takes every byte");
        let body = &written[5..written.len() - 4];
        [&[written[0], u8::try_from(body.len()).expect("a short record")], body].concat()
    };
    let behind = |beginning: u8, records: &[&Record]| {
        let all = records.iter().flat_map(|record| described(record));
        [beginning].into_iter().chain(all).collect::<Vec<u8>>()
    };
    let [head, _, header, meta, log] = shoal::store_tool::hostile::beginning();
    vec![
        behind(5, &[&object, &changes, &end(1, 4, 0)]),
        behind(5, &[&object, &changes, &lost, &end(1, 4, 1)]),
        behind(5, &[&object, &lost, &end(1, 0, 1)]),
        behind(5, &[&end(0, 0, 0)]),
        behind(3, &[&Record::Meta { entries: vec![("history".into(), Bytes::new())] }, &end(0, 0, 0)]),
        behind(2, &[&header]),
        behind(1, &[&Record::Map { map: Bytes::from_static(b"map") }]),
        behind(0, &[&head]),
        behind(5, &[&Record::Meta { entries: Vec::new() }, &object]),
        behind(4, &[&log, &end(0, 0, 0)]),
        match meta {
            Record::Meta { mut entries } => {
                entries.truncate(1);
                behind(3, &[&Record::Meta { entries }])
            }
            _ => Vec::new(),
        },
    ]
}

/// Each kind of change alone, and all together.
fn object_changes() -> Vec<Vec<u8>> {
    use store::{Change, ObjectId};
    let named = |name: &str| HObject { pool: 1, hash: 7, name: name.into(), ..HObject::min() };
    let object = || ObjectId::from(named("a"));
    let (from, to) = (object(), ObjectId { object: named("b"), generation: 5 });
    let blob = Bytes::from_static(b"blob");
    let all = vec![
        Change::Touch { object: object() },
        Change::Write { object: object(), offset: 1, data: Bytes::from_static(b"data").into() },
        Change::Write {
            object: object(),
            offset: 9,
            data: Rope::summed(Bytes::from_static(b"more"), Some(7)),
        },
        Change::Zero { object: object(), offset: 2, len: 3 },
        Change::Truncate { object: object(), size: 4 },
        Change::Remove { object: object() },
        Change::Clone { from: from.clone(), to: to.clone() },
        Change::CloneRange { from: from.clone(), to: to.clone(), from_offset: 1, len: 2, to_offset: 3 },
        Change::Rename { from, to },
        Change::SetAttr { object: object(), name: blob.clone(), value: blob.clone() },
        Change::RemoveAttr { object: object(), name: blob.clone() },
        Change::RemoveAttrs { object: object() },
        Change::OmapSet { object: object(), entries: vec![(blob.clone(), blob.clone()); 2] },
        Change::OmapRemove { object: object(), keys: vec![blob.clone(); 2] },
        Change::OmapRemoveRange { object: object(), from: Bytes::new(), to: blob.clone() },
        Change::OmapSetHeader { object: object(), header: blob },
        Change::OmapClear { object: object() },
        Change::AllocHint { object: object(), object_size: 1, write_size: 2, flags: 3 },
    ];
    let seed = |changes: &[Change]| {
        let WireForm { changes, data } = WireForm::encode(changes).expect("changes of objects");
        [&(changes.len() as u16).to_le_bytes()[..], &changes, &data.to_bytes()].concat()
    };
    all.iter().map(|change| seed(std::slice::from_ref(change))).chain([seed(&all)]).collect()
}
