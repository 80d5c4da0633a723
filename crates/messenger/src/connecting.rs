//! The handshake of the side that connects.

use super::config::Config;
use super::state::{Cx, Fault, Next, Session, Stage};
use bytes::Bytes;
use machine::identity::{ClaimedName, Identity};
use machine::net::{Credentials, Grant, NetEvent, Policy};
use wire::cephx::{
    AuthName, Authenticate, Authorizer, METHOD_CEPHX, METHOD_NONE, MonitorReply, Secret, TicketBlob,
};
use wire::frames::{CONNECT_LOSSY, Control, MODE_SECURE};
use wire::types::{AddrKind, EntityAddr, EntityAddrVec, EntityKind};

impl Session {
    /// The socket is connected.
    pub(super) fn on_connected(&mut self) {
        self.stage = Stage::Hello;
    }

    pub(super) fn on_banner_connecting(&mut self, cx: &mut Cx<'_>) {
        let peer_addr = self.peer.socket;
        self.control(Control::Hello { kind: cx.config.name.kind, peer_addr });
    }

    pub(super) fn on_frame_connecting(&mut self, frame: Control, cx: &mut Cx<'_>) -> Result<Next, Fault> {
        match (self.stage, frame) {
            (Stage::Hello, Control::Hello { kind, peer_addr }) => {
                self.on_hello_connecting(kind, peer_addr, cx)?
            }
            (
                Stage::AuthConnecting,
                Control::AuthBadMethod { result, allowed_methods, allowed_modes, .. },
            ) => {
                return Err(Fault::denied(format!(
                    "errno {result}; methods {allowed_methods:?} and modes {allowed_modes:?} would do"
                )));
            }
            (Stage::AuthConnecting, Control::AuthReplyMore { payload }) => {
                let payload = self.answer_challenge(&payload, cx)?;
                self.control(Control::AuthRequestMore { payload });
            }
            (Stage::AuthConnecting, Control::AuthDone { global_id, mode, payload }) => {
                self.on_auth_done(global_id, mode, payload, cx)?;
            }
            (
                Stage::IdentConnecting,
                Control::ServerIdent { addrs, id, global_seq, supported, flags, cookie, .. },
            ) => {
                let target = self.peer.socket;
                if !addrs.0.iter().any(|a| a.kind == target.kind && a.socket == target.socket) {
                    return Err(Fault::protocol(format!("called {target}, and {addrs} answered")));
                }
                self.claim.num = id;
                self.peer.claimed = ClaimedName::new(self.claim);
                self.peer.identity = Identity::of_service(self.claim.kind);
                self.peer.addrs = addrs;
                self.peer.features = codec::Features(supported.0 & cx.config.supported.0);
                self.peer_global_seq = global_seq;
                self.server_cookie = cookie;
                if flags & CONNECT_LOSSY != 0 {
                    self.policy = Policy::Lossy;
                }
                self.renumber();
                self.in_seq = 0;
                self.ready(cx);
            }
            (Stage::IdentConnecting, Control::IdentMissingFeatures { features }) => {
                return Err(Fault::denied(format!("the peer requires {features:?}, which we lack")));
            }
            (Stage::Reconnecting, Control::SessionReconnectOk { message_seq }) => {
                self.on_acknowledged(message_seq);
                self.ready(cx);
            }
            (Stage::Reconnecting, Control::SessionReset { full }) => {
                if full {
                    return Err(Fault(machine::net::CloseReason::Reset));
                }
                // The peer never had the session: begin anew, and keep our unsent messages.
                self.server_cookie = 0;
                self.connect_seq = 0;
                self.in_seq = 0;
                self.send_client_ident(cx);
            }
            (Stage::Reconnecting, Control::SessionRetry { connect_seq }) => {
                self.connect_seq = connect_seq + 1;
                self.send_reconnect(cx);
            }
            (Stage::Reconnecting, Control::SessionRetryGlobal { global_seq }) => {
                self.global_seq = cx.next_global_seq(global_seq + 1);
                self.send_reconnect(cx);
            }
            (Stage::IdentConnecting | Stage::Reconnecting, Control::Wait) => self.on_wait(cx),
            (stage, frame) => {
                return Err(Fault::protocol(format!("{:?} while in {stage:?}", frame.tag())));
            }
        }
        Ok(Next::Go)
    }

