//! Commands `restart` that wait until the host has run the program that is installed now.

use super::signals::Asker;
use super::{Control, Effect, Fx};
use command::restart::{self, Checked};
use command::{Answer, Args};

impl Control {
    /// `None`: the answer waits for the host.
    pub(super) fn ask_restart(&mut self, args: &Args, asker: Asker, fx: &mut Fx) -> Option<Answer> {
        if let Err(refusal) = restart::admit(args, self.config.metadata.get(restart::STARTED_AT)) {
            return Some(refusal);
        }
        self.restarts.push(asker);
        fx.push(Effect::Restart);
        None
    }

    pub(super) fn on_restart_checked(&mut self, checked: &Checked, fx: &mut Fx) {
        let answer = restart::answer_checked(checked);
        for asker in std::mem::take(&mut self.restarts) {
            self.answer_asker(asker, answer.clone(), fx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Input, testing};
    use super::*;
    use machine::{Effects, Machine, Random};

    fn step(control: &mut Control, input: Input) -> Vec<Effect> {
        let mut out = Effects::new();
        control.step(testing::NOW, input, &mut out);
        let is_of_restart = |effect: &Effect| {
            matches!(effect, Effect::Restart | Effect::AdminAnswer { .. } | Effect::Stopped)
        };
        out.take().into_iter().filter(is_of_restart).collect()
    }

    #[test]
    fn restart_is_answered_after_the_check() {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        for (checked, result) in [(Ok(()), 0), (Err("it fails".to_owned()), -command::errno::ENOEXEC)] {
            let command = r#"{"prefix":"restart"}"#.to_owned();
            let asked = step(&mut control, Input::Admin { id: 4, command });
            assert!(matches!(asked[..], [Effect::Restart]), "{asked:?}");
            let answered = step(&mut control, Input::RestartChecked(checked));
            let is_right =
                matches!(&answered[..], [Effect::AdminAnswer { id: 4, answer }] if answer.result == result);
            assert!(is_right, "{answered:?}");
        }
    }
}
