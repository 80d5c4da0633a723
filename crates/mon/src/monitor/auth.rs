//! The cephx server: who are you, prove it, here are your tickets (`src/auth/cephx/CephxServiceHandler.cc`).
//!
//! A peer names itself and gets a challenge; it answers with a proof of its key, and gets a ticket for the monitor
//! (the AUTH ticket) and for the services it asked for. Later, on the same session, it renews tickets with
//! `MAuth`, and daemons fetch their service's rotating secrets.
//!
//! A *global id* names a client instance for its life, across sessions with any monitor. Each monitor has ids of its own to give
//! out; a client keeps its id by showing the AUTH ticket that came with it.

use super::{AuthMode, Effect, Monitor, Turn};
use crate::auth_entity::AuthEntity;
use crate::auth_policy;
use crate::proposal::Change;
use bytes::Bytes;
use codec::{DecodeError, Encode, Features, Reader, Writer};
use command::errno::{EACCES, EAGAIN, EBUSY, EINVAL, EOPNOTSUPP, EPERM};
use machine::ConnId;
use machine::identity::{Method, Proof};
use machine::net::{AuthReply, AuthRequest, NetEffect};
use std::collections::{BTreeMap, VecDeque};
use wire::cephx::{
    AuthCaps, AuthTicket, Authenticate, GET_AUTH_SESSION_KEY, GET_PRINCIPAL_SESSION_KEY, GET_ROTATING_KEY,
    Key, KeyKind, METHOD_CEPHX, METHOD_NONE, MODE_MON, MonitorGrant, NewTicket, RequestHeader,
    ResponseHeader, RotatingKeys, RotatingSecret, Secret, ServerChallenge, ServiceTicketRequest, TicketBlob,
    TicketInfo, Usage, is_same_secret, open, prove, seal_to, write_tickets,
};
use wire::messages::{MAuth, MAuthReply, Message, MonPeerBody};
use wire::types::{AuthName, EntityKind, UTime};

/// `AUTH_MODE_MON_MAX`: the first byte of a payload to a monitor lies between [`MODE_MON`] and this.
const MODE_MON_MAX: u8 = 19;
/// Peers that wait for an id to be reserved; more are told to come again.
const WAITING_MAX: usize = 1024;
/// The services with secrets of their own.
const SERVICES: [EntityKind; 5] =
    [EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MDS, EntityKind::MGR];

/// Where a peer's authentication stands. Kept for the session's life: renewals answer the same challenge.
#[derive(Debug)]
struct Exchange {
    name: AuthName,
    global_id: u64,
    /// It came without an id and got a fresh one: no old ticket is needed.
    is_new_id: bool,
    challenge: ServerChallenge,
    secret_len: usize,
}

#[derive(Default)]
pub(super) struct AuthServer {
    exchanges: BTreeMap<ConnId, Exchange>,
    waiting: VecDeque<(ConnId, AuthRequest)>,
}

impl AuthServer {
    pub fn forget(&mut self, conn: ConnId) {
        self.exchanges.remove(&conn);
        self.waiting.retain(|(waiting, _)| *waiting != conn);
    }
}

/// Why a peer is not let in, as a positive errno.
type Refused = i32;

/// The end of one turn of an authentication.
enum Outcome {
    Reply(AuthReply),
    /// No global id is free until the next reservation is durable.
    Wait,
}

