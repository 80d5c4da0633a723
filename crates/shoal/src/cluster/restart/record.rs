//! The record of a rolling restart that is under way, or was interrupted: a key of the monitors' `config-key` store.
//!
//! By it a second rolling restart is refused, from whatever host, and an interrupted one goes on without a daemon left out. Two that
//! begin within the same moment are not kept apart; each of their steps still waits for `ok-to-stop`.

use super::Past;
use crate::cluster::ask::{Asker, Refused};
use crate::cluster::host::join::short_hostname;
use anyhow::{Context, bail};
use command::errno::ENOENT;
use runtime::system;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use wire::text::stamp;

const KEY: &str = "shoal/rolling-restart";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    host: String,
    process: u32,
    began: String,
    pub done: BTreeSet<String>,
}

impl Record {
    fn load(asker: &mut Asker) -> anyhow::Result<Option<Record>> {
        match asker.ask(&json!({ "prefix": "config-key get", "key": KEY })) {
            Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("config-key {KEY}")),
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.errno == ENOENT) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The record of a restart that is to begin, or to go on. Nothing is written yet. `only_look`: nothing will be.
    pub fn of_restart(asker: &mut Asker, past: Past, only_look: bool) -> anyhow::Result<Record> {
        let new = Record {
            host: short_hostname(),
            process: std::process::id(),
            began: stamp(system::wall_clock()),
            done: BTreeSet::new(),
        };
        Ok(match (Record::load(asker)?, past) {
            (Some(there), Past::Refuse) if !only_look => bail!(
                "a rolling restart began on {} at {} (process {}) and has done {} daemons. If it does not run any more, go on \
                 with --resume, or begin from the start with --anew",
                there.host,
                there.began,
                there.process,
                there.done.len()
            ),
            (None, Past::Resume) => bail!("no rolling restart is unfinished: leave --resume out"),
            (Some(there), Past::Resume) => Record { done: there.done, ..new },
            (Some(_) | None, _) => new,
        })
    }

    pub fn add(&mut self, asker: &mut Asker, names: &[String]) -> anyhow::Result<()> {
        self.done.extend(names.iter().cloned());
        self.save(asker)
    }

    pub fn save(&self, asker: &mut Asker) -> anyhow::Result<()> {
        let text = serde_json::to_string(self)?;
        asker.ask(&json!({ "prefix": "config-key set", "key": KEY, "val": text })).map(drop)
    }

    /// All is done, or nothing was.
    pub fn remove(self, asker: &mut Asker) -> anyhow::Result<()> {
        asker.ask(&json!({ "prefix": "config-key rm", "key": KEY })).map(drop)
    }
}
