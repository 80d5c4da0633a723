//! Crash reports on their way to the cluster: a thread sends each to the active manager, with the daemon's own key.

use super::folder::Folder;
use super::{REPORTER, Reporter};
use crate::config::SessionOptions;
use crate::host::identity;
use anyhow::{Context, bail};
use bytes::Bytes;
use client_host::{Access, ClientHost, Modes};
use command::options::Layers;
use std::time::Duration;
use wire::types::AuthName;

/// Wait before a report is sent again, and the limit of the doubled waits.
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The manager's opinion of a report.
enum Verdict {
    Kept,
    /// The manager will never take it.
    Refused(String),
}

/// Posts the reports of this process's daemon, those of earlier runs first. Called once, when the daemon serves.
pub fn start_posting(layers: &Layers) -> std::io::Result<()> {
    let Some(reporter) = REPORTER.get() else { return Ok(()) };
    let layers = layers.clone();
    std::thread::Builder::new().name("crash-post".into()).spawn(move || keep_posting(reporter, &layers))?;
    Ok(())
}

/// Ends with the process, or at once if another thread does this.
fn keep_posting(reporter: &'static Reporter, layers: &Layers) {
    let Some(news) = reporter.news.lock().ok().and_then(|mut news| news.take()) else { return };
    loop {
        post_all(&reporter.folder, &|meta| post(layers, meta), &std::thread::sleep);
        if news.recv().is_err() {
            return;
        }
    }
}

/// Posts each pending report, and repeats what fails after growing waits, until none is pending.
fn post_all(folder: &Folder, post: &dyn Fn(Vec<u8>) -> anyhow::Result<Verdict>, wait: &dyn Fn(Duration)) {
    let mut retry = RETRY;
    loop {
        let pending = folder.pending();
        if pending.is_empty() {
            return;
        }
        let mut failure = None;
        for (id, meta) in pending {
            let verdict = post(meta);
            match &verdict {
                Ok(Verdict::Kept) => tracing::info!("crash report {id} is posted"),
                Ok(Verdict::Refused(why)) => tracing::warn!("crash report {id} is refused: {why}"),
                Err(_) => {}
            }
            let outcome = verdict.and_then(|_| folder.mark_posted(&id).context("the report cannot be moved"));
            failure = failure.or(outcome.err().map(|error| (id, error)));
        }
        if let Some((id, error)) = failure {
            match retry == RETRY {
                true => tracing::warn!("crash report {id} is not posted yet: {error:#}"),
                false => tracing::debug!("crash report {id} is not posted yet: {error:#}"),
            }
            wait(retry);
            retry = RETRY_MAX.min(retry * 2);
        }
    }
}

fn post(layers: &Layers, meta: Vec<u8>) -> anyhow::Result<Verdict> {
    let name = &layers.identity().name;
    // All monitors share one key, under a name without an id.
    let name = if name.starts_with("mon.") { "mon." } else { name };
    let auth_name: AuthName = name.parse().ok().with_context(|| format!("{name} is no entity"))?;
    let access = Access {
        name: auth_name,
        key: identity::own_key(&SessionOptions::read(layers), name)?,
        monitors: identity::monitors(layers)?,
        modes: Modes::Default,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut host = ClientHost::new(&access)?;
        host.connect(CONNECT_TIMEOUT).await?;
        let command = r#"{"prefix":"crash post"}"#;
        let reply = host.ask_manager(command, Bytes::from(meta), ANSWER_TIMEOUT).await?;
        Ok(match reply.result {
            0 => Verdict::Kept,
            // Stock's module answers a malformed report with a positive errno.
            result if result > 0 || -result == libc::EINVAL => Verdict::Refused(reply.status),
            result => bail!("{} ({})", reply.status, std::io::Error::from_raw_os_error(-result)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use wire::types::UTime;

    #[test]
    fn failed_post_is_repeated_after_growing_waits() {
        let path = std::env::temp_dir().join(format!("shoal-crash-post-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let folder = Folder::new(&path);
        for id in ["2027-01-15T08:00:00.000001Z_a", "2027-01-15T08:00:00.000002Z_b"] {
            folder.write(id, UTime { sec: 1_800_000_000, nsec: 0 }, id).unwrap();
        }
        let (calls, waits) = (Cell::new(0), RefCell::new(Vec::new()));
        let post = |meta: Vec<u8>| {
            calls.set(calls.get() + 1);
            match (meta.ends_with(b"a"), calls.get()) {
                (true, _) => Ok(Verdict::Refused("malformed".into())),
                (false, 1..=9) => bail!("no manager"),
                (false, _) => Ok(Verdict::Kept),
            }
        };
        post_all(&folder, &post, &|wait| waits.borrow_mut().push(wait.as_secs()));
        assert_eq!(*waits.borrow(), [2, 4, 8, 16, 32, 64, 128, 256]);
        assert_eq!((calls.get(), folder.pending().len()), (10, 0));
        std::fs::remove_dir_all(&path).unwrap();
    }
}
