//! The PGs of a store: a line for each, and info and log of one with the keys of stock's `ceph-objectstore-tool`.

use super::access::Access;
use super::{copy, daemon};
use osd::stopped::{self, object_version, version_query};
use serde_json::{Value, json};
use store::{Collection, ObjectId, ReadRequest};
use wire::types::{Eversion, HObject, SpgId};

/// One PG of a list.
pub struct Row {
    pub pg: SpgId,
    /// Why the copy cannot be read.
    pub copy: anyhow::Result<stopped::PgCopy>,
}

pub fn list(store: &mut Access) -> Vec<Row> {
    let pgs: Vec<SpgId> = store
        .collections()
        .into_iter()
        .filter_map(|(collection, _)| match collection {
            Collection::Pg(pg) => Some(pg),
            Collection::Meta => None,
        })
        .collect();
    pgs.into_iter().map(|pg| Row { pg, copy: copy(store, pg).map(|(copy, _)| copy) }).collect()
}

impl Row {
    fn state(&self) -> String {
        let Ok(copy) = &self.copy else { return "unreadable".into() };
        let mut out = vec![if copy.is_complete() { "complete".to_owned() } else { "incomplete".to_owned() }];
        for (count, what) in [(copy.missing_len(), "missing"), (copy.damaged_len(), "damaged")] {
            if count > 0 {
                out.push(format!("{count} {what}"));
            }
        }
        out.join(", ")
    }
}

pub fn list_text(rows: &[Row]) -> String {
    let mut out = format!("{:<10} {:>10} {:>15} {:>14}  STATE\n", "PG", "OBJECTS", "BYTES", "LAST_UPDATE");
    for row in rows {
        let (objects, bytes, last_update) = match &row.copy {
            Ok(copy) => {
                let counts = copy.counts();
                (counts.objects.to_string(), counts.bytes.to_string(), copy.last_update().to_string())
            }
            Err(_) => ("-".into(), "-".into(), "-".into()),
        };
        let (pg, state) = (row.pg.to_string(), row.state());
        out.push_str(&format!("{pg:<10} {objects:>10} {bytes:>15} {last_update:>14}  {state}\n"));
    }
    out
}

pub fn list_json(rows: &[Row]) -> Value {
    let row = |row: &Row| match &row.copy {
        Ok(copy) => json!({
            "pgid": row.pg.to_string(),
            "objects": copy.counts().objects,
            "bytes": copy.counts().bytes,
            "last_update": copy.last_update().to_string(),
            "last_epoch_started": copy.activated(),
            "complete": copy.is_complete(),
            "missing": copy.missing_len(),
            "damaged": copy.damaged_len(),
        }),
        Err(error) => json!({ "pgid": row.pg.to_string(), "error": format!("{error:#}") }),
    };
    rows.iter().map(row).collect()
}

/// Bytes of the PG's data, as far as the PG has counted them.
pub fn data_bytes(store: &mut Access, pg: SpgId) -> anyhow::Result<u64> {
    let (copy, _) = copy(store, pg)?;
    Ok(u64::try_from(copy.counts().bytes).unwrap_or(0))
}

pub fn info(store: &mut Access, pg: SpgId) -> anyhow::Result<String> {
    let (copy, _) = copy(store, pg)?;
    Ok(stopped::info(&daemon(store)?, &copy).pretty())
}

pub fn log(store: &mut Access, pg: SpgId) -> anyhow::Result<String> {
    let (copy, _) = copy(store, pg)?;
    let collection = Collection::Pg(pg);
    let version = |object: &HObject| {
        let object = ObjectId::from(object.clone());
        let answers = store.ask(ReadRequest { collection, object, queries: vec![version_query()] });
        let answer = answers.ok().and_then(Result::ok).and_then(|mut answers| answers.pop());
        object_version(answer).unwrap_or(Eversion::ZERO)
    };
    Ok(stopped::log(&copy, version).pretty())
}
