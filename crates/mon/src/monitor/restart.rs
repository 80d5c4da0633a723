//! Commands `restart` that wait until the host has run the program that is installed now.

use super::{Effect, Monitor, Turn};
use command::restart::{Checked, answer_checked};
use machine::ConnId;
use wire::messages::{MCommandReply, Message};

/// Where a command came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Client { conn: ConnId, tid: u64 },
    Admin { id: u64 },
}

#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// The command that is under way is an admitted `restart`.
    is_asked: bool,
    waiting: Vec<Asker>,
}

impl Monitor {
    /// An admitted `restart`: its answer waits for the host.
    pub(super) fn ask_restart(&mut self, turn: &mut Turn<'_>) {
        self.restarts.is_asked = true;
        turn.effects.push(Effect::Restart);
    }

    /// True if the command that was just run is answered later, by [`Monitor::on_restart_checked`].
    pub(super) fn waits_for_check(&mut self, asker: Asker) -> bool {
        let waits = std::mem::take(&mut self.restarts.is_asked);
        if waits {
            self.restarts.waiting.push(asker);
        }
        waits
    }

    pub(super) fn on_restart_checked(&mut self, turn: &mut Turn<'_>, checked: &Checked) {
        let answer = answer_checked(checked);
        for asker in std::mem::take(&mut self.restarts.waiting) {
            match asker {
                Asker::Admin { id } => {
                    turn.effects.push(Effect::AdminAnswer { id, answer: answer.clone() });
                }
                Asker::Client { conn, tid } => {
                    let (result, status) = (answer.result, answer.status.clone());
                    let reply = MCommandReply { result, status, output: answer.body.clone() };
                    turn.send_message(conn, Message::with_tid(tid, reply));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::monitor::tests::Fixture;
    use crate::monitor::{AuthMode, Input};

    #[test]
    fn restart_is_answered_after_the_check() {
        let mut f = Fixture::new(AuthMode::None);
        for (checked, result) in [(Ok(()), 0), (Err("it fails".to_owned()), -command::errno::ENOEXEC)] {
            f.step(Input::Admin { id: 4, command: r#"{"prefix":"restart"}"#.to_owned() });
            assert!(f.answers.is_empty());
            f.step(Input::Admin { id: 5, command: r#"{"prefix":"version"}"#.to_owned() });
            assert_eq!(f.answers.pop_front().map(|(id, _)| id), Some(5));
            f.step(Input::RestartChecked(checked));
            let answered = f.answers.pop_front().map(|(id, answer)| (id, answer.result));
            assert_eq!(answered, Some((4, result)));
        }
    }
}
