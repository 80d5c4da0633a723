//! Which value of an option holds, and where does it come from?
//!
//! From weakest to strongest, as stock's: the default, the monitor's configuration database, `ceph.conf`, the command
//! line, what is set for as long as the process runs (`config set` to the daemon, by the cluster or the admin socket).

use super::expand::{Identity, expand};
use super::options::{self, Opt};
use conf::conf_file::{ConfFile, normalize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Default,
    Mon,
    File,
    Cmdline,
    Override,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::File => "file",
            Source::Mon => "mon",
            Source::Override => "override",
            Source::Cmdline => "cmdline",
        }
    }
}

/// One daemon's configuration. Keys are normalised; values are as given, expanded when read.
#[derive(Clone, Debug)]
pub struct Config {
    who: Identity,
    mon: BTreeMap<String, String>,
    file: BTreeMap<String, String>,
    cmdline: BTreeMap<String, String>,
    /// Through the cluster.
    injected: BTreeMap<String, String>,
    /// Through the admin socket.
    overrides: BTreeMap<String, String>,
}

impl Config {
    pub fn new(who: Identity, file: &ConfFile, cmdline: &[(&str, String)]) -> Config {
        let keys = file.keys_for(&who.name);
        let from_file =
            keys.iter().filter_map(|key| Some(((*key).to_owned(), file.get(&who.name, key)?.to_owned())));
        Config {
            mon: BTreeMap::new(),
            file: from_file.collect(),
            injected: BTreeMap::new(),
            overrides: BTreeMap::new(),
            cmdline: cmdline.iter().map(|(key, value)| (normalize(key), value.clone())).collect(),
            who,
        }
    }

    pub fn who(&self) -> &Identity {
        &self.who
    }

    /// The expanded value and where it comes from; `None` for an option that nobody set and shoal does not know.
    pub fn lookup(&self, key: &str) -> Option<(String, Source)> {
        let key = normalize(key);
        let layers = [
            (&self.overrides, Source::Override),
            (&self.injected, Source::Override),
            (&self.cmdline, Source::Cmdline),
            (&self.file, Source::File),
            (&self.mon, Source::Mon),
        ];
        let (raw, source) = layers
            .iter()
            .find_map(|(layer, source)| Some((layer.get(&key)?.as_str(), *source)))
            .or_else(|| Some((options::find(&key)?.default, Source::Default)))?;
        let other = |word: &str| {
            let value = layers.iter().find_map(|(layer, _)| layer.get(word).cloned());
            value.or_else(|| options::find(word).map(|opt| opt.default.to_owned()))
        };
        Some((expand(raw, &self.who, &other), source))
    }

    /// What the file and the command line set, expanded: for a role that layers its own database beneath.
    pub fn local_values(&self) -> BTreeMap<String, String> {
        let keys = self.file.keys().chain(self.cmdline.keys()).filter(|key| *key != "key");
        keys.filter_map(|key| Some((key.clone(), self.lookup(key)?.0))).collect()
    }

    /// The value of an option of the table.
    pub fn text(&self, name: &'static str) -> String {
        self.lookup(name).unwrap_or_else(|| panic!("{name} is not in the table of options")).0
    }

    /// `None` when the value is empty.
    pub fn text_if_set(&self, name: &'static str) -> Option<String> {
        Some(self.text(name)).filter(|value| !value.is_empty())
    }

    /// The number of a `Count` or `Size` option; one that does not parse is an error that names the option.
    pub fn number(&self, name: &'static str) -> anyhow::Result<u64> {
        let (value, source) =
            self.lookup(name).unwrap_or_else(|| panic!("{name} is not in the table of options"));
        options::parse_size(&value)
            .ok_or_else(|| anyhow::anyhow!("{name} = {value} (from {}): expected a number", source.name()))
    }

    /// What the monitor says (`ceph config set`), and what was set while the process runs (`ceph tell … config set`).
    /// Of an option that shoal acts on, a value that does not fit is as if it were not there.
    pub fn set_from_cluster(&mut self, mon: BTreeMap<String, String>, injected: BTreeMap<String, String>) {
        let fitting = |values: BTreeMap<String, String>| {
            let fits = |(key, value): (String, String)| {
                let key = normalize(&key);
                match options::find(&key) {
                    Some(opt) => Some((key, options::check(opt.kind, &value).ok()?)),
                    None => Some((key, value)),
                }
            };
            values.into_iter().filter_map(fits).collect()
        };
        self.mon = fitting(mon);
        self.injected = fitting(injected);
    }

