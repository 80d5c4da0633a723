//! `shoal lab peer`: stock Ceph on loopback, to compare with.

use super::host::ThisBinary;
use clap::Subcommand;
use lab::deploy::Stock;
use lab::matrix::{ClusterSpec, Deploy};
use std::path::PathBuf;
use std::process::ExitCode;

/// Start or stop stock Ceph on loopback, to compare with
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab peer up --dir /tmp/peer --osds 1       the release that is installed
  ceph -c /tmp/peer/ceph.conf -s
  shoal lab peer up --dir /tmp/p20 --release 20.2 --port 13900
                                                   another one, in the folder that SHOAL_CEPH20 names (needs root)
  shoal lab peer down --dir /tmp/peer")]
pub struct PeerArgs {
    #[command(subcommand)]
    what: Peer,
}

#[derive(Debug, Subcommand)]
enum Peer {
    /// Start it
    Up {
        /// Its folder; a cluster that was there before is lost
        #[arg(long)]
        dir: PathBuf,
        /// 16.2, 18.2, 20.2 [default: what is installed]
        #[arg(long)]
        release: Option<String>,
        /// Number of OSDs
        #[arg(long, default_value_t = 1)]
        osds: u32,
        /// Where objects are: in memory, or in a file of 20 GiB at most in the folder
        #[arg(long, value_parser = ["memstore", "bluestore"], default_value = "memstore")]
        store: String,
        /// Authentication of clients and daemons
        #[arg(long, value_parser = ["cephx", "none"], default_value = "cephx")]
        auth: String,
        /// The monitor's ports: this one and the next
        #[arg(long, default_value_t = 13800)]
        port: u16,
    },
    /// Stop it and remove its folder
    Down {
        /// Its folder
        #[arg(long)]
        dir: PathBuf,
    },
}

pub fn peer(args: &PeerArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        Peer::Down { dir } => Stock::stop_in(dir)?,
        Peer::Up { dir, release, osds, store, auth, port } => {
            anyhow::ensure!(
                !lab::deploy::is_running_in(dir),
                "a cluster runs in {}; stop it first: shoal lab peer down --dir {}",
                dir.display(),
                dir.display()
            );
            let is_ours = !dir.exists() || dir.join("ceph.conf").exists() || dir.read_dir()?.next().is_none();
            anyhow::ensure!(
                is_ours,
                "{} is not empty and holds no cluster: choose another folder",
                dir.display()
            );
            let deploy = Deploy::Stock { release: release.clone() };
            let spec = ClusterSpec {
                deploy,
                osds: *osds,
                auth: auth.clone(),
                store: store.clone(),
                cores: 1,
                ..ClusterSpec::existing()
            };
            let dir = std::path::absolute(dir)?;
            let says = lab::deploy::start(&ThisBinary, &spec, None, &dir, *port)?.leave();
            println!("it runs: {says} -s");
            println!("stop it: shoal lab peer down --dir {}", dir.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
