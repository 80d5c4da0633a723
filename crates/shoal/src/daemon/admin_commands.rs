//! The commands that every daemon's admin socket answers.
//!
//! The ones below, and those of the daemon's role. Signatures are in Ceph's notation (`perf dump
//! name=logger,type=CephString,req=false`), because `ceph daemon` builds its argument parser from them.

use super::admin_socket::{PROTOCOL_VERSION, Reply, Request};
use super::log::Log;
use super::restart::Restart;
use crate::config::LiveOptions;
use crate::daemon::version;
use codec::Features;
use command::options::Layers;
use command::options::commands as option_commands;
use command::perf::{self, Counter, Filter};
use command::signature;
use serde_json::{Map, Value, json};
use std::sync::Mutex;

#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub signature: &'static str,
    pub help: &'static str,
}

/// State that the parts of a daemon's process share besides its role.
pub struct Common {
    live: Mutex<LiveOptions>,
    pub log: Log,
    pub restart: Restart,
}

impl Common {
    pub fn new(live: LiveOptions, log: Log, restart: Restart) -> Common {
        Common { live: Mutex::new(live), log, restart }
    }

    pub fn live(&self) -> LiveOptions {
        self.live.lock().expect("no holder of this lock panics").clone()
    }

    /// The role's configuration has changed.
    pub fn follow(&self, layers: &Layers) {
        let now = LiveOptions::read(layers);
        let before =
            std::mem::replace(&mut *self.live.lock().expect("no holder of this lock panics"), now.clone());
        if now.log_level != before.log_level
            && let Err(error) = self.log.set_level(&now.log_level)
        {
            tracing::warn!("log_level = {} is not in force: {error:#}", now.log_level);
        }
    }
}

const fn command(signature: &'static str, help: &'static str) -> Command {
    Command { signature, help }
}

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    command("0", ""),
    command("get_command_descriptions", "list available commands"),
    command("git_version", "get git sha1"),
    command("help", "list available commands"),
    command("log flush", "flush log entries to log file"),
    command("log reopen", "reopen log file"),
    command("perf dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false", "dump perfcounters value"),
    command("perf schema name=logger,type=CephString,req=false name=counter,type=CephString,req=false", "dump perfcounters schema"),
    command("version", "get ceph version"),
];

impl Command {
    /// The leading words, without the arguments.
    pub fn prefix(&self) -> String {
        signature::prefix(self.signature)
    }

    fn description(&self) -> Value {
        json!({ "sig": serde(&signature::describe(self.signature, Features::ALL)), "help": self.help })
    }
}

/// The same value as the library's type.
fn serde(json: &command::Json) -> Value {
    serde_json::from_str(&json.compact()).expect("what is written as JSON is JSON")
}

/// The commands about options, which the role answers.
fn of_options() -> impl Iterator<Item = Command> {
    option_commands::COMMANDS.iter().map(|(signature, help, _)| Command { signature, help })
}

/// True if the role answers the command.
pub fn is_of_role(own: &[Command], prefix: &str) -> bool {
    of_options().chain(own.iter().copied()).any(|command| command.prefix() == prefix)
}

/// Answers a command that every daemon has; `None` for one that the role may know.
pub fn answer(common: &Common, own: &[Command], request: &Request) -> Option<Reply> {
    let all = || COMMANDS.iter().chain(own).copied().chain(of_options());
    Some(match request.prefix.as_str() {
        "0" => Reply::Text(PROTOCOL_VERSION.into()),
        "version" => Reply::Json(json!({
            "version": version::LONG,
            "release": version::RELEASE,
            "release_type": "stable",
        })),
        "git_version" => Reply::Json(json!({ "git_version": version::GIT })),
        "get_command_descriptions" => {
            let list = all().enumerate().map(|(n, command)| (format!("cmd{n:03}"), command.description()));
            Reply::Json(Value::Object(list.collect()))
        }
        "help" => {
            let helped = all().filter(|command| !command.help.is_empty());
            let list: Map<_, _> = helped.map(|c| (c.prefix(), json!(c.help))).collect();
            Reply::Json(Value::Object(list))
        }
        "log flush" => {
            common.log.flush();
            Reply::Json(json!({}))
        }
        "log reopen" => {
            common.log.reopen();
            Reply::Json(json!({}))
        }
        _ => return None,
    })
}

/// `perf dump`, `perf schema` and their oldest names, from what the role counted.
pub fn answer_perf(counters: &[Counter], request: &Request) -> Option<Reply> {
    let (group, name) = (request.arg("logger"), request.arg("counter"));
    let filter = Filter { group: group.as_deref(), name: name.as_deref() };
    let json = match request.prefix.as_str() {
        "perf dump" | "perfcounters_dump" => perf::dump(counters, filter),
        "perf schema" | "perfcounters_schema" => perf::schema(counters, filter),
        _ => return None,
    };
    Some(Reply::Json(serde(&json)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_become_what_ceph_daemon_parses() {
        let perf = COMMANDS.iter().find(|c| c.prefix() == "perf dump").unwrap();
        assert_eq!(
            perf.description()["sig"],
            json!(["perf", "dump",
                {"name": "logger", "type": "CephString", "req": false},
                {"name": "counter", "type": "CephString", "req": false}])
        );
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(COMMANDS.windows(2).all(|pair| pair[0].prefix() < pair[1].prefix()));
    }
}
