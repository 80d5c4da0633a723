//! `shoal down`: stop a cluster's daemons, OSDs first.

use crate::cluster::host::record::DIR_DEFAULT;
use crate::cluster::layout::Cluster;
use crate::daemon::process::{Daemon, Stopped};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Stop the daemons of a directory, of a cluster or of a host in it; the data stays, and `shoal up` starts them again
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory of the cluster, or of a host in it
    #[arg(long, default_value = DIR_DEFAULT)]
    dir: PathBuf,
    /// Seconds that a daemon may take to stop cleanly before it is killed
    #[arg(long, default_value_t = 60)]
    grace: u64,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cluster = Cluster::load(&args.dir)?;
    let grace = Duration::from_secs(args.grace);
    // The monitor goes last: an OSD that stops tells it so.
    let clean = stop_all(&cluster.osds(), grace)? & stop_all(&cluster.mons(), grace)?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All at once. False when one had to be killed.
fn stop_all(daemons: &[Daemon], grace: Duration) -> anyhow::Result<bool> {
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let stops: Vec<_> =
            daemons.iter().map(|daemon| (daemon, scope.spawn(move || daemon.stop(grace)))).collect();
        stops
            .into_iter()
            .map(|(daemon, stop)| (daemon, stop.join().expect("stopping does not panic")))
            .collect()
    });
    let mut clean = true;
    for (daemon, outcome) in outcomes {
        let said = match outcome? {
            Stopped::WasNotRunning => "was not running",
            Stopped::Cleanly => "stopped",
            Stopped::Killed => {
                clean = false;
                "did not stop and was killed: what only its memory had is lost"
            }
        };
        println!("{:<8} {said}", daemon.name);
    }
    Ok(clean)
}
