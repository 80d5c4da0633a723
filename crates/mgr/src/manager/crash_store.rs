//! Crash reports in the monitors' config-key store. The manager reads all of them at every new session. A change counts when the
//! monitors have acknowledged it.

use super::asked::{Caller, MONITOR_TIMEOUT, monitors_answer};
use super::{Effect, Fx, Manager};
use crate::crashes::{Change, Crashes, PREFIX};
use command::{Answer, object};
use machine::Time;
use mon_client::{RequestId, TimedOut};
use std::collections::BTreeMap;
use wire::messages::Body;

/// Old reports whose removal is under way at a time.
const PRUNED_AT_ONCE: usize = 16;
/// The number of changes that no command has asked for.
const NO_COMMAND: u64 = 0;

#[derive(Default)]
pub(super) struct CrashStore {
    pub crashes: Crashes,
    /// The question for all that the monitors keep.
    asked: Option<RequestId>,
    /// Changes that the monitors have not answered, each with the command that it is a part of.
    under_way: BTreeMap<RequestId, (Change, u64)>,
    commands: BTreeMap<u64, Command>,
    last_command: u64,
}

/// A client's command whose changes are under way.
struct Command {
    caller: Caller,
    left: usize,
    /// The first refusal of the monitors.
    answer: Answer,
}

impl Manager {
    pub(super) fn read_crashes(&mut self, now: Time, fx: Fx<'_>) {
        if self.crash_store.asked.is_none() {
            let dump = object! { "prefix" => "config-key dump", "key" => PREFIX };
            self.crash_store.asked = self.request_command(now, &dump, MONITOR_TIMEOUT, fx);
        }
    }

    /// Asks the monitors for these changes. The client is answered when they have answered each.
    pub(super) fn change_crashes(&mut self, now: Time, caller: Caller, changes: Vec<Change>, fx: Fx<'_>) {
        if changes.is_empty() {
            return fx.push(caller.reply(Answer::ok("")));
        }
        self.crash_store.last_command += 1;
        let number = self.crash_store.last_command;
        let command = Command { caller, left: changes.len(), answer: Answer::ok("") };
        self.crash_store.commands.insert(number, command);
        for change in changes {
            self.request_change(now, change, number, fx);
        }
    }

    /// Has the monitors remove reports that are older than `mgr/crash/retain_interval`, some at a time.
    pub(super) fn prune_crashes(&mut self, now: Time, fx: Fx<'_>) {
        if !self.crash_store.under_way.is_empty() {
            return;
        }
        let seconds = self.options.crash_retain_interval.as_secs().try_into().unwrap_or(i64::MAX);
        let old = self.crash_store.crashes.older_than(self.clock.at(now), seconds);
        let old: Vec<String> = old.into_iter().take(PRUNED_AT_ONCE).map(|report| report.id.clone()).collect();
        for id in old {
            self.request_change(now, Change::Remove(id), NO_COMMAND, fx);
        }
    }

    fn request_change(&mut self, now: Time, change: Change, number: u64, fx: Fx<'_>) {
        let ask = match &change {
            Change::Put(report) => {
                let key = format!("{PREFIX}{}", report.id);
                object! { "prefix" => "config-key set", "key" => key, "val" => report.to_text() }
            }
            Change::Remove(id) => {
                object! { "prefix" => "config-key rm", "key" => format!("{PREFIX}{id}") }
            }
        };
        let asked = self.request_command(now, &ask, MONITOR_TIMEOUT, fx);
        self.crash_store.under_way.extend(asked.map(|id| (id, (change, number))));
    }

