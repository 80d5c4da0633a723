//! `mon host` of a host's `ceph.conf`, kept up to date while the host's daemons run.
//!
//! A daemon finds the monitors by `mon host` when it starts, and follows their map afterwards. A host whose monitors were all
//! replaced while it ran could not start again, so each of its daemons has the file corrected: soon after its start, when other
//! hosts may be joining, and then less and less often.

use super::files;
use super::record::{HostRecord, Stage};
use crate::cluster::ask::Asker;
use crate::cluster::layout::Cluster;
use crate::daemon::data_dir::DataDir;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const FIRST_AFTER: Duration = Duration::from_secs(20);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Writes the monitors of the newest map into the `ceph.conf` of a directory whose lock the caller holds. True if it named others.
pub fn refresh(dir: &Path, record: &HostRecord) -> anyhow::Result<bool> {
    files::set_monitors(dir, &newest(dir, record)?)
}

fn newest(dir: &Path, record: &HostRecord) -> anyhow::Result<Vec<SocketAddr>> {
    let mut asker = Asker::new(&files::own_access(dir, record)?)?;
    asker.json(&json!({ "prefix": "mon dump" }))?;
    Ok(asker.monitors())
}

/// The same beside other daemons and `shoal` itself. The monitors are asked without the lock, since they may be slow.
fn refresh_beside_others(dir: &Path) -> anyhow::Result<bool> {
    let Some(record) = HostRecord::load(dir)?.filter(|record| record.stage == Stage::Joined) else {
        return Ok(false);
    };
    let monitors = newest(dir, &record)?;
    let _lock = DataDir::open(dir)?;
    files::set_monitors(dir, &monitors)
}

/// Number of monitors that the directory's `ceph.conf` names.
pub fn count(dir: &Path) -> anyhow::Result<usize> {
    let cluster = Cluster::load(dir)?;
    let all = cluster.conf.get("client", "mon host").unwrap_or_default();
    Ok(all.split(',').filter(|one| !one.is_empty()).count())
}

/// Starts a thread that refreshes the file for as long as the daemon lives, if `conf` is one of a host's directory.
pub fn keep(conf: &Path) {
    let Some(dir) = conf.parent().map(Path::to_owned) else { return };
    match HostRecord::load(&dir) {
        Ok(Some(_)) => {}
        Ok(None) => return,
        Err(error) => {
            tracing::warn!("mon host of {} is not kept up to date: {error:#}", conf.display());
            return;
        }
    }
    let thread = std::thread::Builder::new().name("mon-host".into());
    let started = thread.spawn(move || {
        let mut pause = FIRST_AFTER;
        loop {
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE_MAX);
            match refresh_beside_others(&dir) {
                Ok(true) => tracing::info!("mon host of {} names the newest monitors now", dir.display()),
                Ok(false) => {}
                Err(error) => tracing::debug!("mon host was not compared with the monitors: {error:#}"),
            }
        }
    });
    if let Err(error) = started {
        tracing::warn!("mon host is not kept up to date: {error}");
    }
}