impl Monitor {
    pub(super) fn on_auth(&mut self, turn: &mut Turn<'_>, conn: ConnId, request: AuthRequest) {
        // A client that is let in by a monitor without a quorum would wait there in vain, while another can serve it.
        if request.peer_kind != EntityKind::MON && !self.is_in_quorum(turn.now) {
            return self.close(turn, conn);
        }
        let outcome = if request.first {
            self.begin(turn, conn, &request)
        } else {
            self.prove_and_grant(turn, conn, &request)
        };
        let reply = match outcome {
            Ok(Outcome::Reply(reply)) => reply,
            Ok(Outcome::Wait) if self.auth.waiting.len() < WAITING_MAX => {
                self.auth.waiting.push_back((conn, request));
                return;
            }
            Ok(Outcome::Wait) => AuthReply::Bad { result: -EBUSY },
            Err(errno) => AuthReply::Bad { result: -errno },
        };
        if matches!(reply, AuthReply::Bad { .. }) {
            self.auth.exchanges.remove(&conn);
        }
        turn.effects.push(Effect::Net(NetEffect::AuthReply { conn, reply: reply.into() }));
    }

    /// Peers that waited for an id.
    pub(super) fn auth_retry_waiting(&mut self, turn: &mut Turn<'_>) {
        for (conn, request) in std::mem::take(&mut self.auth.waiting) {
            self.on_auth(turn, conn, request);
        }
    }

    /// `u8 mode | name | u64 global id`
    fn begin(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        request: &AuthRequest,
    ) -> Result<Outcome, Refused> {
        let wanted = match self.settings.auth {
            AuthMode::Cephx => METHOD_CEPHX,
            AuthMode::None => METHOD_NONE,
        };
        if request.method != wanted {
            return Err(EOPNOTSUPP);
        }
        let (mode, name, claimed_id) = read_hello(&request.payload).map_err(|_| EACCES)?;
        if !(MODE_MON..=MODE_MON_MAX).contains(&mode) {
            return Err(EACCES);
        }
        let is_new_id = claimed_id == 0;
        let global_id = match claimed_id {
            0 => match self.take_global_id(turn) {
                Some(id) => id,
                None => return Ok(Outcome::Wait),
            },
            id => id,
        };
        if request.method == METHOD_NONE {
            return Ok(Outcome::Reply(AuthReply::Done {
                proof: Proof::none(name, global_id),
                payload: Bytes::new(),
                session_key: None,
                connection_secret: Secret::default(),
            }));
        }
        let challenge = ServerChallenge(self.random.u64().max(1));
        let secret_len = request.connection_secret_len();
        let exchange = Exchange { name, global_id, is_new_id, challenge, secret_len };
        self.auth.exchanges.insert(conn, exchange);
        Ok(Outcome::Reply(AuthReply::More(challenge.to_vec(Features::ALL).into())))
    }

    fn prove_and_grant(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        request: &AuthRequest,
    ) -> Result<Outcome, Refused> {
        let mut r = Reader::new(&request.payload);
        if r.get::<RequestHeader>().map_err(|_| EPERM)?.0 != GET_AUTH_SESSION_KEY {
            return Err(EACCES);
        }
        let admitted = self.admit(turn, conn, &mut r)?;
        let exchange = self.auth.exchanges.get(&conn).ok_or(EACCES)?;
        let caps = self.states.committed.auth.caps(&exchange.name, "mon").unwrap_or_default();
        let proof = Proof {
            method: Method::Cephx,
            name: exchange.name.clone(),
            global_id: exchange.global_id,
            caps: AuthCaps::from_text(caps).caps,
            allow_all: false,
        };
        Ok(Outcome::Reply(AuthReply::Done {
            proof,
            payload: admitted.payload,
            session_key: Some(admitted.session_key),
            connection_secret: admitted.connection_secret,
        }))
    }

    /// The name has proved its pending key: the key takes the place of the old one. The leader sees to it.
    fn ask_to_promote(&mut self, turn: &mut Turn<'_>, name: &AuthName) {
        if self.is_leading() {
            return self.promote_key(turn, name);
        }
        // It is asked for again at the next proof, if this request is lost.
        self.say_to_leader(turn, MonPeerBody::PromoteKey { name: name.clone() });
    }

