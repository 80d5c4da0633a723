//! The configuration of every daemon as the daemon reports it, for `ceph config show`.

use bytes::Bytes;
use command::options::Layers;
use command::options::report::{Reported, defaults};
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct DaemonConfig {
    pub reported: Reported,
    /// The defaults compiled into the daemon.
    pub defaults: BTreeMap<String, String>,
}

/// By daemon: `osd.3`.
#[derive(Default)]
pub(crate) struct Configs(BTreeMap<String, DaemonConfig>);

impl Configs {
    pub fn get(&self, daemon: &str) -> Option<&DaemonConfig> {
        self.0.get(daemon)
    }

    /// A daemon that begins to report. Bytes that do not decode say nothing.
    pub fn on_open(&mut self, daemon: &str, config: &Bytes, defaults: &Bytes) {
        let entry = self.0.entry(daemon.to_owned()).or_default();
        entry.defaults = codec::decode_exact(defaults).unwrap_or_default();
        entry.reported = codec::decode_exact(config).unwrap_or_default();
    }

    /// An empty report: nothing has changed.
    pub fn on_report(&mut self, daemon: &str, config: &Bytes) {
        if !config.is_empty()
            && let Ok(reported) = codec::decode_exact(config)
        {
            self.0.entry(daemon.to_owned()).or_default().reported = reported;
        }
    }

    /// A daemon of this program, with the same defaults as this one.
    pub fn set_own(&mut self, daemon: &str, layers: &Layers) {
        self.set_kin(daemon, layers.report());
    }

    pub fn set_kin(&mut self, daemon: &str, reported: Reported) {
        let entry = self.0.entry(daemon.to_owned()).or_default();
        entry.reported = reported;
        if entry.defaults.is_empty() {
            entry.defaults = defaults();
        }
    }

    pub fn forget(&mut self, daemon: &str) {
        self.0.remove(daemon);
    }
}
