//! Monitor capabilities (`src/mon/MonCap.cc`): the permissions of an entity.
//!
//! A capability is a list of grants. A grant covers everything (`allow rw`), one service (`allow service mds r`),
//! one command (`allow command "osd new" with uuid prefix 4`), or what a profile stands for (`profile osd`), and
//! may hold only for peers of one network. Text that does not parse grants nothing.

mod parse;
mod profiles;

use regex::Regex;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;

pub use parse::{CapParseError, check_mgr};

/// A set of read, write and execute permissions. Each service defines "execute" for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allow(u8);

impl Allow {
    pub const NONE: Allow = Allow(0);
    pub const R: Allow = Allow(2);
    pub const W: Allow = Allow(4);
    pub const X: Allow = Allow(8);
    pub const RW: Allow = Allow(6);
    pub const RWX: Allow = Allow(14);
    /// `*`: also what no letter grants, such as the config-key store.
    pub const ANY: Allow = Allow(0xff);

    pub const fn with(self, other: Allow) -> Allow {
        Allow(self.0 | other.0)
    }

    pub const fn has(self, wanted: Allow) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// From a command's permission letters (`"rw"`); other letters are not permissions.
    pub fn from_letters(letters: &str) -> Allow {
        letters.chars().fold(Allow::NONE, |so_far, c| match c {
            'r' => so_far.with(Allow::R),
            'w' => so_far.with(Allow::W),
            'x' => so_far.with(Allow::X),
            _ => so_far,
        })
    }
}

/// A condition on a command's argument.
#[derive(Clone, Debug)]
pub enum Constraint {
    Equal(String),
    Prefix(String),
    /// Begins with the name of the owner's private keys.
    OwnKey,
    /// The host that the owner, `client.host-NAME`, is the key of.
    OwnHost,
    /// The whole argument must match; `None` when the pattern is not a regular expression: matches nothing.
    Matches(Option<Box<Regex>>),
    /// A profile's pattern, which is compiled once.
    Known(&'static LazyLock<Regex>),
}

impl Constraint {
    fn matching(pattern: &str) -> Constraint {
        Constraint::Matches(whole(pattern).ok().map(Box::new))
    }

    fn admits(&self, value: &str, entity: &str) -> bool {
        match self {
            Constraint::Equal(want) => value == want,
            Constraint::Prefix(want) => value.starts_with(want.as_str()),
            Constraint::OwnKey => {
                let rest = value.strip_prefix("daemon-private/").and_then(|rest| rest.strip_prefix(entity));
                rest.is_some_and(|rest| rest.starts_with('/'))
            }
            Constraint::OwnHost => entity.strip_prefix("client.host-") == Some(value),
            Constraint::Matches(pattern) => pattern.as_ref().is_some_and(|p| p.is_match(value)),
            Constraint::Known(pattern) => pattern.is_match(value),
        }
    }
}

/// A regular expression that the whole text must match.
fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{pattern})$"))
}

#[derive(Clone, Debug)]
enum Scope {
    /// Every service; with a file system's name, only that one's map.
    All {
        allow: Allow,
        fs_name: String,
    },
    Service {
        service: String,
        allow: Allow,
    },
    Command {
        command: String,
        args: BTreeMap<String, Constraint>,
    },
    Profile(Vec<Scope>),
}

#[derive(Clone, Debug)]
struct Grant {
    scope: Scope,
    network: Option<Network>,
}

/// `10.0.0.0/8`. Text that is not a network contains no address.
#[derive(Clone, Copy, Debug)]
struct Network(Option<(IpAddr, u8)>);

