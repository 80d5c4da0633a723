//! The configuration that the cluster keeps for its daemons and clients.
//!
//! A value is set for a *section* (`global`, a type such as `osd`, or a name such as `osd.3` or `client.rgw.a`),
//! optionally with a *mask* that narrows it (`host:x`, `class:ssd`). For one receiver, the more specific section
//! wins, then the mask.

use crate::config_target::{ConfigChange, Receiver, Target};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, VecDeque};
use wire::types::UTime;

/// A line of `ceph config log`: what one command changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigLogEntry {
    pub version: u64,
    pub at: UTime,
    pub name: String,
    /// Key (`osd/debug_osd`), value before, value after.
    pub diff: Vec<(String, Option<String>, Option<String>)>,
}

impl Encode for ConfigLogEntry {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.put(&self.at);
        w.put(&self.name);
        w.put(&self.diff);
    }
}

impl Decode for ConfigLogEntry {
    const MIN_LEN: usize = 24;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ConfigLogEntry { version: r.u64()?, at: r.get()?, name: r.get()?, diff: r.get()? })
    }
}

/// Maximum number of changes that `ceph config log` keeps.
const LOG_LEN_MAX: usize = 100;

#[derive(Clone, Debug, Default)]
pub struct ConfigDb {
    pub version: u64,
    pub values: BTreeMap<(Target, String), String>,
    /// Newest last.
    pub log: VecDeque<ConfigLogEntry>,
}

impl ConfigDb {
    pub fn apply(&mut self, at: UTime, name: &str, changes: &[ConfigChange]) {
        self.version += 1;
        let mut diff = Vec::new();
        for change in changes {
            let key = (change.target.clone(), change.option.clone());
            let before = match &change.value {
                Some(value) => self.values.insert(key, value.clone()),
                None => self.values.remove(&key),
            };
            if before != change.value {
                diff.push((format!("{}/{}", change.target, change.option), before, change.value.clone()));
            }
        }
        self.log.push_back(ConfigLogEntry { version: self.version, at, name: name.into(), diff });
        while self.log.len() > LOG_LEN_MAX {
            self.log.pop_front();
        }
    }

    /// Every option set for the receiver, with where it was set.
    pub fn resolve(&self, to: &Receiver<'_>) -> BTreeMap<&str, (&Target, &str)> {
        let mut best: BTreeMap<&str, ((usize, usize), &Target, &str)> = BTreeMap::new();
        for ((target, option), value) in &self.values {
            let Some(rank) = target.rank(to) else { continue };
            let entry = best.entry(option).or_insert((rank, target, value));
            if rank >= entry.0 {
                *entry = (rank, target, value);
            }
        }
        best.into_iter().map(|(option, (_, target, value))| (option, (target, value))).collect()
    }
}

impl Encode for ConfigDb {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.version);
            w.put(&self.values);
            w.put(&self.log);
        });
    }
}

impl Decode for ConfigDb {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("config database", 1, |r, _| {
            Ok(ConfigDb { version: r.u64()?, values: r.get()?, log: r.get()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(values: &[(&str, &str)], name: &str, class: &str) -> Option<String> {
        let mut db = ConfigDb::default();
        let changes: Vec<_> = values
            .iter()
            .map(|(target, value)| ConfigChange {
                target: Target::parse(target).unwrap(),
                option: "x".into(),
                value: Some(value.to_string()),
            })
            .collect();
        db.apply(UTime::ZERO, "client.admin", &changes);
        let name = name.parse().unwrap();
        let to = Receiver { name: &name, host: "h", device_class: class };
        db.resolve(&to).get("x").map(|(_, value)| value.to_string())
    }

    #[test]
    fn the_most_specific_section_wins() {
        let all = [("global", "g"), ("osd", "o"), ("osd.1", "one"), ("osd/class:ssd", "s")];
        assert_eq!(resolved(&all, "osd.1", "hdd").as_deref(), Some("one"));
        assert_eq!(resolved(&all, "osd.2", "hdd").as_deref(), Some("o"));
        assert_eq!(resolved(&all, "osd.2", "ssd").as_deref(), Some("s"));
        assert_eq!(resolved(&all, "mon.a", "").as_deref(), Some("g"));
        assert_eq!(resolved(&[("client.rgw", "r")], "client.rgw.a", "").as_deref(), Some("r"));
        assert_eq!(resolved(&[("client.rg", "r")], "client.rgw.a", ""), None);
    }

    #[test]
    fn targets_read_and_write_as_people_write_them() {
        for text in ["global", "osd", "osd.3", "osd/class:ssd", "osd/host:a", "client.rgw.x"] {
            assert_eq!(Target::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Target::parse("host:a").unwrap().to_string(), "global/host:a");
        assert!(Target::parse("nonsense").is_err() && Target::parse("osd/x").is_err());
        assert!(Target::parse("osd.").is_err());
    }

    #[test]
    fn the_log_keeps_what_was_before() {
        let mut db = ConfigDb::default();
        let change = |value: Option<&str>| ConfigChange {
            target: Target::parse("osd").unwrap(),
            option: "x".into(),
            value: value.map(str::to_owned),
        };
        db.apply(UTime::ZERO, "client.admin", &[change(Some("1"))]);
        db.apply(UTime::ZERO, "client.admin", &[change(None)]);
        assert_eq!(db.log[1].diff, [("osd/x".to_owned(), Some("1".to_owned()), None)]);
        assert_eq!(db.log[1].version, 2);
        assert!(db.values.is_empty());
    }
}
