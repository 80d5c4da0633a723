//! Chunks that several objects share: data with a reference for each object that refers to it. The last one that is
//! put removes the chunk.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Encode, Features};
use wire::types::cls::cas::{ChunkRefs, CreateOrGetOp, FLAG_VERIFY, RefOp};
use wire::types::{HObject, Name};

const ATTR: &str = "chunk_refs";

/// The stored references; none without the attribute, `ENOENT` without the object.
fn stored(call: &mut MethodCall<'_>) -> Result<ChunkRefs, MethodStop> {
    match call.attr_as(ATTR) {
        Err(MethodStop::Failed(Errno::NODATA)) => Ok(ChunkRefs::default()),
        other => other,
    }
}

fn store(call: &mut MethodCall<'_>, refs: &ChunkRefs) -> Result<i32, MethodStop> {
    call.set_attr(ATTR, &refs.to_vec(Features::NONE))?;
    Ok(0)
}

/// An object that refers to the chunk already counts once more. Sums that are damaged wrap, as in Ceph.
fn add(refs: &mut ChunkRefs, source: HObject) {
    match refs {
        ChunkRefs::Objects(refs) => refs.insert(source),
        ChunkRefs::Hashes(refs) => {
            let count = refs.counts.entry(refs.key(&source)).or_default();
            *count = count.wrapping_add(1);
            refs.total = refs.total.wrapping_add(1);
        }
        ChunkRefs::Pools(refs) => {
            let count = refs.counts.entry(source.pool).or_default();
            *count = count.wrapping_add(1);
            refs.total = refs.total.wrapping_add(1);
        }
        ChunkRefs::Count(refs) => refs.total = refs.total.wrapping_add(1),
    }
}

/// False where nothing is known of a reference from there. When an inexact form has none left, exact references follow.
fn remove(refs: &mut ChunkRefs, source: &HObject) -> bool {
    let (had, total) = match refs {
        ChunkRefs::Objects(refs) => return refs.remove(source),
        ChunkRefs::Hashes(refs) => {
            let key = refs.key(source);
            let had = match refs.counts.get_mut(&key) {
                None => false,
                Some(count) => {
                    *count = count.wrapping_sub(1);
                    if *count == 0 {
                        refs.counts.remove(&key);
                    }
                    true
                }
            };
            refs.total = refs.total.wrapping_sub(had.into());
            (had, refs.total)
        }
        ChunkRefs::Pools(refs) => {
            let had = match refs.counts.get_mut(&source.pool) {
                None => false,
                Some(count) => {
                    *count = count.wrapping_sub(1);
                    if *count == 0 {
                        refs.counts.remove(&source.pool);
                    }
                    true
                }
            };
            refs.total = refs.total.wrapping_sub(had.into());
            (had, refs.total)
        }
        ChunkRefs::Count(refs) => {
            let had = refs.total > 0;
            refs.total = refs.total.saturating_sub(1);
            (had, refs.total)
        }
    };
    if total == 0 {
        *refs = ChunkRefs::default();
    }
    had
}

fn is_empty(refs: &ChunkRefs) -> bool {
    match refs {
        ChunkRefs::Objects(refs) => refs.objects().is_empty(),
        ChunkRefs::Hashes(refs) => refs.counts.is_empty(),
        ChunkRefs::Pools(refs) => refs.counts.is_empty(),
        ChunkRefs::Count(refs) => refs.total == 0,
    }
}

/// Writes the chunk with its first reference, or adds one to the chunk that is there: `ENOMSG` if that was to hold the
/// same data and does not.
pub(super) fn chunk_create_or_get_ref(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let CreateOrGetOp { source, flags, data } = call.argument()?;
    let mut refs = match stored(call) {
        Err(MethodStop::Failed(Errno::NOENT)) => {
            call.write_full(data)?;
            ChunkRefs::default()
        }
        Err(stop) => return Err(stop),
        Ok(refs) => {
            // A byte more than it should be tells a longer chunk.
            if flags & FLAG_VERIFY != 0 && call.data(0, data.len() as u64 + 1)?.to_bytes() != data {
                return Err(Errno::NOMSG.into());
            }
            refs
        }
    };
    add(&mut refs, source);
    store(call, &refs)
}

pub(super) fn chunk_get_ref(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: RefOp = call.argument()?;
    let mut refs = stored(call)?;
    add(&mut refs, op.source);
    store(call, &refs)
}

/// `ENOLINK` for an object that does not refer to the chunk.
pub(super) fn chunk_put_ref(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: RefOp = call.argument()?;
    let mut refs = stored(call)?;
    if !remove(&mut refs, &op.source) {
        return Err(Errno::NOLINK.into());
    }
    if is_empty(&refs) {
        call.remove()?;
        return Ok(0);
    }
    store(call, &refs)
}

