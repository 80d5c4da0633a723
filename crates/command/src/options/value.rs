//! Values of options: their types, how each is written, and how it is read.
//!
//! The grammar and the error texts are those of Ceph's `Option::parse_value` (`src/common/options.cc`,
//! `strtol.cc`), because scripts match them. This is the only reader of sizes and durations in the repository.

use crate::errno::{EINVAL, ERANGE};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::types::Uuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A log level of one of Ceph's subsystems: `N` or `N/M`.
    DebugLevel,
    Bool,
    Int,
    Uint,
    /// Bytes; `K`, `M`, … are powers of 1024.
    Size,
    /// Whole seconds; `m`, `h`, … are taken.
    Secs,
    Millisecs,
    Float,
    Address,
    Addresses,
    /// An address that a daemon listens on; empty for none.
    Endpoint,
    /// `crc`, `secure` or both.
    ConnectionModes,
    /// Networks such as `10.1.0.0/16`; empty for none.
    Networks,
    /// The log level of a daemon of shoal's.
    LogLevel,
    Uuid,
}

/// A value that was read once and fits its option.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Secs(u64),
    Millisecs(u64),
}

/// The value does not fit. `errno` is positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub errno: i32,
    pub why: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

fn unfit<T>(why: impl Into<String>) -> Result<T, Unfit> {
    Err(Unfit { errno: EINVAL, why: why.into() })
}

/// The one written form: what `config get` shows and what the monitor's database stores.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Bool(yes) => write!(f, "{yes}"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Uint(n) | Value::Secs(n) | Value::Millisecs(n) => write!(f, "{n}"),
            Value::Float(x) => write!(f, "{x:.6}"),
        }
    }
}

impl Value {
    /// For comparison with bounds; `None` for text.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Uint(n) | Value::Secs(n) | Value::Millisecs(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::Text(_) | Value::Bool(_) => None,
        }
    }
}

/// Reads `text` as a value of this kind. Bounds and choices are the option's business.
pub(super) fn parse(kind: Kind, text: &str) -> Result<Value, Unfit> {
    Ok(match kind {
        Kind::Text => Value::Text(text.to_owned()),
        Kind::DebugLevel => Value::Text(debug_level(text)?),
        Kind::Bool => Value::Bool(boolean(text)?),
        Kind::Int => Value::Int(si(text)?),
        Kind::Uint => Value::Uint(count(text)?),
        Kind::Size => Value::Uint(bytes(text)?),
        Kind::Secs => Value::Secs(seconds(text)?),
        Kind::Millisecs => match text.parse() {
            Ok(ms) => Value::Millisecs(ms),
            Err(_) => return unfit(format!("Expected option value to be integer, got '{text}'")),
        },
        Kind::Float => match text.parse() {
            Ok(number) if f64::is_finite(number) => Value::Float(number),
            Ok(_) => return unfit(format!("'{text}' is not a finite number")),
            Err(_) => return unfit(format!("strict_strtod: garbage at end of string. got: '{text}'")),
        },
        Kind::Address => {
            check_address(text)?;
            Value::Text(text.to_owned())
        }
        Kind::Addresses => {
            let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
            inner.split(',').try_for_each(check_address)?;
            Value::Text(text.to_owned())
        }
        Kind::Endpoint if text.is_empty() || endpoint(text).is_some() => Value::Text(text.to_owned()),
        Kind::Endpoint => return unfit(format!("'{text}' is not an address with a port: expected IP:PORT")),
        Kind::ConnectionModes if connection_modes(text).is_some() => Value::Text(text.to_owned()),
        Kind::ConnectionModes => {
            return unfit(format!(
                "'{text}' is not a list of connection modes: expected crc, secure or both, best first"
            ));
        }
        Kind::Networks if networks(text).is_some() => Value::Text(text.to_owned()),
        Kind::Networks => {
            return unfit(format!(
                "'{text}' is not a list of networks: expected ADDRESS/BITS, such as 10.1.0.0/16"
            ));
        }
        Kind::LogLevel if is_log_level(text) => Value::Text(text.to_owned()),
        Kind::LogLevel => {
            return unfit(format!(
                "'{text}' is not a log level: expected error, warn, info, debug, trace or off, or a list such as \
                 info,osd=debug"
            ));
        }
        Kind::Uuid => match text.parse::<Uuid>() {
            Ok(uuid) => Value::Text(uuid.to_string()),
            Err(()) => return unfit(format!("'{text}' is not a UUID")),
        },
    })
}

