//! Does shoal read, and write again, every value that four releases of Ceph encoded?
//!
//! Each archive holds `RELEASE/objects/TYPE/HASH`. Every value of a type in the table must decode and fill its bytes
//! exactly; what shoal writes for a peer of that release must be the same bytes. Where it is not, the line in
//! `corpus_exceptions.txt` says why, and then the bytes that shoal writes must mean the same value.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the corpus is files")]

use codec::Features;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::dencode::{self, TypeEntry};
use wire::features;

/// A release's archives by the start of their names, and the features its daemons encode with.
const RELEASES: [(&str, Features); 4] = [
    // The archive is from 16.2.0, which could not block ranges of addresses yet.
    ("16.2", Features(features::PACIFIC.0 & !(1 << 34))),
    ("18.2", features::REEF),
    ("19.2", features::SQUID),
    ("20.3", features::TENTACLE),
];

const EXCEPTIONS: &str = include_str!("corpus_exceptions.txt");

/// A `MgrMap::ModuleOption` of 16.2 with 13 bytes of something else behind it, which stock cannot read either: its
/// envelope ends before them.
const NOT_ITS_TYPE: &str = "f97d85482139c3de61f9ec00522b6bd6";

#[derive(Default, Clone, Copy)]
struct Count {
    exact: usize,
    same_value: usize,
}

#[test]
fn every_value_decodes_and_is_written_again() {
    let Some(folder) = std::env::var_os("SHOAL_CORPUS").map(PathBuf::from) else {
        skip::skip!("SHOAL_CORPUS names no folder with archives of encoded values");
    };
    for tool in ["tar", "zstd"] {
        assert!(
            skip::has_program(tool),
            "SHOAL_CORPUS is set, and {tool} is not installed to open its archives"
        );
    }
    let exceptions = parse_exceptions();
    let scratch = Scratch::new();
    let mut counts: BTreeMap<&str, BTreeMap<&str, Count>> = BTreeMap::new();
    let mut excused = BTreeSet::new();
    // The first of each type and release, and how many there are.
    let mut failures: BTreeMap<(&str, &str), (usize, String)> = BTreeMap::new();

    for (release, features) in RELEASES {
        let objects = unpack(&folder, release, &scratch.0);
        for entry in dencode::types() {
            for file in values(&objects.join(entry.name)) {
                let bytes = fs::read(&file).unwrap();
                if file.file_name().is_some_and(|name| name == NOT_ITS_TYPE) {
                    continue;
                }
                let excuse = exceptions.get(&(entry.name, release));
                let count = counts.entry(entry.name).or_default().entry(release).or_default();
                let wrong = match check(entry, &bytes, features) {
                    Ok(true) => {
                        count.exact += 1;
                        continue;
                    }
                    Ok(false) if excuse.is_some() => {
                        excused.insert((entry.name, release));
                        count.same_value += 1;
                        continue;
                    }
                    Ok(false) => difference(entry, &bytes, features),
                    Err(e) => e,
                };
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                failures.entry((entry.name, release)).or_insert((0, format!("{name}: {wrong}"))).0 += 1;
            }
        }
    }

    print_counts(&counts);
    for unused in exceptions.keys().filter(|key| !excused.contains(*key)) {
        failures.insert(*unused, (0, "excused in corpus_exceptions.txt, yet all come out exactly".into()));
    }
    let shown: Vec<String> =
        failures.iter().map(|(key, (n, first))| format!("{key:?}: {n}, {first}")).collect();
    assert!(failures.is_empty(), "{}", shown.join("\n"));
}

/// True if the very bytes come back. Other bytes must still be the same value.
fn check(entry: &TypeEntry, bytes: &[u8], features: Features) -> Result<bool, String> {
    let mut written = Vec::new();
    for writer in writers(features) {
        let again = entry.reencode(bytes, writer).map_err(|e| format!("does not decode: {e}"))?;
        if again == bytes {
            return Ok(true);
        }
        written.push(again);
    }
    let value = entry.print(bytes).map_err(|e| e.to_string())?;
    let mut reread = String::new();
    for again in &written {
        reread = entry.print(again).map_err(|e| format!("what shoal writes does not decode: {e}"))?;
        if reread == value {
            return Ok(false);
        }
    }
    Err(format!("comes back as another value:\n{value}\n{reread}"))
}

/// The features that values of a release were written with: its own, or what an OSDMap keeps of them, with and
/// without the bits of the release itself, which a cluster's map lacks until `require_osd_release` has them.
fn writers(features: Features) -> Vec<Features> {
    let significant = features::osdmap_significant(features);
    let newest = 1 << 50 | 1 << 31;
    vec![features, significant, Features(features.0 & !newest), Features(significant.0 & !newest)]
}

fn difference(entry: &TypeEntry, bytes: &[u8], features: Features) -> String {
    let again = entry.reencode(bytes, features).unwrap_or_default();
    let at = bytes.iter().zip(&again).position(|(a, b)| a != b).unwrap_or(bytes.len().min(again.len()));
    let around = |b: &[u8]| format!("{:02x?}", &b[at.saturating_sub(8).min(b.len())..b.len().min(at + 24)]);
    let (spans, _) = entry.trace(bytes);
    let span = spans.iter().rfind(|s| s.offset <= at).map_or("", |s| s.text.as_str());
    format!(
        "{} bytes became {}, first at {at} ({span}):\n  {}\n  {}",
        bytes.len(),
        again.len(),
        around(bytes),
        around(&again),
    )
}

/// `TYPE RELEASE: reason`, a line each.
fn parse_exceptions() -> BTreeMap<(&'static str, &'static str), &'static str> {
    EXCEPTIONS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (what, reason) = line.split_once(": ").expect("TYPE RELEASE: reason");
            let (name, release) = what.split_once(' ').expect("TYPE RELEASE");
            ((name, release), reason)
        })
        .collect()
}

fn print_counts(counts: &BTreeMap<&str, BTreeMap<&str, Count>>) {
    let (mut exact, mut same_value) = (0, 0);
    for (name, by_release) in counts {
        let row = by_release.iter().map(|(release, c)| match c.same_value {
            0 => format!("{release}: {}", c.exact),
            n => format!("{release}: {} and {n} written in another version", c.exact),
        });
        println!("{name:32} {}", row.collect::<Vec<_>>().join(", "));
        exact += by_release.values().map(|c| c.exact).sum::<usize>();
        same_value += by_release.values().map(|c| c.same_value).sum::<usize>();
    }
    println!("{} types, {exact} values byte for byte, {same_value} in another version", counts.len());
}

/// Opens the archive of a release; returns its folder of types.
fn unpack(folder: &Path, release: &str, scratch: &Path) -> PathBuf {
    let archive = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("SHOAL_CORPUS={}: {error}", folder.display()))
        .map(|e| e.unwrap().path())
        .find(|p| {
            let name = p.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(release) && name.ends_with(".tar.zst")
        })
        .unwrap_or_else(|| panic!("{} has no archive of {release}", folder.display()));
    let out = scratch.join(release);
    fs::create_dir_all(&out).unwrap();
    let done = Command::new("tar")
        .args(["--zstd", "--strip-components=2", "-xf"])
        .arg(&archive)
        .arg("-C")
        .arg(&out)
        .status()
        .unwrap();
    assert!(done.success(), "tar {}", archive.display());
    out
}

fn values(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

/// A folder that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("shoal-corpus-all-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
