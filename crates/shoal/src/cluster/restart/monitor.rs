//! One step of a restart: a monitor, with the manager in its process.

use super::Restart;
use crate::cluster::ask::{Refused, tell_monitor};
use crate::cluster::facts::Facts;
use anyhow::Context;
use command::errno::ESTALE;
use command::restart::STARTED_AT;
use serde_json::{Value, json};
use std::time::Instant;

/// The command for a daemon that started at this time. `None`: its version does not tell.
pub fn order_of(started_at: Option<&String>) -> Value {
    let mut order = json!({ "prefix": "restart" });
    if let Some(at) = started_at {
        order[STARTED_AT] = at.as_str().into();
    }
    order
}

impl Restart<'_> {
    /// Takes the next monitor out of `pending`: one that leads, or hosts the active manager, waits for the others.
    pub fn next_monitor(&mut self, pending: &mut Vec<String>) -> anyhow::Result<Option<String>> {
        if pending.is_empty() {
            return Ok(None);
        }
        let mut facts = Facts::default();
        facts.read_monitors(&mut self.asker)?;
        let place =
            (0..pending.len()).min_by_key(|n| (pending[*n] == facts.leader, pending[*n] == facts.manager));
        Ok(place.map(|place| pending.remove(place)))
    }

    pub fn restart_monitor(&mut self, name: &str) -> anyhow::Result<()> {
        self.progress.check_interrupt()?;
        let Restart { asker, access, order, progress, .. } = self;
        let before = progress.until("the quorum", order.patience, || {
            let mut facts = Facts::default();
            facts.read_monitors(asker)?;
            let missing: Vec<&str> = facts
                .monitors
                .keys()
                .filter(|name| !facts.quorum.contains(*name))
                .map(String::as_str)
                .collect();
            match order.force || missing.is_empty() {
                true => Ok(Ok(facts)),
                false => Ok(Err(format!("out of the quorum: {}", missing.join(", ")))),
            }
        })?;
        let monitor =
            before.monitors.get(name).with_context(|| format!("mon.{name} is no monitor any more"))?;
        let began = Instant::now();
        match tell_monitor(access, monitor.addr, &order_of(monitor.started_at.as_ref())) {
            Ok(()) => {}
            Err(error) => match error.downcast_ref::<Refused>() {
                // It has restarted since.
                Some(refused) if refused.errno == ESTALE => {}
                Some(_) => return Err(error.context(format!("mon.{name}"))),
                // Its answer may have been lost with the connection. The wait shows whether it obeyed.
                None => progress.say(&format!("mon.{name} does not answer: {error:#}")),
            },
        }
        let what = format!("mon.{name}");
        progress.until(&what, order.patience, || {
            let mut now = Facts::default();
            // Between two leaders no monitor answers, and this waits as long as it takes them.
            now.read_monitors(asker)?;
            Ok(match is_back(&before, &now, name) {
                None => Ok(()),
                Some(why) => Err(why),
            })
        })?;
        progress.say(&format!("mon.{name} restarted, back after {:.1} s", began.elapsed().as_secs_f64()));
        Ok(())
    }
}

/// The reason why a monitor's restart is not over yet.
fn is_back(before: &Facts, now: &Facts, name: &str) -> Option<String> {
    let Some(monitor) = now.monitors.get(name) else {
        return Some(format!("mon.{name} is no monitor any more"));
    };
    if monitor.started_at == before.monitors[name].started_at {
        return Some(format!("mon.{name} has not started again"));
    }
    if let Some(other) = before.quorum.iter().find(|other| !now.quorum.contains(*other)) {
        return Some(format!("mon.{other} is out of the quorum"));
    }
    if now.manager.is_empty() && !before.manager.is_empty() {
        return Some("no manager is active".into());
    }
    // Until the new one has spoken, the monitors have the manager of before.
    let is_missing = |old| now.managers.get(name).is_none_or(|new| new == old);
    before.managers.get(name).is_some_and(is_missing).then(|| format!("mgr.{name} has not come back"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::facts::tests::facts;

    #[test]
    fn monitor_is_back_with_its_manager_and_the_whole_quorum() {
        let before = facts();
        let mut now = before.clone();
        let why = |now: &Facts| is_back(&before, now, "a").unwrap_or_default();
        assert_eq!(why(&now), "mon.a has not started again");
        now.monitors.get_mut("a").unwrap().started_at = Some("later".into());
        assert_eq!(why(&now), "mgr.a has not come back");
        now.managers.insert("a".into(), 4);
        assert_eq!(why(&now), "");
        now.managers.remove("a");
        assert_eq!(why(&now), "mgr.a has not come back");
        now.manager.clear();
        assert_eq!(why(&now), "no manager is active");
        now.quorum.remove("c");
        assert_eq!(why(&now), "mon.c is out of the quorum");
    }
}