fn boolean(text: &str) -> Result<bool, Unfit> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => match other.parse::<i64>() {
            Ok(number) => Ok(number != 0),
            Err(_) => unfit(format!("Expected option value to be integer, got '{text}'")),
        },
    }
}

/// `5` is `5/5`: the level that is logged, and the level that is kept in memory for a crash.
fn debug_level(text: &str) -> Result<String, Unfit> {
    let mut parts = text.split('/');
    let levels = [parts.next(), parts.next()].map(|part| part.filter(|p| !p.is_empty()));
    let number = |part: &str| {
        let form = "value must take the form N or N/M, where N and M are integers";
        part.parse::<i64>().map_err(|_| Unfit { errno: EINVAL, why: form.into() })
    };
    let log = number(levels[0].unwrap_or_default())?;
    let gather = levels[1].map_or(Ok(log), number)?;
    if [log, gather].iter().any(|level| !(0..=99).contains(level)) {
        return Err(Unfit { errno: ERANGE, why: "value must be in range [0, 99]".into() });
    }
    Ok(format!("{log}/{gather}"))
}

fn unsigned(number: i64, cast: &str) -> Result<u64, Unfit> {
    match u64::try_from(number) {
        Ok(number) => Ok(number),
        Err(_) => unfit(format!("{cast}: value should not be negative")),
    }
}

/// Bytes as an option takes them: `4096`, `64K`, `4Ki`, `10G`. Letters are powers of 1024.
pub fn bytes(text: &str) -> Result<u64, Unfit> {
    const CAST: &str = "strict_iecstrtoll";
    let (digits, unit) = split_unit(text);
    let letter = match unit {
        "B" => "",
        unit if unit.chars().count() > 2 => return unfit(format!("{CAST}: illegal prefix (length > 2)")),
        unit => unit.strip_suffix('i').filter(|letter| !letter.is_empty()).unwrap_or(unit),
    };
    unsigned(scaled(digits, letter, 1024, CAST)?, CAST)
}

/// Bytes as people and `fio` write them at a command line: also `4k`, `4KiB` and `4 MB`.
pub fn bytes_at_command_line(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_uppercase();
    let number = text.trim_end_matches('B').trim_end_matches('I');
    bytes(&number.replace(' ', "")).ok()
}

/// A count as an option takes it: `4096`, `64K`. Letters are powers of 1000.
pub fn count(text: &str) -> Result<u64, Unfit> {
    unsigned(si(text)?, "strict_sistrtoll")
}

fn si(text: &str) -> Result<i64, Unfit> {
    let (digits, unit) = split_unit(text);
    scaled(digits, unit, 1000, "strict_si_cast")
}

fn split_unit(text: &str) -> (&str, &str) {
    let is_digit = |c: char| c.is_ascii_digit() || c == '-' || c == '+';
    text.split_at(text.find(|c| !is_digit(c)).unwrap_or(text.len()))
}

fn scaled(digits: &str, unit: &str, step: i64, cast: &str) -> Result<i64, Unfit> {
    let power = match unit {
        "" => 0,
        letter => match ["K", "M", "G", "T", "P", "E"].iter().position(|u| *u == letter) {
            Some(at) => at as u32 + 1,
            None => return unfit(format!("{cast}: unit prefix not recognized")),
        },
    };
    let Ok(number) = digits.parse::<i64>() else {
        return unfit(format!("Expected option value to be integer, got '{digits}'"));
    };
    match step.checked_pow(power).and_then(|factor| number.checked_mul(factor)) {
        Some(number) => Ok(number),
        None => unfit(format!("{cast}: value seems to be too large")),
    }
}

/// Seconds as people write them: `90`, `5m`, `1h30m`, `2 days`.
pub fn seconds(text: &str) -> Result<u64, Unfit> {
    let overflow = || Unfit { errno: EINVAL, why: format!("'{text}' is too long a time") };
    let mut sum = 0u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return unfit("value not specified");
    }
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits_end == 0 {
            return unfit(format!("unexpected trailing '{rest}'"));
        }
        let (digits, tail) = rest.split_at(digits_end);
        let tail = tail.trim_start();
        let (unit, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len()));
        let unit_s = match unit {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "week" | "weeks" => 604_800,
            "mo" | "month" | "months" => 2_592_000,
            "y" | "yr" | "year" | "years" => 31_536_000,
            // The misspelling is stock's.
            _ => return unfit(format!("unrecogized unit '{unit}'")),
        };
        let number: u64 = digits.parse().map_err(|_| overflow())?;
        sum = number.checked_mul(unit_s).and_then(|part| sum.checked_add(part)).ok_or_else(overflow)?;
        rest = tail.trim_start();
    }
    Ok(sum)
}