    /// True if the answer belongs to a question of this module.
    pub(super) fn on_crash_answer(
        &mut self,
        now: Time,
        id: RequestId,
        answer: &Result<Body, TimedOut>,
        fx: Fx<'_>,
    ) -> bool {
        if self.crash_store.asked == Some(id) {
            self.crash_store.asked = None;
            self.on_crashes_read(answer, fx);
            self.note_news(now);
            return true;
        }
        let Some((change, number)) = self.crash_store.under_way.remove(&id) else { return false };
        let answer = monitors_answer(answer, "");
        let refusal = (answer.result != 0).then_some(answer);
        if refusal.is_none() {
            self.crash_store.crashes.apply(change);
            self.note_news(now);
        }
        let Some(command) = self.crash_store.commands.get_mut(&number) else { return true };
        command.left -= 1;
        if command.answer.result == 0 {
            command.answer = refusal.unwrap_or_default();
        }
        if command.left == 0 {
            let Some(Command { caller, answer, .. }) = self.crash_store.commands.remove(&number) else {
                return true;
            };
            // The client may have gone meanwhile.
            if self.peers.contains_key(&caller.conn) {
                fx.push(caller.reply(answer));
            }
        }
        true
    }

    fn on_crashes_read(&mut self, answer: &Result<Body, TimedOut>, fx: Fx<'_>) {
        let answer = monitors_answer(answer, "");
        if answer.result != 0 {
            let why = answer.status;
            return fx.push(Effect::Warn(format!("crash reports cannot be read from the monitors: {why}")));
        }
        let problem = match self.crash_store.crashes.load(&answer.body) {
            Err(why) => format!("crash reports cannot be read from the monitors: {why}"),
            Ok(damaged) if damaged.is_empty() => return,
            Ok(damaged) => {
                format!("not crash reports: {}; remove them with `ceph config-key rm`", damaged.join(", "))
            }
        };
        fx.push(Effect::Warn(problem));
    }
}

#[cfg(test)]
mod tests {
    use super::super::asked::tests::{CLIENT, answers, command_with, served};
    use super::*;
    use crate::crashes::Report;
    use crate::fixture::text;
    use bytes::Bytes;
    use command::errno;
    use machine::Effects;
    use wire::messages::{MMonCommandAck, PaxosHeader};
    use wire::types::UTime;

    const REPORT: &str =
        r#"{"crash_id":"x","timestamp":"2026-01-01T00:00:00.000000Z","entity_name":"osd.1"}"#;

    fn ask(manager: &mut Manager, command: &str) -> Vec<Answer> {
        answers(command_with(manager, command, REPORT.as_bytes()))
    }

    /// The monitors answer the oldest question.
    fn kept(manager: &mut Manager, result: i32, output: &'static str) -> Vec<Answer> {
        let asked = manager.crash_store.asked.or(manager.crash_store.under_way.keys().next().copied());
        let ack = MMonCommandAck {
            paxos: PaxosHeader::default(),
            result,
            status: "as the monitors say".into(),
            command: Vec::new(),
            output: Bytes::from_static(output.as_bytes()),
        };
        let mut fx = Effects::new();
        assert!(manager.on_crash_answer(Time(6), asked.expect("a question"), &Ok(ack.into()), &mut fx));
        answers(fx.take())
    }

    fn loaded() -> Manager {
        let mut manager = served();
        manager.read_crashes(Time(5), &mut Effects::new());
        kept(&mut manager, 0, "{}");
        manager
    }