    pub(super) fn promote_key(&mut self, turn: &mut Turn<'_>, name: &AuthName) {
        let Some(entity) = self.states.head().auth.entities.get(name).cloned() else { return };
        let Some(key) = entity.pending_key.clone() else { return };
        let entity = AuthEntity { key, pending_key: None, ..entity };
        self.propose(turn.now, vec![Change::AuthSet { name: name.clone(), entity }]);
    }

    /// Checks a `CephXAuthenticate` and writes the tickets that it earns.
    fn admit(&mut self, turn: &mut Turn<'_>, conn: ConnId, r: &mut Reader<'_>) -> Result<Admitted, Refused> {
        let request: Authenticate = r.get().map_err(|_| EPERM)?;
        let exchange = self.auth.exchanges.get(&conn).ok_or(EACCES)?;
        let (name, global_id) = (exchange.name.clone(), exchange.global_id);
        let entity = self.states.committed.auth.entities.get(&name).ok_or(EACCES)?.clone();
        let proves = |key: &Key| {
            let proof = prove(key, exchange.challenge.0, request.client_challenge);
            proof.is_ok_and(|proof| is_same_secret(&proof.to_le_bytes(), &request.proof.to_le_bytes()))
        };
        let key = match &entity.pending_key {
            _ if proves(&entity.key) => entity.key.clone(),
            Some(pending) if proves(pending) => pending.clone(),
            _ => return Err(EACCES),
        };
        if !auth_policy::may_authenticate(&self.states.committed.monmap.auth, &self.options, &key) {
            return Err(EACCES);
        }
        let old_session_key = self.check_old_ticket(exchange, &request)?;
        if entity.caps.get("mon").is_none_or(|caps| caps.is_empty()) {
            return Err(EACCES);
        }
        let secret_len = exchange.secret_len;
        if Some(&key) == entity.pending_key.as_ref() {
            self.ask_to_promote(turn, &name);
        }

        let now = self.wall(turn.now);
        let kind = key.usable().map_err(|_| EACCES)?;
        let ticket =
            AuthTicket { name, global_id, created: now, expires: now, caps: AuthCaps::default(), flags: 0 };
        let auth_ticket = self.new_ticket(EntityKind::AUTH, &ticket, kind, now).ok_or(EBUSY)?;
        let session_key = auth_ticket.info.session_key.clone();
        let mut connection_secret = Secret::zeroed(secret_len);
        self.random.fill(connection_secret.bytes_mut());
        let more =
            (request.other_keys != 0).then(|| self.new_tickets(request.other_keys, &ticket, kind, now));
        let grant = MonitorGrant {
            key: &key,
            auth_ticket: &auth_ticket,
            old_session_key: old_session_key.as_ref(),
            connection_secret: &connection_secret,
            more: more.as_deref(),
        };
        let payload = grant.encode(&mut self.random).map_err(|_| EACCES)?;
        Ok(Admitted { payload, session_key, connection_secret })
    }

    /// Whoever keeps a global id shows the ticket that came with it; the new ticket is then sealed under the old
    /// session key. Says that key.
    fn check_old_ticket(&self, exchange: &Exchange, request: &Authenticate) -> Result<Option<Key>, Refused> {
        let old = &request.old_ticket;
        if exchange.is_new_id {
            return if old.blob.is_empty() { Ok(None) } else { Err(EINVAL) };
        }
        let insecure = request.old_ticket_may_be_omitted && self.options.allow_insecure_global_id_reclaim;
        let secret = self.states.committed.auth.secret(EntityKind::AUTH, old.secret_id);
        let opened = secret.and_then(|key| open::<TicketInfo>(key, Usage::TicketInfo, &old.blob).ok());
        match opened {
            Some(info) if info.ticket.global_id == exchange.global_id => Ok(Some(info.session_key)),
            _ if insecure => Ok(None),
            _ => Err(EACCES),
        }
    }

