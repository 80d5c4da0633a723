//! The modules of the monitor's crate form no circle.

#![allow(clippy::disallowed_methods, reason = "the test reads the sources")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Modules and the modules that they use, tests apart.
fn uses(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut paths = vec![src.to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_dir() && path.file_name().is_none_or(|name| name != "tests") {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        if path.extension().is_none_or(|extension| extension != "rs") || path.ends_with("tests.rs") {
            continue;
        }
        let module = path.strip_prefix(src).unwrap().components().next().unwrap();
        let module = module.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let words = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words = words.flat_map(|line| line.split("crate::").skip(1));
        let names = words.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap());
        let of_module = uses.entry(module.clone()).or_default();
        of_module.extend(names.filter(|name| *name != module).map(str::to_owned));
    }
    uses
}

#[test]
fn modules_form_no_circle() {
    let mut left = uses(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    left.remove("lib");
    assert!(left.contains_key("commands") && left.contains_key("monitor") && left.contains_key("health"));
    assert!(left["monitor"].contains("commands"), "the source is read");
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        left.retain(|_, uses| !uses.is_disjoint(&names));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "each of these uses another of them: {left:#?}");
}