/// `v2:1.2.3.4:6789/0`, `1.2.3.4:6789`, `1.2.3.4`; `-` and nothing are "no address".
fn check_address(text: &str) -> Result<(), Unfit> {
    let text = text.trim();
    let text = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if matches!(text, "" | "-") {
        return Ok(());
    }
    let plain = ["v1:", "any:"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
    match address(plain) {
        Some(_) => Ok(()),
        None => unfit(format!("'{text}' is not an address: expected IP:PORT")),
    }
}

/// `1.2.3.4`, `1.2.3.4:6800` or `v2:1.2.3.4:6800/0`, also in brackets. The port is 0 if none is named.
pub fn address(text: &str) -> Option<(IpAddr, u16)> {
    let text = text.trim();
    let inner = text.strip_prefix("[v2:").and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let plain = inner.strip_prefix("v2:").unwrap_or(inner);
    let (addr, nonce) = plain.split_once('/').unwrap_or((plain, "0"));
    nonce.parse::<u32>().ok()?;
    match addr.parse::<SocketAddr>() {
        Ok(addr) => Some((addr.ip(), addr.port())),
        Err(_) => Some((addr.parse().ok()?, 0)),
    }
}

/// `10.1.0.0/16`, or several, between commas or blanks. `None` if a word is no network.
pub fn networks(text: &str) -> Option<Vec<IpNet>> {
    let words = text.split([' ', ',', ';']).filter(|word| !word.is_empty());
    words.map(|word| word.parse().ok()).collect()
}

/// The address that a daemon listens on: `127.0.0.1:3300`, `v2:127.0.0.1:3300` or `[v2:127.0.0.1:3300]`.
pub fn endpoint(text: &str) -> Option<SocketAddr> {
    let inner = text.trim();
    let inner = inner.strip_prefix("[v2:").and_then(|rest| rest.strip_suffix(']')).unwrap_or(inner);
    inner.strip_prefix("v2:").unwrap_or(inner).parse().ok()
}

/// Connection modes (`ms_*_mode`), best first, as numbers of the protocol; `None` for another word or none at all.
pub fn connection_modes(text: &str) -> Option<Vec<u32>> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let modes: Option<Vec<u32>> = words
        .map(|word| match word {
            "crc" => Some(MODE_CRC),
            "secure" => Some(MODE_SECURE),
            _ => None,
        })
        .collect();
    modes.filter(|modes| !modes.is_empty())
}

/// A list of `LEVEL` and `TARGET=LEVEL`: the part of tracing's filters that has no spans. A word that is no level is
/// refused: tracing would take it for a target and log nothing else.
fn is_log_level(text: &str) -> bool {
    let is_level = |word: &str| LOG_LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let is_target = |word: &str| {
        let is_target_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        !word.is_empty() && word.chars().all(is_target_char)
    };
    text.split(',').all(|directive| match directive.split_once('=') {
        Some((target, level)) => is_target(target) && is_level(level),
        None => is_level(directive),
    })
}

const LOG_LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Types that a consumer may read an option as.
pub trait FromValue: Sized {
    /// `None` when the value's kind cannot become this type: a mistake in the program.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<bool> {
        if let Value::Bool(yes) = value { Some(*yes) } else { None }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<String> {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}

/// `None` for an empty text.
impl<T: FromText> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Option<T>> {
        if let Value::Text(text) = value {
            Some((!text.is_empty()).then(|| T::from_text(text.clone())))
        } else {
            None
        }
    }
}

pub trait FromText {
    fn from_text(text: String) -> Self;
}

impl FromText for String {
    fn from_text(text: String) -> String {
        text
    }
}

impl FromText for PathBuf {
    fn from_text(text: String) -> PathBuf {
        text.into()
    }
}

impl FromValue for PathBuf {
    fn from_value(value: &Value) -> Option<PathBuf> {
        String::from_value(value).map(PathBuf::from)
    }
}

