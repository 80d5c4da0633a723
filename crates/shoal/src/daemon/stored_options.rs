//! The options that the monitors' database has for a daemon that is about to start.
//!
//! A running daemon is sent them; but an option that acts at start must be known before. As stock's daemons do
//! (`MonClient::get_monmap_and_config`), an OSD asks the monitors first and waits for their answer. The wait costs
//! nothing: an OSD serves nobody before a monitor has given it a map. Stock's daemons give up after a while and leave it
//! to the init system to start them again.

use crate::config::SessionOptions;
use crate::host::identity;
use anyhow::Context;
use client_host::{Access, ClientHost, Modes};
use command::options::Layers;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use wire::types::AuthName;

/// Time for the monitors to answer before the wait is logged, and limit of the doubled times between later log lines.
const FIRST_ATTEMPT: Duration = Duration::from_secs(3);
const ATTEMPT_MAX: Duration = Duration::from_secs(60);

/// End of the wait for monitors that do not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    UntilAnswered,
    /// For a command that a person waits for.
    FirstAttempt,
}

/// Asks the monitors that `mon_host` names, with the daemon's own key.
///
/// # Errors
/// There is no key or no monitor to ask, or the wait is over.
pub fn fetch(layers: &Layers, wait: Wait) -> anyhow::Result<BTreeMap<String, String>> {
    let name = &layers.identity().name;
    let auth_name: AuthName = name.parse().ok().with_context(|| format!("{name} is no entity"))?;
    let access = Access {
        name: auth_name.clone(),
        key: identity::own_key(&SessionOptions::read(layers), name)?,
        monitors: identity::monitors(layers)?,
        modes: Modes::Default,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // By default SIGHUP, which asks for a new log file, ends a process.
        let _hangup = signal(SignalKind::hangup())?;
        let mut host = ClientHost::new(&access)?;
        let mut attempt = FIRST_ATTEMPT;
        loop {
            match host.options_of(&auth_name, attempt).await {
                Ok(values) => return Ok(values),
                Err(error) if wait == Wait::FirstAttempt => return Err(error),
                Err(error) => tracing::warn!(
                    "{name} waits for its options from the monitors: {error:#} (--no-mon-config starts without them)"
                ),
            }
            attempt = ATTEMPT_MAX.min(attempt * 2);
        }
    })
}
