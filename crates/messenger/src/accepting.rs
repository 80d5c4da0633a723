//! The handshake of the side that accepts.

use super::state::{Cx, Fault, Next, Return, Session, Stage};
use bytes::Bytes;
use codec::Features;
use machine::identity::{ClaimedName, Method, Proof};
use machine::net::{AuthReply, AuthRequest, NetEvent};
use wire::cephx::{
    AuthName, ChallengeOrReply, METHOD_CEPHX, METHOD_NONE, MODE_AUTHORIZER, MODE_MON, Secret, Verifier,
};
use wire::frames::{CONNECT_LOSSY, CONNECTION_SECRET_LEN, Control, MODE_SECURE};
use wire::types::{EntityAddr, EntityKind, EntityName};

const EACCES: i32 = -13;
const EOPNOTSUPP: i32 = -95;
/// The payload modes that mean "to a monitor" (`AUTH_MODE_MON_MAX`).
const MODE_MON_LAST: u8 = 19;

impl Session {
    pub(super) fn on_banner_accepting(&mut self, cx: &mut Cx<'_>) {
        let peer_addr = self.peer.socket;
        self.control(Control::Hello { kind: cx.config.name.kind, peer_addr });
    }

    pub(super) fn on_frame_accepting(&mut self, frame: Control, cx: &mut Cx<'_>) -> Result<Next, Fault> {
        match (self.stage, frame) {
            (Stage::Hello, Control::Hello { kind, .. }) => {
                self.claim.kind = kind;
                self.stage = Stage::AuthAccepting { more: false };
            }
            // A peer may begin again after AUTH_BAD_METHOD; the transcript's bound ends it.
            (Stage::AuthAccepting { .. }, Control::AuthRequest { method, preferred_modes, payload }) => {
                self.on_auth_request(method, &preferred_modes, payload, cx)?;
            }
            (Stage::AuthAccepting { more: true }, Control::AuthRequestMore { payload }) => {
                self.judge(false, payload, cx)?;
            }
            (
                Stage::IdentAccepting,
                Control::ClientIdent { addrs, target, id, global_seq, supported, flags, cookie, .. },
            ) => {
                if addrs.0.first().is_none_or(|a| *a == EntityAddr::default()) {
                    return Err(Fault::protocol("a peer without an address"));
                }
                if cx.config.addrs_with(&target).is_none() {
                    return Err(Fault::protocol(format!(
                        "the peer wants {target}, and we are {}",
                        cx.config.addrs
                    )));
                }
                self.called_at = Some(target);
                let missing = Features(cx.config.required.0 & !supported.0);
                if missing != Features::NONE {
                    self.control(Control::IdentMissingFeatures { features: missing });
                    return Ok(Next::Go);
                }
                self.claim.num = id;
                self.peer.claimed = ClaimedName::new(self.claim);
                let proof = self.handshake.proof.take();
                let proof = proof.ok_or_else(|| Fault::protocol("an ident without authentication"))?;
                self.peer.identity = proof.identify(self.number_to_prove(cx))?;
                self.policy = cx.config.accept_policy(self.peer.identity.role());
                self.peer.addrs = addrs;
                self.peer.features = Features(supported.0 & cx.config.supported.0);
                self.peer_global_seq = global_seq;
                self.client_cookie = cookie;
                // A peer may choose to lose its session.
                if flags & CONNECT_LOSSY != 0 {
                    self.policy = machine::net::Policy::Lossy;
                }
                return Ok(Next::Identified);
            }
            (
                Stage::IdentAccepting,
                Control::SessionReconnect {
                    addrs,
                    client_cookie,
                    server_cookie,
                    global_seq,
                    connect_seq,
                    message_seq,
                },
            ) => {
                return Ok(Next::Returned(Return {
                    addrs,
                    client_cookie,
                    server_cookie,
                    global_seq,
                    connect_seq,
                    message_seq,
                }));
            }
            (stage, frame) => {
                return Err(Fault::protocol(format!("{:?} while in {stage:?}", frame.tag())));
            }
        }
        Ok(Next::Go)
    }

