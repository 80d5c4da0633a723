//! Matching of a connecting peer with its session, and the winner of two crossing calls
//! (`ProtocolV2::handle_existing_connection`, `handle_reconnect`).
//!
//! A lossy session has no past: each ident begins a new one. A lossless session is found by the peer's address. Cookies tell
//! if the peer still has it, and the proven identity must be the one with which it was opened.

use super::endpoint::{Effect, Endpoint};
use super::state::{Return, Session, Stage};
use machine::ConnId;
use machine::Effects;
use machine::Time;
use machine::net::{CloseReason, NetEvent, Policy};
use wire::frames::Control;
use wire::types::{EntityAddr, EntityAddrVec, EntityName};

/// The use of a peer's new socket.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// A new session, under the id with which the socket was accepted.
    New,
    /// The old session ends, since its peer has lost it; then as `New`.
    Replace,
    /// The old session goes on over the new socket.
    Adopt,
    /// Our own call to the peer goes on; theirs waits.
    Wait,
    /// An attempt that was overtaken.
    Stale,
}

impl Endpoint {
    pub(super) fn on_identified(&mut self, now: Time, conn: ConnId, effects: &mut Effects<Effect>) {
        let Some(new) = self.sessions.get(&conn) else { return };
        let key = peer_key(&new.peer.addrs);
        let existing = match new.policy {
            Policy::Lossy => None,
            _ => self.by_peer.get(&key).copied().filter(|old| *old != conn),
        };
        let verdict = match existing.and_then(|old| self.sessions.get(&old)) {
            Some(old) if !old.is_with(&new.peer.identity) => {
                let why = format!("{} claims the address of {}", new.peer.identity.name(), old.peer.claimed);
                return self.close(conn, Some(CloseReason::Denied(why)), effects);
            }
            Some(old) => self.judge_ident(old, new),
            None => Verdict::New,
        };
        match (verdict, existing) {
            (Verdict::Adopt, Some(old)) => {
                self.adopt(conn, old, effects);
                self.with(now, old, effects, |s, cx| s.send_server_ident(cx));
                self.on_bytes(now, old, effects);
            }
            (Verdict::Wait, Some(old)) => {
                self.with(now, conn, effects, |s, _| s.control(Control::Wait));
                // Our own call may be in standby.
                self.with(now, old, effects, |s, cx| s.wake(cx.now));
            }
            (Verdict::Stale, _) => {
                self.close(conn, Some(CloseReason::Broken("overtaken by a newer attempt".into())), effects);
            }
            (verdict, existing) => {
                if let (Verdict::Replace, Some(old)) = (verdict, existing) {
                    self.close(old, Some(CloseReason::Reset), effects);
                }
                if self.sessions.get(&conn).is_some_and(|s| !s.is_lossy()) {
                    self.by_peer.insert(key, conn);
                } else if let Some(home) = self.next_home() {
                    return self.move_away(conn, home, effects);
                }
                self.with(now, conn, effects, |s, cx| s.send_server_ident(cx));
            }
        }
    }

    fn judge_ident(&self, old: &Session, new: &Session) -> Verdict {
        let settled = matches!(old.stage, Stage::Ready | Stage::Standby);
        let other_cookie = old.client_cookie != new.client_cookie;
        if old.peer_global_seq > new.peer_global_seq {
            let both = old.client_cookie != 0 && new.client_cookie != 0;
            return if both && other_cookie && !settled { Verdict::Replace } else { Verdict::Stale };
        }
        if old.server_cookie != 0 && old.client_cookie != 0 && other_cookie {
            return Verdict::Replace;
        }
        if !other_cookie || settled || old.policy == Policy::LosslessServer || self.peer_wins(&new.peer.addrs)
        {
            return Verdict::Adopt;
        }
        Verdict::Wait
    }

    pub(super) fn on_returned(
        &mut self,
        now: Time,
        conn: ConnId,
        back: Return,
        effects: &mut Effects<Effect>,
    ) {
        let existing = self.by_peer.get(&peer_key(&back.addrs)).copied().filter(|old| *old != conn);
        if let Some(old) = existing
            && let Err(why) = self.identify_returned(conn, old)
        {
            return self.close(conn, Some(CloseReason::Denied(why)), effects);
        }
        let answer = match existing.and_then(|old| self.sessions.get(&old)) {
            None => Err(Control::SessionReset { full: true }),
            Some(old) => self.judge_return(old, &back),
        };
        match (answer, existing) {
            (Err(refusal), _) => self.with(now, conn, effects, |s, _| s.control(refusal)),
            (Ok(()), None) => {}
            (Ok(()), Some(old)) => {
                self.adopt(conn, old, effects);
                self.with(now, old, effects, |s, cx| {
                    s.peer_global_seq = back.global_seq;
                    s.connect_seq = back.connect_seq;
                    s.on_acknowledged(back.message_seq);
                    s.send_reconnect_ok(cx);
                });
                self.on_bytes(now, old, effects);
            }
        }
    }

