//! The table of object classes in `docs/classes.md`: each method that stock Ceph 20.2.4 registers, with what shoal does.
//!
//! `stock_methods.tsv` is the list of stock's methods. A method works if the registry has it with stock's access and a
//! unit test calls it. `SHOAL_UPDATE_DOCS=1` writes the table anew.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the table is made of files")]

use osd::errno::Errno;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const METHODS: &str = include_str!("stock_methods.tsv");

const HEAD: &str = "# Object classes

Every method of every object class that stock Ceph 20.2.4 registers, and what an OSD of shoal does with it. Keys,
encodings and errors are stock's. A class that stock does not load by default is refused with EPERM, as there.

| status | meaning |
|---|---|
| works | the unit tests of the named file, below `crates/osd/src/classes/`, call the method |
| EOPNOTSUPP | the method is not there: a call fails with this errno |
| EPERM | no OSD may load the class |

Bounds that stock does not have: a listing returns at most 16,384 entries a call, a method that must see all entries of
an omap fails with EOVERFLOW beyond 65,536 (`rgw.bucket_check_index` and `rgw.bucket_rebuild_index` beyond 262,144), a
listing of a queue stops after 4 MiB with a marker to go on from, `rbd.sparsify` refuses objects of more than 64 MiB with
EFBIG, `fifo.part_list` stops after 8 MiB as if more entries followed, and a head of `fifo` longer than 1 MiB is refused
with EFBIG.

`SHOAL_UPDATE_DOCS=1 cargo test -p osd --test class_table` writes this page, and the same test compares it.
";

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).expect("the folder is there").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Files of unit tests with their text, by name below the classes' folder.
fn tests() -> BTreeMap<String, String> {
    let root = crate_dir().join("src/classes");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let test_part = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source is text");
        let tests = text.split_once("#[cfg(test)]")?.1.split_whitespace().collect::<Vec<_>>().join(" ");
        let name = path.strip_prefix(&root).expect("it is below the root").display().to_string();
        Some((name, tests))
    };
    paths.into_iter().filter_map(test_part).collect()
}

/// The status of one method, and the file whose tests call it.
fn status(
    class: &str,
    method: &str,
    access: &str,
    tests: &BTreeMap<String, String>,
) -> (&'static str, String) {
    let found = match osd::classes::find(class.as_bytes(), method.as_bytes()) {
        Ok(found) => found,
        Err(Errno::PERM) => return ("EPERM", String::new()),
        Err(errno) => {
            assert_eq!(errno, Errno::OPNOTSUPP, "{class}.{method}");
            return ("EOPNOTSUPP", String::new());
        }
    };
    let own = match (found.reads, found.writes) {
        (true, true) => "read+write",
        (true, false) => "read",
        _ => "write",
    };
    assert_eq!(own, access, "access of {class}.{method}");
    let call = format!("\"{class}\", \"{method}\"");
    let file = tests.iter().find(|(_, text)| text.contains(&call)).map(|(file, _)| format!("`{file}`"));
    ("works", file.unwrap_or_else(|| panic!("no unit test calls {class}.{method}")))
}

fn page() -> String {
    let tests = tests();
    let mut classes: BTreeMap<&str, Vec<[&str; 2]>> = BTreeMap::new();
    for row in METHODS.lines().skip(1) {
        let mut cells = row.split('\t');
        let mut next = || cells.next().expect("a row has three cells");
        let (class, method, access) = (next(), next(), next());
        classes.entry(class).or_default().push([method, access]);
    }
    let mut page = HEAD.to_string();
    for (class, methods) in classes {
        let rows: Vec<_> =
            methods.iter().map(|[m, access]| (m, access, status(class, m, access, &tests))).collect();
        let works = rows.iter().filter(|row| row.2.0 == "works").count();
        let _ = write!(page, "\n## `{class}`: {works} of {} methods work\n\n", rows.len());
        page += "| method | access | status | tests |\n|---|---|---|---|\n";
        for (method, access, (status, file)) in rows {
            let _ = writeln!(page, "| `{method}` | {access} | {status} | {file} |");
        }
    }
    page
}

#[test]
fn class_page_matches_registry_and_tests() {
    let path = crate_dir().join("../../docs/classes.md");
    let page = page();
    if std::env::var_os("SHOAL_UPDATE_DOCS").is_some() {
        fs::write(&path, &page).expect("docs/classes.md can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/classes.md is out of date: SHOAL_UPDATE_DOCS=1 cargo test -p osd --test class_table writes it"
    );
}

#[test]
fn every_method_is_one_of_stock() {
    let stock: Vec<String> = METHODS
        .lines()
        .skip(1)
        .map(|row| row.splitn(3, '\t').take(2).collect::<Vec<_>>().join("."))
        .collect();
    for (name, _) in osd::classes::hostile::methods() {
        assert!(stock.contains(&name), "{name}");
    }
}
