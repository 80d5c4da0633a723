//! Does docs/commands.md say the truth of every command that stock describes?
//!
//! The page is written from the daemons' own tables of commands and from the list of stock's, beside this file (its
//! columns: who answers, the command, in which releases). `SHOAL_UPDATE_DOCS=1` writes it anew.

use command::signature;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

static STOCK: &str = include_str!("stock_commands.tsv");

const HEAD: &str = "# Commands: what works

Every command that stock Ceph describes, of releases 16.2 and 20.2: those of the monitor and the manager
(`ceph COMMAND`), then those of an OSD (`ceph tell osd.N COMMAND`). A command that does not work is not announced
by `get_command_descriptions`; whoever sends it anyway gets the errno named here.

This page is written by `SHOAL_UPDATE_DOCS=1 cargo test -p shoal --test command_status`, and that test compares it.
";

/// Names of the commands that each part announces.
fn working() -> BTreeMap<&'static str, BTreeSet<String>> {
    let monitor = mon::commands::all().map(|c| signature::prefix(c.signature));
    let manager = mgr::descriptions().into_iter().map(|c| signature::prefix(&c.signature));
    let osd = osd::control::COMMANDS.iter().map(|(s, ..)| signature::prefix(s)).collect::<BTreeSet<_>>();
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
        let works = |name: &str| working[part].contains(name);
        let count = rows.iter().filter(|row| works(row[1])).count();
        let _ = write!(page, "\n## {title}: {count} of {} work\n\n", rows.len());
        page += "| command | stock answers it in | releases | shoal |\n|---|---|---|---|\n";
        for row in &rows {
            let status = if works(row[1]) { "works" } else { "EINVAL" };
            let _ = writeln!(page, "| `{}` | {} | {} | {status} |", row[1], row[0], row[2]);
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
fn the_page_of_commands_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = page();
    if std::env::var_os("SHOAL_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs/commands.md can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/commands.md is not what the daemons' tables say: see this test's first lines"
    );
}
