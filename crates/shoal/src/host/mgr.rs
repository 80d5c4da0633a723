//! The manager's host: sockets. It runs in the monitor's process, on a reactor of its own.

use command::Answer;
use machine::net::NetEvent;
use machine::{Effects, Machine, Random, Time};
use mgr::{Config, Effect, ImagesNews, ImagesOrder, Input, Manager};
use runtime::system;
use runtime::{Role, Turn};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// A question of another thread to the manager.
pub enum Question {
    /// The manager's part of the Prometheus page. True: this manager is the active one.
    Metrics {
        reply: oneshot::Sender<(bool, String)>,
    },
    /// The answer to a command on block images.
    ImagesAnswer {
        number: u64,
        answer: Answer,
    },
    ImagesNews(ImagesNews),
    /// The process is to end; the answer comes when another manager may take over.
    Stop {
        reply: oneshot::Sender<()>,
    },
}

/// The role on the manager's one core. The machine sends at once, so it is made when the reactor starts.
pub struct MgrRole {
    start: Option<(Config, Random)>,
    manager: Option<Manager>,
    effects: Effects<Effect>,
    images: UnboundedSender<ImagesOrder>,
    /// The thread that waits for the end of [`Question::Stop`].
    stopper: Option<oneshot::Sender<()>>,
}

impl MgrRole {
    pub fn new(config: Config, random: Random, images: UnboundedSender<ImagesOrder>) -> MgrRole {
        MgrRole {
            start: Some((config, random)),
            manager: None,
            effects: Effects::new(),
            images,
            stopper: None,
        }
    }

    fn step(&mut self, input: Input, turn: &mut Turn<Question>) {
        let Some(manager) = &mut self.manager else { return };
        manager.step(turn.now(), input, &mut self.effects);
        if cfg!(debug_assertions) {
            manager.check();
        }
        self.carry_out(turn);
    }

    fn carry_out(&mut self, turn: &mut Turn<Question>) {
        for effect in self.effects.drain() {
            match effect {
                Effect::Net(effect) => turn.net(effect),
                Effect::Warn(text) => tracing::warn!("{text}"),
                // Its thread ends with this role.
                Effect::Images(order) => drop(self.images.send(order)),
                // The thread that asked may have stopped waiting.
                Effect::Stopped => drop(self.stopper.take().map(|reply| reply.send(()))),
            }
        }
    }
}

impl Role for MgrRole {
    type Hop = Question;

    fn on_start(&mut self, turn: &mut Turn<Question>) {
        if let Some((config, random)) = self.start.take() {
            let wall = system::wall_clock();
            self.manager = Some(Manager::new(config, turn.now(), wall, random, &mut self.effects));
            self.carry_out(turn);
        }
    }

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Question>) {
        self.step(Input::Net(event), turn);
    }

    fn on_hop(&mut self, question: Question, turn: &mut Turn<Question>) {
        match question {
            Question::Metrics { reply } => {
                let answer = self.manager.as_ref().map(|manager| (manager.is_active(), manager.metrics()));
                // The thread that asked may have stopped waiting.
                let _ = reply.send(answer.unwrap_or_default());
            }
            Question::ImagesAnswer { number, answer } => {
                self.step(Input::ImagesAnswer { number, answer }, turn);
            }
            Question::ImagesNews(news) => self.step(Input::ImagesNews(news), turn),
            Question::Stop { reply } => {
                self.stopper = Some(reply);
                self.step(Input::Stop, turn);
            }
        }
    }

    fn on_deadline(&mut self, turn: &mut Turn<Question>) {
        self.step(Input::Deadline { wall: system::wall_clock() }, turn);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.manager.as_ref().and_then(Manager::next_deadline)
    }
}
