//! Keeps the manager of a monitor's process running: a manager that panics starts again, and the monitor goes on.
//!
//! With stock, the manager is a process, which its supervisor starts again. Here a defect of the manager must not take its monitor
//! down: the next monitor's manager would become active, meet the same defect, and the quorum would be lost.

use super::mgr::Question;
use runtime::{Mailbox, Reactors};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wait before a manager starts again, and the limit of the doubled waits.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A manager that ran this long begins with the first wait again.
const STEADY: Duration = Duration::from_secs(600);

/// The mailbox of the manager that runs now.
#[derive(Default)]
pub struct Slot(Mutex<Option<Mailbox<Question>>>);

impl Slot {
    pub fn get(&self) -> Option<Mailbox<Question>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, mailbox: Option<Mailbox<Question>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = mailbox;
    }
}

/// Runs managers, one after the other, until the sender of `stopped` is gone. Its owner stops the manager in `slot` then.
pub fn keep(
    slot: &Slot,
    stopped: &Receiver<()>,
    first: Reactors<Question>,
    mut start: impl FnMut() -> anyhow::Result<Option<Reactors<Question>>>,
) {
    let mut pause = PAUSE;
    let mut next = Some(first);
    loop {
        if let Some(running) = next.take() {
            let since = Instant::now();
            slot.set(running.mailboxes().first().cloned());
            // Whoever stopped us before this line saw an older manager.
            if stopped.try_recv() != Err(TryRecvError::Empty) {
                running.stop();
            }
            let is_clean = running.join();
            slot.set(None);
            if is_clean {
                return;
            }
            if since.elapsed() > STEADY {
                pause = PAUSE;
            }
        }
        tracing::error!("the manager failed, and starts again in {} s", pause.as_secs());
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        pause = PAUSE_MAX.min(pause * 2);
        match start() {
            Ok(manager) => next = manager,
            Err(error) => tracing::error!("the manager does not start: {error:#}"),
        }
    }
}
