//! The table of options, `table.tsv`: one row an option, sorted by name.
//!
//! Every option of Ceph has a row, so that a configuration made for Ceph can be kept here. The last three columns are
//! shoal's: `acts` names the daemons that act on the option and when, `since` the version of shoal since when they do,
//! `description` the effect. The type is Ceph's; behind a colon stands the narrower form that shoal reads (`str:modes`),
//! so that a value which would stop a daemon's start is refused when it is set. An option without `acts` is stored and shown and changes nothing; whoever sets it is told.

use super::value::{self, Kind, Unfit, Value};
use crate::Json;
use crate::errno::EINVAL;
use std::fmt;
use std::sync::OnceLock;

static TABLE: &str = include_str!("table.tsv");

/// A kind of process that acts on options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    Mon,
    Mgr,
    Osd,
    /// shoal's own client.
    Client,
}

impl Daemon {
    pub const ALL: [Daemon; 4] = [Daemon::Mon, Daemon::Mgr, Daemon::Osd, Daemon::Client];

    pub fn name(self) -> &'static str {
        match self {
            Daemon::Mon => "mon",
            Daemon::Mgr => "mgr",
            Daemon::Osd => "osd",
            Daemon::Client => "client",
        }
    }

    pub fn parse(name: &str) -> Option<Daemon> {
        Daemon::ALL.into_iter().find(|daemon| daemon.name() == name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// As soon as the value changes.
    Live,
    /// When the daemon starts.
    Start,
    /// When the cluster, or the daemon's store, is made.
    Creation,
}

impl When {
    fn parse(name: &str) -> Option<When> {
        match name {
            "live" => Some(When::Live),
            "start" => Some(When::Start),
            "creation" => Some(When::Creation),
            _ => None,
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    pub kind: Kind,
    /// The type's name as Ceph has it.
    pub type_name: &'static str,
    /// `basic`, `advanced` or `dev`.
    pub level: &'static str,
    /// shoal's default, in the form that is shown; see [`Definition::default`].
    pub default_text: &'static str,
    default: Value,
    flags: &'static str,
    choices: &'static str,
    pub min: &'static str,
    pub max: &'static str,
    /// Daemons that Ceph lists the option under.
    services: &'static str,
    /// Daemons of shoal that act on it, and when.
    pub acts: Vec<(Daemon, When)>,
    /// The first version of shoal that acts on it; empty when none does.
    pub since: &'static str,
    pub description: &'static str,
}

/// Sorted by name.
pub fn all() -> &'static [Definition] {
    static PARSED: OnceLock<Vec<Definition>> = OnceLock::new();
    PARSED.get_or_init(|| TABLE.lines().skip(1).map(Definition::parse).collect())
}

/// By its name in the table's form; see [`normal_name`].
pub fn find(name: &str) -> Option<&'static Definition> {
    let table = all();
    table.binary_search_by(|row| row.name.cmp(name)).ok().map(|at| &table[at])
}

/// Blanks and dashes in an option's name are underscores: `mon host` is `mon_host`.
pub fn normal_name(name: &str) -> String {
    name.trim().replace([' ', '-'], "_")
}

impl Definition {
    /// # Panics
    /// When the row is not one: the table is part of the program, and a test reads all of it.
    fn parse(row: &'static str) -> Definition {
        let columns: Vec<&'static str> = row.split('\t').collect();
        let [
            name,
            type_column,
            level,
            default_text,
            flags,
            choices,
            min,
            max,
            services,
            acts,
            since,
            description,
        ] = columns[..]
        else {
            panic!("a row of the table has twelve columns: {row}")
        };
        let kind = match type_column {
            "str" if name.starts_with("debug_") => Kind::DebugLevel,
            "str" => Kind::Text,
            "str:log_level" => Kind::LogLevel,
            "str:networks" => Kind::Networks,
            "str:modes" => Kind::ConnectionModes,
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "uint" => Kind::Uint,
            "size" => Kind::Size,
            "secs" => Kind::Secs,
            "millisecs" => Kind::Millisecs,
            "float" => Kind::Float,
            "addr" => Kind::Address,
            "addr:port" => Kind::Endpoint,
            "addrvec" => Kind::Addresses,
            "uuid" => Kind::Uuid,
            other => panic!("{name} has an unknown type {other}"),
        };
        let type_name = type_column.split(':').next().unwrap_or(type_column);
        // Ceph leaves the default of some options out; a number is zero then.
        let zero = matches!(
            kind,
            Kind::Bool | Kind::Int | Kind::Uint | Kind::Size | Kind::Secs | Kind::Millisecs | Kind::Float
        );
        let default = match (kind, default_text) {
            (Kind::Uuid | Kind::DebugLevel, "") => Value::Text(String::new()),
            (_, "") if zero => value::parse(kind, "0").expect("zero is a number"),
            (_, text) => match value::parse(kind, text) {
                Ok(value) => value,
                Err(why) => panic!("the default of {name} does not fit: {why}"),
            },
        };
        let actor = |word: &str| {
            let (daemon, when) = word.split_once(':')?;
            Some((Daemon::parse(daemon)?, When::parse(when)?))
        };
        let acts = acts.split_whitespace().map(|word| actor(word).expect("DAEMON:WHEN")).collect();
        Definition {
            name,
            kind,
            type_name,
            level,
            default_text,
            default,
            flags,
            choices,
            min,
            max,
            services,
            acts,
            since,
            description,
        }
    }

    pub fn default(&self) -> &Value {
        &self.default
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags().any(|f| f == flag)
    }

    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.flags.split(',').filter(|f| !f.is_empty())
    }

    pub fn choices(&self) -> impl Iterator<Item = &'static str> {
        let choices = (!self.choices.is_empty()).then(|| self.choices.split('|'));
        choices.into_iter().flatten()
    }

    pub fn services(&self) -> impl Iterator<Item = &'static str> {
        self.services.split(',').filter(|s| !s.is_empty())
    }

    /// Stock's rule: flagged so, or neither a start-up option nor one that only a new cluster reads. A running daemon
    /// refuses to change any other.
    pub fn can_update_at_runtime(&self) -> bool {
        self.has_flag("runtime") || !["startup", "cluster_create", "create"].iter().any(|f| self.has_flag(f))
    }

    /// True when the monitors' database may hold it.
    pub fn is_set_in_monitor(&self) -> bool {
        !self.has_flag("no_mon_update")
    }

    pub fn acts_on(&self, daemon: Daemon) -> Option<When> {
        self.acts.iter().find(|(actor, _)| *actor == daemon).map(|(_, when)| *when)
    }

    /// Reads a value and checks it against the option's choices and bounds.
    pub fn parse_value(&self, text: &str) -> Result<Value, Unfit> {
        let value = value::parse(self.kind, text)?;
        let unfit = |why: String| Err(Unfit { errno: EINVAL, why });
        if !self.choices.is_empty() && !self.choices().any(|choice| choice == text) {
            let permitted = self.choices().collect::<Vec<_>>().join(", ");
            return unfit(format!("'{text}' is not one of the permitted values: {permitted}"));
        }
        if let Some(number) = value.number() {
            if self.min.parse().is_ok_and(|min: f64| number < min) {
                return unfit(format!("Value '{value}' is below minimum {}", self.min));
            }
            if self.max.parse().is_ok_and(|max: f64| number > max) {
                return unfit(format!("Value '{value}' exceeds maximum {}", self.max));
            }
        }
        Ok(value)
    }

    /// As Ceph's formatter dumps a value of this type: numbers and booleans bare, sizes and times quoted.
    pub fn json(&self, value: &Value) -> Json {
        match value {
            Value::Bool(yes) => (*yes).into(),
            Value::Int(n) => (*n).into(),
            Value::Uint(n) if self.kind == Kind::Uint => (*n).into(),
            Value::Float(x) => (*x).into(),
            other => other.to_string().into(),
        }
    }

    /// A sentence for whoever sets the option for `who` (a section of the configuration, `osd` or `osd.3`) when the
    /// value does not act at once; `None` when it does.
    pub fn warning(&self, who: &str) -> Option<String> {
        let kind = who.split('.').next().unwrap_or_default();
        let is_meant = |actor: &Daemon| kind == "global" || kind == actor.name();
        let actors: Vec<_> = self.acts.iter().filter(|(actor, _)| is_meant(actor)).collect();
        let name = self.name;
        if self.acts.is_empty() {
            return Some(format!("{name} is stored, but shoal does not act on it"));
        }
        if actors.is_empty() {
            return Some(format!(
                "{name} is stored, but {kind} does not act on it: {} does",
                Actors(&self.acts)
            ));
        }
        let later: Vec<_> = actors.into_iter().filter(|(_, when)| *when != When::Live).collect();
        if later.is_empty() {
            return None;
        }
        let kinds = later.iter().map(|(daemon, _)| daemon.name()).collect::<Vec<_>>().join(", ");
        Some(match later.iter().any(|(_, when)| *when == When::Start) {
            true => format!("{name} takes effect when {kinds} restarts"),
            false => format!("{name} takes effect when a new cluster or store is made"),
        })
    }
}

