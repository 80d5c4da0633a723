//! JSON exactly as Ceph's formatter writes it: keys in the order given, `json` on one line, `json-pretty` with
//! four spaces and a line break in front, floats with as many digits as `%.17g` gives.

use std::borrow::Cow;
use std::fmt::Write;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    /// A number (or anything else) already in its final form.
    Raw(String),
    Str(String),
    Array(Vec<Json>),
    Object(Vec<(Cow<'static, str>, Json)>),
}

/// `object! { "key" => value, … }`, keys in this order; a value is anything that becomes a [`Json`].
#[macro_export]
macro_rules! object {
    ($($key:expr => $value:expr),* $(,)?) => {
        $crate::Json::Object(vec![$(($key.into(), $value.into())),*])
    };
}

impl Json {
    /// Adds a pair to an object.
    ///
    /// # Panics
    /// When it is not an object.
    pub fn push(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Json>) {
        match self {
            Json::Object(pairs) => pairs.push((key.into(), value.into())),
            other => panic!("not an object: {other:?}"),
        }
    }

    /// An array of whatever becomes a [`Json`].
    pub fn array<T: Into<Json>>(items: impl IntoIterator<Item = T>) -> Json {
        Json::Array(items.into_iter().map(Into::into).collect())
    }

    /// An object with a string value for each key.
    pub fn strings<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Json {
        Json::Object(pairs.into_iter().map(|(k, v)| (k.clone().into(), v.as_str().into())).collect())
    }

    /// One line, no line break at its end.
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write_compact(&mut out);
        out
    }

    /// As `json-pretty`: starts and ends with a line break.
    pub fn pretty(&self) -> String {
        let mut out = String::from("\n");
        self.write_pretty(&mut out, 0);
        out.push('\n');
        out
    }

    fn write_compact(&self, out: &mut String) {
        match self {
            Json::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write_compact(out);
                }
                out.push(']');
            }
            Json::Object(pairs) => {
                out.push('{');
                for (i, (key, value)) in pairs.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_string(out, key);
                    out.push(':');
                    value.write_compact(out);
                }
                out.push('}');
            }
            scalar => scalar.write_scalar(out),
        }
    }

    fn write_pretty(&self, out: &mut String, depth: usize) {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str("    "));
        };
        match self {
            Json::Array(items) if !items.is_empty() => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    line(out, depth + 1);
                    item.write_pretty(out, depth + 1);
                }
                line(out, depth);
                out.push(']');
            }
            Json::Object(pairs) if !pairs.is_empty() => {
                out.push('{');
                for (i, (key, value)) in pairs.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    line(out, depth + 1);
                    write_string(out, key);
                    out.push_str(": ");
                    value.write_pretty(out, depth + 1);
                }
                line(out, depth);
                out.push('}');
            }
            other => other.write_compact(out),
        }
    }

    fn write_scalar(&self, out: &mut String) {
        let _ = match self {
            Json::Bool(b) => write!(out, "{b}"),
            Json::Int(n) => write!(out, "{n}"),
            Json::Uint(n) => write!(out, "{n}"),
            Json::Float(f) if f.is_finite() => write!(out, "{}", general(*f, 17)),
            Json::Float(_) => write!(out, "null"),
            Json::Raw(text) => write!(out, "{text}"),
            Json::Str(s) => {
                write_string(out, s);
                Ok(())
            }
            Json::Array(_) | Json::Object(_) => unreachable!("not a scalar"),
        };
    }
}

/// A float as C's `%.{digits}g` writes it.
pub fn general(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let scientific = format!("{:.*e}", digits - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => s.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trim(&format!("{value:.decimals$}"))
}

fn write_string(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || c == '\x7f' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

macro_rules! from {
    ($($t:ty => $variant:ident as $as:ty),* $(,)?) => {$(
        impl From<$t> for Json {
            fn from(v: $t) -> Json { Json::$variant(v as $as) }
        }
    )*};
}
from!(i32 => Int as i64, i64 => Int as i64, u8 => Uint as u64, u16 => Uint as u64, u32 => Uint as u64,
      u64 => Uint as u64, usize => Uint as u64, f64 => Float as f64);

/// A 32-bit float is shown with the digits of its exact value, as C++ shows one that was widened.
impl From<f32> for Json {
    fn from(v: f32) -> Json {
        Json::Float(v as f64)
    }
}

impl From<bool> for Json {
    fn from(v: bool) -> Json {
        Json::Bool(v)
    }
}

impl From<&str> for Json {
    fn from(v: &str) -> Json {
        Json::Str(v.to_owned())
    }
}

impl From<String> for Json {
    fn from(v: String) -> Json {
        Json::Str(v)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(v: Vec<T>) -> Json {
        Json::array(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_seventeen_digits_without_trailing_zeroes() {
        for (value, text) in [
            (0.95f32 as f64, "0.94999998807907104"),
            (0.8888888955116272, "0.8888888955116272"),
            (1.0, "1"),
            (0.0, "0"),
            (0.0077972412109375, "0.0077972412109375"),
            (1e20, "1e+20"),
            (1.5e-7, "1.4999999999999999e-07"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(general(value, 17), text);
        }
        assert_eq!(general(12345678.0, 6), "1.23457e+07");
    }

    #[test]
    fn pretty_and_compact_differ_in_blanks_alone() {
        let value = object! {
            "a" => 1u32,
            "b" => Json::array(["x\n\"\\", "\u{1}ü"]),
            "empty" => Json::Array(vec![]),
            "none" => object! {},
        };
        assert_eq!(value.compact(), r#"{"a":1,"b":["x\n\"\\","\u0001ü"],"empty":[],"none":{}}"#);
        assert_eq!(
            value.pretty(),
            "\n{\n    \"a\": 1,\n    \"b\": [\n        \"x\\n\\\"\\\\\",\n        \"\\u0001ü\"\n    ],\n    \"empty\": [],\n    \"none\": {}\n}\n"
        );
    }
}