/// A negative number is zero: Ceph's signed options use it for "none".
impl FromValue for u64 {
    fn from_value(value: &Value) -> Option<u64> {
        match value {
            Value::Uint(n) | Value::Secs(n) | Value::Millisecs(n) => Some(*n),
            Value::Int(n) => Some((*n).max(0) as u64),
            _ => None,
        }
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<i64> {
        match value {
            Value::Int(n) => Some(*n),
            other => i64::try_from(u64::from_value(other)?).ok(),
        }
    }
}

macro_rules! from_u64 {
    ($($t:ty),*) => {$(
        /// The largest value stands for anything larger.
        impl FromValue for $t {
            fn from_value(value: &Value) -> Option<$t> {
                Some(<$t>::try_from(u64::from_value(value)?).unwrap_or(<$t>::MAX))
            }
        }
    )*};
}
from_u64!(usize, u32, u16);

impl FromValue for f64 {
    fn from_value(value: &Value) -> Option<f64> {
        if let Value::Float(x) = value { Some(*x) } else { None }
    }
}

/// Of a bare number: seconds.
impl FromValue for Duration {
    fn from_value(value: &Value) -> Option<Duration> {
        Some(match value {
            Value::Millisecs(ms) => Duration::from_millis(*ms),
            Value::Float(s) => Duration::try_from_secs_f64(s.max(0.0)).unwrap_or(Duration::MAX),
            other => Duration::from_secs(u64::from_value(other)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(kind: Kind, text: &str) -> String {
        parse(kind, text).unwrap_err().why
    }

    fn normal(kind: Kind, text: &str) -> String {
        parse(kind, text).unwrap().to_string()
    }

    /// Answers of 16.2.15's `ceph config set`.
    #[test]
    fn errors_are_worded_as_stock_words_them() {
        assert_eq!(why(Kind::Uint, "banana"), "strict_si_cast: unit prefix not recognized");
        assert_eq!(why(Kind::Int, "5.5"), "strict_si_cast: unit prefix not recognized");
        assert_eq!(why(Kind::Int, "4k"), "strict_si_cast: unit prefix not recognized");
        assert_eq!(why(Kind::Uint, "-3"), "strict_sistrtoll: value should not be negative");
        assert_eq!(why(Kind::Size, "4k"), "strict_iecstrtoll: unit prefix not recognized");
        assert_eq!(why(Kind::Size, "4KiB"), "strict_iecstrtoll: illegal prefix (length > 2)");
        assert_eq!(why(Kind::Size, "1.5G"), "strict_iecstrtoll: illegal prefix (length > 2)");
        assert_eq!(why(Kind::Size, "-1"), "strict_iecstrtoll: value should not be negative");
        assert_eq!(why(Kind::Bool, "yes"), "Expected option value to be integer, got 'yes'");
        assert_eq!(why(Kind::Secs, "2.5"), "unexpected trailing '.5'");
        assert_eq!(why(Kind::Secs, "100ms"), "unrecogized unit 'ms'");
        assert_eq!(why(Kind::Float, "90%"), "strict_strtod: garbage at end of string. got: '90%'");
        assert_eq!(parse(Kind::DebugLevel, "100").unwrap_err().errno, ERANGE);
        assert_eq!(parse(Kind::DebugLevel, "x").unwrap_err().errno, EINVAL);
        assert!(parse(Kind::Address, "x").is_err() && parse(Kind::Uuid, "x").is_err());
    }

    #[test]
    fn values_have_one_written_form() {
        assert_eq!(normal(Kind::DebugLevel, "5/"), "5/5");
        assert_eq!(normal(Kind::DebugLevel, "5/6/7"), "5/6");
        assert_eq!(normal(Kind::Int, "4K"), "4000");
        assert_eq!(normal(Kind::Size, "4K"), "4096");
        assert_eq!(normal(Kind::Size, "4Ki"), "4096");
        assert_eq!(normal(Kind::Size, "4B"), "4");
        assert_eq!(normal(Kind::Secs, "1h30m"), "5400");
        assert_eq!(normal(Kind::Secs, "5 s"), "5");
        assert_eq!(normal(Kind::Float, "1e-1"), "0.100000");
        assert_eq!(normal(Kind::Bool, "2"), "true");
        assert_eq!(normal(Kind::Address, "v2:10.0.0.1:3300/7"), "v2:10.0.0.1:3300/7");
        assert_eq!(normal(Kind::Addresses, "[v2:10.0.0.1:3300/0,v1:[::1]:6789/0]").len(), 36);
    }

    #[test]
    fn command_line_sizes_take_any_case() {
        for (text, want) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4 MB", 4 << 20),
            ("1G", 1 << 30),
            ("20g", 20 << 30),
        ] {
            assert_eq!(bytes_at_command_line(text), Some(want), "{text}");
        }
        for text in ["", "k", "-1", "4x", "99999999999T"] {
            assert_eq!(bytes_at_command_line(text), None, "{text}");
        }
    }
}
