//! Which options exist: the names, types and defaults that `ceph config` knows.
//!
//! The table holds stock's options, so that a configuration made for Ceph can be kept here too. An option that
//! shoal does not act on changes nothing; shoal's daemons say which they act on (`config help` on their sockets).
//! Columns: name, type, level, default, flags, choices, least, most, services.

use std::sync::OnceLock;

static TABLE: &str = include_str!("table.tsv");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Bool,
    Int,
    Uint,
    /// Bytes; `K`, `M`, … are powers of 1024.
    Size,
    /// Seconds; `m`, `h`, … are taken.
    Secs,
    Float,
    Address,
    Uuid,
}

#[derive(Clone, Copy, Debug)]
pub struct Opt {
    pub name: &'static str,
    pub kind: Kind,
    /// The type's name as the table has it.
    pub type_name: &'static str,
    /// `basic`, `advanced` or `dev`.
    pub level: &'static str,
    pub default: &'static str,
    flags: &'static str,
    choices: &'static str,
    min: &'static str,
    max: &'static str,
    pub services: &'static str,
}

/// Sorted by name.
pub fn all() -> &'static [Opt] {
    static PARSED: OnceLock<Vec<Opt>> = OnceLock::new();
    PARSED.get_or_init(|| TABLE.lines().map(parse_row).collect())
}

pub fn find(name: &str) -> Option<&'static Opt> {
    let table = all();
    table.binary_search_by(|opt| opt.name.cmp(name)).ok().map(|at| &table[at])
}

/// Where shoal's default is not stock's: one copy until there is replication, no autoscaler, and a global id is
/// kept only by whoever shows its ticket.
const OWN_DEFAULTS: &[(&str, &str)] = &[
    ("auth_allow_insecure_global_id_reclaim", "false"),
    ("mon_allow_pool_size_one", "true"),
    ("osd_pool_default_pg_autoscale_mode", "off"),
    ("osd_pool_default_size", "1"),
];

pub fn default_of(name: &str) -> Option<&'static str> {
    let own = OWN_DEFAULTS.iter().find(|(option, _)| *option == name).map(|(_, value)| *value);
    own.or_else(|| find(name).map(|opt| opt.default))
}

fn parse_row(row: &'static str) -> Opt {
    let mut columns = row.split('\t');
    let mut next = || columns.next().expect("a row of the table has nine columns");
    let (name, type_name) = (next(), next());
    let kind = match type_name {
        "bool" => Kind::Bool,
        "int" => Kind::Int,
        "uint" => Kind::Uint,
        "size" => Kind::Size,
        "secs" | "millisecs" => Kind::Secs,
        "float" => Kind::Float,
        "addr" | "addrvec" => Kind::Address,
        "uuid" => Kind::Uuid,
        _ => Kind::Text,
    };
    Opt {
        name,
        kind,
        type_name,
        level: next(),
        default: next(),
        flags: next(),
        choices: next(),
        min: next(),
        max: next(),
        services: next(),
    }
}

