//! A manager's clean stop: it asks the monitors to forget it first, so that another manager takes over at once, and not after
//! `mon_mgr_beacon_grace`.

use super::{Effect, Fx, Manager};
use command::object;
use machine::Time;
use mon_client::RequestId;
use std::time::Duration;
use wire::types::MgrMap;

/// A manager that has no answer of the monitors by then stops all the same.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stopping {
    #[default]
    NotAsked,
    Told(RequestId),
    Done,
}

/// True if the map has a manager with another global id.
pub(super) fn has_others(map: &MgrMap, gid: u64) -> bool {
    (map.active_gid != 0 && map.active_gid != gid) || map.standbys.keys().any(|other| *other != gid)
}

impl Manager {
    /// A manager that no other can replace stays in the map: its next life takes the place of this one.
    pub(super) fn begin_stop(&mut self, now: Time, fx: Fx<'_>) {
        if self.stopping != Stopping::NotAsked {
            return;
        }
        if !self.has_others {
            return self.finish_stop(fx);
        }
        let fail = object! { "prefix" => "mgr fail", "who" => self.session.global_id().to_string() };
        match self.request_command(now, &fail, FAREWELL_MAX, fx) {
            Some(asked) => self.stopping = Stopping::Told(asked),
            None => self.finish_stop(fx),
        }
    }

    /// True when it was the answer to the farewell.
    pub(super) fn on_farewell_answer(&mut self, id: RequestId, fx: Fx<'_>) -> bool {
        let is_mine = self.stopping == Stopping::Told(id);
        if is_mine {
            self.finish_stop(fx);
        }
        is_mine
    }

    fn finish_stop(&mut self, fx: Fx<'_>) {
        self.stopping = Stopping::Done;
        fx.push(Effect::Stopped);
    }
}

#[cfg(test)]
mod tests {
    use super::super::asked::tests::served;
    use super::*;
    use machine::Effects;
    use mon_client::TimedOut;
    use wire::types::ManagerStandby;

    fn stops(manager: &mut Manager) -> bool {
        let mut fx = Effects::new();
        manager.begin_stop(Time(5), &mut fx);
        fx.take().iter().any(|effect| matches!(effect, Effect::Stopped))
    }

    #[test]
    fn manager_without_others_stops_at_once_and_keeps_its_role() {
        let mut manager = served();
        assert!(stops(&mut manager));
        assert!(!stops(&mut manager), "it is told once");
    }

    #[test]
    fn manager_asks_to_be_forgotten_and_stops_with_the_answer() {
        let mut manager = served();
        manager.has_others = true;
        assert!(!stops(&mut manager), "the monitors have not answered");
        let Stopping::Told(asked) = manager.stopping else { panic!("nothing was asked") };
        let mut fx = Effects::new();
        manager.on_session(Time(6), mon_client::Event::Answer { id: asked, answer: Err(TimedOut) }, &mut fx);
        assert!(matches!(fx.take()[..], [Effect::Stopped]));
        let next =
            manager.request_command(Time(7), &object! { "prefix" => "mgr stat" }, FAREWELL_MAX, &mut fx);
        assert!(!manager.on_farewell_answer(next.expect("a question"), &mut fx));
    }

    #[test]
    fn others_are_an_active_manager_or_one_that_waits() {
        let mut map = MgrMap::default();
        assert!(!has_others(&map, 7));
        map.active_gid = 7;
        assert!(!has_others(&map, 7));
        assert!(has_others(&map, 8));
        let standby = |gid| (gid, ManagerStandby { gid, name: "b".into(), modules: Vec::new(), features: 0 });
        map.standbys = [standby(8)].into();
        assert!(has_others(&map, 7));
        map.active_gid = 0;
        assert!(!has_others(&map, 8), "its own life alone");
    }
}