    /// A reconnecting peer sends no number, so the one of its session counts. It must be the peer that the session was
    /// opened with: cookies and addresses are no secrets.
    fn identify_returned(&mut self, conn: ConnId, old: ConnId) -> Result<(), String> {
        let Some(existing) = self.sessions.get(&old) else { return Ok(()) };
        let Some(new) = self.sessions.get(&conn) else { return Ok(()) };
        let proof = new.handshake.proof.clone().ok_or("it reconnects without authentication")?;
        let claim = EntityName::new(new.claim.kind, existing.claim.num);
        let identity = proof.identify(claim).map_err(|impostor| impostor.to_string())?;
        if !existing.is_with(&identity) {
            return Err(format!("{} reconnects to a session of {}", identity.name(), existing.peer.claimed));
        }
        if let Some(new) = self.sessions.get_mut(&conn) {
            new.peer.identity = identity;
        }
        Ok(())
    }

    fn judge_return(&self, old: &Session, back: &Return) -> Result<(), Control> {
        let other_server = old.server_cookie != 0 && old.server_cookie != back.server_cookie;
        if old.client_cookie != back.client_cookie || other_server {
            // A full reset makes the peer drop its unsent messages. Lossless peers keep them.
            return Err(Control::SessionReset { full: old.policy != Policy::LosslessPeer });
        }
        if old.server_cookie == 0 {
            return Err(Control::SessionReset { full: false });
        }
        if old.peer_global_seq > back.global_seq {
            return Err(Control::SessionRetryGlobal { global_seq: old.peer_global_seq });
        }
        if old.connect_seq > back.connect_seq {
            return Err(Control::SessionRetry { connect_seq: old.connect_seq });
        }
        let crossed = old.connect_seq == back.connect_seq && old.policy != Policy::LosslessServer;
        if crossed && !self.peer_wins(&back.addrs) && !matches!(old.stage, Stage::Ready | Stage::Standby) {
            return Err(Control::Wait);
        }
        Ok(())
    }

    /// Of two calls that cross, the one from the lower address goes on.
    fn peer_wins(&self, peer: &EntityAddrVec) -> bool {
        peer_key(peer) < peer_key(&self.config.addrs)
    }

    /// The session `old` goes on over the socket of `new`, which ends.
    fn adopt(&mut self, new: ConnId, old: ConnId, effects: &mut Effects<Effect>) {
        let Some(mut new) = self.forget(new) else { return };
        let Some(existing) = self.sessions.get_mut(&old) else { return };
        if let Some(t) = existing.transport.take() {
            self.sockets.remove(&t.socket);
            effects.push(Effect::Shut { socket: t.socket });
        }
        if let Some(t) = new.transport.take() {
            self.sockets.insert(t.socket, old);
            existing.transport = Some(t);
        }
        existing.stage = Stage::IdentAccepting;
        if new.client_cookie != 0 {
            existing.client_cookie = new.client_cookie;
            existing.peer_global_seq = new.peer_global_seq;
            existing.claim = new.claim;
            existing.peer.claimed = new.peer.claimed;
            existing.peer.features = new.peer.features;
        }
        existing.peer.identity = new.peer.identity;
        existing.peer.secure = new.peer.secure;
        existing.reading = new.reading;
        existing.last_heard = new.last_heard;
        existing.called_at = new.called_at;
        if new.was_announced {
            // The role judged it under its own id and must not wait for it.
            let why = CloseReason::Broken("continued under its session's id".into());
            effects.push(Effect::Event(NetEvent::Closed { conn: new.conn, why }));
        }
    }
}

/// The address that a peer's sessions are filed under.
pub(super) fn peer_key(addrs: &EntityAddrVec) -> EntityAddr {
    addrs.msgr2().or_else(|| addrs.0.first().copied()).unwrap_or_default()
}
