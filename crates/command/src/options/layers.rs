//! The layers of one daemon's configuration, and the value that holds.
//!
//! From weakest to strongest, as stock's (`src/common/config_values.h`): the compiled default, the monitors'
//! database, `ceph.conf`, the command line, and what was set in the running process (`ceph tell … config set`,
//! `injectargs`, the admin socket). Each daemon has one [`Layers`], owned by its machine: every change comes in
//! there, as a message or a command, and typed snapshots go out to the parts that act on options.

use super::expand::{Identity, expand};
use super::report::Reported;
use super::table::{self, Daemon, Definition, When, normal_name};
use super::value::{FromValue, Unfit, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The layers above the default, weakest first, with the numbers of Ceph's `config_level_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Default = 0,
    Monitor = 1,
    File = 2,
    CommandLine = 4,
    Override = 5,
}

impl Source {
    pub fn name(self) -> &'static str {
        Source::name_of(self as i32)
    }

    /// The name of a level that some daemon reported.
    pub fn name_of(level: i32) -> &'static str {
        match level {
            0 => "default",
            1 => "mon",
            2 => "file",
            3 => "env",
            4 => "cmdline",
            5 => "override",
            6 => "final",
            _ => "???",
        }
    }
}

/// One daemon's configuration.
#[derive(Clone, Debug)]
pub struct Layers {
    identity: Identity,
    /// Of each option that some layer sets: its values by layer, unexpanded.
    set: BTreeMap<&'static str, BTreeMap<Source, Value>>,
    /// Values in the monitors' database that wait for a restart.
    ignored: BTreeMap<&'static str, Value>,
    is_running: bool,
    revision: u64,
}

/// A value that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub name: String,
    pub text: String,
    pub why: Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    NoSuchOption,
    /// The option is read when the daemon starts, and it has started.
    NotWhileRunning,
    Unfit(Unfit),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { name, text, why } = self;
        match why {
            Refused::NoSuchOption => write!(f, "there is no option {name}"),
            Refused::NotWhileRunning => write!(f, "{name} = {text} takes effect when the daemon restarts"),
            Refused::Unfit(why) => write!(f, "{name} = {text}: {why}"),
        }
    }
}

impl Problem {
    /// The daemon would act on the option.
    pub fn concerns(&self, daemon: Option<Daemon>) -> bool {
        let row = table::find(&self.name);
        row.zip(daemon).is_some_and(|(row, daemon)| row.acts_on(daemon).is_some())
    }
}

/// A cephx secret that may stand in `ceph.conf`. It never becomes a value, because values are shown.
const SECRET: &str = "key";

