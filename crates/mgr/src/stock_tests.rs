//! The manager's answers beside those of a stock manager that had the same map and the same reports.
//!
//! `tests/recorded/`: the OSDMap of a 20.2.4 cluster (three OSDs, one of them just killed), the last report of each
//! OSD as it sent it, and what `ceph COMMAND` printed then. What depends on the moment, or on the order of a hash
//! map, is left out of the comparison; the rest must be equal, keys and their order included.

use crate::PgMap;
use crate::caps::Caps;
use crate::fixture::{answer_of, react_as};
use bytes::Bytes;
use codec::{Reader, decode_exact};
use serde_json::Value;
use std::sync::Arc;
use wire::messages::{Body, Header, Message, Payload};
use wire::types::{OsdMap, UTime};

const OSD_MAP: &[u8] = include_bytes!("../tests/recorded/osdmap-20.2.4");
const REPORTS: &[u8] = include_bytes!("../tests/recorded/reports-20.2.4");
const ANSWERS: &str = include_str!("../tests/recorded/answers-20.2.4");

/// Keys whose values are of the moment, or that count a manager's or a PG's own turns.
const OF_THE_MOMENT: [&str; 17] = [
    "version",
    "stamp",
    "stamp_delta",
    "last_osdmap_epoch",
    "last_pg_scan",
    "seq",
    "modified",
    "epoch",
    "pg_stats_delta",
    "reported_seq",
    "last_fresh",
    "last_active",
    "last_peered",
    "last_clean",
    "last_unstale",
    "last_undegraded",
    "last_fullsized",
];

fn pg_map() -> (PgMap, UTime) {
    let map: OsdMap = decode_exact(OSD_MAP).unwrap();
    let now = UTime { sec: map.modified.sec + 60, nsec: 0 };
    let mut pg_map = PgMap::default();
    pg_map.on_osd_map(now, Arc::new(map));
    let mut r = Reader::new(REPORTS);
    for _ in 0..r.u32().unwrap() {
        let (osd, version) = (r.i32().unwrap(), r.u16().unwrap());
        let front = Bytes::copy_from_slice(r.blob().unwrap());
        let header = Header { kind: 87, version, compat: 1, ..Header::default() };
        let message = Message::decode(&header, Payload { front, ..Payload::default() }).unwrap();
        let Body::MPGStats(report) = message.body else { panic!("not a report") };
        pg_map.ingest(now, osd, *report);
    }
    (pg_map, now)
}

struct Recorded {
    command: &'static str,
    format: &'static str,
    ok: bool,
    body: &'static str,
}

fn recorded() -> Vec<Recorded> {
    let items = ANSWERS.split('\u{1e}').skip(1);
    items
        .map(|item| {
            let mut fields = item.splitn(3, '\u{1f}');
            let command = fields.next().unwrap();
            let (ok, body) = (fields.next().unwrap() == "0", fields.next().unwrap());
            let (command, format) = command.split_once(" --format ").unwrap_or((command, "plain"));
            Recorded { command, format, ok, body }
        })
        .collect()
}

/// The words of a command as `ceph` turns them into arguments.
fn request(r: &Recorded) -> String {
    const WITH_WORDS: [(&str, &str); 8] = [
        ("pg dump_json", "dumpcontents[]"),
        ("pg dump_stuck", "stuckops[]"),
        ("pg dump", "dumpcontents[]"),
        ("pg ls-by-pool", "poolstr"),
        ("pg ls-by-osd", "osd"),
        ("pg ls-by-primary", "osd"),
        ("osd pool stats", "pool_name"),
        ("pg ls", "states[]"),
    ];
    let mut args = serde_json::Map::new();
    let mut set = |key: &str, value: Value| args.insert(key.into(), value);
    let is = |prefix: &str| r.command == prefix || r.command.starts_with(&format!("{prefix} "));
    if let Some((prefix, key)) = WITH_WORDS.iter().find(|(prefix, _)| is(prefix)) {
        set("prefix", Value::from(*prefix));
        let words: Vec<&str> = r.command[prefix.len()..].split_whitespace().collect();
        match key.strip_suffix("[]") {
            Some(key) if !words.is_empty() => set(key, Value::from(words)),
            None if !words.is_empty() => set(key, Value::from(words[0])),
            _ => None,
        };
    } else if is("osd df") {
        set("prefix", "osd df".into());
        let words: Vec<&str> = r.command["osd df".len()..].split_whitespace().collect();
        for (key, word) in ["output_method", "filter_by", "filter"].into_iter().zip(words) {
            set(key, word.into());
        }
    } else if is("pg debug") {
        set("prefix", "pg debug".into());
        set("debugop", r.command["pg debug ".len()..].into());
    } else if let Some((prefix, id)) = r.command.rsplit_once(' ').filter(|(_, id)| id.parse::<u32>().is_ok())
    {
        set("prefix", prefix.into());
        set("ids", Value::from(vec![id]));
    } else {
        set("prefix", r.command.into());
    }
    set("format", r.format.into());
    Value::Object(args).to_string()
}