    fn on_auth_request(
        &mut self,
        method: u32,
        preferred_modes: &[u32],
        payload: Bytes,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        let allowed = cx.config.modes.between(cx.config.name.kind, self.claim.kind, method);
        let mode = preferred_modes.iter().copied().find(|m| allowed.contains(m));
        self.handshake.method = method;
        self.handshake.challenge = None;
        match mode {
            Some(mode) if cx.config.methods.contains(&method) => {
                self.handshake.mode = mode;
                self.judge(true, payload, cx)
            }
            _ => {
                self.send_bad_method(EOPNOTSUPP, cx);
                Ok(())
            }
        }
    }

    /// One turn of authentication: by the role where we are a monitor and addressed as one, by the ticket otherwise.
    fn judge(&mut self, first: bool, payload: Bytes, cx: &mut Cx<'_>) -> Result<(), Fault> {
        let is_mon = cx.config.name.kind == EntityKind::MON;
        let for_mon = !first || payload.first().is_some_and(|m| (MODE_MON..=MODE_MON_LAST).contains(m));
        if is_mon && for_mon && self.handshake.challenge.is_none() {
            let request = AuthRequest {
                method: self.handshake.method,
                first,
                payload,
                peer_kind: self.claim.kind,
                peer_addr: self.peer.socket,
                mode: self.handshake.mode,
            };
            self.stage = Stage::Judging;
            self.was_announced = true;
            cx.event(NetEvent::Auth { conn: self.conn, request: Box::new(request) });
            return Ok(());
        }
        match self.handshake.method {
            METHOD_NONE => self.judge_none(&payload, cx),
            METHOD_CEPHX => self.judge_authorizer(&payload, cx),
            _ => {
                self.send_bad_method(EOPNOTSUPP, cx);
                Ok(())
            }
        }
    }

    fn judge_none(&mut self, payload: &[u8], cx: &mut Cx<'_>) -> Result<(), Fault> {
        let mut r = codec::Reader::new(payload);
        let parsed = (|| Ok::<_, codec::DecodeError>((r.u8()?, r.get::<AuthName>()?, r.u64()?)))();
        let Ok((MODE_AUTHORIZER, name, global_id)) = parsed else {
            self.send_bad_method(EACCES, cx);
            return Ok(());
        };
        self.send_auth_done(Proof::none(name, global_id), Bytes::new(), &[], cx)
    }

    fn judge_authorizer(&mut self, payload: &[u8], cx: &mut Cx<'_>) -> Result<(), Fault> {
        let mut secret = Secret::default();
        if self.handshake.mode == MODE_SECURE {
            secret = Secret::zeroed(CONNECTION_SECRET_LEN);
            cx.random.fill(secret.bytes_mut());
        }
        let service = cx.config.name.kind.0 as u32;
        let challenge = self.handshake.challenge;
        let verifier = Verifier { service, keys: cx.keys, now_at_least: cx.ticket_clock.at_least(cx.now) };
        match verifier.verify(payload, challenge, &secret, cx.random) {
            Ok(ChallengeOrReply::Challenge { number, payload }) => {
                self.handshake.challenge = Some(number);
                self.stage = Stage::AuthAccepting { more: true };
                self.control(Control::AuthReplyMore { payload: payload.clone() });
                Ok(())
            }
            Ok(ChallengeOrReply::Accepted(verified)) => {
                let ticket = verified.info.ticket;
                let proof = Proof {
                    method: Method::Cephx,
                    name: ticket.name,
                    global_id: ticket.global_id,
                    caps: ticket.caps.caps,
                    allow_all: ticket.caps.allow_all,
                };
                self.handshake.session_key = Some(verified.info.session_key);
                self.send_auth_done(proof, verified.reply, &secret, cx)
            }
            Err(why) => {
                self.denied = Some(why.to_string());
                self.send_bad_method(EACCES, cx);
                Ok(())
            }
        }
    }

