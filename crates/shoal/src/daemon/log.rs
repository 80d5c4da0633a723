//! Where do log lines go? To a thread that writes them, so that a reactor never waits for a file.
//!
//! The queue is bounded: when it is full a line is dropped and counted, and the count is logged with the next line
//! that fits. Panics are logged with their backtrace, and [reported](super::crash), before the process ends.

use super::crash;
use conf::private;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

const QUEUE_LINES: usize = 8192;

enum Item {
    Line(Vec<u8>),
    Reopen(SyncSender<()>),
    MoveTo(Sink),
    Flush(SyncSender<()>),
}

/// The log of this process.
#[derive(Clone)]
pub struct Log {
    queue: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
    filter: reload::Handle<EnvFilter, tracing_subscriber::Registry>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Starts logging to `path`, or to standard error, at `level` (a level or a tracing filter). Once a process.
pub fn start(path: Option<&Path>, level: &str) -> anyhow::Result<Log> {
    let sink = Sink::open(path.map(Path::to_owned))?;
    let (queue, lines) = sync_channel(QUEUE_LINES);
    let dropped = Arc::new(AtomicU64::new(0));
    let for_thread = dropped.clone();
    std::thread::Builder::new().name("log".into()).spawn(move || write_lines(sink, lines, &for_thread))?;
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(level)?);
    let log = Log { queue, dropped, filter: handle };
    let writer = log.clone();
    let format = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(true)
        .with_writer(move || LineWriter { log: writer.clone(), line: Vec::new() });
    tracing_subscriber::registry().with(filter).with(format).try_init()?;
    let _ = LOG.set(log.clone());
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::force_capture();
        tracing::error!("panic: {panic}\n{backtrace}");
        crash::record(panic, &backtrace);
        if let Some(log) = LOG.get() {
            log.flush();
        }
    }));
    Ok(log)
}

impl Log {
    pub fn set_level(&self, level: &str) -> anyhow::Result<()> {
        self.filter.reload(EnvFilter::try_new(level)?)?;
        Ok(())
    }

    /// Waits, briefly, until everything logged so far is written.
    pub fn flush(&self) {
        self.wait_for(Item::Flush);
    }

    /// Opens the file by its name again, as after it was rotated.
    pub fn reopen(&self) {
        self.wait_for(Item::Reopen);
    }

    /// Continues the log in another file, or on standard error.
    pub fn move_to(&self, path: Option<&Path>) -> anyhow::Result<()> {
        // The writer lives as long as the process.
        let _ = self.queue.send(Item::MoveTo(Sink::open(path.map(Path::to_owned))?));
        Ok(())
    }

    fn wait_for(&self, item: fn(SyncSender<()>) -> Item) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(item(done)).is_ok() {
            let _ = wait.recv_timeout(Duration::from_secs(2));
        }
    }
}

enum Sink {
    File(File, PathBuf),
    Stderr,
}

impl Sink {
    fn open(path: Option<PathBuf>) -> anyhow::Result<Sink> {
        use anyhow::Context;
        Ok(match path {
            None => Sink::Stderr,
            Some(path) => {
                let file = private::file_options().create(true).append(true).open(&path);
                Sink::File(file.with_context(|| format!("cannot write the log {}", path.display()))?, path)
            }
        })
    }

    fn write(&mut self, bytes: &[u8]) {
        // A log that cannot be written has nowhere to say so.
        let _ = match self {
            Sink::File(file, _) => file.write_all(bytes),
            Sink::Stderr => std::io::stderr().write_all(bytes),
        };
    }

    fn reopen(&mut self) {
        if let Sink::File(file, path) = self
            && let Ok(new) = private::file_options().create(true).append(true).open(&*path)
        {
            *file = new;
        }
    }
}

fn write_lines(mut sink: Sink, lines: Receiver<Item>, dropped: &AtomicU64) {
    for item in lines {
        match item {
            Item::Line(line) => {
                sink.write(&line);
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    sink.write(
                        format!("({lost} lines were dropped: the log could not keep up)\n").as_bytes(),
                    );
                }
            }
            Item::Reopen(done) => {
                sink.reopen();
                let _ = done.send(());
            }
            Item::MoveTo(other) => sink = other,
            Item::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

struct LineWriter {
    log: Log,
    line: Vec<u8>,
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty()
            && let Err(TrySendError::Full(_)) = self.log.queue.try_send(Item::Line(line))
        {
            self.log.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of options reads levels by rules of its own, so that a daemon never starts with one that fails here.
    #[test]
    fn levels_of_the_option_are_filters() {
        let row = command::options::find("log_level").unwrap();
        for text in ["error", "WARN", "Info", "off", "info,osd=debug", "warn,osd::node=Trace,mon=off"] {
            assert!(row.parse_value(text).is_ok(), "{text}");
            assert!(EnvFilter::try_new(text).is_ok(), "{text}");
        }
    }
}
