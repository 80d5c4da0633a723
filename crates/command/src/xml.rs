//! XML as Ceph's formatter writes it: the same keys and values as the JSON, each in an element of its own.
//!
//! JSON has no name for a document and none for the items of an array; XML needs both. Stock gives each by hand, at the place
//! that writes it. Here they stand in one table, `xml_names.tsv`, a row a command: the command, the name of its document, and
//! `KEY=ITEM` for arrays whose items are called ITEM. `PARENT/KEY=ITEM` holds below PARENT alone, and `*` stands for any key.
//! A row `COMMAND +ARGUMENT` holds where the argument is given. The row `*` holds for every command. The names were recorded
//! from stock 20.2.4; a test writes stock's recorded JSON with them and compares the bytes with stock's XML.

use crate::Json;
use std::collections::BTreeMap;
use std::fmt::Write;

static TABLE: &str = include_str!("xml_names.tsv");

/// Names of the elements of one command's answer that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The document's. Without it the answer's keys stand at the top, as in a few of stock's answers.
    root: Option<&'static str>,
    items: &'static str,
}

impl Names {
    /// The names of a command that was given these arguments.
    pub fn of<'a>(command: &str, arguments: impl IntoIterator<Item = &'a str>) -> Names {
        let special = arguments.into_iter().find_map(|name| Names::row(&format!("{command} +{name}")));
        // Commands of shoal alone have no row.
        special.or_else(|| Names::row(command)).unwrap_or(Names { root: Some("answer"), items: "" })
    }

    /// The names in a row of the table.
    pub fn row(name: &str) -> Option<Names> {
        TABLE.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
            let mut fields = line.split('\t');
            (fields.next() == Some(name)).then(|| Names {
                root: fields.next().filter(|root| *root != "-"),
                items: fields.next().unwrap_or_default(),
            })
        })
    }

    /// The name of an array's items: from the command's row, or from the row of all commands.
    fn item(&self, parent: &str, key: &str) -> &'static str {
        let common = TABLE.lines().find_map(|line| line.strip_prefix("*\t-\t")).unwrap_or_default();
        let find = |items: &'static str, wanted: &dyn Fn(&str) -> bool| {
            items
                .split(' ')
                .filter_map(|pair| pair.split_once('='))
                .find(|(of, _)| wanted(of))
                .map(|(_, item)| item)
        };
        let is_for = |of: &str, wanted: &str| match of.split_once('/') {
            Some((before, after)) => before == parent && after == wanted,
            None => false,
        };
        find(self.items, &|of| is_for(of, key))
            .or_else(|| find(self.items, &|of| of == key))
            .or_else(|| find(self.items, &|of| is_for(of, "*")))
            .or_else(|| find(common, &|of| of == key))
            .or_else(|| find(common, &|of| is_for(of, "*")))
            .or_else(|| find(self.items, &|of| of == "*"))
            .unwrap_or("item")
    }
}

/// The document on one line, without a line break at its end.
pub fn compact(json: &Json, names: Names) -> String {
    Writer::new(names, false).document(json)
}

/// As `xml-pretty`: a line an element, indented by a blank a level.
pub fn pretty(json: &Json, names: Names) -> String {
    Writer::new(names, true).document(json)
}

struct Writer<'a> {
    names: Names,
    /// Names of items that were looked up, by the array's parent and key: a list of PGs has the same few again and again.
    items: BTreeMap<(&'a str, &'a str), &'static str>,
    pretty: bool,
    out: String,
}

impl<'a> Writer<'a> {
    fn new(names: Names, pretty: bool) -> Writer<'a> {
        Writer { names, items: BTreeMap::new(), pretty, out: String::new() }
    }

    fn document(mut self, json: &'a Json) -> String {
        match (self.names.root, json) {
            (None, Json::Object(pairs)) => {
                pairs.iter().for_each(|(key, value)| self.element("", key, value, 0))
            }
            (root, value) => self.element("", root.unwrap_or("answer"), value, 0),
        }
        self.out
    }

    fn element(&mut self, parent: &'a str, name: &'a str, value: &'a Json, depth: usize) {
        let tag = name.replace(' ', "_");
        self.indent(depth);
        match value {
            Json::Array(items) => {
                self.open(&tag);
                let names = self.names;
                let item_name = *self.items.entry((parent, name)).or_insert_with(|| names.item(parent, name));
                items.iter().for_each(|item| self.element(name, item_name, item, depth + 1));
                self.indent(depth);
            }
            Json::Object(pairs) => {
                self.open(&tag);
                pairs.iter().for_each(|(key, inner)| self.element(name, key, inner, depth + 1));
                self.indent(depth);
            }
            scalar => {
                let _ = write!(self.out, "<{tag}>");
                match scalar {
                    Json::Str(text) => escape(&mut self.out, text),
                    number => self.out += &number.compact(),
                }
            }
        }
        let _ = write!(self.out, "</{tag}>");
        self.end_line();
    }

    fn open(&mut self, tag: &str) {
        let _ = write!(self.out, "<{tag}>");
        self.end_line();
    }

    fn indent(&mut self, depth: usize) {
        if self.pretty {
            self.out.extend(std::iter::repeat_n(' ', depth));
        }
    }

    fn end_line(&mut self) {
        if self.pretty {
            self.out.push('\n');
        }
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            c if (c < ' ' && c != '\t' && c != '\n') || c == '\x7f' => {
                let _ = write!(out, "&#x{:02x};", c as u32);
            }
            c => out.push(c),
        }
    }
}
