//! The record of an unfinished migration: keys of the monitors' `config-key` store, so that any host can go on.

use crate::cluster::ask::{Asker, Refused};
use crate::cluster::host::join::short_hostname;
use anyhow::Context;
use command::errno::ENOENT;
use runtime::system;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use wire::text::stamp;
use wire::types::PgId;

const KEY: &str = "shoal/migration";
/// A value of the store holds at most 64 KiB.
const PGS_PER_KEY: usize = 500;

/// Pairs of OSDs, from and to.
pub type Items = Vec<(i32, i32)>;

/// The exceptions of one PG.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub items: Items,
    /// Those that the PG had before, and gets again.
    pub before: Items,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub host: String,
    pub began: String,
    pub held: BTreeMap<PgId, Held>,
}

/// The first key: the others are `KEY/0` and so on.
#[derive(Serialize, Deserialize)]
struct Head {
    host: String,
    began: String,
    parts: usize,
}

impl Record {
    pub fn new(held: BTreeMap<PgId, Held>) -> Record {
        Record { host: short_hostname(), began: stamp(system::wall_clock()), held }
    }

    pub fn load(asker: &mut Asker) -> anyhow::Result<Option<Record>> {
        let Some(head) = get::<Head>(asker, KEY)? else { return Ok(None) };
        let mut held = BTreeMap::new();
        for part in 0..head.parts {
            let key = part_key(part);
            let rows: Vec<(String, Held)> =
                get(asker, &key)?.with_context(|| format!("config-key {key} is missing"))?;
            for (pg, of) in rows {
                let id = pg.parse().ok().with_context(|| format!("config-key {key} names the PG `{pg}`"))?;
                held.insert(id, of);
            }
        }
        Ok(Some(Record { host: head.host, began: head.began, held }))
    }

    pub fn save(&self, asker: &mut Asker) -> anyhow::Result<()> {
        let rows: Vec<(String, &Held)> = self.held.iter().map(|(pg, held)| (pg.to_string(), held)).collect();
        let parts: Vec<&[(String, &Held)]> = rows.chunks(PGS_PER_KEY).collect();
        for (part, rows) in parts.iter().enumerate() {
            set(asker, &part_key(part), rows)?;
        }
        set(asker, KEY, &Head { host: self.host.clone(), began: self.began.clone(), parts: parts.len() })
    }

    pub fn remove(&self, asker: &mut Asker) -> anyhow::Result<()> {
        let parts = self.held.len().div_ceil(PGS_PER_KEY);
        for key in std::iter::once(KEY.to_owned()).chain((0..parts).map(part_key)) {
            asker.ask(&json!({ "prefix": "config-key rm", "key": key }))?;
        }
        Ok(())
    }
}

fn part_key(part: usize) -> String {
    format!("{KEY}/{part}")
}

fn get<T: DeserializeOwned>(asker: &mut Asker, key: &str) -> anyhow::Result<Option<T>> {
    match asker.ask(&json!({ "prefix": "config-key get", "key": key })) {
        Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("config-key {key}")),
        Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.errno == ENOENT) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn set(asker: &mut Asker, key: &str, value: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    asker.ask(&json!({ "prefix": "config-key set", "key": key, "val": text })).map(drop)
}
