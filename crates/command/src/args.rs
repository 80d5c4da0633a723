//! A command's arguments: one JSON object whose values are scalars or lists of scalars.

use crate::xml::{self, Names};
use crate::{Answer, Json};
use std::collections::BTreeMap;
use wire::types::OsdId;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Value>),
}

impl Value {
    /// The value's texts: itself, or its elements.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Value::List(items) => items.iter().map(Value::text).collect(),
            one => vec![one.text()],
        }
    }

    /// As stock would print it; a list in brackets.
    pub fn text(&self) -> String {
        match self {
            Value::Text(s) => s.clone(),
            Value::Int(n) => n.to_string(),
            Value::Float(f) => crate::json::general(*f, 6),
            Value::Bool(b) => (*b as u8).to_string(),
            Value::List(_) => format!("[{}]", self.texts().join(",")),
        }
    }

    /// A number, also one that came as text (old callers send some so).
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Float(f) => Some(*f),
            Value::Text(s) => s.parse().ok(),
            _ => None,
        }
    }

    fn from_json(value: serde_json::Value) -> Option<Value> {
        Some(match value {
            serde_json::Value::String(s) => Value::Text(s),
            serde_json::Value::Bool(b) => Value::Bool(b),
            serde_json::Value::Number(n) => match n.as_i64() {
                Some(i) => Value::Int(i),
                None => Value::Float(n.as_f64()?),
            },
            serde_json::Value::Array(items) => {
                Value::List(items.into_iter().map(Value::from_json).collect::<Option<_>>()?)
            }
            serde_json::Value::Null | serde_json::Value::Object(_) => return None,
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args(BTreeMap<String, Value>);

impl Args {
    /// The first JSON value of `text`. Text behind it is ignored, as in Ceph: `rbd perf image iostat` of 16.2 to 20.2 sends a
    /// stray quotation mark there.
    pub fn parse(text: &str) -> Result<Args, String> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
        let Some(Ok(json)) = values.next() else {
            return Err(format!("unparseable JSON {text}"));
        };
        let serde_json::Value::Object(pairs) = json else { return Err(format!("not JSON object {text}")) };
        let mut args = BTreeMap::new();
        for (name, value) in pairs {
            let value =
                Value::from_json(value).ok_or_else(|| format!("JSON array/object not allowed {text}"))?;
            args.insert(name, value);
        }
        Ok(Args(args))
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(Value::text)
    }

    /// An argument that the signature demands.
    pub fn required(&self, name: &str) -> Result<String, Answer> {
        self.text(name).ok_or_else(|| Answer::invalid(format!("missing required parameter: '{name}'")))
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::Int(n) => Some(*n),
            other => other.number().map(|n| n as i64),
        }
    }

    pub fn float(&self, name: &str) -> Option<f64> {
        self.get(name)?.number()
    }

    /// A flag: `true`, or (from old callers) the option's own name.
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Bool(b)) => *b,
            Some(Value::Text(s)) => s == "true" || *s == format!("--{}", name.replace('_', "-")),
            _ => false,
        }
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        self.get(name).map(Value::texts).unwrap_or_default()
    }

    /// `3` or `osd.3`.
    pub fn osd(&self, name: &str) -> Result<OsdId, Answer> {
        parse_osd(&self.required(name)?)
    }

    pub fn format(&self) -> Format {
        match self.text("format").as_deref() {
            Some("json") => Format::Json,
            Some("json-pretty") => Format::JsonPretty,
            Some("xml") => Format::Xml(self.xml_names()),
            Some("xml-pretty") => Format::XmlPretty(self.xml_names()),
            _ => Format::Plain,
        }
    }

    fn xml_names(&self) -> Names {
        let prefix = self.text("prefix").unwrap_or_default();
        Names::of(&prefix, self.0.keys().map(String::as_str))
    }

    /// Name to text, as capabilities see the arguments: `caps` becomes one `caps_SERVICE` for each pair.
    pub fn for_caps(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for (name, value) in &self.0 {
            match (name.as_str(), value) {
                ("prefix", _) => {}
                ("caps", Value::List(list)) if list.len() % 2 == 0 => {
                    for pair in list.chunks_exact(2) {
                        out.insert(format!("caps_{}", pair[0].text()), pair[1].text());
                    }
                }
                _ => {
                    out.insert(name.clone(), value.text());
                }
            }
        }
        out
    }
}

pub fn parse_osd(text: &str) -> Result<OsdId, Answer> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    if digits.starts_with(['-', '+']) {
        return Err(Answer::invalid(format!("expected numerical value, got: {digits}")));
    }
    match digits.parse::<i64>() {
        Ok(id) if id > 0xffff => {
            Err(Answer::error(crate::errno::ERANGE, format!("osd id {id} is too large")))
        }
        Ok(id) => Ok(OsdId(id as i32)),
        Err(_) => Err(Answer::invalid(format!("Expected option value to be integer, got '{digits}'"))),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Plain,
    Json,
    JsonPretty,
    Xml(Names),
    XmlPretty(Names),
}

impl Format {
    pub fn is_plain(self) -> bool {
        self == Format::Plain
    }

    /// A document in this format. Where no format was asked for it is pretty JSON.
    pub fn render(self, json: &Json) -> String {
        match self {
            Format::Json => json.compact(),
            Format::Plain | Format::JsonPretty => json.pretty(),
            Format::Xml(names) => xml::compact(json, names),
            Format::XmlPretty(names) => xml::pretty(json, names),
        }
    }

    /// The format, or compact JSON where none was asked for.
    pub fn or_json(self) -> Format {
        if self.is_plain() { Format::Json } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn args_other_than_scalars_and_their_lists_are_refused_by_name() {
        let args = Args::parse(r#"{"prefix":"x","a":1,"b":"t","c":[1,"u"],"d":true,"e":0.5}"#).unwrap();
        assert_eq!(args.int("a"), Some(1));
        assert_eq!(args.texts("c"), ["1", "u"]);
        assert!(args.flag("d") && !args.flag("a"));
        assert_eq!(args.float("e"), Some(0.5));
        assert_eq!(Args::parse("nonsense"), Err("unparseable JSON nonsense".into()));
        assert_eq!(Args::parse("[]"), Err("not JSON object []".into()));
        assert!(Args::parse(r#"{"a":{}}"#).is_err());
        assert!(Args::parse("").is_err() && Args::parse(r#"{"a":1"#).is_err());
    }

    #[test]
    fn text_behind_arguments_is_ignored() {
        let args = Args::parse("{\"prefix\": \"rbd perf image stats\"}\"").unwrap();
        assert_eq!(args.text("prefix").as_deref(), Some("rbd perf image stats"));
    }

    #[test]
    fn an_old_callers_flag_is_the_options_name() {
        let args = Args::parse(r#"{"yes_i_mean_it":"--yes-i-mean-it"}"#).unwrap();
        assert!(args.flag("yes_i_mean_it"));
    }

    #[test]
    fn capabilities_see_each_capability_as_an_argument() {
        let args = Args::parse(r#"{"prefix":"x","entity":"osd.1","caps":["mon","allow r"]}"#).unwrap();
        let seen = args.for_caps();
        assert_eq!(seen["caps_mon"], "allow r");
        assert_eq!(seen["entity"], "osd.1");
        assert!(!seen.contains_key("prefix"));
    }
}
