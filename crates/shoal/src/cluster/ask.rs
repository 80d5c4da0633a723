//! Commands to the monitors, for programs that wait for each answer.

use anyhow::{Context, bail};
use bytes::Bytes;
use client_host::{Access, ClientHost};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use wire::messages::{Body, MMonCommand, PaxosHeader};
use wire::types::{MonMap, Uuid};

pub const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before a command that no leader could take is given again.
const RETRY: Duration = Duration::from_millis(300);
const EAGAIN: i32 = -11;

/// A session with the monitors.
pub struct Asker {
    runtime: Runtime,
    host: ClientHost,
    monitors: String,
}

/// The monitors' refusal of a command.
#[derive(Debug, thiserror::Error)]
#[error("the monitors refuse `{command}`: {status} (error {errno})")]
pub struct Refused {
    pub command: String,
    /// Positive.
    pub errno: i32,
    pub status: String,
}

impl Asker {
    pub fn new(access: &Access) -> anyhow::Result<Asker> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let host = runtime.block_on(async { ClientHost::new(access) })?;
        let monitors: Vec<String> = access.monitors.iter().map(ToString::to_string).collect();
        Ok(Asker { runtime, host, monitors: monitors.join(" ") })
    }

    /// Runs a command and returns its output. A monitor without a leader is asked again.
    pub fn ask(&mut self, command: &Value) -> anyhow::Result<String> {
        self.ask_with(command, "")
    }

    /// The same with the input that `ceph -i` gives.
    pub fn ask_with(&mut self, command: &Value, input: &str) -> anyhow::Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let body = MMonCommand {
                paxos: PaxosHeader::default(),
                // The session fills in the cluster's.
                fsid: Uuid::default(),
                command: vec![command.to_string()],
                input: Bytes::copy_from_slice(input.as_bytes()),
            };
            let host = &mut self.host;
            let answer = self.runtime.block_on(async { host.ask_admitted(body, PATIENCE).await });
            let name = command["prefix"].as_str().unwrap_or_default();
            match answer.with_context(|| format!("asking the monitors at {}", self.monitors))? {
                Body::MMonCommandAck(ack) if ack.result == 0 => {
                    return Ok(String::from_utf8_lossy(&ack.output).into_owned());
                }
                Body::MMonCommandAck(ack) if ack.result == EAGAIN && Instant::now() < until => {
                    std::thread::sleep(RETRY);
                }
                Body::MMonCommandAck(ack) => {
                    let (command, status) = (name.to_owned(), ack.status);
                    return Err(Refused { command, errno: -ack.result, status }.into());
                }
                other => bail!("the monitors answer `{name}` with {other:?}"),
            }
        }
    }

    /// Runs a command whose output is JSON.
    pub fn json(&mut self, command: &Value) -> anyhow::Result<Value> {
        let mut command = command.clone();
        command["format"] = "json".into();
        let text = self.ask(&command)?;
        serde_json::from_str(&text)
            .with_context(|| format!("the monitors answer {} with {text:?}", command["prefix"]))
    }

    /// The newest map of the monitors, once one has answered.
    pub fn monmap(&self) -> &MonMap {
        self.host.client().monmap()
    }

    /// The monitors' addresses by that map.
    pub fn monitors(&self) -> Vec<SocketAddr> {
        monitors_of(self.monmap())
    }
}

pub fn monitors_of(map: &MonMap) -> Vec<SocketAddr> {
    map.by_rank().filter_map(|(_, mon)| mon.addrs.msgr2()?.socket).collect()
}
