//! Where tests find values that Ceph itself encoded: one compressed archive a release, outside the repository.
//!
//! Looked for in `SHOAL_CORPUS`, else at `../shared/corpus` beside the repository; a test without it skips.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Every value of a Ceph type in a release's archive (matched by the start of its name): file name and bytes.
/// `None` where there is no such archive, or no `tar` and `zstd` to open it.
pub fn values(release: &str, type_name: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let archive = archive(release)?;
    let scratch =
        std::env::temp_dir().join(format!("shoal-corpus-{}-{release}-{type_name}", std::process::id()));
    std::fs::create_dir_all(&scratch).ok()?;
    let values = extract(&archive, type_name, &scratch);
    std::fs::remove_dir_all(&scratch).ok()?;
    values
}

fn extract(archive: &Path, type_name: &str, scratch: &Path) -> Option<Vec<(String, Vec<u8>)>> {
    let opened = Command::new("tar")
        .args(["--zstd", "--strip-components=3", "--wildcards", "--extract", "--file"])
        .args([archive.as_os_str(), "--directory".as_ref(), scratch.as_os_str()])
        .arg(format!("*/objects/{type_name}/*"))
        .output()
        .ok()?;
    if !opened.status.success() {
        eprintln!("tar: {}", String::from_utf8_lossy(&opened.stderr).trim());
        return None;
    }
    let mut values = Vec::new();
    for entry in std::fs::read_dir(scratch).ok()?.flatten() {
        values.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).ok()?));
    }
    values.sort();
    Some(values)
}

fn archive(release: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = std::env::var_os("SHOAL_CORPUS").map_or_else(beside, PathBuf::from);
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.flatten().map(|e| e.path()).collect();
    found.retain(|p| {
        p.file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.starts_with(release) && n.ends_with(".tar.zst"))
    });
    found.sort();
    found.pop()
}