impl Layers {
    pub fn new(identity: Identity) -> Layers {
        Layers { identity, set: BTreeMap::new(), ignored: BTreeMap::new(), is_running: false, revision: 0 }
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Goes up when a value may have changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Sets a layer of a daemon that has not started yet; returns the values that were not taken.
    pub fn fill<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        source: Source,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, text) in pairs {
            let (name, text) = (normal_name(name.as_ref()), text.as_ref());
            if name != SECRET
                && let Err(why) = parse(&name, text).map(|(row, value)| self.put(row, source, value))
            {
                problems.push(Problem { name, text: text.to_owned(), why });
            }
        }
        problems
    }

    /// From now on options that are read at start keep their values.
    pub fn run(&mut self) {
        self.is_running = true;
    }

    /// The monitors' database as it is now for this daemon; returns the values that were not taken.
    pub fn set_monitor(&mut self, values: &BTreeMap<String, String>) -> Vec<Problem> {
        self.revision += 1;
        let mut problems = Vec::new();
        let mut ignored = BTreeMap::new();
        let mut kept: BTreeSet<&'static str> = BTreeSet::new();
        for (name, text) in values {
            let name = normal_name(name);
            let (row, value) = match parse(&name, text) {
                Ok((row, _)) if !row.is_set_in_monitor() => continue,
                Ok(parsed) => parsed,
                Err(why) => {
                    problems.push(Problem { name, text: text.clone(), why });
                    continue;
                }
            };
            kept.insert(row.name);
            if self.is_running && !row.can_update_at_runtime() && *self.raw(row).0 != value {
                if self.ignored.get(row.name) != Some(&value) && self.acts_on(row).is_some() {
                    problems.push(Problem { name, text: text.clone(), why: Refused::NotWhileRunning });
                }
                ignored.insert(row.name, value);
            } else {
                self.put(row, Source::Monitor, value);
            }
        }
        self.ignored = ignored;
        for (name, layers) in &mut self.set {
            let may_go = !self.is_running || table::find(name).is_some_and(Definition::can_update_at_runtime);
            if may_go && !kept.contains(name) {
                layers.remove(&Source::Monitor);
            }
        }
        self.set.retain(|_, layers| !layers.is_empty());
        problems
    }

    /// True when the value that holds is the monitors' database's.
    pub fn is_from_monitors(&self, name: &str) -> bool {
        table::find(name).is_some_and(|row| self.raw(row).1 == Source::Monitor)
    }

    /// Leaves out the database's value of an option, before the daemon runs, and returns it if it was in force.
    pub fn drop_monitor_value(&mut self, name: &str) -> Option<Value> {
        let is_in_force = self.is_from_monitors(name);
        let layers = self.set.get_mut(name)?;
        let value = layers.remove(&Source::Monitor)?;
        if layers.is_empty() {
            self.set.remove(name);
        }
        self.revision += 1;
        is_in_force.then_some(value)
    }

    /// Sets an option for as long as the process runs.
    pub fn set_override(&mut self, name: &str, text: &str) -> Result<&'static Definition, Refused> {
        let (row, value) = parse(&normal_name(name), text)?;
        if self.is_running && !row.can_update_at_runtime() && *self.raw(row).0 != value {
            return Err(Refused::NotWhileRunning);
        }
        self.put(row, Source::Override, value);
        Ok(row)
    }

    /// Takes back [`Layers::set_override`]. `Ok(None)` when the process has no value of its own.
    pub fn unset_override(&mut self, name: &str) -> Result<Option<&'static Definition>, Refused> {
        let row = table::find(&normal_name(name)).ok_or(Refused::NoSuchOption)?;
        let Some(layers) = self.set.get_mut(row.name) else { return Ok(None) };
        let was_set = layers.remove(&Source::Override).is_some();
        self.revision += u64::from(was_set);
        Ok(was_set.then_some(row))
    }

    fn put(&mut self, row: &'static Definition, source: Source, value: Value) {
        self.revision += 1;
        self.set.entry(row.name).or_default().insert(source, value);
    }

    fn raw(&self, row: &'static Definition) -> (&Value, Source) {
        let strongest = self.set.get(row.name).and_then(|layers| layers.last_key_value());
        strongest.map_or((row.default(), Source::Default), |(source, value)| (value, *source))
    }

    /// The value that holds, expanded, and the layer that it comes from.
    pub fn value(&self, row: &'static Definition) -> (Value, Source) {
        let (value, source) = self.raw(row);
        let value = match value {
            Value::Text(text) if text.contains('$') => {
                let other = |name: &str| Some(self.raw(table::find(name)?).0.to_string());
                Value::Text(expand(text, &self.identity, &other))
            }
            value => value.clone(),
        };
        (value, source)
    }

    /// The value of an option of the table, for a part of the program that acts on it.
    ///
    /// # Panics
    /// When the table has no such option, or the option is of another type.
    pub fn get<T: FromValue>(&self, name: &'static str) -> T {
        let row = table::find(name).unwrap_or_else(|| panic!("the table has no option {name}"));
        let value = T::from_value(&self.value(row).0);
        value.unwrap_or_else(|| panic!("{name} is of type {}", row.type_name))
    }

    /// The layers of each option that some layer sets, and the default first.
    pub fn differing(
        &self,
    ) -> impl Iterator<Item = (&'static Definition, impl Iterator<Item = (Source, &Value)>)> {
        self.set.iter().filter_map(|(name, layers)| {
            let row = table::find(name)?;
            let default = std::iter::once((Source::Default, row.default()));
            Some((row, default.chain(layers.iter().map(|(source, value)| (*source, value)))))
        })
    }

    /// When this daemon acts on the option, if it does.
    pub fn acts_on(&self, row: &Definition) -> Option<When> {
        self.identity.daemon().and_then(|daemon| row.acts_on(daemon))
    }

    /// The configuration as the manager is told of it, for `ceph config show`.
    pub fn report(&self) -> Reported {
        // Stock leaves out what it sets itself at every start.
        let is_told = |name: &str| !matches!(name, "fsid" | "host");
        let own = |name: &str, layers: &BTreeMap<Source, Value>| {
            let values = layers.iter().map(|(source, value)| (*source as i32, value.to_string()));
            (name.to_owned(), values.collect())
        };
        let mut values: BTreeMap<String, BTreeMap<i32, String>> = self
            .set
            .iter()
            .filter(|(name, _)| is_told(name))
            .map(|(name, layers)| own(name, layers))
            .collect();
        for name in self.ignored.keys().filter(|name| is_told(name) && !self.set.contains_key(*name)) {
            let default = table::find(name).map(|row| row.default().to_string()).unwrap_or_default();
            values.insert((*name).to_owned(), [(Source::Default as i32, default)].into());
        }
        let ignored = self.ignored.iter().map(|(name, value)| ((*name).to_owned(), value.to_string()));
        Reported { values, ignored: ignored.collect() }
    }
}