impl Network {
    fn parse(text: &str) -> Network {
        let parsed = text.split_once('/').and_then(|(ip, bits)| {
            let ip: IpAddr = ip.trim_matches(['[', ']']).parse().ok()?;
            let bits: u8 = bits.parse().ok()?;
            (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
        });
        Network(parsed)
    }

    fn contains(&self, peer: Option<IpAddr>) -> bool {
        match (self.0, peer) {
            (Some((IpAddr::V4(net), bits)), Some(IpAddr::V4(ip))) => {
                let mask = u32::MAX.checked_shl(32 - bits as u32).unwrap_or(0);
                u32::from(net) & mask == u32::from(ip) & mask
            }
            (Some((IpAddr::V6(net), bits)), Some(IpAddr::V6(ip))) => {
                let mask = u128::MAX.checked_shl(128 - bits as u32).unwrap_or(0);
                u128::from(net) & mask == u128::from(ip) & mask
            }
            _ => false,
        }
    }
}

/// An action that somebody wants to take.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The capability's owner: `osd.3`.
    pub entity: &'a str,
    pub service: &'a str,
    /// A command's prefix; empty when the action is not a command.
    pub command: &'a str,
    pub args: &'a BTreeMap<String, String>,
    pub need: Allow,
    pub peer: Option<IpAddr>,
}

#[derive(Clone, Default)]
pub struct MonCap {
    text: String,
    grants: Vec<Grant>,
}

impl MonCap {
    pub fn parse(text: &str) -> Result<MonCap, CapParseError> {
        parse::grants(text).map(|grants| MonCap { text: text.to_owned(), grants })
    }

    /// Everything: what `auth none` gives.
    pub fn allow_all() -> MonCap {
        MonCap::parse("allow *").expect("a constant that parses")
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(Grant::is_allow_all)
    }

    pub fn permits(&self, wanted: &Wanted<'_>) -> bool {
        let mut allowed = Allow::NONE;
        for grant in &self.grants {
            if grant.network.is_some_and(|n| !n.contains(wanted.peer)) {
                continue;
            }
            if grant.is_allow_all() {
                return true;
            }
            allowed = allowed.with(grant.scope.allows(wanted));
            if allowed.has(wanted.need) {
                return true;
            }
        }
        false
    }
}

impl fmt::Debug for MonCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MonCap({:?})", self.text)
    }
}

impl Grant {
    fn is_allow_all(&self) -> bool {
        matches!(&self.scope, Scope::All { allow: Allow::ANY, fs_name } if fs_name.is_empty())
    }
}

