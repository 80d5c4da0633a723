//! What the binary lends the lab: connections of shoal's own client, and clusters of shoal's own.

use anyhow::{Context, bail};
use bytes::Bytes;
use client::Listing;
use client_host::{Access, ClientHost, Modes};
use lab::hands::{Cluster, Hands};
use lab::matrix::{ClusterSpec, Spec};
use lab::results::Measured;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wire::messages::{Body, MMonCommand, PaxosHeader};

const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// PGs that take longer are asked about at the monitors.
const REACH_PATIENCE: Duration = Duration::from_secs(20);

/// As whom, with which key.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub keyring: Option<PathBuf>,
    pub name: Option<String>,
}

impl Own {
    pub fn access(&self, conf: &Path, mode: &str) -> anyhow::Result<Access> {
        let name = self.name.as_deref().unwrap_or("client.admin");
        Access::load(conf, self.keyring.as_deref(), name, modes(mode))
    }
}

fn modes(word: &str) -> Modes {
    match word {
        "crc" => Modes::Crc,
        "secure" => Modes::Secure,
        _ => Modes::Default,
    }
}

struct Connection {
    runtime: tokio::runtime::Runtime,
    host: ClientHost,
    access: Access,
}

impl Cluster for Connection {
    fn reach(&mut self, pool: &str) -> anyhow::Result<()> {
        // Another client: it begins with the newest map.
        let every_pg = async {
            let mut host = ClientHost::new(&self.access)?;
            host.connect(CONNECT_PATIENCE).await?;
            let id = host.client().pool_by_name(pool).with_context(|| format!("there is no pool {pool}"))?;
            let map = host.client().map().context("there is no map")?;
            let mut listing = Listing::new(map, id, Listing::ALL_NAMESPACES, 1)
                .with_context(|| format!("no pool {pool}"))?;
            while !listing.is_complete() {
                let reply = host.operate(listing.next_page()).await?;
                listing.take(&reply)?;
            }
            Ok(())
        };
        self.runtime.block_on(async { tokio::time::timeout(REACH_PATIENCE, every_pg).await })?
    }

    fn ask(&mut self, command: Value) -> anyhow::Result<Value> {
        let Connection { runtime, host, .. } = self;
        let body = MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: host.client().map().map(|map| map.fsid).unwrap_or_default(),
            command: vec![command.to_string()],
            input: Bytes::new(),
        };
        let prefix = command["prefix"].as_str().unwrap_or("a command");
        match runtime.block_on(host.ask_monitor(body, PATIENCE))? {
            Body::MMonCommandAck(ack) if ack.result >= 0 => {
                let text = String::from_utf8_lossy(&ack.output).into_owned();
                Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
            }
            Body::MMonCommandAck(ack) => {
                let error = std::io::Error::from_raw_os_error(-ack.result);
                bail!("the monitor refuses `{prefix}`: {} ({error})", ack.status)
            }
            _ => bail!("the monitor's answer to `{prefix}` is none"),
        }
    }
}

impl Hands for Own {
    fn connect(&self, conf: &Path) -> anyhow::Result<Box<dyn Cluster>> {
        let access = self.access(conf, "default")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut host = {
            let _inside = runtime.enter();
            ClientHost::new(&access)?
        };
        runtime.block_on(host.connect(CONNECT_PATIENCE)).map_err(|error| {
            let name = self.name.as_deref().unwrap_or("client.admin");
            let which = match format!("{error:#}").contains("does not let us in") {
                true => format!("refuses us: is the key of {name} the one it knows, and does it want keys?"),
                false => "cannot be reached: does it run, and is its address right?".to_owned(),
            };
            error.context(format!("the cluster of {} {which}", conf.display()))
        })?;
        Ok(Box::new(Connection { runtime, host, access }))
    }

    fn keyring(&self, conf: &Path) -> anyhow::Result<String> {
        let access = self.access(conf, "default")?;
        let name = self.name.as_deref().unwrap_or("client.admin");
        Ok(access.key.map_or(String::new(), |key| format!("[{name}]\n\tkey = {}\n", key.to_base64())))
    }

    fn load(
        &self,
        conf: &Path,
        pool: &str,
        spec: &Spec,
        begin: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        let access = self.access(conf, &spec.mode)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(super::load::run(&access, pool, spec, begin))
    }

    fn ceiling(&self, spec: &Spec) -> anyhow::Result<f64> {
        super::ceiling::measure(spec, modes(&spec.mode)).context("measuring the client's own ceiling")
    }

    fn start_shoal(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<PathBuf> {
        let mut up = Command::new(std::env::current_exe()?);
        up.arg("up").arg("--dir").arg(dir).args(["--osds", &spec.osds.to_string(), "--auth", &spec.auth]);
        up.args(["--store", &spec.store, "--port", &port.to_string(), "--cores", &spec.cores.to_string()]);
        lab::tool::process::run(up, Duration::from_secs(120)).context("starting shoal")?;
        Ok(dir.join("ceph.conf"))
    }

    fn start_shoal_again(&self, dir: &Path, spec: &ClusterSpec, port: u16) -> anyhow::Result<()> {
        let mut up = Command::new(std::env::current_exe()?);
        up.arg("up").arg("--dir").arg(dir);
        // What it was made with is not said again.
        up.args(["--osds", &spec.osds.to_string(), "--port", &port.to_string()]);
        lab::tool::process::run(up, Duration::from_secs(120)).context("starting shoal again").map(drop)
    }

    fn stop_shoal(&self, dir: &Path) -> anyhow::Result<()> {
        let mut down = Command::new(std::env::current_exe()?);
        let output = down.arg("down").arg("--dir").arg(dir).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }
}
