//! The commands that the monitor answers: one table row each, in the file of its subject.
//!
//! A row has the command's signature and help, which `ceph` is told, and the function that runs it.
//! Commands without a row are not announced, and are refused as stock refuses an unknown command.

mod auth;
mod cluster;
mod config;
mod config_key;
mod device;
mod host;
mod join;
mod keyring;
mod log;
pub(crate) mod mgr;
mod mon;
mod mon_map;
mod osd;
mod token;

pub use cluster::status_json;
pub(crate) use join::hands_out_keys;
pub use keyring::Keyring;
pub(crate) use osd::{pool, pool_create, pool_snap};

use crate::options::MonOptions;
use crate::proposal::Change;
use crate::situation::{Reports, Situation};
use crate::state::State;
use bytes::Bytes;
use command::options::Layers;
use command::{Answer, Args, Format, Json, signature};
use machine::Random;
use std::collections::BTreeMap;
use wire::types::{AuthName, EntityAddrVec, UTime};

/// Either way it is an answer; `Err` is for `?`.
pub type Outcome = Result<Answer, Answer>;

/// The input of a command, and the changes that it proposes.
pub struct Ctx<'a> {
    /// For a command that changes something, with everything that was proposed before it.
    pub state: &'a State,
    pub reports: &'a Reports,
    pub situation: &'a Situation,
    pub args: &'a Args,
    /// The file that came with the command (`-i FILE`).
    pub input: &'a Bytes,
    pub caller: &'a AuthName,
    pub caller_addrs: &'a EntityAddrVec,
    /// The caller's features: encoded maps are written for them.
    pub caller_features: codec::Features,
    /// The caller's connection is encrypted, on all its way.
    pub caller_is_secure: bool,
    pub now: UTime,
    pub random: &'a mut Random,
    pub options: &'a MonOptions,
    /// The monitor's own configuration, which `options` was read from.
    pub layers: &'a Layers,
    /// Proposed changes; all or none are applied.
    pub changes: Vec<Change>,
}

impl Ctx<'_> {
    /// The document in the format asked for, or the text when that is plain.
    pub fn show(&self, json: impl FnOnce() -> Json, plain: impl FnOnce() -> String) -> Answer {
        match self.args.format() {
            Format::Plain => Answer::body(plain()),
            format => Answer::json(format, &json()),
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
    mon_map::COMMANDS,
    osd::COMMANDS,
    osd::crush::COMMANDS,
    osd::device_classes::COMMANDS,
    osd::weight_sets::COMMANDS,
    osd::pool::COMMANDS,
    osd::pg::COMMANDS,
    osd::exceptions::COMMANDS,
    osd::hold_flags::COMMANDS,
    auth::COMMANDS,
    config::COMMANDS,
    config_key::COMMANDS,
    log::COMMANDS,
    mgr::COMMANDS,
    token::COMMANDS,
    join::COMMANDS,
    host::COMMANDS,
    device::COMMANDS,
];

pub fn all() -> impl Iterator<Item = &'static Command> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// By the words before its arguments.
pub fn find(prefix: &str) -> Option<&'static Command> {
    all().find(|command| signature::prefix(command.signature) == prefix)
}

/// Number of daemons by value of a metadata field.
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
