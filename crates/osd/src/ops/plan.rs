//! What must be read from the store before an operation list can be carried out.
//!
//! Ceph executes a list against the object as it was *before* the list: a read after a write in the same list
//! sees the old bytes, attributes and omap (only size and existence follow along). So all reads can be asked for
//! at once, answered from one moment, and the list then runs without waiting.

use super::Limits;
use super::step::Step;
use bytes::Bytes;
use store::Query;
use wire::types::osd_op::Extent;

/// Appends the queries of one step, in the order in which its execution consumes the answers.
pub fn push_queries(step: &Step, limits: &Limits, out: &mut Vec<Query>) {
    match step {
        Step::Read(e) | Step::CompareExtent { extent: e, .. } => {
            out.push(data(e.offset, whole_if_zero(e.len)))
        }
        Step::SparseRead(e) => {
            out.push(Query::Extents { offset: e.offset, len: e.len });
            out.push(data(e.offset, e.len));
        }
        Step::MapExtents(Extent { offset, len, .. }) => {
            out.push(Query::Extents { offset: *offset, len: *len });
        }
        Step::Checksum { params, .. } => {
            let whole = params.offset == 0 && params.len == 0;
            out.push(data(params.offset, if whole { u64::MAX } else { params.len }));
        }
        Step::GetAttr(name) | Step::CompareAttr { name, .. } => {
            out.push(Query::Attr { name: name.clone() });
        }
        Step::GetAttrs => out.push(Query::Attrs),
        Step::OmapKeys { after, max } => out.push(Query::OmapList {
            after: after_of(after),
            from: Bytes::new(),
            prefix: Bytes::new(),
            max: limits.omap_entries(*max),
            values: false,
        }),
        Step::OmapValues { after, max, prefix } => out.push(Query::OmapList {
            after: after_of(after),
            from: Bytes::new(),
            prefix: prefix.clone(),
            max: limits.omap_entries(*max),
            values: true,
        }),
        Step::OmapHeader => out.push(Query::OmapHeader),
        Step::OmapByKeys(keys) => out.push(Query::OmapGet { keys: keys.clone() }),
        Step::OmapCompare(assertions) => {
            out.push(Query::OmapGet { keys: assertions.iter().map(|a| a.key.clone()).collect() });
        }
        _ => {}
    }
}

fn data(offset: u64, len: u64) -> Query {
    Query::Data { offset, len }
}

/// A read of length 0 is a read of the whole object; a comparison never has length 0 unless it compares nothing.
fn whole_if_zero(len: u64) -> u64 {
    if len == 0 { u64::MAX } else { len }
}

/// The empty key is "from the start": no key sorts before it, so nothing is lost but an entry with an empty key,
/// which Ceph's upper-bound search skips too.
fn after_of(after: &Bytes) -> Option<Bytes> {
    Some(after.clone())
}
