//! The options that the monitors' database has for a daemon that is about to start.
//!
//! A running daemon is sent them; but an option that acts at start must be known before. As stock's daemons do
//! (`MonClient::get_monmap_and_config`), an OSD asks the monitors first. Where they do not answer, it starts with its
//! file and command line alone, and says so.

use crate::config::SessionOptions;
use crate::host::identity;
use anyhow::Context;
use client_host::{Access, ClientHost, Modes};
use command::options::Layers;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::AuthName;

/// A start without monitors is not held up for longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the monitors that `mon_host` names, with the daemon's own key.
pub fn fetch(layers: &Layers) -> anyhow::Result<BTreeMap<String, String>> {
    let name = &layers.identity().name;
    let auth_name: AuthName = name.parse().ok().with_context(|| format!("{name} is no entity"))?;
    let access = Access {
        name: auth_name.clone(),
        key: identity::own_key(&SessionOptions::read(layers), name)?,
        monitors: identity::monitors(layers)?,
        modes: Modes::Default,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { ClientHost::new(&access)?.options_of(&auth_name, PATIENCE).await })
}