    /// A ticket for one service; `None` when the service has no secrets yet.
    pub(super) fn new_ticket(
        &mut self,
        service: EntityKind,
        parent: &AuthTicket,
        client: KeyKind,
        now: UTime,
    ) -> Option<NewTicket> {
        let (secret_id, secret, newest) = self.states.committed.auth.current_secret(service, now)?;
        let service_secret = secret.clone();
        let lifetime_s = self.ticket_ttl_s(service).min(newest.as_secs_f64() - now.as_secs_f64()).max(0.0);
        let validity = UTime::from_nanos((lifetime_s * 1e9) as u64);
        let caps = self.states.committed.auth.caps(&parent.name, service.name()).unwrap_or_default();
        let caps = if service == EntityKind::AUTH { AuthCaps::default() } else { AuthCaps::from_text(caps) };
        let ticket = AuthTicket {
            created: now,
            expires: UTime::from_nanos(now.as_nanos() + validity.as_nanos()),
            caps,
            ..parent.clone()
        };
        let session_key = Key::generate(client, now, &mut self.random);
        let info = TicketInfo { ticket, session_key };
        Some(NewTicket { service: service.0.into(), info, service_secret, secret_id, validity })
    }

    /// Tickets for every service in a set of bits, but for the AUTH ticket, which only a proof earns.
    fn new_tickets(
        &mut self,
        services: u32,
        parent: &AuthTicket,
        client: KeyKind,
        now: UTime,
    ) -> Vec<NewTicket> {
        let wanted =
            SERVICES.into_iter().filter(|s| *s != EntityKind::AUTH && services & u32::from(s.0) != 0);
        wanted.filter_map(|service| self.new_ticket(service, parent, client, now)).collect()
    }

    fn ticket_ttl_s(&self, service: EntityKind) -> f64 {
        let ttl = match service {
            EntityKind::AUTH => self.options.auth_ticket_ttl,
            _ => self.options.service_ticket_ttl,
        };
        ttl.as_secs_f64()
    }

    /// A renewal, or a daemon's request for its service's secrets, on a session that exists.
    pub(super) fn on_mauth(&mut self, turn: &mut Turn<'_>, conn: ConnId, tid: u64, m: MAuth) {
        let global_id = self.sessions.get(&conn).map_or(0, |s| s.peer.identity.global_id());
        let (result, payload) = match self.renew(turn, conn, &m.payload) {
            Ok(payload) => (0, payload),
            Err(errno) => (-errno, Bytes::new()),
        };
        let reply =
            MAuthReply { protocol: m.protocol, result, global_id, payload, result_message: String::new() };
        turn.send_message(conn, Message::with_tid(tid, reply));
    }

    fn renew(&mut self, turn: &mut Turn<'_>, conn: ConnId, payload: &[u8]) -> Result<Bytes, Refused> {
        let mut r = Reader::new(payload);
        let request = r.get::<RequestHeader>().map_err(|_| EPERM)?.0;
        let now = self.wall(turn.now);
        let mut w = Writer::new(Features::ALL);
        match request {
            GET_AUTH_SESSION_KEY => {
                // Its id is its own by now: whoever renews shows the ticket.
                if let Some(exchange) = self.auth.exchanges.get_mut(&conn) {
                    exchange.is_new_id = false;
                    exchange.secret_len = 0;
                }
                return self.admit(turn, conn, &mut r).map(|admitted| admitted.payload);
            }
            GET_PRINCIPAL_SESSION_KEY => {
                let secrets =
                    self.states.committed.auth.rotating.get(&EntityKind::AUTH.0).ok_or(EACCES)?.clone();
                let verified = open_authorizer(&mut r, &secrets)?;
                if verified.ticket.has_expired(now) {
                    return Err(EACCES);
                }
                let services = r.get::<ServiceTicketRequest>().map_err(|_| EPERM)?.0;
                let kind = verified.session_key.usable().map_err(|_| EACCES)?;
                let tickets = self.new_tickets(services, &verified.ticket, kind, now);
                w.put(&ResponseHeader { request, status: 0 });
                write_tickets(&mut w, &verified.session_key, &tickets, None, &mut self.random)
                    .map_err(|_| EACCES)?;
            }
            GET_ROTATING_KEY => {
                let name = self.sessions.get(&conn).ok_or(EACCES)?.name();
                let key = self.states.committed.auth.entities.get(name).ok_or(EACCES)?.key.clone();
                let secrets = self.states.committed.auth.rotating.get(&name.kind.0).ok_or(EACCES)?;
                // Tickets will be sealed with a key that a daemon with these does not have. The first keys after a long stop
                // are such; the daemon asks again.
                if needs_secret(secrets, now) {
                    return Err(EAGAIN);
                }
                w.put(&ResponseHeader { request, status: 0 });
                seal_to(&mut w, &key, Usage::RotatingSecret, secrets, &mut self.random)
                    .map_err(|_| EACCES)?;
            }
            _ => return Err(EINVAL),
        }
        Ok(w.into_bytes())
    }

