//! docs/commands.md compared with the commands that stock describes, that shoal announces, and that the interop suite
//! compares by value with stock.
//!
//! The page is written from the daemons' own tables of commands, from the list of stock's beside this file (its columns:
//! the daemon that answers, the command, the releases), from `tests/interop/values.txt` and from `tests/interop/meant.json`.
//! `SHOAL_UPDATE_DOCS=1` writes it anew.

use command::signature;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

static STOCK: &str = include_str!("stock_commands.tsv");
static COMPARED: &str = include_str!("../../../tests/interop/values.txt");
static DIFFERENCES: &str = include_str!("../../../tests/interop/meant.json");

const HEAD: &str = "# Commands

Every command that stock Ceph describes, of releases 16.2 and 20.2: first those of the monitor and the manager
(`ceph COMMAND`), then those of an OSD (`ceph tell osd.N COMMAND`).

| status | meaning |
|---|---|
| works | a [test](../tests/interop/values.txt) runs the command and compares the answer by value with the answer of stock 20.2.4 |
| announced: REASON | the command is there and compared too; it still differs in this point |
| announced | the command is there; no test compares its answer by value yet |
| EINVAL | the command is not there: it is not announced, and fails with this errno |

`SHOAL_UPDATE_DOCS=1 cargo test -p shoal --test command_status` writes this page, and the same test compares it.
";

/// Commands that are compared by value, each with the reason of its first open difference. `tell osd.N` is of part `osd`.
fn compared(part: &str, names: &BTreeSet<&str>) -> BTreeMap<String, Option<String>> {
    let differences: Value = serde_json::from_str(DIFFERENCES).expect("meant.json is JSON");
    let open = |line: &str| {
        let rows = differences["values"].as_array().expect("a list of differences");
        let row = rows.iter().find(|row| row[0] == "open" && row[1] == line)?;
        row[3].as_str().map(str::to_owned)
    };
    let mut compared: BTreeMap<String, Option<String>> = BTreeMap::new();
    let lines = COMPARED.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '!']));
    for line in lines {
        let commands: Vec<&str> = match line.strip_prefix('@') {
            Some(rest) => rest.split_once(": ").expect("@ TEST: COMMAND, ...").1.split(", ").collect(),
            None => vec![line],
        };
        for command in commands {
            let told = command.strip_prefix("tell osd.").and_then(|rest| rest.split_once(' '));
            let (of, text) = told.map_or(("cluster", command), |(_, text)| ("osd", text));
            let is_prefix = |name: &&&str| {
                text.strip_prefix(**name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let Some(name) = names.iter().filter(is_prefix).max_by_key(|name| name.len()) else { continue };
            if of == part {
                let reason = compared.entry((*name).to_owned()).or_default();
                *reason = reason.take().or_else(|| open(line));
            }
        }
    }
    compared
}

/// Names of the commands that each part announces.
fn working() -> BTreeMap<&'static str, BTreeSet<String>> {
    let monitor = mon::commands::all().map(|c| signature::prefix(c.signature));
    let manager = mgr::descriptions().into_iter().map(|c| signature::prefix(&c.signature));
    let osd = osd::control::all_commands().map(|(s, ..)| signature::prefix(s)).collect::<BTreeSet<_>>();
    let cluster: BTreeSet<String> = monitor.chain(manager).collect();
    BTreeMap::from([("cluster", cluster), ("osd", osd)])
}

fn page() -> String {
    let working = working();
    let mut page = HEAD.to_owned();
    let sections = [
        ("Monitor and manager", "cluster", ["monitor", "manager"].as_slice()),
        ("An OSD", "osd", ["osd"].as_slice()),
    ];
    for (title, part, answerers) in sections {
        let rows: Vec<Vec<&str>> = STOCK
            .lines()
            .map(|row| row.split('\t').collect())
            .filter(|row: &Vec<&str>| answerers.contains(&row[0]))
            .collect();
        let announced = |name: &str| working[part].contains(name);
        let compared = compared(part, &rows.iter().map(|row| row[1]).collect());
        let status = |name: &str| match (announced(name), compared.get(name)) {
            (false, _) => "EINVAL".to_owned(),
            (true, None) => "announced".to_owned(),
            (true, Some(Some(reason))) => format!("announced: {reason}"),
            (true, Some(None)) => "works".to_owned(),
        };
        let there = rows.iter().filter(|row| announced(row[1])).count();
        let work = rows.iter().filter(|row| status(row[1]) == "works").count();
        let _ = write!(page, "\n## {title}: of {} commands {there} are there, {work} work\n\n", rows.len());
        page += "| command | stock answers it in | releases | shoal |\n|---|---|---|---|\n";
        for row in &rows {
            let _ = writeln!(page, "| `{}` | {} | {} | {} |", row[1], row[0], row[2], status(row[1]));
        }
        let known: BTreeSet<&str> = rows.iter().map(|row| row[1]).collect();
        let own: Vec<&String> = working[part].iter().filter(|name| !known.contains(name.as_str())).collect();
        if !own.is_empty() {
            let list: Vec<String> = own.iter().map(|name| format!("`{name}`")).collect();
            let _ = write!(
                page,
                "\nAlso answered, though stock describes them elsewhere or not at all: {}.\n",
                list.join(", ")
            );
        }
    }
    page
}

#[test]
fn commands_page_matches_tables_and_comparisons() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = page();
    if std::env::var_os("SHOAL_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs/commands.md can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/commands.md is out of date: SHOAL_UPDATE_DOCS=1 cargo test -p shoal --test command_status writes it"
    );
}