/// `mon (live), osd (at start)`.
pub struct Actors<'a>(pub &'a [(Daemon, When)]);

impl fmt::Display for Actors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (daemon, when)) in self.0.iter().enumerate() {
            let when = match when {
                When::Live => "live",
                When::Start => "at start",
                When::Creation => "when its cluster or store is made",
            };
            write!(f, "{}{} ({when})", if n > 0 { ", " } else { "" }, daemon.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_defaults_fit() {
        assert!(all().is_sorted_by(|a, b| a.name < b.name));
        let unset = |row: &&Definition| !row.default_text.is_empty();
        for row in all().iter().filter(unset) {
            let written = row.parse_value(row.default_text);
            assert_eq!(written.as_ref(), Ok(row.default()), "{}", row.name);
        }
    }

    #[test]
    fn rows_that_act_are_described() {
        for row in all() {
            let acts = !row.acts.is_empty();
            assert_eq!(acts, !row.since.is_empty(), "{}: since", row.name);
            assert_eq!(acts, !row.description.is_empty(), "{}: description", row.name);
        }
    }

    /// A live option that running daemons refuse to change could never act.
    #[test]
    fn live_options_can_be_changed_while_running() {
        let is_live = |row: &&Definition| row.acts.iter().any(|(_, when)| *when == When::Live);
        for row in all().iter().filter(is_live) {
            assert!(row.can_update_at_runtime(), "{}", row.name);
        }
    }

    #[test]
    fn values_are_checked_against_choices_and_bounds() {
        let why = |name: &str, text: &str| find(name).unwrap().parse_value(text).unwrap_err().why;
        assert_eq!(why("osd_pool_default_size", "99"), "Value '99' exceeds maximum 10");
        assert_eq!(why("osd_heartbeat_interval", "0"), "Value '0' is below minimum 1");
        assert_eq!(
            why("bluestore_compression_mode", "foo"),
            "'foo' is not one of the permitted values: none, passive, aggressive, force"
        );
        assert!(find("nope_nope").is_none());
    }

    /// Values that would keep a daemon from starting, and the answers that name the accepted ones.
    #[test]
    fn values_that_would_stop_a_start_are_refused() {
        let modes = "is not a list of connection modes: expected crc, secure or both, best first";
        let address = "is not an address with a port: expected IP:PORT";
        let networks = "is not a list of networks: expected ADDRESS/BITS, such as 10.1.0.0/16";
        let level = "is not a log level: expected error, warn, info, debug, trace or off, or a list such as info,osd=debug";
        for (name, text, want) in [
            ("ms_cluster_mode", "banana", modes),
            ("ms_service_mode", "crc,none", modes),
            ("ms_client_mode", "", modes),
            ("ms_mon_cluster_mode", "crc;secure", modes),
            ("ms_mon_service_mode", " ", modes),
            ("ms_mon_client_mode", "Secure", modes),
            ("auth_cluster_required", "banana", "is not one of the permitted values: cephx, none"),
            ("auth_service_required", "cephx, none", "is not one of the permitted values: cephx, none"),
            ("auth_client_required", "", "is not one of the permitted values: cephx, none"),
            ("log_level", "banana", level),
            ("log_level", "", level),
            ("log_level", "info, osd=debug", level),
            ("log_level", "info,osd=loud", level),
            ("log_level", "osd[=debug", level),
            ("public_addr", "10.0.0.1", address),
            ("public_addr", "v1:10.0.0.1:6789", address),
            ("metrics_addr", "-", address),
            ("cluster_network", "10.1.0.0", networks),
            ("public_network", "10.1.0.0/33", networks),
        ] {
            let refused = find(name).unwrap().parse_value(text).unwrap_err();
            assert_eq!((refused.errno, refused.why), (EINVAL, format!("'{text}' {want}")), "{name}");
        }
    }

    #[test]
    fn start_options_take_every_form_that_a_start_takes() {
        for (name, text) in [
            ("ms_cluster_mode", "crc"),
            ("ms_cluster_mode", "secure, crc"),
            ("auth_client_required", "none"),
            ("log_level", "WARN"),
            ("log_level", "info,osd::node=debug,mon=off"),
            ("public_addr", "v2:[::1]:6800"),
            ("public_addr", "[v2:10.0.0.1:6800]"),
            ("metrics_addr", ""),
            ("cluster_network", "10.1.0.0/16, fd00::/8"),
            ("public_network", ""),
            ("cluster_addr", "10.1.0.7"),
        ] {
            let read = find(name).unwrap().parse_value(text).map(|value| value.to_string());
            assert_eq!(read, Ok(text.to_owned()), "{name}");
        }
        assert_eq!(find("ms_cluster_mode").unwrap().type_name, "str");
    }

    /// For a section of several kinds of daemons, of which some act at once and some with a restart.
    #[test]
    fn one_live_actor_hides_no_restart_of_another() {
        let row = "x\tbool\tbasic\tfalse\t\t\t\t\t\tmon:live osd:start\t0.1\tA test.";
        let row = Definition::parse(row);
        assert_eq!(row.warning("global").unwrap(), "x takes effect when osd restarts");
        assert_eq!(row.warning("mon"), None);
    }

    #[test]
    fn warnings_name_the_reason() {
        let warning = |name: &str, who: &str| find(name).unwrap().warning(who);
        assert_eq!(warning("osd_heartbeat_grace", "global"), None);
        assert_eq!(warning("osd_heartbeat_grace", "osd.3"), None);
        assert_eq!(
            warning("osd_recovery_max_active_hdd", "osd").unwrap(),
            "osd_recovery_max_active_hdd is stored, but shoal does not act on it"
        );
        assert_eq!(warning("shoal_cores", "osd").unwrap(), "shoal_cores takes effect when osd restarts");
        assert_eq!(
            warning("osd_heartbeat_grace", "client.x").unwrap(),
            "osd_heartbeat_grace is stored, but client does not act on it: mon (live), mgr (live), osd (live) does"
        );
    }
}
