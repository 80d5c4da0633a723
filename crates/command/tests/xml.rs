//! XML against stock's, byte for byte: stock 20.2.4 was asked for the same answers as JSON and as XML
//! (`tests/interop/xml_names.py`), and here its JSON is written as XML.

use command::Json;
use command::xml::{self, Names};
use serde_json::Value;

static RECORDED: &str = include_str!("../../../tests/interop/stock/tentacle-xml.json");

/// Parses JSON and keeps what [`serde_json`] does not: the order of keys, keys that come twice, and the digits of numbers.
struct Parser<'a>(&'a str);

impl Parser<'_> {
    fn skip(&mut self, token: &str) -> bool {
        self.0 = self.0.trim_start();
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn value(&mut self) -> Json {
        if self.skip("{") {
            let mut pairs = Vec::new();
            while !self.skip("}") {
                let key = self.string();
                assert!(self.skip(":"));
                pairs.push((key.into(), self.value()));
                self.skip(",");
            }
            return Json::Object(pairs);
        }
        if self.skip("[") {
            let mut items = Vec::new();
            while !self.skip("]") {
                items.push(self.value());
                self.skip(",");
            }
            return Json::Array(items);
        }
        if self.0.trim_start().starts_with('"') {
            return Json::Str(self.string());
        }
        let end = self.0.find([',', ']', '}', '\n']).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Json::Raw(token.trim().to_owned())
    }

    fn string(&mut self) -> String {
        self.0 = self.0.trim_start();
        let mut end = 1;
        while !self.0[end..].starts_with('"') {
            end += if self.0[end..].starts_with('\\') { 2 } else { 1 };
            while !self.0.is_char_boundary(end) {
                end += 1;
            }
        }
        let text = &self.0[..=end];
        self.0 = &self.0[end + 1..];
        serde_json::from_str(text).expect("a string")
    }
}

#[test]
fn xml_is_that_of_stock_byte_for_byte() {
    let recorded: Value = serde_json::from_str(RECORDED).unwrap();
    let rows = recorded.as_array().unwrap();
    assert!(rows.len() > 80, "{} recorded answers", rows.len());
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap();
        let command = text("row");
        let json = Parser(text("json")).value();
        let names = Names::row(command).expect(command);
        // Some of stock's answers have a line break before their last line, which is no part of the document.
        let plain = |text: &str| text.replace("\n</pg_info>", "</pg_info>").trim_end().to_owned();
        assert_eq!(xml::compact(&json, names), plain(text("xml")), "{command}");
        let pretty = xml::pretty(&json, names);
        assert_eq!(plain(&pretty), plain(&text("xml_pretty").replace("\n\n", "\n")), "{command}");
    }
}

#[test]
fn special_characters_are_escaped() {
    let json = command::object! { "a b" => "<&>'\"\u{1}\n", "none" => Json::Array(vec![]) };
    let text = "<answer><a_b>&lt;&amp;&gt;&apos;&quot;&#x01;\n</a_b><none></none></answer>";
    assert_eq!(xml::compact(&json, Names::of("no such command", [])), text);
    let pretty = " <none>\n </none>\n</answer>\n";
    assert!(xml::pretty(&json, Names::of("no such command", [])).ends_with(pretty));
}
