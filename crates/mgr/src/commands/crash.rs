//! `crash`: reports of crashed daemons. Outputs are stock's, but for `crash json_report`, which counts the crashes of the asked
//! hours (stock 16.2 counts all).

use super::{Reaction, View};
use crate::crashes::{Change, Report};
use command::{Answer, Args, errno};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use wire::types::{AuthName, EntityKind};

const DAY_SECONDS: i64 = 24 * 60 * 60;

/// EAGAIN until the monitors have sent the reports that they keep.
fn unloaded(view: &View<'_>) -> Option<Reaction> {
    let why = "the crash reports are not read from the monitors yet: try again in some seconds";
    (!view.crashes.is_loaded()).then(|| Answer::error(errno::EAGAIN, why).into())
}

/// A refusal. Stock's manager returns EINVAL without its sign, and `ceph` exits with 0 and prints the message.
fn refused(status: String) -> Reaction {
    Answer { result: errno::EINVAL, status, ..Answer::default() }.into()
}

pub(super) fn ls(view: &View<'_>, args: &Args) -> Reaction {
    list(view, args, |_| true)
}

pub(super) fn ls_new(view: &View<'_>, args: &Args) -> Reaction {
    list(view, args, Report::is_new)
}

fn list(view: &View<'_>, args: &Args, is_asked: fn(&Report) -> bool) -> Reaction {
    if let Some(unloaded) = unloaded(view) {
        return unloaded;
    }
    let reports = view.crashes.select(is_asked);
    if !args.format().is_plain() {
        let rows = reports.iter().map(|report| Value::Object(report.fields.clone())).collect();
        return Answer::body(indented(Value::Array(rows))).into();
    }
    if reports.is_empty() {
        return Answer::ok("").into();
    }
    let entity = |report: &Report| report.entity().unwrap_or("unknown").to_owned();
    let width = |cells: &mut dyn Iterator<Item = usize>, heading: &str| cells.fold(heading.len(), usize::max);
    let ids = width(&mut reports.iter().map(|report| report.id.chars().count()), "ID");
    let entities = width(&mut reports.iter().map(|report| entity(report).chars().count()), "ENTITY");
    let line = |id: &str, entity: &str, new: &str| format!("{id:<ids$}  {entity:<entities$}  {new:<3}  \n");
    let mut text = line("ID", "ENTITY", "NEW");
    for report in reports {
        text += &line(&report.id, &entity(report), if report.is_new() { " *" } else { "" });
    }
    Answer::body(text).into()
}

pub(super) fn info(view: &View<'_>, args: &Args) -> Reaction {
    let id = args.text("id").unwrap_or_default();
    match (unloaded(view), view.crashes.get(&id)) {
        (Some(unloaded), _) => unloaded,
        (None, Some(report)) => Answer::body(indented(Value::Object(report.fields.clone()))).into(),
        (None, None) => refused(format!("crash info: {id} not found")),
    }
}

pub(super) fn post(view: &View<'_>, _: &Args) -> Reaction {
    if let Some(unloaded) = unloaded(view) {
        return unloaded;
    }
    match Report::parse(view.input) {
        // A client posts a report again if it lost the answer.
        Ok(report) if view.crashes.get(&report.id).is_some() => Answer::ok("").into(),
        Ok(report) if view.crashes.is_full_for(&report) => Answer::error(
            errno::ENOSPC,
            "there are too many crash reports: remove some with `ceph crash prune DAYS`",
        )
        .into(),
        Ok(mut report) => {
            report.sign();
            Reaction::ChangeCrashes(vec![Change::Put(report)])
        }
        Err(why) => refused(format!("malformed crash metadata: {why}")),
    }
}

/// True if the report is about the asking daemon: its own, or those of a monitor's process, which holds a manager too. Daemons post
/// such reports by the name that their key proves; everybody else needs the capability.
pub(super) fn is_own_report(asker: &AuthName, input: &[u8]) -> bool {
    let Ok(report) = Report::parse(input) else { return false };
    let entity = report.entity().and_then(|name| name.parse::<AuthName>().ok());
    entity.is_some_and(|entity| match asker.kind {
        EntityKind::MON => matches!(entity.kind, EntityKind::MON | EntityKind::MGR),
        EntityKind::CLIENT => false,
        _ => entity == *asker,
    })
}

pub(super) fn rm(view: &View<'_>, args: &Args) -> Reaction {
    let id = args.text("id").unwrap_or_default();
    unloaded(view).unwrap_or_else(|| {
        let known = view.crashes.get(&id);
        Reaction::ChangeCrashes(known.map(|report| Change::Remove(report.id.clone())).into_iter().collect())
    })
}

pub(super) fn prune(view: &View<'_>, args: &Args) -> Reaction {
    let Some(days) = args.text("keep").and_then(|keep| keep.parse::<i32>().ok()) else {
        return refused("keep argument must be integer".into());
    };
    unloaded(view).unwrap_or_else(|| {
        let old = view.crashes.older_than(view.now, i64::from(days) * DAY_SECONDS);
        Reaction::ChangeCrashes(old.into_iter().map(|report| Change::Remove(report.id.clone())).collect())
    })
}

pub(super) fn archive(view: &View<'_>, args: &Args) -> Reaction {
    let id = args.text("id").unwrap_or_default();
    match (unloaded(view), view.crashes.get(&id)) {
        (Some(unloaded), _) => unloaded,
        (None, Some(report)) => {
            let new = report.is_new().then(|| Change::Put(report.archived(view.now)));
            Reaction::ChangeCrashes(new.into_iter().collect())
        }
        (None, None) => refused(format!("crash info: {id} not found")),
    }
}

pub(super) fn archive_all(view: &View<'_>, _: &Args) -> Reaction {
    unloaded(view).unwrap_or_else(|| {
        let new = view.crashes.select(Report::is_new);
        Reaction::ChangeCrashes(
            new.into_iter().map(|report| Change::Put(report.archived(view.now))).collect(),
        )
    })
}

pub(super) fn stat(view: &View<'_>, _: &Args) -> Reaction {
    if let Some(unloaded) = unloaded(view) {
        return unloaded;
    }
    let mut text = format!("{} crashes recorded\n", view.crashes.by_time().len());
    for days in [1, 3, 7] {
        let old = view.crashes.older_than(view.now, days * DAY_SECONDS);
        if !old.is_empty() {
            text += &format!("{} older than {days} days old:\n", old.len());
            old.iter().for_each(|report| text += &format!("{}\n", report.id));
        }
    }
    Answer::body(text).into()
}

/// The number of crashes by program.
pub(super) fn json_report(view: &View<'_>, args: &Args) -> Reaction {
    let Some(hours) = args.text("hours").and_then(|hours| hours.parse::<i32>().ok()) else {
        return refused("<hours> argument must be integer".into());
    };
    if let Some(unloaded) = unloaded(view) {
        return unloaded;
    }
    let old = view.crashes.older_than(view.now, i64::from(hours) * 60 * 60).len();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for report in view.crashes.by_time().into_iter().skip(old) {
        *counts.entry(report.process().unwrap_or("unknown")).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.iter().map(|(process, n)| format!("{}: {n}", Value::from(*process))).collect();
    Answer::body(format!("{{{}}}", counts.join(", "))).into()
}

/// As stock writes reports: keys in order, four spaces a level.
fn indented(value: Value) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut writer = serde_json::Serializer::with_formatter(&mut out, formatter);
    serde::Serialize::serialize(&sorted(value), &mut writer).expect("JSON values can be written to memory");
    String::from_utf8(out).expect("JSON is UTF-8")
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
