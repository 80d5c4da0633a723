//! Stores that earlier releases made: they open, are sound, and hold the objects that the release itself exported.
//!
//! The archives in `tests/releases` are recorded by `record.py` there, one for each release. `tests/interop/test_upgrade.py`
//! starts the same directories as clusters.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// OSDs on disk in a recorded directory: osd.0 was stopped cleanly, osd.1 was killed.
const OSDS: [&str; 2] = ["osd.0", "osd.1"];

struct Unpacked {
    dir: PathBuf,
}

impl Unpacked {
    /// `test` keeps tests that run side by side apart.
    fn new(archive: &Path, test: &str) -> Unpacked {
        let name = archive.file_name().expect("an archive has a name").to_string_lossy();
        let dir = std::env::temp_dir().join(format!("shoal-{test}-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let tar = Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(&dir).output().unwrap();
        assert!(tar.status.success(), "tar (with xz-utils) is needed: {}", text(&tar.stderr));
        Unpacked { dir }
    }

    fn block(&self, osd: &str) -> PathBuf {
        self.dir.join("disk").join(osd).join("block")
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn archives() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/releases");
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|end| end == "xz"));
    found.sort();
    assert!(!found.is_empty(), "no release is recorded");
    found
}

fn shoal(args: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.arg("store").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn recorded_store_exports_the_same_records() {
    for archive in archives() {
        let unpacked = Unpacked::new(&archive, "export");
        for osd in OSDS {
            let export = unpacked.dir.join(format!("{osd}.now"));
            let done = shoal(&[Path::new("export"), &unpacked.block(osd), &export]);
            assert!(done.status.success(), "{archive:?} {osd}: {}", text(&done.stderr));
            let recorded = std::fs::read(unpacked.dir.join(format!("{osd}.export"))).unwrap();
            let now = std::fs::read(&export).unwrap();
            let differs = now.iter().zip(&recorded).position(|(now, then)| now != then);
            assert!(now == recorded, "{archive:?} {osd}: the exports differ at byte {differs:?}");
        }
    }
}

#[test]
fn recorded_store_is_sound() {
    for archive in archives() {
        let unpacked = Unpacked::new(&archive, "fsck");
        for osd in OSDS {
            let done = shoal(&[Path::new("fsck"), Path::new("--deep"), &unpacked.block(osd)]);
            assert!(done.status.success(), "{archive:?} {osd}: {}{}", text(&done.stdout), text(&done.stderr));
        }
    }
}
