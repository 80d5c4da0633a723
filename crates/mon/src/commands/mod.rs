//! The commands that the monitor answers: one table row each, in the file of its subject.
//!
//! A row is what `ceph` is told about the command (its signature, see `signature`) and the function that runs it.
//! What is not in a table is not announced, and refused as stock refuses an unknown command.

mod auth;
mod cluster;
mod config;
mod config_key;
mod keyring;
mod log;
mod mgr;
mod mon;
mod osd;

pub use cluster::status_json;
pub use keyring::Keyring;
pub(crate) use osd::pool;

use crate::options::MonOptions;
use crate::proposal::Change;
use crate::state::State;
use bytes::Bytes;
use command::options::Layers;
use command::{Answer, Args, Format, Json, signature};
use machine::Random;
use std::collections::BTreeMap;
use wire::types::{AuthName, EntityAddrVec, PgMapDigest, ProgressEvent, UTime};

/// What others told the leader and that is not worth the log: it comes again within seconds.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// The manager's sums over PGs and OSDs.
    pub digest: PgMapDigest,
    /// Health checks that the manager finds.
    pub health: BTreeMap<String, wire::types::HealthCheck>,
    pub progress: BTreeMap<String, ProgressEvent>,
    /// The manager's map of other services, encoded.
    pub service_map: Bytes,
}

/// Either way it is an answer; `Err` is for `?`.
pub type Outcome = Result<Answer, Answer>;

/// The monitor's own situation, for the commands that show it.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// Wall time.
    pub now: UTime,
    pub name: String,
    pub version: String,
    pub host: String,
    pub election_epoch: u64,
    /// Ranks.
    pub quorum: Vec<usize>,
    pub leader: usize,
    pub quorum_age_s: u64,
    /// How many sessions of each kind have which features: for `features`.
    pub peers: BTreeMap<(&'static str, u64), usize>,
}

/// What a command is run with.
pub struct Ctx<'a> {
    /// For a command that changes something, with everything that was proposed before it.
    pub state: &'a State,
    pub reports: &'a Reports,
    pub situation: &'a Situation,
    pub args: &'a Args,
    /// What came with the command (`-i FILE`).
    pub input: &'a Bytes,
    pub caller: &'a AuthName,
    pub caller_addrs: &'a EntityAddrVec,
    /// What the caller can read: maps as bytes are written for it.
    pub caller_features: codec::Features,
    pub now: UTime,
    pub random: &'a mut Random,
    pub options: &'a MonOptions,
    /// The monitor's own configuration, which `options` was read from.
    pub layers: &'a Layers,
    /// What it proposes; together or not at all.
    pub changes: Vec<Change>,
}

impl Ctx<'_> {
    /// JSON in the format asked for, or the text when that is plain.
    pub fn show(&self, json: impl FnOnce() -> Json, plain: impl FnOnce() -> String) -> Answer {
        match self.args.format() {
            Format::Plain => Answer::body(plain()),
            Format::Json => Answer::body(json().compact()),
            Format::JsonPretty => Answer::body(json().pretty()),
        }
    }

    /// For a command without a plain form: pretty JSON where none was asked for.
    pub fn show_json(&self, json: Json) -> Answer {
        Answer::json(self.args.format(), &json)
    }
}

/// One command.
pub struct Command {
    pub signature: &'static str,
    pub help: &'static str,
    pub module: &'static str,
    /// Of `rwx`.
    pub permissions: &'static str,
    pub flags: u64,
    pub run: fn(&mut Ctx<'_>) -> Outcome,
}

impl Command {
    /// Answered by whatever daemon it is sent to (`ceph tell mon.a …`), also without a quorum.
    pub const TELL: u64 = 1 | 32;
    pub const DEPRECATED: u64 = 4;
    /// Not for people: `ceph` does not list it.
    pub const HIDDEN: u64 = 32;

    pub fn changes_state(&self) -> bool {
        self.permissions.contains(['w', 'x'])
    }
}

/// `command! { "signature", "help", "module", "perm", run }`
macro_rules! commands {
    ($($signature:expr, $help:literal, $module:literal, $permissions:literal, $run:expr $(, $flags:expr)?;)*) => {
        &[$($crate::commands::Command {
            signature: $signature,
            help: $help,
            module: $module,
            permissions: $permissions,
            flags: 0 $(| $flags)?,
            run: $run,
        }),*]
    };
}
pub(crate) use commands;

const TABLES: &[&[Command]] = &[
    cluster::COMMANDS,
    mon::COMMANDS,
    osd::COMMANDS,
    osd::crush::COMMANDS,
    osd::pool::COMMANDS,
    osd::pg::COMMANDS,
    auth::COMMANDS,
    config::COMMANDS,
    config_key::COMMANDS,
    log::COMMANDS,
    mgr::COMMANDS,
];

pub fn all() -> impl Iterator<Item = &'static Command> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// By the words before its arguments.
pub fn find(prefix: &str) -> Option<&'static Command> {
    all().find(|command| signature::prefix(command.signature) == prefix)
}

/// How many daemons have each value of a metadata field.
fn count_by<'a>(daemons: impl IntoIterator<Item = &'a BTreeMap<String, String>>, property: &str) -> Json {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for fields in daemons {
        *counts.entry(fields.get(property).map_or("unknown", String::as_str)).or_default() += 1;
    }
    Json::Object(counts.into_iter().map(|(value, n)| (value.to_owned().into(), n.into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_has_its_own_name_and_real_permissions() {
        let mut seen = BTreeSet::new();
        for command in all() {
            let name = signature::prefix(command.signature);
            assert!(seen.insert(name.clone()), "{name} is there twice");
            assert!(
                !command.permissions.is_empty() && command.permissions.chars().all(|c| "rwx".contains(c))
            );
            assert!(command.help.len() > 5, "{name}");
        }
    }
}
