//! A monitor's settings, and its options as they change.

use super::{Effect, Monitor, Turn};
use crate::config_target::Receiver;
use crate::options::MonOptions;
use crate::proposal::Change;
use crate::state::ConfigDb;
use command::options::Layers;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::cephx::Key;
use wire::types::{AuthName, EntityAddrVec, EntityKind, LogPriority, Uuid};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMode {
    Cephx,
    None,
}

/// Settings of a monitor at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `a` of `mon.a`.
    pub name: String,
    pub addrs: EntityAddrVec,
    pub auth: AuthMode,
    pub host: String,
    /// The program's version text: `ceph version 20.2.4 (…) tentacle (stable)`.
    pub version: String,
    /// Options from the command line and the configuration file.
    pub options: Layers,
    /// About this daemon, for `ceph mon metadata`.
    pub metadata: BTreeMap<String, String>,
    pub fsid: Uuid,
    /// The key of `mon.`, which the monitors share. `None`: it is in the state, or the cluster runs without authentication.
    pub monitor_key: Option<Key>,
    /// Monitors to ask, for one whose disk is empty.
    pub seeds: Vec<EntityAddrVec>,
}

/// The monitor's own configuration.
pub(super) struct OwnOptions {
    pub layers: Layers,
    /// The version of the database that `layers` has.
    database_seen: u64,
    revision_told: u64,
}

impl OwnOptions {
    pub fn start(mut layers: Layers) -> OwnOptions {
        layers.run();
        OwnOptions { revision_told: layers.revision(), layers, database_seen: 0 }
    }
}

/// Values of the database for the daemon `name` on `host`: a monitor or its manager.
pub(super) fn of_daemon(database: &ConfigDb, name: &AuthName, host: &str) -> BTreeMap<String, String> {
    let values = database.resolve(&Receiver { name, host, device_class: "" }).into_iter();
    values.map(|(option, (_, value))| (option.to_owned(), value.to_owned())).collect()
}

impl Monitor {
    /// Acts on the database as it holds now, and on what was set in this process.
    pub(super) fn follow_options(&mut self, turn: &mut Turn<'_>) {
        let database = &self.states.committed.config;
        if database.version != self.own.database_seen {
            self.own.database_seen = database.version;
            let name = AuthName::new(EntityKind::MON, &self.settings.name);
            let values = of_daemon(database, &name, &self.settings.host);
            let problems = self.own.layers.set_monitor(&values);
            let now = self.wall(turn.now);
            let lines: Vec<Change> = problems
                .into_iter()
                .map(|problem| {
                    let line = format!("mon.{}: configuration: {problem}", self.settings.name);
                    self.log_change(now, LogPriority::WARN, "cluster", line)
                })
                .collect();
            self.propose(turn.now, lines);
        }
        if self.own.revision_told != self.own.layers.revision() {
            self.own.revision_told = self.own.layers.revision();
            self.options = MonOptions::read(&self.own.layers);
            turn.effects.push(Effect::Options(Arc::new(self.own.layers.clone())));
        }
    }
}
