//! Which commands does every daemon's admin socket answer?
//!
//! The ones below, and those of the daemon's role. Signatures are in Ceph's notation (`perf dump
//! name=logger,type=CephString,req=false`), because `ceph daemon` builds its argument parser from them.

use super::admin_socket::{PROTOCOL_VERSION, Reply, Request};
use super::log::Log;
use crate::config::layers::Config;
use crate::config::options;
use crate::daemon::version;
use command::perf::{self, Counter, Filter};
use serde_json::{Map, Value, json};
use std::sync::Mutex;

#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub signature: &'static str,
    pub help: &'static str,
}

/// What the common commands work on.
pub struct Common {
    pub config: Mutex<Config>,
    pub log: Log,
}

const fn command(signature: &'static str, help: &'static str) -> Command {
    Command { signature, help }
}

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    command("0", ""),
    command("config diff", "dump diff of current config and default config"),
    command("config get name=var,type=CephString", "config get <field>: get the config value"),
    command("config help name=var,type=CephString,req=false", "get config setting schema and descriptions"),
    command("config set name=var,type=CephString name=val,type=CephString,n=N", "config set <field> <val> [<val> ...]: set a config variable"),
    command("config show", "dump current config settings"),
    command("config unset name=var,type=CephString", "config unset <field>: unset a config variable"),
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
        let words = self.signature.split(' ').take_while(|word| !word.contains('='));
        words.collect::<Vec<_>>().join(" ")
    }

    fn description(&self) -> Value {
        let words = self.signature.split(' ').map(|word| {
            if !word.contains('=') {
                return json!(word);
            }
            let pairs = word.split(',').filter_map(|pair| pair.split_once('='));
            Value::Object(pairs.map(|(key, value)| (key.to_owned(), argument_value(key, value))).collect())
        });
        json!({ "sig": words.collect::<Vec<_>>(), "help": self.help })
    }
}

fn argument_value(key: &str, value: &str) -> Value {
    if key == "req" { json!(value == "true") } else { json!(value) }
}

/// `config get`, `set` or `unset` of an option that is not in the table of all daemons.
pub fn is_of_other_option(request: &Request) -> bool {
    matches!(request.prefix.as_str(), "config get" | "config set" | "config unset")
        && request.arg("var").is_some_and(|var| options::find(&var).is_none())
}

/// Answers a command that every daemon has; `None` for one that the role may know.
pub fn answer(common: &Common, own: &[Command], request: &Request) -> Option<Reply> {
    let config = || common.config.lock().expect("no holder of this lock panics");
    let required = |name: &str| {
        request
            .arg(name)
            .ok_or_else(|| Reply::Error(libc::EINVAL, format!("{} needs {name}", request.prefix)))
    };
    let all = || COMMANDS.iter().chain(own);
    let result = match request.prefix.as_str() {
        "0" => Ok(Reply::Text(PROTOCOL_VERSION.into())),
        "version" => Ok(Reply::Json(json!({
            "version": version::LONG,
            "release": version::RELEASE,
            "release_type": "stable",
        }))),
        "git_version" => Ok(Reply::Json(json!({ "git_version": version::GIT }))),
        "get_command_descriptions" => {
            let list = all().enumerate().map(|(n, command)| (format!("cmd{n:03}"), command.description()));
            Ok(Reply::Json(Value::Object(list.collect())))
        }
        "help" => {
            let helped = all().filter(|command| !command.help.is_empty());
            let list: Map<_, _> = helped.map(|c| (c.prefix(), json!(c.help))).collect();
            Ok(Reply::Json(Value::Object(list)))
        }
        "config show" => Ok(Reply::Json(Value::Object(config().show()))),
        "config diff" => Ok(Reply::Json(config().diff())),
        "config get" => required("var").and_then(|var| match config().lookup(&var) {
            Some((value, _)) => Ok(Reply::Json(json!({ var: value }))),
            None => Err(Reply::Error(
                libc::ENOENT,
                format!("error getting '{var}': (2) No such file or directory"),
            )),
        }),
        "config set" => required("var").and_then(|var| {
            let value = required("val")?;
            let set = config().set_override(&var, &value);
            let opt = set.map_err(|problem| Reply::Error(libc::EINVAL, problem))?;
            let note = if opt.live { "" } else { " (not observed, change may require restart)" };
            apply_live(common, opt.name, &value)?;
            Ok(Reply::Json(json!({ "success": format!("{} = '{value}'{note} ", opt.name) })))
        }),
        "config unset" => required("var").and_then(|var| {
            if !config().unset_override(&var) {
                return Err(Reply::Error(libc::ENOENT, format!("{var} is not set here")));
            }
            if let Some((value, _)) = config().lookup(&var) {
                apply_live(common, &var, &value)?;
            }
            Ok(Reply::Json(json!({ "success": "" })))
        }),
        "config help" => Ok(Reply::Json(help_for(request.arg("var").as_deref()))),
        "log flush" => {
            common.log.flush();
            Ok(Reply::Json(json!({})))
        }
        "log reopen" => {
            common.log.reopen();
            Ok(Reply::Json(json!({})))
        }
        _ => return None,
    };
    Some(result.unwrap_or_else(|error| error))
}

/// Options that act at once when they change.
pub fn apply_live(common: &Common, name: &str, value: &str) -> Result<(), Reply> {
    if name == "log_level" {
        common.log.set_level(value).map_err(|error| Reply::Error(libc::EINVAL, format!("{error:#}")))?;
    }
    Ok(())
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
    let value = serde_json::from_str(&json.compact()).expect("what is written as JSON is JSON");
    Some(Reply::Json(value))
}

fn help_for(name: Option<&str>) -> Value {
    let wanted = options::OPTIONS.iter().filter(|opt| name.is_none_or(|name| name == opt.name));
    let list = wanted.map(|opt| {
        json!({
            "name": opt.name,
            "type": opt.kind.ceph_name(),
            "level": "basic",
            "desc": opt.description,
            "default": opt.default,
            "services": opt.services,
            "can_update_at_runtime": opt.live,
        })
    });
    Value::Array(list.collect())
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