    fn on_hello_connecting(
        &mut self,
        kind: EntityKind,
        ours: EntityAddr,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        let wanted = self.claim.kind;
        if kind != wanted {
            return Err(Fault::protocol(format!("called a {wanted:?}, and a {kind:?} answered")));
        }
        self.peer_sees_us_as = Some(ours);
        let credentials = self.credentials.clone().ok_or_else(|| Fault::protocol("no credentials"))?;
        let seal = |e: wire::cephx::KeyError| Fault::denied(format!("our key: {e}"));
        let (method, payload) = match &credentials {
            Credentials::None { auth_name, global_id } => {
                let name = auth_name_of(auth_name)?;
                let payload = match kind {
                    EntityKind::MON => name.hello_monitor(*global_id),
                    _ => name.hello_service(*global_id),
                };
                (METHOD_NONE, payload)
            }
            Credentials::Key { auth_name, reclaim, .. } => {
                let global_id = reclaim.as_ref().map_or(0, |(id, _)| *id);
                (METHOD_CEPHX, auth_name_of(auth_name)?.hello_monitor(global_id))
            }
            Credentials::Ticket { global_id, ticket, .. } => {
                let authorizer = Authorizer::new(*global_id, ticket.clone(), cx.random);
                let payload = authorizer.present(cx.random).map_err(seal)?;
                self.handshake.authorizer = Some(authorizer);
                (METHOD_CEPHX, payload)
            }
        };
        self.handshake.method = method;
        let preferred_modes = cx.config.modes.between(cx.config.name.kind, kind, method);
        self.control(Control::AuthRequest { method, preferred_modes, payload });
        self.stage = Stage::AuthConnecting;
        Ok(())
    }

    fn answer_challenge(&mut self, payload: &[u8], cx: &mut Cx<'_>) -> Result<Bytes, Fault> {
        if let Some(authorizer) = &self.handshake.authorizer {
            let answer = authorizer.answer(payload, cx.random);
            return answer.map_err(|e| Fault::denied(format!("the service's challenge: {e}")));
        }
        let Some(Credentials::Key { key, want_services, reclaim, .. }) = &self.credentials else {
            return Err(Fault::protocol("a challenge that we cannot answer"));
        };
        let challenge = codec::Reader::new(payload).get().map_err(|e| Fault::protocol(e.to_string()))?;
        let old = reclaim.as_ref().map_or_else(TicketBlob::default, |(_, t)| t.to_blob());
        // The AUTH ticket comes in any case. Asking for it makes the monitor send the connection's secret too.
        let want = want_services | EntityKind::AUTH.0 as u32;
        Authenticate::answer(key, challenge, old, want, cx.random)
            .map_err(|e| Fault::denied(format!("our key: {e}")))
    }

