//! Commands to several daemons at once, and their answers.

use crate::ClientHost;
use bytes::Bytes;
use client::{CommandReply, Daemon, Event};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use wire::messages::{Body, MMonCommand, PaxosHeader};

/// The receiver of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    Monitor,
    /// The active manager.
    Manager,
    Osd(i32),
}

/// The reason why a command has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The daemon answered with an error: a negative errno, and its words.
    Error(i32, String),
    /// The daemon did not answer.
    Silence(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Error(result, words) => {
                write!(f, "{words} ({})", std::io::Error::from_raw_os_error(result.saturating_neg()))
            }
            Refusal::Silence(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

impl ClientHost {
    /// Sends all commands, each `{"prefix": …}`, and waits for their answers. Returns after `timeout` at the latest, with
    /// an outcome for each command in their order. Other events that come meanwhile are dropped.
    pub async fn ask_each(
        &mut self,
        commands: &[(Receiver, String)],
        timeout: Duration,
    ) -> Vec<Result<Bytes, Refusal>> {
        let fsid = self.client().map().map(|map| map.fsid).unwrap_or_default();
        let mut outcomes = vec![None; commands.len()];
        let (mut of_monitor, mut of_daemon) = (BTreeMap::new(), BTreeMap::new());
        for (place, (to, text)) in commands.iter().enumerate() {
            let text = text.clone();
            let to = match to {
                Receiver::Manager => Daemon::Manager,
                Receiver::Osd(osd) => Daemon::Osd(*osd),
                Receiver::Monitor => {
                    let (paxos, command) = (PaxosHeader::default(), vec![text]);
                    let body = MMonCommand { paxos, fsid, command, input: Bytes::new() };
                    let id = self.with(|(client, now, fx)| client.mon_request(now, body, Some(timeout), fx));
                    of_monitor.insert(id, place);
                    continue;
                }
            };
            of_daemon
                .insert(self.with(|(client, now, fx)| client.command(now, to, text, timeout, fx)), place);
        }
        let until = self.now() + timeout;
        while !(of_monitor.is_empty() && of_daemon.is_empty()) && self.now() < until {
            for event in self.turn_until(until).await {
                let (place, outcome) = match event {
                    Event::Answer { id, answer } => {
                        let Some(place) = of_monitor.remove(&id) else { continue };
                        let silence = || Refusal::Silence("the monitor does not answer".into());
                        (place, answer.map_err(|_| silence()).and_then(of_ack))
                    }
                    Event::Commanded { id, outcome } => {
                        let Some(place) = of_daemon.remove(&id) else { continue };
                        let silence = |failure: client::Failure| Refusal::Silence(failure.to_string());
                        (place, outcome.map_err(silence).and_then(of_reply))
                    }
                    _ => continue,
                };
                outcomes[place] = Some(outcome);
            }
        }
        let silent = || Err(Refusal::Silence("no answer in time".into()));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(silent)).collect()
    }
}

impl ClientHost {
    /// Sends the active manager a command with input, and waits for its answer at most `timeout`. Other events that come meanwhile are
    /// dropped.
    pub async fn ask_manager(
        &mut self,
        text: &str,
        input: Bytes,
        timeout: Duration,
    ) -> Result<CommandReply, Refusal> {
        let (to, text) = (Daemon::Manager, text.to_owned());
        let asked =
            self.with(|(client, now, fx)| client.command_with_input(now, to, text, input, timeout, fx));
        let until = self.now() + timeout;
        while self.now() < until {
            for event in self.turn_until(until).await {
                match event {
                    Event::Commanded { id, outcome } if id == asked => {
                        return outcome.map_err(|failure| Refusal::Silence(failure.to_string()));
                    }
                    _ => {}
                }
            }
        }
        Err(Refusal::Silence("no answer in time".into()))
    }
}

fn of_ack(body: Body) -> Result<Bytes, Refusal> {
    match body {
        Body::MMonCommandAck(ack) if ack.result >= 0 => Ok(ack.output),
        Body::MMonCommandAck(ack) => Err(Refusal::Error(ack.result, ack.status)),
        _ => Err(Refusal::Silence("the monitor answered with a message that is no command reply".into())),
    }
}

fn of_reply(reply: CommandReply) -> Result<Bytes, Refusal> {
    match reply.result {
        0.. => Ok(reply.output),
        error => Err(Refusal::Error(error, reply.status)),
    }
}
