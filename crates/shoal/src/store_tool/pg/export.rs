//! A PG out of a store into a file, in bounded steps.
//!
//! An object that cannot be read whole is in the file up to the damage, and marked: an import counts it as missing, at the
//! version that it has here or that this copy lacks, and peering takes it from another copy.

use super::access::Access;
use super::file::{Record, RecordWriter, Totals};
use super::{OnProgress, copy, daemon, for_each_object};
use anyhow::{Context, anyhow};
use bytes::Bytes;
use osd::stopped::{PgCopy, Source, import, object_version, version_query};
use std::io::Write;
use store::moving::ObjectCopy;
use store::wire_form::WireForm;
use store::{Change, Collection, ObjectId, ReadError, ReadRequest};
use wire::types::{Eversion, SpgId};

/// Bytes of keys and values of one record of the PG's own records.
const META_BYTES: usize = 256 << 10;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub totals: Totals,
    /// Objects that could not be read whole, and why.
    pub lost: Vec<String>,
}

pub fn export(
    store: &mut Access,
    pg: SpgId,
    out: &mut dyn Write,
    on_progress: OnProgress<'_>,
) -> anyhow::Result<Exported> {
    let (copy, records) = copy(store, pg)?;
    let daemon = daemon(store)?;
    let source = Source::of(&daemon, &copy).map_err(|why| anyhow!("PG {pg} cannot be exported: {why}"))?;
    let map = daemon.map().context("the OSD has no map of the cluster")?;
    let mut out = RecordWriter::new(out);
    out.write(&Record::Head { source: source.to_bytes() })?;
    out.write(&Record::Map { map: import::encode_map(map) })?;
    out.write(&Record::MetaHeader { header: records.header })?;
    write_meta(records.entries, &mut out)?;
    for records in records.log.chunks(LOG_RECORDS) {
        out.write(&Record::Log { records: records.to_vec() })?;
    }

    let mut exported = Exported::default();
    for_each_object(store, pg, &mut |store, object| {
        write_object(store, &copy, &object, &mut out, &mut exported, on_progress)
    })?;
    out.write(&Record::End { totals: exported.totals })?;
    Ok(exported)
}

/// Log records of one record of the file.
const LOG_RECORDS: usize = 512;

fn write_meta<W: Write>(all: Vec<(Bytes, Bytes)>, out: &mut RecordWriter<W>) -> anyhow::Result<()> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for (key, value) in all {
        bytes += key.len() + value.len();
        entries.push((key, value));
        if bytes >= META_BYTES {
            out.write(&Record::Meta { entries: std::mem::take(&mut entries) })?;
            bytes = 0;
        }
    }
    out.write(&Record::Meta { entries })
}

fn write_object<W: Write>(
    store: &mut Access,
    copy: &PgCopy,
    object: &ObjectId,
    out: &mut RecordWriter<W>,
    exported: &mut Exported,
    on_progress: OnProgress<'_>,
) -> anyhow::Result<()> {
    let collection = Collection::Pg(copy.pg);
    out.write(&Record::Object { id: object.clone() })?;
    exported.totals.objects += 1;
    let mut steps = ObjectCopy::new(object.clone(), false);
    while !steps.is_done() {
        let answers = store.ask(steps.request(collection))?;
        match steps.take(answers) {
            Ok(changes) => {
                for changes in changes {
                    let data_bytes = write_changes(&changes, out)?;
                    exported.totals.data_bytes += data_bytes;
                    on_progress(data_bytes);
                }
            }
            Err(error) => {
                let need = version_of(store, copy, object)?.with_context(|| unknown(object, &error))?;
                exported.lost.push(format!("{object:?}: {error}"));
                exported.totals.lost += 1;
                return out.write(&Record::Lost { need });
            }
        }
    }
    Ok(())
}

/// Returns the bytes of data.
fn write_changes<W: Write>(changes: &[Change], out: &mut RecordWriter<W>) -> anyhow::Result<u64> {
    let WireForm { changes, data } = WireForm::encode(changes)?;
    let data_bytes = data.len() as u64;
    out.write(&Record::Changes { changes, data: data.to_bytes() })?;
    Ok(data_bytes)
}

/// The version that an import lacks of an object that cannot be read whole.
fn version_of(store: &mut Access, copy: &PgCopy, object: &ObjectId) -> anyhow::Result<Option<Eversion>> {
    // The copy is behind: it lacks the newest version as it is.
    if let Some(need) = copy.missing_version(&object.object) {
        return Ok(Some(need));
    }
    let (collection, object) = (Collection::Pg(copy.pg), object.clone());
    let logged = copy.logged_version(&object.object);
    let answers = store.ask(ReadRequest { collection, object, queries: vec![version_query()] })?;
    Ok(answers.ok().and_then(|mut answers| object_version(answers.pop())).or(logged))
}

fn unknown(object: &ObjectId, error: &ReadError) -> String {
    format!(
        "{object:?} cannot be read ({error}), not even its version, so no other copy could replace it: `shoal store export` \
         copies what can be read"
    )
}
