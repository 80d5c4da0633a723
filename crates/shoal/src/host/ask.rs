//! Questions of other threads to a role: mail with a channel for the answer.

use crate::daemon::admin_socket::Reply;
use command::Answer;
use command::perf::{Counter, Reading};
use serde_json::Value;
use tokio::sync::oneshot;

/// A question of the side thread to a daemon's machines.
pub enum Question {
    /// A command as JSON text, as it arrived.
    Command {
        text: String,
        reply: oneshot::Sender<Reply>,
    },
    Counters {
        reply: oneshot::Sender<Vec<Counter>>,
    },
}

/// Asks, and awaits the answer. `None` when the daemon is stopping.
pub async fn ask<T>(post: impl FnOnce(oneshot::Sender<T>)) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    post(reply);
    answer.await.ok()
}

/// A machine's answer as the admin socket gives it.
pub fn to_reply(answer: &Answer) -> Reply {
    if answer.result != 0 {
        return Reply::Error(-answer.result, answer.status.clone());
    }
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(value) => Reply::Json(value),
        Err(_) if answer.body.is_empty() => Reply::Text(answer.status.clone()),
        Err(_) => Reply::Text(String::from_utf8_lossy(&answer.body).into_owned()),
    }
}

/// Counters of the reactor, group `reactor`.
pub fn reactor_counters(counters: &runtime::Counters) -> impl Iterator<Item = Counter> {
    let row = |(name, value)| Counter::own("reactor", name, "of the event loop", Reading::Total(value));
    counters.read().into_iter().map(row)
}
