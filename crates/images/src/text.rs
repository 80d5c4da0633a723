//! Texts as stock's Python writes them: JSON of `json.dumps`, times of `isoformat`, specifications of images.

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{self, Write};
use wire::types::UTime;

/// `json.dumps(value)`: `{"a": 1, "b": [2, 3]}`, ASCII alone.
pub(crate) fn one_line(value: &Value) -> String {
    written(value, OneLine)
}

/// `json.dumps(value, indent=4, sort_keys=True)`.
pub(crate) fn indented(value: &Value) -> String {
    let text = written(&sorted(value.clone()), PrettyFormatter::with_indent(b"    "));
    escaped(&text)
}

fn written(value: &Value, formatter: impl Formatter) -> String {
    let mut out = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut out, formatter))
        .expect("JSON values are written to memory");
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Characters beyond ASCII stand in strings alone, where they may be escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}")),
        }
    }
    out
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> =
                fields.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(Map::from_iter(fields))
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        writer.write_all(escaped(fragment).as_bytes())
    }
}

/// `2026-11-29T01:47:12.714200`; no fraction where it is zero.
pub(crate) fn iso_time(time: UTime) -> String {
    let stamp = wire::text::stamp(time);
    let text = stamp.strip_suffix("+0000").unwrap_or(&stamp);
    text.strip_suffix(".000000").unwrap_or(text).to_owned()
}

/// `2026-11-29 01:47:00`, the minute of a time.
pub(crate) fn minute(sec: u64) -> String {
    let time = UTime { sec: u32::try_from(sec).unwrap_or(u32::MAX), nsec: 0 };
    wire::text::stamp(time).get(..16).unwrap_or_default().replace('T', " ") + ":00"
}

/// Pool, namespace and name of `[POOL/[NAMESPACE/]]IMAGE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ImageSpec {
    pub pool: String,
    pub namespace: String,
    /// A name, or the id of an image in the trash.
    pub image: String,
}

impl ImageSpec {
    /// The pool of a specification without one (`rbd_default_pool`).
    const POOL_DEFAULT: &str = "rbd";

    pub(crate) fn parse(text: &str) -> Option<ImageSpec> {
        let parts: Vec<&str> = text.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [image] => (Self::POOL_DEFAULT, "", image),
            [pool, image] if !pool.is_empty() => (pool, "", image),
            [pool, namespace, image] if !pool.is_empty() && !namespace.is_empty() => (pool, namespace, image),
            _ => return None,
        };
        let is_name = !image.is_empty() && !image.contains('@');
        let own = str::to_owned;
        is_name.then(|| ImageSpec { pool: own(pool), namespace: own(namespace), image: own(image) })
    }
}

impl std::fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.is_empty() {
            true => write!(f, "{}/{}", self.pool, self.image),
            false => write!(f, "{}/{}/{}", self.pool, self.namespace, self.image),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_written_as_python_does() {
        let value = json!({"b": [1, 0.5, null], "a": "\u{fc}\u{1f600}\"", "e": {}, "f": []});
        let line = r#"{"b": [1, 0.5, null], "a": "\u00fc\ud83d\ude00\"", "e": {}, "f": []}"#;
        assert_eq!(one_line(&value), line);
        let pretty = "{\n    \"a\": \"\\u00fc\\ud83d\\ude00\\\"\",\n    \"b\": [\n        1,\n        0.5,\n        null\n    ],\n    \
                      \"e\": {},\n    \"f\": []\n}";
        assert_eq!(indented(&value), pretty);
    }

    #[test]
    fn times_are_in_isoformat() {
        let time = UTime { sec: 1_798_761_599, nsec: 714_200_000 };
        assert_eq!(iso_time(time), "2026-12-31T23:59:59.714200");
        assert_eq!(iso_time(UTime { nsec: 0, ..time }), "2026-12-31T23:59:59");
        assert_eq!(minute(1_798_761_599), "2026-12-31 23:59:00");
    }

    #[test]
    fn image_specifications_are_parsed_as_on_stock() {
        for (text, shown) in [("i", "rbd/i"), ("p/i", "p/i"), ("p/n/i", "p/n/i"), ("p q/i.1", "p q/i.1")] {
            assert_eq!(ImageSpec::parse(text).unwrap().to_string(), shown);
        }
        for text in ["", "/i", "p/", "p//i", "a/b/c/d", "i@s", "p/i@s", "/n/i", "p/n/"] {
            assert_eq!(ImageSpec::parse(text), None, "{text}");
        }
    }
}
