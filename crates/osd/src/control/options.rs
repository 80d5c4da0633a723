//! Options: built-in, from the monitor, from file and command line, injected; the later over the earlier, as stock's.

use command::{Json, object, options};
use std::collections::{BTreeMap, BTreeSet};

/// Why an option is not set.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    NoSuchOption,
    BadValue(String),
}

pub struct Options {
    monitor: BTreeMap<String, String>,
    local: BTreeMap<String, String>,
    injected: BTreeMap<String, String>,
    /// Goes up when anything is set.
    revision: u64,
    /// As it was when [`Options::take_changed`] was asked last.
    taken: u64,
}

/// Those that an OSD acts on, with their defaults; durations in seconds.
pub const DEFAULTS: &[(&str, &str)] = &[
    // Ceph's is snappy, which there is not.
    ("bluestore_compression_algorithm", "lz4"),
    ("bluestore_compression_max_blob_size", "0"),
    ("bluestore_compression_min_blob_size", "0"),
    ("bluestore_compression_mode", "none"),
    ("bluestore_compression_required_ratio", "0.875"),
    ("osd_beacon_report_interval", "10"),
    ("osd_heartbeat_grace", "20"),
    ("osd_heartbeat_interval", "6"),
    ("osd_failsafe_full_ratio", "0.97"),
    ("osd_mgr_stats_period", "5"),
    ("shoal_balance_pgs", "true"),
];

impl Options {
    pub fn new(local: BTreeMap<String, String>) -> Options {
        Options { local, monitor: BTreeMap::new(), injected: BTreeMap::new(), revision: 0, taken: 0 }
    }

    pub fn set_by_monitor(&mut self, options: BTreeMap<String, String>) {
        self.revision += 1;
        self.monitor = options.into_iter().map(|(k, v)| (plain(&k), v)).collect();
    }

    /// Set it for as long as this process runs: the value as it is kept, or what is wrong with it.
    pub fn inject(&mut self, name: &str, value: &str) -> Result<String, Refused> {
        let name = plain(name);
        let value = match options::find(&name) {
            Some(option) => option.normalize(value).map_err(Refused::BadValue)?,
            None if self.local.contains_key(&name) => value.to_owned(),
            None => return Err(Refused::NoSuchOption),
        };
        self.revision += 1;
        self.injected.insert(name, value.clone());
        Ok(value)
    }

    /// What the monitor set and what was injected, when that has changed since this was asked last.
    pub fn take_changed(&mut self) -> Option<(BTreeMap<String, String>, BTreeMap<String, String>)> {
        let is_changed = std::mem::replace(&mut self.taken, self.revision) != self.revision;
        is_changed.then(|| (self.monitor.clone(), self.injected.clone()))
    }

    /// False when it was not injected.
    pub fn withdraw(&mut self, name: &str) -> bool {
        self.revision += 1;
        self.injected.remove(&plain(name)).is_some()
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let name = plain(name);
        let layers = [&self.injected, &self.local, &self.monitor];
        let set = layers.into_iter().find_map(|layer| layer.get(&name)).map(String::as_str);
        set.or_else(|| default_of(&name))
    }

    /// Of every option that is not as built in: where it is set, the nearest last, and what holds.
    pub fn diff(&self) -> Json {
        let mut names: BTreeSet<&String> = BTreeSet::new();
        let layers = [("mon", &self.monitor), ("file", &self.local), ("override", &self.injected)];
        layers.iter().for_each(|(_, layer)| names.extend(layer.keys()));
        let mut out = Json::Object(Vec::new());
        for name in names {
            let mut row = object! { "default" => default_of(name).unwrap_or_default() };
            for (source, layer) in layers {
                if let Some(value) = layer.get(name) {
                    row.push(source, value.as_str());
                }
            }
            row.push("final", self.get(name).unwrap_or_default());
            out.push(name.clone(), row);
        }
        object! { "diff" => out }
    }

    pub fn number(&self, name: &str) -> f64 {
        let default = DEFAULTS.iter().find(|(n, _)| *n == name).and_then(|(_, v)| v.parse().ok());
        self.get(name).and_then(|v| v.parse().ok()).or(default).unwrap_or(0.0)
    }

    /// Everything that is set or has a default.
    pub fn all(&self) -> BTreeMap<String, String> {
        let mut out: BTreeMap<String, String> =
            DEFAULTS.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        for layer in [&self.monitor, &self.local, &self.injected] {
            out.extend(layer.iter().map(|(k, v)| (plain(k), v.clone())));
        }
        out
    }
}

fn default_of(name: &str) -> Option<&'static str> {
    let own = DEFAULTS.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
    own.or_else(|| options::default_of(name))
}

/// Ceph lets options be written with spaces or dashes as well.
fn plain(name: &str) -> String {
    name.replace([' ', '-'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_layer_wins() {
        let mut options = Options::new([("osd heartbeat grace".into(), "30".into())].into());
        assert_eq!(options.number("osd_heartbeat_interval"), 6.0);
        options.set_by_monitor([("osd_heartbeat_interval".into(), "8".into())].into());
        assert_eq!(options.number("osd_heartbeat_interval"), 8.0);
        options.local.insert("osd_heartbeat_interval".into(), "7".into());
        assert_eq!(options.number("osd_heartbeat_interval"), 7.0, "a file is nearer");
        options.inject("osd-heartbeat-interval", "9").unwrap();
        assert_eq!(options.number("osd_heartbeat_interval"), 9.0);
        let diff = options.diff().compact();
        assert!(
            diff.contains(
                r#""osd_heartbeat_interval":{"default":"6","mon":"8","file":"7","override":"9","final":"9"}"#
            ),
            "{diff}"
        );
        assert!(options.withdraw("osd_heartbeat_interval"));
        assert_eq!(options.number("osd_heartbeat_interval"), 7.0);
        assert!(!options.withdraw("osd_heartbeat_interval"));
        assert!(options.take_changed().is_some());
        assert_eq!(options.take_changed(), None);
        options.local.clear();
        options.set_by_monitor([("osd_heartbeat_interval".into(), "soon".into())].into());
        assert_eq!(options.number("osd_heartbeat_interval"), 6.0, "what is no number falls back");
    }

    #[test]
    fn only_values_of_options_that_exist_are_injected() {
        let mut options = Options::new(BTreeMap::new());
        assert_eq!(options.inject("nonsense", "9"), Err(Refused::NoSuchOption));
        assert!(matches!(options.inject("osd_max_backfills", "soon"), Err(Refused::BadValue(_))));
        assert_eq!(options.inject("debug_osd", "5"), Ok("5/5".into()));
        assert_eq!(options.get("debug_osd"), Some("5/5"));
        assert_eq!(options.get("osd_max_backfills"), Some("1"), "stock's default of what is not acted on");
    }
}
