//! Options: built-in, from file and command line, from the monitor, injected; the later over the earlier.

use std::collections::BTreeMap;

pub struct Options {
    local: BTreeMap<String, String>,
    monitor: BTreeMap<String, String>,
    injected: BTreeMap<String, String>,
}

/// Those that an OSD acts on, with their defaults; durations in seconds.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("osd_beacon_report_interval", "10"),
    ("osd_heartbeat_grace", "20"),
    ("osd_heartbeat_interval", "6"),
    ("osd_failsafe_full_ratio", "0.97"),
    ("osd_mgr_stats_period", "5"),
];

impl Options {
    pub fn new(local: BTreeMap<String, String>) -> Options {
        Options { local, monitor: BTreeMap::new(), injected: BTreeMap::new() }
    }

    pub fn set_by_monitor(&mut self, options: BTreeMap<String, String>) {
        self.monitor = options.into_iter().map(|(k, v)| (plain(&k), v)).collect();
    }

    pub fn inject(&mut self, name: &str, value: &str) {
        self.injected.insert(plain(name), value.to_owned());
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let name = plain(name);
        let layers = [&self.injected, &self.monitor, &self.local];
        let set = layers.into_iter().find_map(|layer| layer.get(&name)).map(String::as_str);
        set.or_else(|| DEFAULTS.iter().find(|(n, _)| *n == name).map(|(_, v)| *v))
    }

    pub fn number(&self, name: &str) -> f64 {
        let default = DEFAULTS.iter().find(|(n, _)| *n == name).and_then(|(_, v)| v.parse().ok());
        self.get(name).and_then(|v| v.parse().ok()).or(default).unwrap_or(0.0)
    }

    /// Everything that is set or has a default.
    pub fn all(&self) -> BTreeMap<String, String> {
        let mut out: BTreeMap<String, String> =
            DEFAULTS.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        for layer in [&self.local, &self.monitor, &self.injected] {
            out.extend(layer.iter().map(|(k, v)| (plain(k), v.clone())));
        }
        out
    }
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
        options.local.insert("osd_heartbeat_interval".into(), "7".into());
        options.set_by_monitor([("osd_heartbeat_interval".into(), "8".into())].into());
        assert_eq!(options.number("osd_heartbeat_interval"), 8.0);
        options.inject("osd-heartbeat-interval", "9");
        assert_eq!(options.number("osd_heartbeat_interval"), 9.0);
        options.inject("osd_heartbeat_interval", "soon");
        assert_eq!(options.number("osd_heartbeat_interval"), 6.0, "what is no number falls back");
    }
}