    /// New secrets where a service has fewer than three or its current one has expired.
    pub(super) fn rotate_secrets(&mut self, turn: &mut Turn<'_>) {
        let now = self.wall(turn.now);
        let mut changes = Vec::new();
        for service in SERVICES {
            let mut keys = self.states.head().auth.rotating.get(&service.0).cloned().unwrap_or_default();
            let before = keys.max_version;
            let lifetime_ns = (self.ticket_ttl_s(service) * 1e9) as u64;
            while needs_secret(&keys, now) {
                let newest = keys.secrets.values().next_back().map(|s| s.expires);
                // The first secret expires after one lifetime, each later one a lifetime after its predecessor.
                let start_ns = match newest {
                    None => now.as_nanos(),
                    Some(newest) => newest.as_nanos().max(now.as_nanos() + lifetime_ns),
                };
                let cipher = self.states.head().monmap.auth.service_cipher;
                let kind = auth_policy::kind_of(cipher).unwrap_or(KeyKind::Aes256k);
                let key = Key::generate(kind, now, &mut self.random);
                keys.rotate(RotatingSecret { key, expires: UTime::from_nanos(start_ns + lifetime_ns) });
            }
            if keys.max_version != before {
                changes.push(Change::auth_rotating(service, keys));
            }
        }
        self.propose(turn.now, changes);
    }
}

/// The rights of a peer that proved its key.
struct Admitted {
    payload: Bytes,
    session_key: Key,
    connection_secret: Secret,
}

fn read_hello(payload: &[u8]) -> Result<(u8, AuthName, u64), DecodeError> {
    let mut r = Reader::new(payload);
    Ok((r.u8()?, r.get()?, r.u64()?))
}

fn needs_secret(keys: &RotatingKeys, now: UTime) -> bool {
    let current = keys.secrets.values().nth(1);
    keys.secrets.len() < RotatingKeys::COUNT || current.is_some_and(|secret| secret.expires <= now)
}

/// The authorizer that a client puts in front of a request for tickets: without a challenge, since the session
/// itself is authenticated.
fn open_authorizer(r: &mut Reader<'_>, secrets: &RotatingKeys) -> Result<TicketInfo, Refused> {
    let mut read = || -> Result<(u64, TicketBlob, Bytes), DecodeError> {
        let _mode = r.u8()?;
        let global_id = r.u64()?;
        let _service = r.u32()?;
        Ok((global_id, r.get()?, r.get()?))
    };
    let (global_id, ticket, proof) = read().map_err(|_| EACCES)?;
    let secret = secrets.get(ticket.secret_id).ok_or(EACCES)?;
    let info: TicketInfo = open(secret, Usage::TicketInfo, &ticket.blob).map_err(|_| EACCES)?;
    // That it opens is the proof: whoever sealed it has the session key.
    open::<u8>(&info.session_key, Usage::Authorize, &proof).map_err(|_| EACCES)?;
    if info.ticket.global_id == global_id { Ok(info) } else { Err(EACCES) }
}
