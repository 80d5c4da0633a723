//! The thread that asks the cluster again and again, and hears of signals.

use super::ask::Asker;
use super::model::{Model, Screen};
use anyhow::Context;
use client_host::Access;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// OSDs that one refresh asks: a cluster of hundreds is not burdened.
const OSDS_PER_REFRESH: usize = 8;
/// OSDs that the one refresh of `--once` asks.
const OSDS_ONCE: usize = 64;
/// Time for the terminal's thread to end the program after a signal.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(2);

pub enum News {
    Screen(Box<Screen>),
    /// The number of the signal that ends the program.
    Signal(i32),
}

pub struct Feed {
    news: Receiver<News>,
    is_paused: Arc<AtomicBool>,
}

impl Feed {
    /// Fails if the cluster does not let us in.
    pub fn start(access: Access, interval: Duration, is_once: bool, conf: &Path) -> anyhow::Result<Feed> {
        // One screen waits at most: a slow terminal gets fewer.
        let (tell, news) = sync_channel(1);
        let (report, connected) = sync_channel(1);
        let is_paused = Arc::new(AtomicBool::new(false));
        let paused = is_paused.clone();
        let osds_max = if is_once { OSDS_ONCE } else { OSDS_PER_REFRESH };
        std::thread::Builder::new().name("answers".into()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(report.send(Err(error.into()))),
            };
            runtime.block_on(async {
                match Asker::connect(&access).await {
                    Ok(asker) => {
                        let _ = report.send(Ok(()));
                        feed(asker, interval, osds_max, &tell, &paused).await;
                    }
                    Err(error) => drop(report.send(Err(error))),
                }
            });
        })?;
        let outcome = connected.recv().context("the thread that asks the cluster ended")?;
        outcome.with_context(|| {
            format!("the cluster of {} cannot be reached: does it run, and is the key right?", conf.display())
        })?;
        Ok(Feed { news, is_paused })
    }

    /// Waits for the next screen.
    pub fn next(&self) -> anyhow::Result<News> {
        self.news.recv().context("the thread that asks the cluster ended")
    }

    /// The next screen, if it comes within `patience`.
    pub fn next_within(&self, patience: Duration) -> anyhow::Result<Option<News>> {
        match self.news.recv_timeout(patience) {
            Ok(news) => Ok(Some(news)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the thread that asks the cluster ended"),
        }
    }

    /// While paused, the cluster is not asked.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }
}

/// Ends when nobody takes screens any more, or with a signal.
async fn feed(
    mut asker: Asker,
    interval: Duration,
    osds_max: usize,
    tell: &SyncSender<News>,
    paused: &AtomicBool,
) {
    let Ok(mut term) = signal(SignalKind::terminate()) else { return };
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return };
    let Ok(mut quit) = signal(SignalKind::quit()) else { return };
    let signals = async {
        tokio::select! {
            _ = term.recv() => libc::SIGTERM,
            _ = hangup.recv() => libc::SIGHUP,
            _ = interrupt.recv() => libc::SIGINT,
            _ = quit.recv() => libc::SIGQUIT,
        }
    };
    let screens = async {
        let mut model = Model::default();
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if paused.load(Ordering::Relaxed) {
                continue;
            }
            let screen = model.screen(&asker.refresh(osds_max).await);
            // A terminal that is behind misses this screen. This thread never waits for it, since it hears of signals.
            if let Err(TrySendError::Disconnected(_)) = tell.try_send(News::Screen(Box::new(screen))) {
                return;
            }
        }
    };
    tokio::select! {
        signal = signals => end(signal, tell).await,
        () = screens => {}
    }
}

/// Has the terminal's thread end the program, or ends it here if that thread hangs in writing.
async fn end(signal: i32, tell: &SyncSender<News>) {
    let until = Instant::now() + SIGNAL_PATIENCE;
    while Instant::now() < until {
        if let Err(TrySendError::Disconnected(_)) = tell.try_send(News::Signal(signal)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = ratatui::crossterm::terminal::disable_raw_mode();
    std::process::exit(128 + signal);
}
