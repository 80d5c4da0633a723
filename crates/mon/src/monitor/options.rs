//! What a monitor is told at its start, and the values of the options it acts by.

use super::Monitor;
use crate::state::Receiver;
use std::collections::BTreeMap;
use wire::types::{AuthName, EntityAddrVec, EntityKind};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMode {
    Cephx,
    None,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// `a` of `mon.a`.
    pub name: String,
    pub addrs: EntityAddrVec,
    pub auth: AuthMode,
    pub host: String,
    /// What this program calls itself: `ceph version 20.2.4 (…) tentacle (stable)`.
    pub version: String,
    /// Options from the command line and the configuration file, which win over the configuration database.
    pub local: BTreeMap<String, String>,
    /// About this daemon, for `ceph mon metadata`.
    pub metadata: BTreeMap<String, String>,
}

impl Monitor {
    /// An option's value as this monitor sees it, or as stock has it by default.
    pub(super) fn option(&self, name: &str) -> Option<String> {
        if let Some(value) = self.settings.local.get(name) {
            return Some(value.clone());
        }
        let me = AuthName::new(EntityKind::MON, self.settings.name.as_str());
        let to = Receiver { name: &me, host: &self.settings.host, device_class: "" };
        if let Some((_, value)) = self.committed.config.resolve(&to).get(name) {
            return Some((*value).to_owned());
        }
        crate::options::default_of(name).map(str::to_owned)
    }

    pub(super) fn option_f64(&self, name: &str) -> f64 {
        self.option(name).and_then(|v| v.parse().ok()).unwrap_or_default()
    }

    pub(super) fn option_u64(&self, name: &str) -> u64 {
        self.option(name).and_then(|v| v.parse::<f64>().ok()).unwrap_or_default() as u64
    }

    pub(super) fn option_bool(&self, name: &str) -> bool {
        matches!(self.option(name).as_deref(), Some("true" | "yes" | "on" | "1"))
    }
}
