//! Crash reports: a daemon that panics writes one into its data directory, and posts it to the cluster.
//!
//! The form is stock's (`src/global/signal_handler.cc`): `DATA/crash/ID/meta` and an empty `done` beside it. A posted report moves to
//! `DATA/crash/posted`, as `ceph-crash` does it. The daemon posts at once if it lives long enough, else at its next start.
//!
//! A report holds no contents of requests and no keys: see [`report`]. A crash loop writes [`folder::REPORTS_PER_DAY`] reports a day.

mod folder;
mod post;
mod report;

use super::{host_facts, version};
use folder::Folder;
use report::{Panic, Subject};
use runtime::system;
use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};
use wire::types::Uuid;

pub use post::start_posting;

/// Threads that belong to the manager in a monitor's process.
const THREADS_OF_MANAGER: [&str; 2] = ["mgr", "images"];

struct Reporter {
    /// The kind and the id of the daemon: `osd` and `3`.
    name: (String, String),
    subject: Subject,
    folder: Folder,
    written: SyncSender<()>,
    /// Wakes the posting thread, which takes it.
    news: Mutex<Option<Receiver<()>>>,
}

static REPORTER: OnceLock<Reporter> = OnceLock::new();

/// From now on each panic of this process makes a report in `data`. Once a process.
pub fn enable(name: &str, data: &Path) {
    let (kind, id) = name.split_once('.').unwrap_or((name, ""));
    let (written, news) = sync_channel(1);
    let reporter = Reporter {
        name: (kind.to_owned(), id.to_owned()),
        subject: Subject {
            host: host_facts::collect(),
            os: host_facts::os_release(),
            version: version::SHORT,
        },
        folder: Folder::new(data),
        written,
        news: Mutex::new(Some(news)),
    };
    // A second daemon of one process, as tests have them, reports under the name of the first.
    let _ = REPORTER.set(reporter);
}

/// The panic hook's part: writes the report. It must not panic.
pub fn record(panic: &PanicHookInfo<'_>, backtrace: &Backtrace) {
    let Some(reporter) = REPORTER.get() else { return };
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let location = panic.location().map(|place| (place.file().to_owned(), place.line()));
    let panic = Panic {
        entity: reporter.entity(&thread),
        process: reporter.process(&thread),
        thread,
        at: system::wall_clock(),
        message: panic.payload_as_str().unwrap_or("a panic without a message").to_owned(),
        location,
        backtrace: backtrace.to_string(),
    };
    match reporter.write(&panic) {
        Ok(Some(id)) => tracing::error!("crash report {id} is written"),
        Ok(None) => tracing::error!(
            "no crash report is written: {} has {} of the last 24 hours",
            reporter.folder.path().display(),
            folder::REPORTS_PER_DAY
        ),
        Err(error) => {
            tracing::error!("no crash report is written: {}: {error}", reporter.folder.path().display())
        }
    }
}

impl Reporter {
    fn is_of_manager(&self, thread: &str) -> bool {
        let name = thread.split('-').next().unwrap_or_default();
        self.name.0 == "mon" && THREADS_OF_MANAGER.contains(&name)
    }

    fn entity(&self, thread: &str) -> String {
        let (kind, id) = &self.name;
        format!("{}.{id}", if self.is_of_manager(thread) { "mgr" } else { kind })
    }

    /// The program that stock runs for such a daemon, by which crashes are counted.
    fn process(&self, thread: &str) -> String {
        format!("ceph-{}", if self.is_of_manager(thread) { "mgr" } else { &self.name.0 })
    }

    /// Returns the report's id, or `None` where there are enough of them.
    fn write(&self, panic: &Panic) -> std::io::Result<Option<String>> {
        let unique = Uuid(system::os_random()?.bytes());
        let (id, meta) = report::report(&self.subject, panic, unique);
        let is_written = self.folder.write(&id, panic.at, &meta)?;
        // A full channel has woken the thread already.
        let _ = self.written.try_send(());
        Ok(is_written.then_some(id))
    }
}