/// Every path at which two values differ.
fn differences(path: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let (keys_a, keys_b): (Vec<_>, Vec<_>) = (a.keys().collect(), b.keys().collect());
            if keys_a != keys_b {
                out.push(format!("{path}: keys {keys_a:?}, ours {keys_b:?}"));
            }
            for (key, value) in a.iter().filter(|(key, _)| !OF_THE_MOMENT.contains(&key.as_str())) {
                if let Some(own) = b.get(key) {
                    differences(&format!("{path}.{key}"), value, own, out);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let name = |v: &Value| {
                ["pgid", "osd", "id", "poolid", "name"].iter().find_map(|k| v.get(k)).map(|n| n.to_string())
            };
            let sorted = |list: &[Value]| {
                let mut list = list.to_vec();
                if list.iter().all(|v| name(v).is_some()) {
                    list.sort_by_key(|v| (name(v), v.to_string()));
                }
                list
            };
            for (i, (x, y)) in sorted(a).iter().zip(&sorted(b)).enumerate() {
                differences(&format!("{path}[{i}]"), x, y, out);
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let (x, y) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            // Stock adds up whole KiB of each OSD, and in another order.
            let slack = if path.contains(".kb") { 2.0 } else { 1e-3 * x.abs() };
            let exact = x.fract() == 0.0 && !path.contains(".kb");
            if if exact { x != y } else { (x - y).abs() > slack } {
                out.push(format!("{path}: {a}, ours {b}"));
            }
        }
        (a, b) if a != b => out.push(format!("{path}: {a}, ours {b}")),
        _ => {}
    }
}

/// Lines in any order, and the parts of each, without what a moment's clock or counter put there.
fn lines(text: &str) -> Vec<Vec<&str>> {
    const OF_THE_MOMENT: [&str; 4] = ["version ", "stamp ", "last_osdmap_epoch ", "last_pg_scan "];
    // How long a PG has been as it is: `97s`.
    let is_age = |word: &str| word.strip_suffix('s').is_some_and(|n| n.parse::<u64>().is_ok());
    // `EPOCH:SEQ` of a PG's last report.
    let is_report = |word: &str| {
        word.split_once(':').is_some_and(|(a, b)| [a, b].iter().all(|n| n.parse::<u64>().is_ok()))
    };
    let mut out: Vec<Vec<&str>> = text
        .lines()
        .filter(|l| !OF_THE_MOMENT.iter().any(|p| l.starts_with(p)))
        .map(|l| {
            let mut parts: Vec<&str> =
                l.split([' ', ',', ';']).filter(|w| !w.is_empty() && !is_report(w) && !is_age(w)).collect();
            parts.sort();
            parts
        })
        .collect();
    out.retain(|l| !l.is_empty());
    out.sort();
    out
}

#[test]
fn answers_are_those_of_a_stock_manager() {
    let (pg_map, now) = pg_map();
    let caps = Caps::all();
    let mut wrong = Vec::new();
    for r in recorded() {
        let ours = answer_of(react_as(&pg_map, now, &caps, &request(&r)));
        let text = String::from_utf8(ours.body.to_vec()).unwrap();
        let what = format!("{} --format {}", r.command, r.format);
        if (ours.result == 0) != r.ok {
            wrong.push(format!("{what}: result {} {}, theirs {}", ours.result, ours.status, r.ok));
            continue;
        }
        match (serde_json::from_str::<Value>(r.body), serde_json::from_str::<Value>(&text)) {
            (Ok(theirs), Ok(ours)) => {
                let mut found = Vec::new();
                differences("", &theirs, &ours, &mut found);
                wrong.extend(found.into_iter().map(|d| format!("{what}: {d}")));
            }
            (Ok(_), Err(_)) => wrong.push(format!("{what}: not JSON: {text}")),
            _ => {
                let (theirs, ours) = (lines(r.body), lines(&text));
                for line in theirs.iter().filter(|l| !ours.contains(l)) {
                    wrong.push(format!("{what}: lacks   {line:?}"));
                }
                for line in ours.iter().filter(|l| !theirs.contains(l)) {
                    wrong.push(format!("{what}: has not {line:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
