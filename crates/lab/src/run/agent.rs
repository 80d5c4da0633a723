//! `shoal lab agent`, the process of one point on a client host. It is told what to do line by line, prepares,
//! begins when it is told to, and reports its measurements and samples of its host. It stops, together with its child
//! processes, when its input ends.

use super::host::unix_s;
use super::part::{ClientFolder, Part, Pools};
use crate::cluster::Login;
use crate::matrix::Spec;
use crate::observe::Observer;
use crate::results::{Measured, Sample};
use crate::tool::process::{STOP, rest, stopped};
use crate::tool::release::Release;
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

/// One line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ToAgent {
    /// Asks for version and clock.
    Hello,
    /// Prepares a load: fills objects or images. The answer is `Ready`.
    Prepare(Box<Prepare>),
    /// Watches the host and the daemons that this `ceph.conf` has there. The answer is `Ready`.
    Watch { conf: String },
    /// Starts at this time of the agent's clock.
    Go { at_unix_s: f64 },
    /// The watched load has ended.
    Enough,
}

/// A point's load of one host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// The text of the cluster's `ceph.conf`, and of a keyring with the client's key.
    pub conf: String,
    pub keyring: String,
    pub pools: Pools,
    pub spec: Spec,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum FromAgent {
    Hello { version: String, unix_s: f64 },
    Ready,
    Measured { measured: Box<Measured>, artifacts: Vec<(String, String)>, samples: Vec<Sample> },
    Seen { samples: Vec<Sample> },
    Failed { error: String },
}

/// Limit of one line to an agent: a `ceph.conf` and a point.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Serves until its input ends.
pub fn serve(login: &Login, input: impl Read + Send + 'static, output: &mut dyn Write) -> anyhow::Result<()> {
    let (send, told) = channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let mut line = String::new();
            match (&mut input).take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(1..) if send.send(line).is_ok() => {}
                _ => break,
            }
        }
        // The lab is gone: everything that runs, stops.
        STOP.store(true, Ordering::Relaxed);
    });
    let scratch = std::env::temp_dir().join(format!("shoal-lab-agent-{}", std::process::id()));
    clear_what_died();
    while let Some(what) = next(&told)? {
        match what {
            ToAgent::Hello => {
                let version = env!("CARGO_PKG_VERSION").to_owned();
                say(output, &FromAgent::Hello { version, unix_s: unix_s() })?;
            }
            ToAgent::Prepare(what) => {
                let outcome = load(login, &scratch, &what, &told, output);
                drop(std::fs::remove_dir_all(&scratch));
                if stopped() {
                    return Ok(());
                }
                let answer =
                    outcome.unwrap_or_else(|error| FromAgent::Failed { error: format!("{error:#}") });
                say(output, &answer)?;
            }
            ToAgent::Watch { conf } => {
                let outcome = watch(login, &scratch, &conf, &told, output);
                drop(std::fs::remove_dir_all(&scratch));
                if stopped() {
                    return Ok(());
                }
                say(output, &outcome.unwrap_or_else(|e| FromAgent::Failed { error: format!("{e:#}") }))?;
            }
            ToAgent::Go { .. } | ToAgent::Enough => {
                say(output, &FromAgent::Failed { error: "nothing is prepared".into() })?;
            }
        }
    }
    Ok(())
}

fn load(
    login: &Login,
    scratch: &Path,
    what: &Prepare,
    told: &Receiver<String>,
    output: &mut dyn Write,
) -> anyhow::Result<FromAgent> {
    let Prepare { conf, keyring, pools, spec } = what;
    let client = ClientFolder::make(scratch, conf, keyring, &spec.mode, Release::default())?;
    let mut artifacts = Vec::new();
    let observer = Observer::new(&client.conf);
    let (measured, samples) = observer.during(login, None, || {
        let mut begin = || {
            say(output, &FromAgent::Ready)?;
            go(told, &observer)
        };
        let part = Part { login, client: &client, pools, spec };
        let measured = part.load(&mut begin, &mut artifacts);
        observer.end();
        measured
    });
    let artifacts = artifacts
        .into_iter()
        .map(|(name, bytes)| (name, String::from_utf8_lossy(&bytes).into_owned()))
        .collect();
    Ok(FromAgent::Measured { measured: Box::new(measured?), artifacts, samples })
}

fn watch(
    login: &Login,
    scratch: &Path,
    conf: &str,
    told: &Receiver<String>,
    output: &mut dyn Write,
) -> anyhow::Result<FromAgent> {
    std::fs::create_dir_all(scratch)?;
    let path = scratch.join("ceph.conf");
    std::fs::write(&path, conf)?;
    let observer = Observer::new(&path);
    let (outcome, samples) = observer.during(login, None, || {
        say(output, &FromAgent::Ready)?;
        go(told, &observer)?;
        let heard = next(told)?;
        observer.end();
        ensure!(matches!(heard, Some(ToAgent::Enough)), "interrupted");
        Ok(())
    });
    outcome.map(|()| FromAgent::Seen { samples })
}

/// Waits for `Go`, and for its time.
fn go(told: &Receiver<String>, observer: &Observer) -> anyhow::Result<()> {
    let Some(ToAgent::Go { at_unix_s }) = next(told)? else { bail!("interrupted") };
    rest(at_unix_s - unix_s());
    ensure!(!stopped(), "interrupted");
    observer.begin();
    Ok(())
}

/// `None` at the end of the input.
fn next(told: &Receiver<String>) -> anyhow::Result<Option<ToAgent>> {
    let Ok(line) = told.recv() else { return Ok(None) };
    serde_json::from_str(&line)
        .map(Some)
        .context("no message of `shoal lab run`, which starts this command on client hosts")
}

fn say(output: &mut dyn Write, what: &FromAgent) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}

/// Folders of agents that were killed.
fn clear_what_died() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("shoal-lab-agent-").and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