    fn on_auth_done(
        &mut self,
        global_id: u64,
        mode: u32,
        payload: Bytes,
        cx: &mut Cx<'_>,
    ) -> Result<(), Fault> {
        let offered = cx.config.modes.between(cx.config.name.kind, self.claim.kind, self.handshake.method);
        if !offered.contains(&mode) {
            return Err(Fault::protocol(format!("the peer picked mode {mode}, which was not offered")));
        }
        let unproved =
            |e: wire::cephx::SealError| Fault::denied(format!("the peer does not know our key: {e}"));
        let mut secret = Secret::default();
        match self.credentials.as_ref().ok_or_else(|| Fault::protocol("no credentials"))? {
            Credentials::None { .. } => {
                if self.claim.kind == EntityKind::MON {
                    cx.event(NetEvent::Granted {
                        conn: self.conn,
                        grant: Grant { global_id, tickets: vec![] },
                    });
                }
            }
            Credentials::Key { key, reclaim, .. } => {
                let old = reclaim.as_ref().map(|(_, t)| &t.session_key);
                let reply = MonitorReply::decode(&payload, key, old).map_err(unproved)?;
                self.handshake.session_key = Some(reply.session_key);
                secret = reply.connection_secret;
                let grant = Grant { global_id, tickets: reply.tickets };
                cx.event(NetEvent::Granted { conn: self.conn, grant });
            }
            Credentials::Ticket { .. } => {
                let authorizer =
                    self.handshake.authorizer.as_ref().ok_or_else(|| Fault::protocol("no ticket"))?;
                secret = authorizer.finish(&payload).map_err(unproved)?;
                self.handshake.session_key = Some(authorizer.session_key().clone());
            }
        }
        self.peer.secure = mode == MODE_SECURE;
        self.sign(mode, &secret)
    }

    /// Both signatures are right.
    pub(super) fn on_signed_connecting(&mut self, cx: &mut Cx<'_>) {
        if self.server_cookie == 0 {
            self.send_client_ident(cx);
        } else {
            self.send_reconnect(cx);
        }
    }

    fn send_client_ident(&mut self, cx: &mut Cx<'_>) {
        if !self.is_lossy() && self.client_cookie == 0 {
            self.client_cookie = cx.cookie();
        }
        let ident = Control::ClientIdent {
            addrs: self.our_addrs(cx.config),
            target: self.peer.socket,
            id: self.our_number(cx),
            global_seq: self.global_seq,
            supported: cx.config.supported,
            required: cx.config.required,
            flags: if self.is_lossy() { CONNECT_LOSSY } else { 0 },
            cookie: self.client_cookie,
        };
        self.control(ident);
        self.stage = Stage::IdentConnecting;
    }

    fn send_reconnect(&mut self, cx: &mut Cx<'_>) {
        let frame = Control::SessionReconnect {
            addrs: self.our_addrs(cx.config),
            client_cookie: self.client_cookie,
            server_cookie: self.server_cookie,
            global_seq: self.global_seq,
            connect_seq: self.connect_seq,
            message_seq: self.in_seq,
        };
        self.control(frame);
        self.stage = Stage::Reconnecting;
    }

    /// The number in our name. A client goes by the global id of its credentials before it is told its name.
    fn our_number(&self, cx: &Cx<'_>) -> i64 {
        let id = match &self.credentials {
            _ if cx.config.name.num >= 0 || cx.config.name.kind != EntityKind::CLIENT => {
                return cx.config.name.num;
            }
            Some(Credentials::Ticket { global_id, .. } | Credentials::None { global_id, .. }) => *global_id,
            _ => 0,
        };
        if id == 0 { cx.config.name.num } else { id as i64 }
    }

    /// Our configured addresses. A blank IP is replaced by the one that the peer sees.
    pub(super) fn our_addrs(&self, config: &Config) -> EntityAddrVec {
        let seen = self.peer_sees_us_as.and_then(|a| a.socket);
        let learn = |a: &EntityAddr| match (a.socket, seen) {
            (None, Some(s)) => {
                EntityAddr { kind: AddrKind::MSGR2, nonce: a.nonce, socket: Some((s.ip(), 0).into()) }
            }
            (Some(blank), Some(s)) if blank.ip().is_unspecified() => {
                EntityAddr { socket: Some((s.ip(), blank.port()).into()), ..*a }
            }
            _ => *a,
        };
        EntityAddrVec(config.addrs.0.iter().map(learn).collect())
    }
}

fn auth_name_of(name: &str) -> Result<AuthName, Fault> {
    name.parse().map_err(|()| Fault::denied(format!("{name:?} is not a name like client.admin")))
}
