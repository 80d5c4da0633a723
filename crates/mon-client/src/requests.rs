//! Requests to the monitor that have no answer yet.

use super::{Effect, Effects};
use machine::net::NetEffect;
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use wire::messages::{Body, MMonGetVersion, Message};
use wire::types::Uuid;

/// A request to the monitor; its number is the message's tid (or handle).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

#[derive(Default)]
pub(super) struct Requests {
    asked: u64,
    open: BTreeMap<RequestId, Request>,
}

struct Request {
    body: Body,
    deadline: Option<Time>,
}

/// The handle of requests without a waiting caller.
const SIGN_OF_LIFE: u64 = 0;

/// Something small that every monitor answers.
pub(super) fn sign_of_life() -> Message {
    Message::new(MMonGetVersion { handle: SIGN_OF_LIFE, what: "monmap".into() })
}

impl Requests {
    pub(super) fn add(&mut self, body: Body, deadline: Option<Time>) -> RequestId {
        self.asked += 1;
        let id = RequestId(self.asked);
        self.open.insert(id, Request { body, deadline });
        id
    }

    /// False when there is no such request (any more).
    pub(super) fn remove(&mut self, id: RequestId) -> bool {
        self.open.remove(&id).is_some()
    }

    pub(super) fn send(&self, id: RequestId, conn: ConnId, fsid: Uuid, fx: &mut Effects<Effect>) {
        let Some(request) = self.open.get(&id) else { return };
        let mut body = request.body.clone();
        match &mut body {
            Body::MMonGetVersion(m) => m.handle = id.0,
            Body::MMonCommand(m) => m.fsid = fsid,
            Body::MCommand(m) => m.fsid = fsid,
            Body::MPoolOp(m) => m.fsid = fsid,
            Body::MStatfs(m) => m.fsid = fsid,
            Body::MGetPoolStats(m) => m.fsid = fsid,
            _ => {}
        }
        let message = Message::with_tid(id.0, body);
        fx.push(Effect::Net(NetEffect::Send { conn, message }));
    }

    pub(super) fn send_all(&self, conn: ConnId, fsid: Uuid, fx: &mut Effects<Effect>) {
        self.open.keys().for_each(|&id| self.send(id, conn, fsid, fx));
    }

    /// The request that a message answers, if it is an answer.
    pub(super) fn answered_by(&self, message: &Message) -> Option<RequestId> {
        let id = match &message.body {
            Body::MMonGetVersionReply(m) => m.handle,
            Body::MMonCommandAck(_)
            | Body::MCommandReply(_)
            | Body::MPoolOpReply(_)
            | Body::MStatfsReply(_)
            | Body::MGetPoolStatsReply(_) => message.tid,
            _ => return None,
        };
        (id != SIGN_OF_LIFE).then_some(RequestId(id))
    }

    /// Remove requests that have waited too long.
    pub(super) fn overdue(&mut self, now: Time) -> Vec<RequestId> {
        let late = |r: &Request| r.deadline.is_some_and(|d| d <= now);
        self.open.extract_if(.., |_, r| late(r)).map(|(id, _)| id).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.open.values().filter_map(|r| r.deadline).min()
    }
}
