//! Lines of the audit log: each command that changed something, without the secrets in it.

use command::{Args, Json};
use wire::types::{AuthName, EntityAddrVec};

/// Arguments that may hold a secret, by command. Input given with `-i` (`auth import`, `config assimilate-conf`) is never
/// written.
const SECRET_ARGS: &[(&str, &str)] =
    &[("config-key set", "val"), ("config-key put", "val"), ("config set", "value"), ("shoal join", "id")];
const HIDDEN: &str = "***";
/// Words in an option's name that tell a secret.
const SECRET_WORDS: [&str; 5] = ["key", "password", "passwd", "secret", "token"];

/// The line for a command that `caller` gave as `text`.
pub(super) fn line(caller: &AuthName, addrs: &EntityAddrVec, args: &Args, text: &str) -> String {
    let shown = without_secrets(args).unwrap_or_else(|| text.to_owned());
    format!("from='client.? {addrs}' entity='{caller}' cmd=[{shown}]: dispatch")
}

/// The command with its secrets hidden; `None` where it has none.
fn without_secrets(args: &Args) -> Option<String> {
    let prefix = args.text("prefix")?;
    let (_, secret) = SECRET_ARGS.iter().find(|(command, _)| *command == prefix)?;
    let is_public = prefix == "config set" && args.text("name").is_some_and(|name| is_public_option(&name));
    if is_public {
        return None;
    }
    let mut shown = Json::Object(Vec::new());
    for (name, value) in args.for_caps() {
        let value = if name == *secret { HIDDEN.to_owned() } else { value };
        shown.push(name, value);
    }
    Some(shown.compact())
}

/// An option that we know, and whose name does not speak of a secret. A module's option may hold anything.
fn is_public_option(name: &str) -> bool {
    let name = name.replace([' ', '-'], "_");
    command::options::find(&name).is_some() && !SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command: &str) -> String {
        let caller = "client.admin".parse().unwrap();
        line(&caller, &EntityAddrVec::default(), &Args::parse(command).unwrap(), command)
    }

    #[test]
    fn values_of_config_keys_are_hidden() {
        for alias in ["config-key set", "config-key put"] {
            let line = shown(&format!(r#"{{"prefix":"{alias}","key":"mgr/x/token","val":"hunter2"}}"#));
            assert!(line.contains("mgr/x/token") && line.contains(HIDDEN), "{line}");
            assert!(!line.contains("hunter2"), "{line}");
        }
    }

    #[test]
    fn values_of_secret_and_unknown_options_are_hidden() {
        for option in ["rgw_keystone_admin_password", "mgr/dashboard/jwt", "rgw-crypt-vault-token-file"] {
            let command =
                format!(r#"{{"prefix":"config set","who":"mgr","name":"{option}","value":"hunter2"}}"#);
            let line = shown(&command);
            assert!(line.contains(option) && !line.contains("hunter2"), "{line}");
        }
    }

    #[test]
    fn other_commands_are_logged_as_given() {
        for command in [
            r#"{"prefix":"osd pool create","pool":"data"}"#,
            r#"{"prefix":"config set","who":"osd","name":"osd_heartbeat_grace","value":"30"}"#,
        ] {
            assert!(shown(command).contains(command));
        }
    }
}
