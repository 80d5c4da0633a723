//! Values that Ceph itself encoded, for tests: one compressed archive per release in the folder that `SHOAL_CORPUS` names.
//! Without the variable the tests that need the archives are skipped.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the corpus is files, for tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Every value of a Ceph type in a release's archive (matched by the start of its name): file name and bytes.
/// `None` if the folder is not named or holds no archive of this release.
pub fn values(release: &str, type_name: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let archive = archive(release)?;
    let scratch =
        std::env::temp_dir().join(format!("shoal-corpus-{}-{release}-{type_name}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("the temporary folder can be written");
    let values = extract(&archive, type_name, &scratch);
    std::fs::remove_dir_all(&scratch).expect("the temporary folder can be removed");
    Some(values)
}

fn extract(archive: &Path, type_name: &str, scratch: &Path) -> Vec<(String, Vec<u8>)> {
    let opened = Command::new("tar")
        .args(["--zstd", "--strip-components=3", "--wildcards", "--extract", "--file"])
        .args([archive.as_os_str(), "--directory".as_ref(), scratch.as_os_str()])
        .arg(format!("*/objects/{type_name}/*"))
        .output()
        .expect("tar runs");
    let said = String::from_utf8_lossy(&opened.stderr);
    assert!(opened.status.success(), "tar {}: {}", archive.display(), said.trim());
    let mut values = Vec::new();
    for entry in std::fs::read_dir(scratch).expect("the extracted folder can be read").flatten() {
        let bytes = std::fs::read(entry.path()).expect("an extracted file can be read");
        values.push((entry.file_name().to_string_lossy().into_owned(), bytes));
    }
    values.sort();
    values
}

fn archive(release: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("SHOAL_CORPUS")?);
    let listed = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("SHOAL_CORPUS={}: {error}", folder.display()));
    let mut found: Vec<PathBuf> = listed.flatten().map(|e| e.path()).collect();
    found.retain(|p| {
        p.file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.starts_with(release) && n.ends_with(".tar.zst"))
    });
    found.sort();
    found.pop()
}