fn parse(name: &str, text: &str) -> Result<(&'static Definition, Value), Refused> {
    let row = table::find(name).ok_or(Refused::NoSuchOption)?;
    Ok((row, row.parse_value(text).map_err(Refused::Unfit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osd() -> Layers {
        Layers::new(Identity { host: "hull".into(), pid: 9, ..Identity::named("osd.1") })
    }

    fn mon(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
    }

    fn shown(layers: &Layers, name: &str) -> (String, &'static str) {
        let (value, source) = layers.value(table::find(name).unwrap());
        (value.to_string(), source.name())
    }

    #[test]
    fn stronger_layer_wins_and_gives_way_when_removed() {
        let name = "osd_heartbeat_grace";
        let mut layers = osd();
        assert_eq!(shown(&layers, name), ("20".into(), "default"));
        layers.set_monitor(&mon(&[("osd heartbeat grace", "25")]));
        assert_eq!(shown(&layers, name), ("25".into(), "mon"));
        assert_eq!(layers.fill(Source::File, [("osd-heartbeat-grace", "30")]), []);
        assert_eq!(shown(&layers, name), ("30".into(), "file"));
        assert_eq!(layers.fill(Source::CommandLine, [(name, "35")]), []);
        assert_eq!(shown(&layers, name), ("35".into(), "cmdline"));
        layers.set_override(name, "40").unwrap();
        assert_eq!(shown(&layers, name), ("40".into(), "override"));
        assert!(layers.unset_override(name).unwrap().is_some());
        assert!(layers.unset_override(name).unwrap().is_none());
        assert_eq!(shown(&layers, name), ("35".into(), "cmdline"));
        assert_eq!(layers.get::<u64>(name), 35);
    }

    #[test]
    fn variables_are_expanded_when_read() {
        let mut layers = osd();
        layers.fill(Source::File, [("run dir", "/run/$cluster"), ("key", "AQ==")]);
        assert_eq!(layers.get::<String>("admin_socket"), "/run/ceph/osd.1.asok");
        assert_eq!(layers.get::<String>("bluestore_block_path"), "/run/ceph/osd.1/block");
        assert_eq!(shown(&layers, "key"), (String::new(), "default"), "a secret is no value");
    }

    #[test]
    fn unfit_values_leave_the_next_layer_in_force() {
        let mut layers = osd();
        let problems = layers.fill(Source::File, [("osd_memory_target", "much"), ("no_such", "1")]);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].concerns(Some(Daemon::Osd)) && !problems[1].concerns(Some(Daemon::Osd)));
        let problems = layers.set_monitor(&mon(&[("osd_memory_target", "1G"), ("osd_heartbeat_grace", "x")]));
        assert_eq!(problems.len(), 1);
        assert_eq!(layers.get::<u64>("osd_memory_target"), 1 << 30);
        assert_eq!(layers.get::<u64>("osd_heartbeat_grace"), 20);
        let unfit = layers.set_override("shoal_balance_pgs", "perhaps");
        assert!(matches!(unfit, Err(Refused::Unfit(_))));
        assert!(matches!(layers.set_override("no_such", "1"), Err(Refused::NoSuchOption)));
    }

    #[test]
    fn start_options_wait_for_a_restart_once_running() {
        let mut layers = osd();
        layers.set_monitor(&mon(&[("shoal_cores", "2")]));
        layers.run();
        assert_eq!(layers.set_monitor(&mon(&[("shoal_cores", "2")])), []);
        let problems = layers.set_monitor(&mon(&[("shoal_cores", "4")]));
        assert_eq!(problems[0].why, Refused::NotWhileRunning);
        assert_eq!(layers.set_monitor(&mon(&[("shoal_cores", "4")])), [], "said once");
        assert_eq!(shown(&layers, "shoal_cores"), ("2".into(), "mon"));
        assert_eq!(layers.report().ignored, mon(&[("shoal_cores", "4")]));
        layers.set_monitor(&BTreeMap::new());
        assert_eq!(shown(&layers, "shoal_cores"), ("2".into(), "mon"), "the daemon still runs with it");
        assert_eq!(layers.set_override("shoal_cores", "8").unwrap_err(), Refused::NotWhileRunning);
    }

    #[test]
    fn removal_from_the_database_takes_effect() {
        let mut layers = osd();
        layers.run();
        layers.set_monitor(&mon(&[("osd_heartbeat_interval", "8")]));
        let before = layers.revision();
        layers.set_monitor(&BTreeMap::new());
        assert_eq!(layers.get::<u64>("osd_heartbeat_interval"), 6);
        assert!(layers.revision() > before);
    }
}