impl Opt {
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.split(',').any(|f| f == flag)
    }

    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.flags.split(',').filter(|f| !f.is_empty())
    }

    /// As stock judges it: flagged so, or neither a start-up option nor one that only a new cluster reads.
    pub fn can_update_at_runtime(&self) -> bool {
        self.has_flag("runtime")
            || !(self.has_flag("startup") || self.has_flag("cluster_create") || self.has_flag("create"))
    }

    pub fn is_set_in_monitor(&self) -> bool {
        !self.has_flag("no_mon_update")
    }

    /// The value in its one written form, or what is wrong with it.
    pub fn normalize(&self, value: &str) -> Result<String, String> {
        let value = value.trim();
        let normal = match self.kind {
            Kind::Text if self.name.starts_with("debug_") => normalize_debug(value)?,
            Kind::Text | Kind::Address => value.to_owned(),
            Kind::Uuid => {
                value.parse::<wire::types::Uuid>().map_err(|()| "not a uuid".to_owned())?.to_string()
            }
            Kind::Bool => match value.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => "true".into(),
                "false" | "no" | "off" | "0" => "false".into(),
                _ => return Err(format!("'{value}' is not a valid boolean value")),
            },
            Kind::Int => si(value, 1000)?.to_string(),
            Kind::Uint => non_negative(si(value, 1000)?, value)?.to_string(),
            Kind::Size => non_negative(si(value, 1024)?, value)?.to_string(),
            Kind::Secs => seconds(value)?.to_string(),
            Kind::Float => {
                let number: f64 =
                    value.parse().map_err(|_| format!("strict_strtod: bad number '{value}'"))?;
                format!("{number:.6}")
            }
        };
        if !self.choices.is_empty() && !self.choices.split('|').any(|c| c == normal) {
            return Err(format!(
                "'{value}' is not one of the permitted values: {}",
                self.choices.replace('|', ", ")
            ));
        }
        if let Ok(number) = normal.parse::<f64>() {
            let outside = self.min.parse().is_ok_and(|min: f64| number < min)
                || self.max.parse().is_ok_and(|max: f64| number > max);
            if outside && self.kind != Kind::Text {
                return Err(match (self.min, self.max) {
                    (min, "") => format!("Value '{value}' is below minimum {min}"),
                    (min, max) => format!("Value '{value}' is outside range [{min}, {max}]"),
                });
            }
        }
        Ok(normal)
    }
}

/// `5` is `5/5`: what is logged, and what is kept in memory for a crash.
fn normalize_debug(value: &str) -> Result<String, String> {
    let (log, gather) = value.split_once('/').unwrap_or((value, value));
    match (log.parse::<u8>(), gather.parse::<u8>()) {
        (Ok(log @ 0..=99), Ok(gather @ 0..=99)) => Ok(format!("{log}/{gather}")),
        _ => Err("value must take the form N or N/M, where N and M are integers".into()),
    }
}

fn non_negative(number: i64, text: &str) -> Result<i64, String> {
    if number < 0 {
        Err(format!("strict_si_cast: value should not be negative: '{text}'"))
    } else {
        Ok(number)
    }
}

/// A whole number with an optional unit letter.
fn si(text: &str, unit: i64) -> Result<i64, String> {
    let bad = || format!("The option value '{text}' seems to be invalid");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match &text[digits.len()..] {
        "" | "B" => 0,
        s => {
            let letter = s.trim_end_matches('B').trim_end_matches('i');
            let at = ["K", "M", "G", "T", "P", "E"].iter().position(|u| *u == letter);
            at.ok_or_else(bad)? as u32 + 1
        }
    };
    let number: i64 = digits.trim().parse().map_err(|_| bad())?;
    unit.checked_pow(power).and_then(|m| number.checked_mul(m)).ok_or_else(bad)
}

pub fn seconds(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let number: i64 = digits.parse().map_err(|_| format!("invalid timespan '{text}'"))?;
    let unit = match text[digits.len()..].trim() {
        "" | "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hr" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "wk" | "week" | "weeks" => 604_800,
        _ => return Err(format!("invalid timespan '{text}'")),
    };
    number.checked_mul(unit).ok_or_else(|| format!("invalid timespan '{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_default_is_a_value() {
        assert!(all().is_sorted_by(|a, b| a.name < b.name));
        for opt in all().iter().filter(|o| !o.default.is_empty() && o.kind != Kind::Text) {
            assert!(opt.normalize(opt.default).is_ok(), "{opt:?}: {:?}", opt.normalize(opt.default));
        }
    }

    #[test]
    fn values_take_one_written_form() {
        let normal = |name: &str, value: &str| find(name).unwrap().normalize(value);
        assert_eq!(normal("debug_osd", "1"), Ok("1/1".into()));
        assert_eq!(normal("debug_osd", "1/20"), Ok("1/20".into()));
        assert!(normal("debug_osd", "x").is_err());
        assert_eq!(normal("mon_allow_pool_delete", "yes"), Ok("true".into()));
        assert_eq!(normal("osd_memory_target", "4G"), Ok("4294967296".into()));
        assert_eq!(normal("osd_pool_default_size", "1"), Ok("1".into()));
        assert!(normal("osd_pool_default_size", "99").is_err());
        assert!(normal("osd_max_backfills", "-1").is_err());
        assert!(find("nope_nope").is_none());
    }
}
