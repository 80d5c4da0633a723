//! Connections to a cluster's monitors: commands and their answers, and whether a pool's PGs serve.

use anyhow::{Context, bail};
use bytes::Bytes;
use client::Listing;
use client_host::{Access, ClientHost, Modes};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::messages::{Body, MMonCommand, PaxosHeader};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After this long the monitors are asked about the pool's PGs instead.
const REACH_TIMEOUT: Duration = Duration::from_secs(20);
const NAME_DEFAULT: &str = "client.admin";

/// A connection to a cluster's monitors. A trait, so that tests can script the answers.
pub trait Cluster {
    /// A monitor command, `{"prefix": …}`; the answer as JSON where it is JSON, else as text. A refused command is an
    /// error with the monitor's words.
    fn ask(&mut self, command: Value) -> anyhow::Result<Value>;

    /// Wait until every PG of this pool has answered a listing, which proves that it is active even before the
    /// monitors have heard so. An error proves nothing.
    fn reach(&mut self, pool: &str) -> anyhow::Result<()>;
}

/// The identity of the lab's own client: entity name and keyring.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// Replaces the keyring that the `ceph.conf` names.
    pub keyring: Option<PathBuf>,
    /// `client.admin` if absent.
    pub name: Option<String>,
}

impl Login {
    pub fn with_keyring(keyring: Option<PathBuf>) -> Login {
        Login { keyring, name: None }
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(NAME_DEFAULT)
    }

    pub fn access(&self, conf: &Path, modes: Modes) -> anyhow::Result<Access> {
        Access::load(conf, self.keyring.as_deref(), self.name(), modes)
    }

    /// The client's key as the text of a keyring; empty if the cluster runs without cephx.
    pub fn keyring_text(&self, conf: &Path) -> anyhow::Result<String> {
        let key = self.access(conf, Modes::Default)?.key;
        Ok(key.map_or(String::new(), |key| format!("[{}]\n\tkey = {}\n", self.name(), key.to_base64())))
    }

    /// Fails within seconds if the cluster is unreachable or refuses the key.
    pub fn connect(&self, conf: &Path) -> anyhow::Result<Box<dyn Cluster>> {
        let access = self.access(conf, Modes::Default)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut host = {
            let _inside = runtime.enter();
            ClientHost::new(&access)?
        };
        runtime.block_on(host.connect(CONNECT_TIMEOUT)).map_err(|error| {
            let name = self.name();
            let advice = match format!("{error:#}").contains("does not let us in") {
                true => format!("refuses us: is the key of {name} the one it knows, and does it want keys?"),
                false => "cannot be reached: does it run, and is its address right?".to_owned(),
            };
            error.context(format!("the cluster of {} {advice}", conf.display()))
        })?;
        Ok(Box::new(Connection { runtime, host, access }))
    }
}

struct Connection {
    runtime: tokio::runtime::Runtime,
    host: ClientHost,
    access: Access,
}

impl Cluster for Connection {
    fn ask(&mut self, command: Value) -> anyhow::Result<Value> {
        let Connection { runtime, host, .. } = self;
        let body = MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: host.client().map().map(|map| map.fsid).unwrap_or_default(),
            command: vec![command.to_string()],
            input: Bytes::new(),
        };
        let prefix = command["prefix"].as_str().unwrap_or("a command");
        match runtime.block_on(host.ask_monitor(body, COMMAND_TIMEOUT))? {
            Body::MMonCommandAck(ack) if ack.result >= 0 => {
                let text = String::from_utf8_lossy(&ack.output).into_owned();
                Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
            }
            Body::MMonCommandAck(ack) => {
                let error = std::io::Error::from_raw_os_error(-ack.result);
                bail!("the monitor refuses `{prefix}`: {} ({error})", ack.status)
            }
            _ => bail!("the monitor answered `{prefix}` with a message that is no command reply"),
        }
    }

    fn reach(&mut self, pool: &str) -> anyhow::Result<()> {
        // A client of its own, because a new client starts with the newest map.
        let every_pg = async {
            let mut host = ClientHost::new(&self.access)?;
            host.connect(CONNECT_TIMEOUT).await?;
            let id = host.client().pool_by_name(pool).with_context(|| format!("there is no pool {pool}"))?;
            let map = host.client().map().context("the client has no OSDMap")?.clone();
            let mut listing = Listing::new(&map, id, Listing::ALL_NAMESPACES, 1)
                .with_context(|| format!("no pool {pool}"))?;
            while !listing.is_complete() {
                let page = listing.next_page(host.client().map().unwrap_or(&map));
                let reply = host.operate(page).await?;
                listing.take(host.client().map().unwrap_or(&map), &reply)?;
            }
            Ok(())
        };
        self.runtime.block_on(async { tokio::time::timeout(REACH_TIMEOUT, every_pg).await })?
    }
}