    /// The role has judged.
    pub(super) fn on_auth_reply(&mut self, reply: AuthReply, cx: &mut Cx<'_>) -> Result<(), Fault> {
        if self.stage != Stage::Judging {
            return Ok(());
        }
        match reply {
            AuthReply::More(payload) => {
                self.stage = Stage::AuthAccepting { more: true };
                self.control(Control::AuthReplyMore { payload });
                Ok(())
            }
            AuthReply::Bad { result } => {
                self.denied = Some(format!("authentication failed with error {result}"));
                self.send_bad_method(result, cx);
                Ok(())
            }
            AuthReply::Done { proof, payload, session_key, connection_secret } => {
                self.handshake.session_key = session_key;
                self.send_auth_done(proof, payload, &connection_secret, cx)
            }
        }
    }

    /// The peer is authenticated. It may go on if it claims no more than its key is, and if the connection mode that its
    /// claim negotiated is one that its key may use.
    fn send_auth_done(
        &mut self,
        proof: Proof,
        payload: Bytes,
        secret: &[u8],
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        let mode = self.handshake.mode;
        let (us, method) = (cx.config.name.kind, self.handshake.method);
        let refusal = match proof.role(self.claim.kind) {
            Ok(role) if cx.config.modes.between(us, role, method).contains(&mode) => None,
            Ok(role) => Some(format!("{} may not use mode {mode} as a {role:?}", proof.name)),
            Err(impostor) => Some(impostor.to_string()),
        };
        if let Some(why) = refusal {
            self.denied = Some(why);
            self.send_bad_method(EACCES, cx);
            return Ok(());
        }
        self.peer.secure = mode == MODE_SECURE;
        self.control(Control::AuthDone { global_id: proof.global_id, mode, payload });
        self.handshake.proof = Some(proof);
        self.sign(mode, secret)
    }

    fn send_bad_method(&mut self, result: i32, cx: &Cx<'_>) {
        let method = self.handshake.method;
        let allowed_modes = cx.config.modes.between(cx.config.name.kind, self.claim.kind, method);
        let allowed_methods = cx.config.methods.clone();
        self.control(Control::AuthBadMethod { method, result, allowed_methods, allowed_modes });
        self.handshake.challenge = None;
        self.stage = Stage::AuthAccepting { more: false };
    }

    /// The claim that the proof must bear out. `ceph tell mon.X` opens a second session with a monitor: it has a global
    /// id of its own there, and still calls itself by that of the first. A monitor goes by the proven id alone.
    fn number_to_prove(&self, cx: &Cx<'_>) -> EntityName {
        match (cx.config.name.kind, self.claim.kind) {
            (EntityKind::MON, EntityKind::CLIENT) => EntityName::new(EntityKind::CLIENT, -1),
            _ => self.claim,
        }
    }

    /// Admit the peer with a session of its own.
    pub(super) fn send_server_ident(&mut self, cx: &mut Cx<'_>) {
        self.renumber();
        self.in_seq = 0;
        self.connect_seq = 0;
        self.server_cookie = if self.is_lossy() { 0 } else { cx.cookie() };
        self.global_seq = cx.next_global_seq(0);
        let called = self.called_at.as_ref().and_then(|target| cx.config.addrs_with(target));
        let ident = Control::ServerIdent {
            addrs: called.unwrap_or(&cx.config.addrs).clone(),
            id: cx.config.name.num,
            global_seq: self.global_seq,
            supported: cx.config.supported,
            required: cx.config.required,
            flags: if self.is_lossy() { CONNECT_LOSSY } else { 0 },
            cookie: self.server_cookie,
        };
        self.control(ident);
        self.ready(cx);
    }

    pub(super) fn send_reconnect_ok(&mut self, cx: &mut Cx<'_>) {
        self.control(Control::SessionReconnectOk { message_seq: self.in_seq });
        self.ready(cx);
    }
}
