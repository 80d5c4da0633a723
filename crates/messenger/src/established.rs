//! Frames of a ready session, and those common to all stages: signatures, messages, acks, keepalives.

use super::state::{Cx, Fault, Next, Session, Stage};
use machine::net::{Held, NetEvent};
use wire::cephx::is_same_secret;
use wire::frames::{Control, Frame, Side, Tag};
use wire::messages::{Body, Message};

impl Session {
    /// Process all received bytes. Stops early for a decision of the endpoint or the role.
    pub(super) fn on_bytes(&mut self, cx: &mut Cx<'_>) -> Result<Next, Fault> {
        loop {
            let Some(t) = &mut self.transport else { return Ok(Next::Go) };
            if self.stage == Stage::Judging || self.stage == Stage::Opening {
                return Ok(Next::Go);
            }
            if !t.is_banner_seen() {
                if !t.take_banner().map_err(Fault::protocol)? {
                    return Ok(Next::Go);
                }
                match t.side {
                    Side::Connecting => self.on_banner_connecting(cx),
                    Side::Accepting => self.on_banner_accepting(cx),
                }
                continue;
            }
            let (frame, large) = (t.frames_taken(), t.large_len());
            self.has_more = self.stage == Stage::Ready && self.is_choked(cx);
            if self.has_more {
                return Ok(Next::Go);
            }
            if self.is_metered() && !cx.inflow.admits(self.conn, &mut self.share, frame, large) {
                return Ok(Next::Go);
            }
            let Some(t) = &mut self.transport else { return Ok(Next::Go) };
            let Some(frame) = t.next_frame().map_err(Fault::protocol)? else { return Ok(Next::Go) };
            match self.on_frame(frame, cx)? {
                Next::Go => {}
                decide => return Ok(decide),
            }
        }
    }

    fn on_frame(&mut self, frame: Frame, cx: &mut Cx<'_>) -> Result<Next, Fault> {
        if frame.tag == Tag::MESSAGE {
            return self.on_message(frame, cx);
        }
        let control = frame.control().map_err(|e| Fault::protocol(e.to_string()))?;
        match (self.stage, control) {
            (Stage::Signing { expected }, Control::AuthSignature { signature }) => {
                if !is_same_secret(&signature, &expected) {
                    return Err(Fault::denied("the transcript's signature is wrong"));
                }
                let side = self.transport.as_mut().map(|t| {
                    t.trust(cx.config.message_len_max);
                    t.side
                });
                match side {
                    Some(Side::Connecting) => self.on_signed_connecting(cx),
                    _ => self.stage = Stage::IdentAccepting,
                }
            }
            (Stage::Ready, Control::Keepalive2 { stamp }) => self.control(Control::Keepalive2Ack { stamp }),
            (Stage::Ready, Control::Keepalive2Ack { .. }) => {}
            (Stage::Ready, Control::Ack { seq }) => self.on_acknowledged(seq),
            (_, control) => {
                return match self.transport.as_ref().map(|t| t.side) {
                    Some(Side::Connecting) => self.on_frame_connecting(control, cx),
                    _ => self.on_frame_accepting(control, cx),
                };
            }
        }
        Ok(Next::Go)
    }

    fn on_message(&mut self, frame: Frame, cx: &mut Cx<'_>) -> Result<Next, Fault> {
        if self.stage != Stage::Ready {
            return Err(Fault::protocol(format!("a message while in {:?}", self.stage)));
        }
        let (header, payload) = frame.message().map_err(|e| Fault::protocol(e.to_string()))?;
        self.on_acknowledged(header.ack_seq);
        if header.seq <= self.in_seq {
            // A replay of a message that was handled before.
            return Ok(Next::Go);
        }
        let payload_len = payload.len();
        let message = Message::decode(&header.header, payload).map_err(|e| {
            let name = wire::messages::name_of(header.header.kind);
            Fault::protocol(format!("message {} ({name}): {e}", header.header.kind))
        })?;
        self.in_seq = header.seq;
        self.ack_due = !self.is_lossy();
        let held = match self.is_metered() {
            true => cx.inflow.hold(&self.share, payload_len, asked_len(&message)),
            false => Held::default(),
        };
        cx.event(NetEvent::Message { conn: self.conn, message, held });
        Ok(Next::Go)
    }

    /// Sign the received bytes, and wait for the peer's signature of ours.
    pub(super) fn sign(&mut self, mode: u32, secret: &[u8]) -> Result<(), Fault> {
        let key = self.handshake.session_key.as_ref();
        let t = self.transport.as_mut().ok_or_else(|| Fault::protocol("no socket to sign for"))?;
        let expected = t.sign(key, mode, secret).map_err(Fault::protocol)?;
        self.stage = Stage::Signing { expected };
        Ok(())
    }
}

/// Bytes that the message asks to be read into memory.
fn asked_len(message: &Message) -> usize {
    match &message.body {
        Body::MOSDOp(op) => op.asked_len(),
        _ => 0,
    }
}