impl Scope {
    fn allows(&self, wanted: &Wanted<'_>) -> Allow {
        match self {
            // The config-key store holds secrets: only `*`, a service grant or a command grant opens it.
            Scope::All { .. } if wanted.service == "config-key" => Allow::NONE,
            Scope::All { allow, .. } => *allow,
            Scope::Service { service, allow } if service == wanted.service => *allow,
            Scope::Service { .. } => Allow::NONE,
            Scope::Command { command, args } => {
                let fits = |(name, c): (&String, &Constraint)| {
                    wanted.args.get(name).is_some_and(|value| c.admits(value, wanted.entity))
                };
                if command == wanted.command && args.iter().all(fits) { Allow::RWX } else { Allow::NONE }
            }
            Scope::Profile(scopes) => {
                scopes.iter().fold(Allow::NONE, |so_far, scope| so_far.with(scope.allows(wanted)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(cap: &str, service: &str, command: &str, args: &[(&str, &str)], need: &str) -> bool {
        let args = args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        MonCap::parse(cap).unwrap().permits(&Wanted {
            entity: "osd.3",
            service,
            command,
            args: &args,
            need: Allow::from_letters(need),
            peer: Some("10.1.2.3".parse().unwrap()),
        })
    }

    #[test]
    fn blanket_grants_cover_every_service_but_the_config_key_store() {
        assert!(permits("allow r", "osd", "osd dump", &[], "r"));
        assert!(!permits("allow r", "osd", "osd out", &[], "rw"));
        assert!(permits("allow rw, allow x", "auth", "auth ls", &[], "rx"));
        assert!(!permits("allow rwx", "config-key", "config-key get", &[], "r"));
        assert!(permits("allow *", "config-key", "config-key get", &[], "r"));
        assert!(permits("allow service config-key r", "config-key", "config-key get", &[], "r"));
        assert!(permits("allow all", "auth", "auth get", &[], "rwx"));
    }

    #[test]
    fn command_grants_constrain_arguments() {
        let cap = r#"allow command "osd blocklist" with blocklistop=add addr regex "^[^/]+/[0-9]+$""#;
        let ok = [("blocklistop", "add"), ("addr", "1.2.3.4:0/77")];
        assert!(permits(cap, "osd", "osd blocklist", &ok, "rw"));
        assert!(!permits(cap, "osd", "osd blocklist", &ok[..1], "rw"));
        assert!(!permits(
            cap,
            "osd",
            "osd blocklist",
            &[("blocklistop", "rm"), ("addr", "1.2.3.4:0/77")],
            "rw"
        ));
        assert!(permits("allow command foo with a prefix b", "x", "foo", &[("a", "bcd")], "r"));
        assert!(!permits("allow command foo with a prefix b", "x", "foo", &[("a", "cd")], "r"));
        assert!(!permits("allow command foo with a regex '('", "x", "foo", &[("a", "(")], "r"));
    }

    #[test]
    fn profiles_name_their_owners_private_keys() {
        let key = |k| [("key", k)];
        assert!(permits(
            "allow profile osd",
            "config-key",
            "config-key get",
            &key("daemon-private/osd.3/x"),
            "r"
        ));
        assert!(!permits(
            "allow profile osd",
            "config-key",
            "config-key get",
            &key("daemon-private/osd.4/x"),
            "r"
        ));
        let of_another = key("daemon-private/osd.33/x");
        assert!(!permits("allow profile osd", "config-key", "config-key get", &of_another, "r"));
        assert!(permits("profile osd", "osd", "", &[], "rwx"));
        assert!(!permits("profile osd", "auth", "auth get", &[], "r"));
        assert!(permits("profile bootstrap-osd", "osd", "osd new", &[("uuid", "u")], "rw"));
        assert!(!permits("profile nonsense", "mon", "", &[], "r"));
    }

    #[test]
    fn join_profile_permits_one_command() {
        assert!(permits("profile shoal-join", "mon", "shoal join", &[("name", "h4")], "rwx"));
        for (service, command) in
            [("mon", "mon dump"), ("osd", "osd dump"), ("auth", "shoal token create"), ("osd", "")]
        {
            assert!(!permits("profile shoal-join", service, command, &[], "r"), "{command}");
        }
    }

    #[test]
    fn host_profile_reads_and_removes_its_own_host() {
        let permits = |service, command, name: &str, need| {
            MonCap::parse("profile shoal-host").unwrap().permits(&Wanted {
                entity: "client.host-h4",
                service,
                command,
                args: &[("name".to_owned(), name.to_owned())].into(),
                need: Allow::from_letters(need),
                peer: None,
            })
        };
        assert!(permits("mon", "status", "", "r") && permits("osd", "osd dump", "", "r"));
        assert!(permits("osd", "shoal host rm", "h4", "rw") && permits("mon", "mon rm", "h4", "rw"));
        assert!(!permits("osd", "shoal host rm", "h5", "rw") && !permits("mon", "mon rm", "h", "rw"));
        assert!(!permits("osd", "osd purge-actual", "h4", "rw") && !permits("auth", "auth get", "h4", "rx"));
    }

    #[test]
    fn networks_limit_a_grant_to_peers_inside() {
        assert!(permits("allow r network 10.0.0.0/8", "mon", "", &[], "r"));
        assert!(!permits("allow r network 11.0.0.0/8", "mon", "", &[], "r"));
        assert!(!permits("allow * network 11.0.0.0/8", "mon", "", &[], "r"));
        assert!(permits("allow r network 0.0.0.0/0", "mon", "", &[], "r"));
        assert!(!permits("allow r network fe80::/10", "mon", "", &[], "r"));
    }
}
