//! Calls of `cas` and `fifo` that stock's own class libraries answered: the same results, replies and objects come out.
//!
//! The rows of `tests/recorded/class-calls.tsv` were recorded from the libraries of 16.2.15 and of 20.2.4 on an object in
//! memory, with the clock at 1000 s: both releases answer alike. A value is hexadecimal, `(N)` is N zero bytes, `.` is
//! empty and `-` is no object. `=` is the same as before: in front of a call as the row above left it, behind it as in
//! front of it.

use super::testing::Object;
use bytes::Bytes;

const ROWS: &str = include_str!("../../tests/recorded/class-calls.tsv");
const ATTR: &str = "chunk_refs";
/// A new part's magic number, which is random.
const MAGIC: std::ops::Range<usize> = 40..48;

fn bytes_of(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.strip_prefix('.').unwrap_or(text);
    while !rest.is_empty() {
        if let Some((count, behind)) = rest.strip_prefix('(').and_then(|zeroes| zeroes.split_once(')')) {
            out.resize(out.len() + count.parse::<usize>().unwrap(), 0);
            rest = behind;
        } else {
            let (digits, behind) = rest.split_at(2);
            out.push(u8::from_str_radix(digits, 16).unwrap());
            rest = behind;
        }
    }
    out
}

/// An object as the table tells it: its data, if it is there, and its attribute, if it has it.
#[derive(Clone, PartialEq, Debug, Default)]
struct Stored {
    data: Option<Vec<u8>>,
    attr: Vec<u8>,
}

impl Stored {
    fn parse(data: &str, attr: &str, before: &Stored) -> Stored {
        let data = match data {
            "=" => before.data.clone(),
            "-" => None,
            data => Some(bytes_of(data)),
        };
        let attr = if attr == "=" { before.attr.clone() } else { bytes_of(attr) };
        Stored { data, attr }
    }

    fn object(&self) -> Object {
        let Some(data) = &self.data else { return Object::missing() };
        let mut o = Object::existing();
        o.put_data(data);
        if !self.attr.is_empty() {
            o.put_attr(ATTR, &self.attr);
        }
        o
    }

    fn of(o: &Object) -> Stored {
        let data = o.exists().then(|| o.data().to_vec());
        Stored { data, attr: o.attr(ATTR).unwrap_or_default().to_vec() }
    }

    fn without_magic(mut self) -> Stored {
        if let Some(magic) = self.data.as_mut().and_then(|data| data.get_mut(MAGIC)) {
            magic.fill(0);
        }
        self
    }
}

#[test]
fn calls_end_as_in_stocks_libraries() {
    let mut stored = Stored::default();
    for (number, row) in ROWS.lines().enumerate().skip(1) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [call, argument, data, attr, result, output, data_after, attr_after] = cells[..] else {
            panic!("row {number} has eight cells");
        };
        let (class, method) = call.split_once('.').unwrap();
        let before = Stored::parse(data, attr, &stored);
        let after = Stored::parse(data_after, attr_after, &before);
        let mut o = before.object();
        let outcome = o.call_raw(class, method, &bytes_of(argument));
        let label = format!("row {} of the table: {call}", number + 1);
        assert_eq!(outcome.result.to_string(), result, "{label}");
        assert_eq!(outcome.output.to_bytes(), Bytes::from(bytes_of(output)), "{label}");
        if method == "init_part" {
            assert_eq!(Stored::of(&o).without_magic(), after.clone().without_magic(), "{label}");
        } else {
            assert_eq!(Stored::of(&o), after, "{label}");
        }
        stored = after;
    }
}
