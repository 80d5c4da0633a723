//! Commands to monitors, manager and OSDs, for programs that wait for each answer.

use anyhow::{Context, bail};
use bytes::Bytes;
use client_host::{Access, ClientHost, Receiver, Refusal};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use wire::messages::{Body, MCommand, MMonCommand, PaxosHeader};
use wire::types::{EntityAddr, EntityAddrVec, Epoch, MonMap, OsdMap, Uuid};

pub const PATIENCE: Duration = Duration::from_secs(30);
/// A manager that died is replaced after `mon_mgr_beacon_grace`, by default 30 s.
const MANAGER_PATIENCE: Duration = Duration::from_secs(45);
/// Pause before a command that no leader could take is given again.
const RETRY: Duration = Duration::from_millis(300);
/// A daemon that has not answered by then is asked again, or taken for silent.
const DAEMON_PATIENCE: Duration = Duration::from_secs(5);
/// For a request whose loss costs a few seconds.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);
const EAGAIN: i32 = -11;

/// A session with the monitors.
pub struct Asker {
    runtime: Runtime,
    host: ClientHost,
    monitors: String,
}

/// The refusal of a command.
#[derive(Debug, thiserror::Error)]
#[error("{by} refuse `{command}`: {status} (error {errno})")]
pub struct Refused {
    /// In the plural: the monitors.
    pub by: &'static str,
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
                    return Err(Refused { by: "the monitors", command, errno: -ack.result, status }.into());
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

    /// Runs a command of the manager, whose output is JSON. While no manager is active, it is given again.
    pub fn manager_json(&mut self, command: &Value) -> anyhow::Result<Value> {
        let mut command = command.clone();
        command["format"] = "json".into();
        let name = command["prefix"].as_str().unwrap_or_default().to_owned();
        let until = Instant::now() + MANAGER_PATIENCE;
        loop {
            let asked = [(Receiver::Manager, command.to_string())];
            let host = &mut self.host;
            let outcome = self.runtime.block_on(async { host.ask_each(&asked, DAEMON_PATIENCE).await }).pop();
            match outcome.context("a command has an outcome")? {
                Ok(text) => {
                    return serde_json::from_slice(&text)
                        .with_context(|| format!("the manager answers {name} with {text:?}"));
                }
                Err(Refusal::Error(result, status)) => {
                    return Err(Refused { by: "the managers", command: name, errno: -result, status }.into());
                }
                Err(Refusal::Silence(why)) => {
                    anyhow::ensure!(Instant::now() < until, "the manager does not answer {name}: {why}");
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    /// Asks OSDs to report to the manager now instead of at the end of their period. One that does not answer in time reports later.
    pub fn flush_pg_stats(&mut self, osds: impl Iterator<Item = i32>, epoch: Epoch) {
        let flush = |osd| (osd, json!({ "prefix": "flush_pg_stats" }));
        self.tell_osds_within(FLUSH_PATIENCE, &osds.map(flush).collect::<Vec<_>>(), epoch);
    }

    /// Tells each OSD a command, once; with an outcome for each, in their order. `epoch`: a map that shows where they are.
    pub fn tell_osds(&mut self, commands: &[(i32, Value)], epoch: Epoch) -> Vec<Result<Bytes, Refusal>> {
        self.tell_osds_within(DAEMON_PATIENCE, commands, epoch)
    }

    /// The OSDMap of this epoch or a later one.
    pub fn osd_map(&mut self, epoch: Epoch) -> anyhow::Result<Arc<OsdMap>> {
        let host = &mut self.host;
        self.runtime.block_on(async {
            let until = host.now() + PATIENCE;
            host.with(|(client, now, fx)| client.want_map(now, epoch, fx));
            loop {
                if let Some(map) = host.client().map().filter(|map| map.epoch >= epoch) {
                    return Ok(map.clone());
                }
                anyhow::ensure!(host.now() < until, "the monitors did not send OSDMap {epoch}");
                host.turn_until(until).await;
            }
        })
    }

    fn tell_osds_within(
        &mut self,
        patience: Duration,
        commands: &[(i32, Value)],
        epoch: Epoch,
    ) -> Vec<Result<Bytes, Refusal>> {
        let commands: Vec<(Receiver, String)> =
            commands.iter().map(|(osd, command)| (Receiver::Osd(*osd), command.to_string())).collect();
        let host = &mut self.host;
        self.runtime.block_on(async {
            let until = host.now() + patience;
            host.with(|(client, now, fx)| client.want_map(now, epoch, fx));
            while host.client().map().is_none_or(|map| map.epoch < epoch) && host.now() < until {
                host.turn_until(until).await;
            }
            host.ask_each(&commands, patience).await
        })
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

/// Tells the monitor at `addr` a command, as `ceph tell mon.X` does.
pub fn tell_monitor(access: &Access, addr: SocketAddr, command: &Value) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let monitors = vec![EntityAddrVec::one(EntityAddr::msgr2(addr, 0))];
    let name = command["prefix"].as_str().unwrap_or_default().to_owned();
    let body = MCommand { fsid: Uuid::default(), command: vec![command.to_string()], input: Bytes::new() };
    let answer = runtime.block_on(async {
        let mut host = ClientHost::new(&Access { monitors, ..access.clone() })?;
        host.ask_admitted(body, DAEMON_PATIENCE).await
    });
    match answer.with_context(|| format!("telling the monitor at {addr} `{name}`"))? {
        Body::MCommandReply(reply) if reply.result == 0 => Ok(()),
        Body::MCommandReply(reply) => {
            let (errno, status) = (-reply.result, reply.status.clone());
            Err(Refused { by: "the monitors", command: name, errno, status }.into())
        }
        other => bail!("the monitor at {addr} answers `{name}` with {other:?}"),
    }
}

pub fn monitors_of(map: &MonMap) -> Vec<SocketAddr> {
    map.by_rank().filter_map(|(_, mon)| mon.addrs.msgr2()?.socket).collect()
}
