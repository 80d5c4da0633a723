//! Crash reports on disk: `crash/ID/meta` and `crash/ID/done`, below `crash/posted` once the cluster has them.

use conf::private;
use std::io;
use std::path::{Path, PathBuf};
use wire::text::parse_stamp;
use wire::types::UTime;

/// Reports that a daemon writes within 24 hours. A crash loop writes no more.
pub const REPORTS_PER_DAY: usize = 8;
const DAY_SECONDS: u32 = 24 * 60 * 60;
/// Posted reports that stay in the folder; the oldest are removed.
const POSTED_MAX: usize = 32;

const META: &str = "meta";
/// Its presence says that `meta` is complete.
const DONE: &str = "done";
const POSTED: &str = "posted";

pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder of the daemon with this data directory.
    pub fn new(data: &Path) -> Folder {
        Folder { path: data.join("crash") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn posted(&self) -> PathBuf {
        self.path.join(POSTED)
    }

    /// Writes a report. False if the reports of the last day are enough.
    pub fn write(&self, id: &str, now: UTime, meta: &str) -> io::Result<bool> {
        let is_of_today = |id: &String| {
            let at = id.split_once('_').and_then(|(time, _)| parse_stamp(time));
            at.is_some_and(|at| at.sec.abs_diff(now.sec) < DAY_SECONDS)
        };
        let known = reports(&self.path).into_iter().chain(reports(&self.posted()));
        if known.filter(is_of_today).count() >= REPORTS_PER_DAY {
            return Ok(false);
        }
        let report = self.path.join(id);
        private::create_dir_all(&report)?;
        private::replace(&report.join(META), meta.as_bytes())?;
        private::replace(&report.join(DONE), b"")?;
        Ok(true)
    }

    /// Complete reports that are not posted, the oldest first: id and text.
    pub fn pending(&self) -> Vec<(String, Vec<u8>)> {
        let is_done = |id: &String| self.path.join(id).join(DONE).exists();
        let read = |id: String| {
            let meta = std::fs::read(self.path.join(&id).join(META)).ok()?;
            Some((id, meta))
        };
        reports(&self.path).into_iter().filter(is_done).filter_map(read).collect()
    }

    /// The cluster has the report.
    pub fn mark_posted(&self, id: &str) -> io::Result<()> {
        private::create_dir_all(&self.posted())?;
        std::fs::rename(self.path.join(id), self.posted().join(id))?;
        let known = reports(&self.posted());
        for old in &known[..known.len().saturating_sub(POSTED_MAX)] {
            std::fs::remove_dir_all(self.posted().join(old))?;
        }
        Ok(())
    }
}

/// Ids of the reports in a folder, the oldest first: an id begins with its time.
fn reports(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ids: Vec<String> = names.filter(|name| name != POSTED).collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::text::stamp;

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn scratch(name: &str) -> (Scratch, Folder) {
        let path = std::env::temp_dir().join(format!("shoal-crash-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        (Scratch(path.clone()), Folder::new(&path))
    }

    fn at(sec: u32) -> (String, UTime) {
        let now = UTime { sec: 1_800_000_000 + sec, nsec: 0 };
        (format!("{}_u", stamp(now).replace("+0000", "Z")), now)
    }

    #[test]
    fn report_is_pending_until_posted() {
        let (_scratch, folder) = scratch("pending");
        assert_eq!(folder.pending(), []);
        let (id, now) = at(0);
        assert!(folder.write(&id, now, "text").unwrap());
        std::fs::create_dir(folder.path().join("2027-01-01T00:00:00.000000Z_half")).unwrap();
        assert_eq!(folder.pending(), [(id.clone(), b"text".to_vec())], "an incomplete report is left alone");
        folder.mark_posted(&id).unwrap();
        assert_eq!(folder.pending(), []);
        assert!(folder.posted().join(&id).join("meta").exists());
    }

    #[test]
    fn crash_loop_writes_a_bounded_number_of_reports() {
        let (_scratch, folder) = scratch("loop");
        let mut written = 0;
        for minute in 0..1_000 {
            let (id, now) = at(minute * 60);
            if folder.write(&id, now, "text").unwrap() {
                written += 1;
                folder.mark_posted(&id).unwrap();
            }
        }
        assert_eq!(written, REPORTS_PER_DAY, "in less than a day");
        let (id, now) = at(DAY_SECONDS + 3_600);
        assert!(folder.write(&id, now, "text").unwrap(), "the first ones are older than a day");
    }

    #[test]
    fn oldest_posted_reports_are_removed() {
        let (_scratch, folder) = scratch("posted");
        for day in 0..POSTED_MAX as u32 + 5 {
            let (id, now) = at(day * 2 * DAY_SECONDS);
            assert!(folder.write(&id, now, "text").unwrap());
            folder.mark_posted(&id).unwrap();
        }
        let kept = reports(&folder.posted());
        assert_eq!((kept.len(), &kept[0]), (POSTED_MAX, &at(5 * 2 * DAY_SECONDS).0));
    }
}