/// `ENOLINK`: an object refers to chunks in its manifest, and no object has one (`SET_CHUNK` is refused).
pub(super) fn references_chunk(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    call.argument::<Name>()?;
    Err(Errno::NOLINK.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use bytes::Bytes;
    use codec::Writer;
    use wire::types::SnapId;

    fn source(name: &str) -> HObject {
        HObject { pool: 3, snap: SnapId::HEAD, name: name.into(), ..HObject::min() }
    }

    fn create(o: &mut Object, name: &str, data: &str, flags: u64) -> Result<Bytes, Errno> {
        let op = CreateOrGetOp { source: source(name), flags, data: Bytes::copy_from_slice(data.as_bytes()) };
        o.call("cas", "chunk_create_or_get_ref", &op)
    }

    fn get(o: &mut Object, name: &str) -> Result<Bytes, Errno> {
        o.call("cas", "chunk_get_ref", &RefOp { source: source(name) })
    }

    fn put(o: &mut Object, name: &str) -> Result<Bytes, Errno> {
        o.call("cas", "chunk_put_ref", &RefOp { source: source(name) })
    }

    fn names(o: &Object) -> Vec<Name> {
        match decode(&o.attr(ATTR).unwrap()) {
            ChunkRefs::Objects(refs) => refs.objects().iter().map(|object| object.name.clone()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn last_reference_removes_the_chunk() {
        let mut o = Object::missing();
        assert_eq!(get(&mut o, "a"), Err(Errno::NOENT));
        assert_eq!(put(&mut o, "a"), Err(Errno::NOENT));
        create(&mut o, "b", "data", 0).unwrap();
        assert_eq!(o.data(), "data");
        get(&mut o, "a").unwrap();
        create(&mut o, "c", "data", FLAG_VERIFY).unwrap();
        assert_eq!(names(&o), ["a", "b", "c"]);
        assert_eq!(put(&mut o, "x"), Err(Errno::NOLINK));
        for name in ["b", "c"] {
            put(&mut o, name).unwrap();
        }
        assert_eq!((o.data(), names(&o)), ("data".into(), vec!["a".into()]));
        put(&mut o, "a").unwrap();
        assert!(!o.exists());
    }

    #[test]
    fn object_counts_as_often_as_it_refers() {
        let mut o = Object::missing();
        create(&mut o, "a", "data", 0).unwrap();
        get(&mut o, "a").unwrap();
        create(&mut o, "a", "data", 0).unwrap();
        assert_eq!(names(&o), ["a", "a", "a"]);
        put(&mut o, "a").unwrap();
        put(&mut o, "a").unwrap();
        assert!(o.exists());
        put(&mut o, "a").unwrap();
        assert!(!o.exists());
    }

    #[test]
    fn other_data_is_refused_where_it_is_verified() {
        let mut o = Object::missing();
        create(&mut o, "a", "data", FLAG_VERIFY).unwrap();
        for other in ["dat", "datA", "data and more", ""] {
            assert_eq!(create(&mut o, "b", other, FLAG_VERIFY), Err(Errno::NOMSG), "{other}");
        }
        assert_eq!(names(&o), ["a"]);
        create(&mut o, "b", "other", 0).unwrap();
        assert_eq!((o.data(), names(&o).len()), ("data".into(), 2));
    }

    #[test]
    fn chunk_without_references_gets_its_first() {
        let mut o = Object::existing();
        assert_eq!(put(&mut o, "a"), Err(Errno::NOLINK));
        get(&mut o, "a").unwrap();
        assert_eq!(names(&o), ["a"]);
    }

    /// The attribute in one of the inexact forms that Ceph's deduplication tools write.
    fn inexact(kind: u8, body: &[u8]) -> Object {
        let mut w = Writer::new(Features::NONE);
        w.envelope(1, 1, |w| {
            w.u8(kind);
            w.envelope(1, 1, |w| w.raw(body));
        });
        let mut o = Object::existing();
        o.put_attr(ATTR, w.as_slice());
        o
    }

    #[test]
    fn inexact_references_stay_inexact_until_none_is_left() {
        // Two of pool 3 and one of pool 1: by hashes of one bit, by pool, and counted.
        let forms: [(u8, &[u8]); 3] =
            [(2, &[3, 1, 2, 2, 1, 1, 6, 0, 2]), (4, &[3, 2, 2, 1, 6, 2]), (5, &[3, 0, 0, 0, 0, 0, 0, 0])];
        for (kind, body) in forms {
            let mut o = inexact(kind, body);
            get(&mut o, "new").unwrap();
            assert_eq!(o.attr(ATTR).unwrap()[6], kind);
            for name in ["new", "any", "name"] {
                put(&mut o, name).unwrap();
            }
            // The counts cannot tell which pool the last one is of; the others know that it is not of this one.
            assert_eq!(o.attr(ATTR).unwrap()[6], kind);
            let last = put(&mut o, "other");
            assert_eq!((last.is_ok(), o.exists()), (kind == 5, kind != 5), "form {kind}");
        }
    }

    #[test]
    fn no_object_has_a_manifest() {
        let chunk = Name::from("chunk");
        assert_eq!(Object::existing().call("cas", "references_chunk", &chunk), Err(Errno::NOLINK));
        assert_eq!(Object::existing().call_bare("cas", "references_chunk"), Err(Errno::INVAL));
    }

    #[test]
    fn damaged_attribute_is_an_io_error() {
        let mut o = Object::existing();
        o.put_attr(ATTR, b"x");
        assert_eq!(get(&mut o, "a"), Err(Errno::IO));
        assert_eq!(put(&mut o, "a"), Err(Errno::IO));
        assert_eq!(create(&mut o, "a", "data", 0), Err(Errno::IO));
        for method in ["chunk_create_or_get_ref", "chunk_get_ref", "chunk_put_ref"] {
            assert_eq!(o.call_bare("cas", method), Err(Errno::INVAL), "{method}");
        }
    }
}
