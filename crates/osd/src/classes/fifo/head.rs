//! The head of a queue: its names, limits and counters, and the journal of changes that clients have begun.

use super::{ENTRY_OVERHEAD, PART_HEADER_LEN};
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use base64::Engine as _;
use bytes::Bytes;
use codec::{Encode, Features, Reader};
use machine::Random;
use wire::types::Name;
use wire::types::cls::fifo::{
    CreateMetaOp, GetMetaOp, GetMetaReply, HeadInfo, HeadVersion, PartParams, UpdateMetaOp,
};

/// Maximum length of an encoded head. Ceph's clients keep a few entries in its journal.
const INFO_LEN_MAX: u64 = 1 << 20;
/// Characters of a head's instance, of one that a client left empty, and of the random end of a prefix.
const INSTANCE_LEN: usize = 16;
const INSTANCE_LEN_OF_EMPTY: usize = 15;
const PREFIX_END_LEN: usize = 11;

fn random_text(random: &mut Random, len: usize) -> String {
    let mut bytes = vec![0; (len * 3).div_ceil(4)];
    random.fill(&mut bytes);
    let mut text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(bytes);
    text.truncate(len);
    text
}

/// `None` for an object without data; `EIO` for a damaged head.
fn stored_info(call: &mut MethodCall<'_>) -> Result<Option<HeadInfo>, MethodStop> {
    let bytes = match call.context.size {
        0 => Bytes::new(),
        size => call.data(0, size.min(INFO_LEN_MAX))?.to_bytes(),
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    Reader::new(&bytes).get().map(Some).map_err(|_| MethodStop::Failed(Errno::IO))
}

/// `ENODATA` for an object without data, `ECANCELED` for a head of another version than the given one.
fn read_info(call: &mut MethodCall<'_>, version: Option<&HeadVersion>) -> Result<HeadInfo, MethodStop> {
    call.must_exist()?;
    let info = stored_info(call)?.ok_or(MethodStop::Failed(Errno::NODATA))?;
    match version {
        Some(version) if *version != info.version => Err(Errno::CANCELED.into()),
        _ => Ok(info),
    }
}

/// `EFBIG` for a head that would be too long to be read.
fn write_info(call: &mut MethodCall<'_>, info: &HeadInfo) -> Result<i32, MethodStop> {
    let encoded = info.to_vec(Features::NONE);
    if encoded.len() as u64 > INFO_LEN_MAX {
        return Err(Errno::FBIG.into());
    }
    call.write_full(encoded.into())?;
    Ok(0)
}

/// Succeeds for a head that is there with the same id, prefix and version, as far as these are given.
pub fn create_meta(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: CreateMetaOp = call.argument()?;
    let has_sizes = (1..=op.max_part_size).contains(&op.max_entry_size);
    if op.id.is_empty() || !has_sizes {
        return Err(Errno::INVAL.into());
    }
    if call.exists() {
        if op.exclusive {
            return Err(Errno::EXIST.into());
        }
        let info = stored_info(call)?.ok_or(MethodStop::Failed(Errno::IO))?;
        let is_same = info.id == op.id
            && op.oid_prefix.is_none_or(|prefix| prefix == info.oid_prefix)
            && op.version.is_none_or(|version| version == info.version);
        return if is_same { Ok(0) } else { Err(Errno::EXIST.into()) };
    }
    let mut random = Random::from_number(call.context.seed);
    let mut version = op.version.unwrap_or_else(|| HeadVersion {
        instance: random_text(&mut random, INSTANCE_LEN).into(),
        version: 1,
    });
    let oid_prefix = op.oid_prefix.unwrap_or_else(|| {
        let end = random_text(&mut random, PREFIX_END_LEN);
        Name::from([&op.id[..], b".", end.as_bytes()].concat())
    });
    if version.instance.is_empty() {
        version.instance = random_text(&mut random, INSTANCE_LEN_OF_EMPTY).into();
    }
    let threshold = op.max_part_size.wrapping_sub(op.max_entry_size).wrapping_sub(ENTRY_OVERHEAD);
    let params = PartParams {
        max_part_size: op.max_part_size,
        max_entry_size: op.max_entry_size,
        full_size_threshold: threshold,
    };
    write_info(call, &HeadInfo { id: op.id, version, oid_prefix, params, ..HeadInfo::default() })
}

pub fn get_meta(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: GetMetaOp = call.argument()?;
    let info = read_info(call, op.version.as_ref())?;
    call.finish_with(&GetMetaReply {
        info,
        part_header_size: PART_HEADER_LEN as u32,
        part_entry_overhead: ENTRY_OVERHEAD as u32,
    })
}

/// Sets a counter. True if it had another value.
fn set(counter: &mut i64, value: Option<i64>) -> bool {
    value.is_some_and(|value| std::mem::replace(counter, value) != value)
}

/// True if anything changed.
fn apply(info: &mut HeadInfo, op: UpdateMetaOp) -> bool {
    let mut changed = set(&mut info.tail, op.tail)
        | set(&mut info.head, op.head)
        | set(&mut info.min_push, op.min_push)
        | set(&mut info.max_push, op.max_push);
    for entry in op.journal_added {
        changed |= info.journal.0.insert(entry);
    }
    for entry in &op.journal_removed {
        changed |= info.journal.0.remove(entry);
    }
    changed
}

/// Changes counters and journal of a head that still has the client's version, and counts the version up. An update
/// that changes nothing writes nothing. `EINVAL` for a journal entry that no head can hold: Ceph's OSD aborts there.
pub fn update_meta(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: UpdateMetaOp = call.argument()?;
    if op.version.instance.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let mut info = read_info(call, Some(&op.version))?;
    if !apply(&mut info, op) {
        return Ok(0);
    }
    if !info.journal.0.iter().all(|entry| entry.is_valid()) {
        return Err(Errno::INVAL.into());
    }
    info.version.version = info.version.version.wrapping_add(1);
    write_info(call, &info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::fifo::{JOURNAL_CREATE, JOURNAL_REMOVE, JOURNAL_SET_HEAD, JournalEntry};

    fn create_op() -> CreateMetaOp {
        CreateMetaOp { id: "q".into(), max_part_size: 4096, max_entry_size: 1024, ..CreateMetaOp::default() }
    }

    fn create(o: &mut Object, op: &CreateMetaOp) -> Result<Bytes, Errno> {
        o.call("fifo", "create_meta", op)
    }

    fn meta(o: &mut Object) -> HeadInfo {
        let reply: GetMetaReply = decode(&o.call("fifo", "get_meta", &GetMetaOp::default()).unwrap());
        assert_eq!((reply.part_header_size, reply.part_entry_overhead), (512, 58));
        reply.info
    }

    fn update(o: &mut Object, op: &UpdateMetaOp) -> Result<Bytes, Errno> {
        o.call("fifo", "update_meta", op)
    }

    fn entry(op: i32, part: i64) -> JournalEntry {
        JournalEntry { op, part, ..JournalEntry::default() }
    }

    #[test]
    fn head_is_made_once() {
        let mut o = Object::missing();
        create(&mut o, &create_op()).unwrap();
        let info = meta(&mut o);
        assert_eq!((info.version.version, info.version.instance.len()), (1, 16));
        assert_eq!((info.oid_prefix.starts_with(b"q."), info.oid_prefix.len()), (true, 2 + 11));
        assert_eq!(info.params.full_size_threshold, 4096 - 1024 - 58);
        assert_eq!((info.tail, info.head, info.min_push, info.max_push), (0, -1, 0, -1));
        create(&mut o, &create_op()).unwrap();
        assert_eq!(meta(&mut o), info, "the same head is no error and no change");
        let same = CreateMetaOp {
            version: Some(info.version.clone()),
            oid_prefix: Some(info.oid_prefix.clone()),
            ..create_op()
        };
        create(&mut o, &same).unwrap();
        let others = [
            CreateMetaOp { id: "other".into(), ..create_op() },
            CreateMetaOp { oid_prefix: Some("other".into()), ..create_op() },
            CreateMetaOp { version: Some(HeadVersion::default()), ..create_op() },
            CreateMetaOp { exclusive: true, ..create_op() },
        ];
        for other in others {
            assert_eq!(create(&mut o, &other), Err(Errno::EXIST), "{other:?}");
        }
        assert_eq!(create(&mut Object::existing(), &create_op()), Err(Errno::IO), "no head to compare with");
    }

    #[test]
    fn head_takes_the_given_names() {
        let mut o = Object::missing();
        let version = HeadVersion { instance: Name::EMPTY, version: 10 };
        let op = CreateMetaOp {
            version: Some(version),
            oid_prefix: Some("p".into()),
            exclusive: true,
            ..create_op()
        };
        create(&mut o, &op).unwrap();
        let info = meta(&mut o);
        assert_eq!(
            (info.version.version, info.version.instance.len()),
            (10, 15),
            "an empty name is replaced"
        );
        assert_eq!(info.oid_prefix, "p");
    }

    #[test]
    fn head_needs_an_id_and_sizes() {
        let bad = [
            CreateMetaOp { id: Name::EMPTY, ..create_op() },
            CreateMetaOp { max_part_size: 0, ..create_op() },
            CreateMetaOp { max_entry_size: 0, ..create_op() },
            CreateMetaOp { max_entry_size: 4097, ..create_op() },
        ];
        let mut o = Object::missing();
        for op in bad {
            assert_eq!(create(&mut o, &op), Err(Errno::INVAL), "{op:?}");
        }
        create(&mut o, &CreateMetaOp { max_entry_size: 4096, ..create_op() }).unwrap();
    }

    #[test]
    fn head_is_read_under_its_version() {
        let mut o = Object::missing();
        assert_eq!(o.call("fifo", "get_meta", &GetMetaOp::default()), Err(Errno::NOENT));
        create(&mut o, &create_op()).unwrap();
        let version = meta(&mut o).version;
        let ask = |o: &mut Object, version| o.call("fifo", "get_meta", &GetMetaOp { version: Some(version) });
        ask(&mut o, version.clone()).unwrap();
        assert_eq!(ask(&mut o, HeadVersion { version: 2, ..version }), Err(Errno::CANCELED));
        assert_eq!(Object::existing().call("fifo", "get_meta", &GetMetaOp::default()), Err(Errno::NODATA));
        o.put_data(b"x");
        assert_eq!(o.call("fifo", "get_meta", &GetMetaOp::default()), Err(Errno::IO));
        assert_eq!(o.call_bare("fifo", "get_meta"), Err(Errno::INVAL));
    }

    #[test]
    fn update_counts_the_version_up() {
        let mut o = Object::missing();
        create(&mut o, &create_op()).unwrap();
        let first = meta(&mut o).version;
        let op = UpdateMetaOp {
            version: first.clone(),
            tail: Some(1),
            head: Some(2),
            min_push: Some(3),
            max_push: Some(4),
            journal_added: vec![
                entry(JOURNAL_SET_HEAD, 1),
                entry(JOURNAL_CREATE, 2),
                entry(JOURNAL_CREATE, 1),
            ],
            journal_removed: vec![entry(JOURNAL_SET_HEAD, 1), entry(JOURNAL_REMOVE, 7)],
        };
        update(&mut o, &op).unwrap();
        let info = meta(&mut o);
        assert_eq!((info.tail, info.head, info.min_push, info.max_push), (1, 2, 3, 4));
        assert_eq!(Vec::from_iter(info.journal.0), [entry(JOURNAL_CREATE, 1), entry(JOURNAL_CREATE, 2)]);
        assert_eq!(info.version, HeadVersion { version: 2, ..first.clone() });
        assert_eq!(update(&mut o, &op), Err(Errno::CANCELED), "the version is not the head's any more");
        let version = HeadVersion { version: 2, ..first };
        let same = UpdateMetaOp { version: version.clone(), tail: Some(1), ..UpdateMetaOp::default() };
        update(&mut o, &same).unwrap();
        assert_eq!(meta(&mut o).version, version, "no change, no new version");
    }

    #[test]
    fn update_needs_a_version_and_valid_entries() {
        let mut o = Object::missing();
        assert_eq!(update(&mut o, &UpdateMetaOp::default()), Err(Errno::INVAL));
        let version = HeadVersion { instance: "i".into(), version: 1 };
        let op = UpdateMetaOp { version: version.clone(), ..UpdateMetaOp::default() };
        assert_eq!(update(&mut o, &op), Err(Errno::NOENT));
        create(&mut o, &CreateMetaOp { version: Some(version), ..create_op() }).unwrap();
        for bad in [entry(0, 1), entry(4, 1), entry(JOURNAL_CREATE, -1)] {
            let added = UpdateMetaOp { journal_added: vec![bad.clone()], ..op.clone() };
            assert_eq!(update(&mut o, &added), Err(Errno::INVAL), "{bad:?}");
            update(&mut o, &UpdateMetaOp { journal_removed: vec![bad], ..op.clone() }).unwrap();
        }
        let many = (0..1 << 16).map(|part| entry(JOURNAL_CREATE, part)).collect();
        assert_eq!(update(&mut o, &UpdateMetaOp { journal_added: many, ..op }), Err(Errno::FBIG));
    }
}