    /// `config set` of the admin socket. Refuses a value that does not fit the option.
    pub fn set_override(&mut self, key: &str, value: &str) -> Result<&'static Opt, String> {
        let key = normalize(key);
        let opt = options::find(&key).ok_or_else(|| format!("shoal does not act on an option {key}"))?;
        let checked =
            options::check(opt.kind, value).map_err(|problem| format!("{key} = {value}: {problem}"))?;
        self.overrides.insert(key, checked);
        Ok(opt)
    }

    pub fn unset_override(&mut self, key: &str) -> bool {
        self.overrides.remove(&normalize(key)).is_some()
    }

    /// `config show`: every option with its value, as stock prints it. Never a key.
    pub fn show(&self) -> Map<String, Value> {
        let mut names: Vec<&str> = options::OPTIONS.iter().map(|opt| opt.name).collect();
        names.extend(self.file.keys().chain(self.mon.keys()).map(String::as_str).filter(|key| *key != "key"));
        names.sort_unstable();
        names.dedup();
        let mut out = Map::new();
        out.insert("name".into(), json!(self.who.name));
        out.insert("cluster".into(), json!(self.who.cluster));
        for name in names {
            if let Some((value, _)) = self.lookup(name) {
                out.insert(name.into(), json!(value));
            }
        }
        out
    }

    /// `config diff`: what differs from the default, with every layer's value.
    pub fn diff(&self) -> Value {
        let mut diff = Map::new();
        for opt in options::OPTIONS {
            let Some((value, source)) = self.lookup(opt.name) else { continue };
            if source == Source::Default {
                continue;
            }
            let mut entry = Map::new();
            entry.insert("default".into(), json!(opt.default));
            for (layer, source) in [
                (&self.mon, Source::Mon),
                (&self.file, Source::File),
                (&self.cmdline, Source::Cmdline),
                (&self.injected, Source::Override),
                (&self.overrides, Source::Override),
            ] {
                if let Some(raw) = layer.get(opt.name) {
                    entry.insert(source.name().into(), json!(raw));
                }
            }
            entry.insert("final".into(), json!(value));
            diff.insert(opt.name.into(), Value::Object(entry));
        }
        json!({ "diff": diff })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let file =
            ConfFile::parse("[global]\nrun dir = /x\nlog level = warn\n[osd]\nshoal cores = 2\n").unwrap();
        let who = Identity { name: "osd.1".into(), cluster: "ceph".into(), host: "hull".into(), pid: 9 };
        Config::new(who, &file, &[("osd-data", "/data".to_owned())])
    }

    #[test]
    fn the_stronger_layer_wins() {
        let mut config = config();
        assert_eq!(config.lookup("log_level"), Some(("warn".into(), Source::File)));
        assert_eq!(config.text("admin_socket"), "/x/osd.1.asok");
        let values = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let mon = values(&[("log level", "debug"), ("osd_memory_target", "1G"), ("osd_data", "/elsewhere")]);
        config.set_from_cluster(mon, BTreeMap::new());
        assert_eq!(config.lookup("log_level"), Some(("warn".into(), Source::File)), "a file is nearer");
        assert_eq!(config.lookup("osd_data"), Some(("/data".into(), Source::Cmdline)));
        assert_eq!(config.number("osd_memory_target").unwrap(), 1 << 30);
        config.set_from_cluster(values(&[("osd_memory_target", "much")]), values(&[("osd_data", "/there")]));
        assert_eq!(config.number("osd_memory_target").unwrap(), 4 << 30, "what does not fit is not there");
        assert_eq!(config.lookup("osd_data"), Some(("/there".into(), Source::Override)));
        config.set_override("log level", "trace").unwrap();
        assert_eq!(config.lookup("log-level"), Some(("trace".into(), Source::Override)));
        assert!(config.unset_override("log_level"));
        assert_eq!(config.lookup("log_level"), Some(("warn".into(), Source::File)));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        let mut config = config();
        assert!(config.set_override("shoal_cores", "many").unwrap_err().contains("whole number"));
        assert!(config.set_override("no_such", "1").is_err());
        assert_eq!(config.number("shoal_cores").unwrap(), 2);
    }
}
