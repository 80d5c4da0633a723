//! Hosts that make no load and are watched, because daemons of the cluster run there. Each runs `shoal lab agent`,
//! reached by ssh, which samples its own host; the samples come onto the same timeline.
//!
//! A host that cannot be reached ends the point before it begins. A host that is lost later is reported, and
//! the point is kept: the measurement does not depend on it.

use super::agent::{FromAgent, ToAgent};
use super::host::unix_s;
use super::reach::{self, Host};
use crate::matrix::OtherHosts;
use crate::observe::Observer;
use anyhow::{Context, bail};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Watchers {
    hosts: Vec<Host>,
}

impl Watchers {
    pub fn connect(hosts: Option<&OtherHosts>, conf: &str) -> anyhow::Result<Watchers> {
        let mut hosts = hosts.map_or(Ok(Vec::new()), reach::connect).context("watch")?;
        for host in &mut hosts {
            host.tell(&ToAgent::Watch { conf: conf.to_owned() })?;
            match host.wait(PATIENCE)? {
                FromAgent::Ready => {}
                other => bail!("host {}: expected to watch it, received {other:?}", host.name),
            }
        }
        Ok(Watchers { hosts })
    }

    /// The load begins now.
    pub fn begin(&mut self) {
        for host in &mut self.hosts {
            let at_unix_s = unix_s() + host.clock.0;
            // Of one that is gone, `end` tells.
            drop(host.tell(&ToAgent::Go { at_unix_s }));
        }
    }

    /// Ends the watch after the load, and adds the samples of the other hosts.
    pub fn end(mut self, observer: &Observer) {
        for host in &mut self.hosts {
            let told = host.tell(&ToAgent::Enough).and_then(|()| host.wait(PATIENCE));
            match told {
                Ok(FromAgent::Seen { samples }) => observer.take_in(&host.name, samples),
                Ok(other) => eprintln!("host {}: expected samples, received {other:?}", host.name),
                Err(error) => eprintln!("host {} was not watched to the end: {error:#}", host.name),
            }
        }
    }
}