    #[test]
    fn crash_commands_before_load_get_eagain() {
        let mut manager = served();
        assert_eq!(ask(&mut manager, r#"{"prefix":"crash post"}"#)[0].result, -errno::EAGAIN);
        assert_eq!(ask(&mut manager, r#"{"prefix":"crash ls"}"#)[0].result, -errno::EAGAIN);
        manager.read_crashes(Time(5), &mut Effects::new());
        kept(&mut manager, -errno::EACCES, "{}");
        assert!(!manager.crash_store.crashes.is_loaded(), "refused is not empty");
        manager.read_crashes(Time(5), &mut Effects::new());
        kept(&mut manager, 0, "{}");
        assert_eq!(ask(&mut manager, r#"{"prefix":"crash ls"}"#)[0], Answer::ok(""));
    }

    #[test]
    fn posted_report_is_listed_after_commit() {
        let mut manager = loaded();
        assert_eq!(ask(&mut manager, r#"{"prefix":"crash post"}"#), []);
        assert_eq!(ask(&mut manager, r#"{"prefix":"crash ls"}"#)[0], Answer::ok(""));
        assert_eq!(kept(&mut manager, -errno::ENOSPC, "")[0].result, -errno::ENOSPC);
        assert_eq!(ask(&mut manager, r#"{"prefix":"crash ls"}"#)[0], Answer::ok(""));
        ask(&mut manager, r#"{"prefix":"crash post"}"#);
        assert_eq!(kept(&mut manager, 0, ""), [Answer::ok("")]);
        assert_eq!(
            text(&ask(&mut manager, r#"{"prefix":"crash ls"}"#)[0]),
            "ID  ENTITY  NEW  \nx   osd.1    *   \n"
        );
        assert_eq!(ask(&mut manager, r#"{"prefix":"crash post"}"#), [Answer::ok("")], "it is known");
        assert!(manager.crash_store.under_way.is_empty());
    }

    #[test]
    fn prune_of_many_reports_is_answered_once() {
        let mut manager = loaded();
        for id in ["a", "b", "c"] {
            let report = REPORT.replace("\"x\"", &format!("\"{id}\""));
            command_with(&mut manager, r#"{"prefix":"crash post"}"#, report.as_bytes());
            kept(&mut manager, 0, "");
        }
        let prune = r#"{"prefix":"crash prune","keep":"-100000"}"#;
        assert_eq!(ask(&mut manager, prune), []);
        assert_eq!(kept(&mut manager, 0, ""), []);
        assert_eq!(kept(&mut manager, -errno::EACCES, ""), []);
        assert_eq!(kept(&mut manager, 0, "")[0].result, -errno::EACCES);
        assert_eq!(manager.crash_store.crashes.by_time().len(), 1);
        assert_eq!(ask(&mut manager, prune), []);
        manager.on_peer_gone(CLIENT);
        assert_eq!(kept(&mut manager, 0, ""), [], "the client is gone");
        assert_eq!(manager.crash_store.crashes.by_time().len(), 0, "the change counts all the same");
        assert!(manager.crash_store.commands.is_empty());
    }

    #[test]
    fn reports_are_removed_after_the_retain_interval() {
        let mut manager = loaded();
        manager.crash_store.crashes.apply(Change::Put(Report::parse(REPORT.as_bytes()).unwrap()));
        let at = manager.crash_store.crashes.by_time()[0].at;
        let year = 365 * 86_400;
        for (age, is_removed) in [(year - 60, false), (year + 60, true)] {
            manager.clock.follow(Time(5), UTime { sec: at.sec + age, nsec: 0 });
            manager.prune_crashes(Time(5), &mut Effects::new());
            assert_eq!(manager.crash_store.under_way.len(), usize::from(is_removed), "{age}");
        }
        manager.prune_crashes(Time(5), &mut Effects::new());
        assert_eq!(manager.crash_store.under_way.len(), 1, "it is under way");
        assert_eq!(kept(&mut manager, 0, ""), []);
        assert!(manager.crash_store.crashes.by_time().is_empty());
    }

    #[test]
    fn daemon_posts_reports_of_itself_without_capability() {
        for (name, entity, result) in [
            ("osd.1", "osd.1", None),
            ("osd.1", "osd.2", Some(-errno::EACCES)),
            ("mon.", "mgr.a", None),
            ("mgr.a", "mon.a", Some(-errno::EACCES)),
            ("client.x", "client.x", Some(-errno::EACCES)),
        ] {
            let mut manager = loaded();
            let peer = super::super::senders_tests::peer(&name.parse().unwrap(), Some(""));
            manager.on_peer(CLIENT, peer, &mut Effects::new());
            let report = REPORT.replace("osd.1", entity);
            let answered = command_with(&mut manager, r#"{"prefix":"crash post"}"#, report.as_bytes());
            let refusal = answers(answered).first().map(|answer| answer.result);
            assert_eq!(
                (refusal, manager.crash_store.under_way.len()),
                (result, usize::from(result.is_none())),
                "{name} {entity}"
            );
        }
    }
}
