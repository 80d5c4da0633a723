//! `shoal top`: the cluster on one screen, shoal's or Ceph's.
//!
//! ```text
//! thread of answers                                          this thread
//! ask: commands ─▶ model: rows ─▶ a Screen over a channel ─▶ draw
//! signals ─────────────────────────────────────────────────▶ leave the terminal
//!                                                            look: keys
//! ```
//!
//! - [`ask`]: the questions of one refresh. [`feed`]: the thread that asks again and again.
//! - [`model`]: answers become the rows of a [`model::Screen`].
//! - [`rows`], [`figures`]: rows become lines. [`draw`]: lines on a terminal, or as text.
//! - [`look`]: keys. [`terminal`]: the loop of keys and screens, and the way out of it.

mod ask;
mod draw;
mod feed;
mod figures;
mod look;
mod model;
mod rows;
mod terminal;

use crate::cluster::layout::conf_path;
use client_host::{Access, Modes};
use feed::{Feed, News};
use look::Look;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Watch a cluster, shoal's or Ceph's: health, OSDs, pools, recovery, slow operations, clients
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("watched").required(true).args(["dir", "conf"]), after_help = "\
Examples:
  shoal top --dir .shoal                                a cluster of `shoal up`
  shoal top --conf /etc/ceph/ceph.conf                  any cluster, of stock Ceph too
  shoal top --conf ceph.conf --name client.watcher --keyring watcher.keyring
                                                        caps: mon 'allow r' mgr 'allow r'
  shoal top --dir .shoal --once                         one screen as text, for scripts

Keys: q quit, ? help, Tab next panel, arrows scroll, p pause;
order of rows: t tree, n name, u usage, l latency, c processor time.
A figure that the cluster does not tell is shown as `-`. Operations and clients need the OSDs' answers:
caps osd 'allow *'.")]
pub struct Args {
    /// The cluster's directory
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A ceph.conf, of shoal or of Ceph
    #[arg(long, short)]
    conf: Option<PathBuf>,
    /// The keyring, when the ceph.conf does not say where it is
    #[arg(long)]
    keyring: Option<PathBuf>,
    #[arg(long, default_value = "client.admin")]
    name: String,
    /// Protection of connections
    #[arg(long, value_enum, default_value = "default")]
    mode: Modes,
    /// Seconds between two screens
    #[arg(long, default_value = "2", value_parser = parse_interval)]
    interval: Duration,
    /// Print one screen as text and end. So does a standard output that is no terminal
    #[arg(long)]
    once: bool,
}

const INTERVAL_MIN_S: f64 = 0.2;
const INTERVAL_MAX_S: f64 = 3600.0;

fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if (INTERVAL_MIN_S..=INTERVAL_MAX_S).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!("expected seconds from {INTERVAL_MIN_S} to {INTERVAL_MAX_S}")),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let conf = match (&args.dir, &args.conf) {
        (Some(dir), _) => conf_path(dir),
        (None, Some(conf)) => conf.clone(),
        (None, None) => anyhow::bail!("--dir or --conf says which cluster"),
    };
    let access = Access::load(&conf, args.keyring.as_deref(), &args.name, args.mode)?;
    let is_once = args.once || !stdout().is_terminal();
    let feed = Feed::start(access, args.interval, is_once, &conf)?;
    if !is_once {
        return terminal::run(&feed, &conf.display().to_string());
    }
    match feed.next()? {
        News::Screen(screen) => {
            let columns = ratatui::crossterm::terminal::size().map_or(0, |(width, _)| usize::from(width));
            let width = if stdout().is_terminal() { columns.max(80) } else { draw::TEXT_WIDTH };
            // A reader that has seen enough, as `head` does, is no error.
            let _ = stdout().write_all(draw::text(&screen, &Look::new(false), width).as_bytes());
            match &screen.summary.problem {
                None => Ok(ExitCode::SUCCESS),
                Some(problem) => anyhow::bail!("`status` of {} failed: {problem}", conf.display()),
            }
        }
        News::Signal(signal) => Ok(terminal::exit_code(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_bounded() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "inf", "nan", "two", "1e9"] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }
}
