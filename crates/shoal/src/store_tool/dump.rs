//! The content of a store as one line of JSON for each collection and object.

use super::opened::Opened;
use bytes::Bytes;
use serde_json::{Value, json};
use std::io::Write;
use store::{Answer, Collection, ObjectId, Query};
use wire::types::Name;

/// Omap keys that are looked up at once.
const KEYS_MAX: usize = 10_000;

/// `only`: collections whose name begins so.
pub fn write(store: &mut Opened, only: Option<&str>, out: &mut dyn Write) -> anyhow::Result<()> {
    for (collection, split_bits) in store.collections() {
        if only.is_some_and(|prefix| !collection.to_string().starts_with(prefix)) {
            continue;
        }
        writeln!(out, "{}", json!({ "collection": collection.to_string(), "split_bits": split_bits }))?;
        for object in store.objects(collection)? {
            writeln!(out, "{}", describe(store, collection, &object)?)?;
        }
    }
    Ok(())
}

fn describe(store: &mut Opened, collection: Collection, object: &ObjectId) -> anyhow::Result<Value> {
    let name = format!("{object:?}");
    let queries = vec![
        Query::Stat,
        Query::Extents { offset: 0, len: u64::MAX },
        Query::Attrs,
        Query::OmapHeader,
        Query::OmapList {
            after: None,
            from: Bytes::new(),
            prefix: Bytes::new(),
            max: KEYS_MAX,
            values: false,
        },
    ];
    let answers = match store.ask(collection, object.clone(), queries)? {
        Ok(answers) => answers,
        Err(error) => return Ok(json!({ "object": name, "error": error.to_string() })),
    };
    let mut out = json!({ "object": name });
    for answer in answers {
        match answer {
            Answer::Stat { size } => out["size"] = size.into(),
            Answer::Extents(extents) => {
                out["stored"] = extents.iter().map(|(_, len)| len).sum::<u64>().into()
            }
            Answer::Attrs(attrs) => {
                let lens =
                    attrs.iter().map(|(name, value)| (Name::from(&name[..]).to_string(), value.len().into()));
                out["attrs"] = Value::Object(lens.collect());
            }
            Answer::OmapHeader(header) => out["omap_header"] = header.len().into(),
            Answer::OmapList { entries, more } => {
                out["omap_keys"] = entries.len().into();
                if more {
                    out["omap_keys_more"] = true.into();
                }
            }
            _ => {}
        }
    }
    Ok(out)
}
