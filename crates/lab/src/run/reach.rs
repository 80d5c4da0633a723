//! The connection to an agent on another host. It is started over ssh, told line by line, and ends when
//! its input ends.

use super::agent::{FromAgent, ToAgent};
use super::host::unix_s;
use crate::matrix::OtherHosts;
use crate::tool::process::stopped;
use anyhow::{Context, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const HELLO_PATIENCE: Duration = Duration::from_secs(30);
const CLOCK_ROUNDS: usize = 8;
/// Limit of one line of an agent. Histograms, series and samples are most of it.
const LINE_BYTES_MAX: u64 = 256 << 20;

pub struct Host {
    pub name: String,
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<String>,
    errors: Receiver<String>,
    /// Its clock less ours, in seconds, and the round trip that told it.
    pub clock: (f64, f64),
}

/// All of them, begun at once: each takes its time to log in.
pub fn connect(hosts: &OtherHosts) -> anyhow::Result<Vec<Host>> {
    let mut started =
        hosts.hosts.iter().map(|name| Host::start(hosts, name)).collect::<anyhow::Result<Vec<_>>>()?;
    for host in &mut started {
        host.meet()?;
    }
    Ok(started)
}

impl Host {
    fn start(hosts: &OtherHosts, name: &str) -> anyhow::Result<Host> {
        let (program, options) = hosts.ssh.split_first().context("clients: ssh is empty")?;
        let mut child = Command::new(program)
            .args(options)
            .arg(name)
            .args([&hosts.shoal, "lab", "agent"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("{program} cannot be started: is it installed?"))?;
        let (to, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (out, err) = (out.context("no output")?, err.context("no output")?);
        Ok(Host { name: name.to_owned(), child, to, from: lines(out), errors: lines(err), clock: (0.0, 0.0) })
    }

    /// Compares versions and measures the offset of its clock.
    fn meet(&mut self) -> anyhow::Result<()> {
        let mut best = (0.0, f64::INFINITY);
        for _ in 0..CLOCK_ROUNDS {
            let sent = unix_s();
            self.tell(&ToAgent::Hello)?;
            let (version, there) = match self.wait(HELLO_PATIENCE)? {
                FromAgent::Hello { version, unix_s } => (version, unix_s),
                other => bail!("client host {} answers {other:?}", self.name),
            };
            let own = env!("CARGO_PKG_VERSION");
            ensure!(version == own, "client host {} has shoal {version}, this one {own}", self.name);
            let round_trip = unix_s() - sent;
            if round_trip < best.1 {
                best = (there - (sent + round_trip / 2.0), round_trip);
            }
        }
        self.clock = best;
        Ok(())
    }

    pub fn tell(&mut self, what: &ToAgent) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        let sent = self
            .to
            .as_mut()
            .is_some_and(|to| to.write_all(line.as_bytes()).and_then(|()| to.flush()).is_ok());
        if sent { Ok(()) } else { Err(self.gone()) }
    }

    pub fn wait(&mut self, patience: Duration) -> anyhow::Result<FromAgent> {
        let until = Instant::now() + patience;
        loop {
            ensure!(!stopped(), "interrupted");
            if let Some(answer) = self.hear(Duration::from_millis(200))? {
                return Ok(answer);
            }
            ensure!(Instant::now() < until, "client host {} does not answer: {}", self.name, self.said());
        }
    }

    pub fn hear(&mut self, patience: Duration) -> anyhow::Result<Option<FromAgent>> {
        match self.from.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
            Ok(line) => match serde_json::from_str(&line) {
                Ok(FromAgent::Failed { error }) => bail!("client host {}: {error}", self.name),
                Ok(answer) => Ok(Some(answer)),
                Err(_) => {
                    bail!("client host {} sent a line that is no message of an agent: {line}", self.name)
                }
            },
        }
    }

    /// It was there, or should have been, and is not.
    fn gone(&mut self) -> anyhow::Error {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let said = self.said();
        match self.clock.1 > 0.0 {
            true => anyhow::anyhow!("client host {} died mid-run ({status}) {said}", self.name),
            false => anyhow::anyhow!("client host {} cannot be reached ({status}) {said}", self.name),
        }
    }

    /// The last lines of its standard error.
    fn said(&self) -> String {
        let mut said: Vec<String> = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(Duration::from_millis(200)) {
            said.push(line);
        }
        said[said.len().saturating_sub(4)..].join("\n")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The agent ends when its connection closes; it has a moment to stop its programs.
        self.to = None;
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Its lines, as they come; the channel ends where they end.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        loop {
            let mut line = String::new();
            match (&mut from).take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(1..) if send.send(line.trim_end().to_owned()).is_ok() => {}
                _ => return,
            }
        }
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_host_is_named() {
        let mut hosts = OtherHosts::new(vec!["nowhere".into()]).unwrap();
        hosts.ssh = ["sh", "-c", "echo no route to $0 >&2; exit 255"].map(str::to_owned).to_vec();
        let told = format!("{:#}", connect(&hosts).err().unwrap());
        assert!(
            told.contains("client host nowhere cannot be reached") && told.contains("no route"),
            "{told}"
        );
    }
}
