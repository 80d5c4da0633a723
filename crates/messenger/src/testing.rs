//! A minimal monitor that authenticates one name and hands out tickets, for tests.

use bytes::Bytes;
use machine::identity::{Method, Proof};
use machine::net::{AuthReply, AuthRequest};
use machine::{ConnId, Random};
use std::collections::BTreeMap;
use wire::cephx::*;
use wire::types::{EntityKind, UTime};

/// Admits one name with its key, and seals tickets for OSDs.
pub struct Monitor {
    /// `client.admin` unless a test sets another.
    pub name: AuthName,
    pub key: Key,
    pub osd_keys: RotatingKeys,
    auth_keys: RotatingKeys,
    challenges: BTreeMap<ConnId, u64>,
    random: Random,
}

impl Monitor {
    pub fn new(kind: KeyKind) -> Monitor {
        let mut random = Random::from_number(7);
        let mut keys = || {
            let mut keys = RotatingKeys::default();
            for _ in 0..3 {
                let key = Key::generate(KeyKind::Aes256k, UTime::ZERO, &mut random);
                keys.rotate(RotatingSecret { key, expires: UTime::ZERO });
            }
            keys
        };
        let (osd_keys, auth_keys) = (keys(), keys());
        let key = Key::generate(kind, UTime::ZERO, &mut random);
        let name = AuthName::new(EntityKind::CLIENT, "admin");
        Monitor { name, key, osd_keys, auth_keys, challenges: BTreeMap::new(), random }
    }

    /// The answer to a [`machine::net::NetEvent::Auth`].
    pub fn judge(&mut self, conn: ConnId, request: AuthRequest) -> AuthReply {
        self.try_judge(conn, request).unwrap_or(AuthReply::Bad { result: -13 })
    }

    fn try_judge(&mut self, conn: ConnId, request: AuthRequest) -> Option<AuthReply> {
        let mut r = codec::Reader::new(&request.payload);
        if request.method == METHOD_NONE {
            let (_, name, _) = (r.u8().ok()?, r.get::<AuthName>().ok()?, r.u64().ok()?);
            return Some(AuthReply::Done {
                proof: Proof::none(name, 4000),
                payload: Bytes::new(),
                session_key: None,
                connection_secret: Secret::default(),
            });
        }
        if request.first {
            let challenge = self.random.u64();
            self.challenges.insert(conn, challenge);
            let payload = codec::Encode::to_vec(&ServerChallenge(challenge), codec::Features::ALL);
            return Some(AuthReply::More(payload.into()));
        }
        let _header: RequestHeader = r.get().ok()?;
        let auth: Authenticate = r.get().ok()?;
        let challenge = self.challenges.remove(&conn)?;
        if auth.proof != prove(&self.key, challenge, auth.client_challenge).ok()? {
            return None;
        }
        let mut secret = Secret::zeroed(request.connection_secret_len());
        self.random.fill(secret.bytes_mut());
        let auth_ticket = self.ticket(EntityKind::AUTH);
        let more = [self.ticket(EntityKind::OSD)];
        let grant = MonitorGrant {
            key: &self.key,
            auth_ticket: &auth_ticket,
            old_session_key: None,
            connection_secret: &secret,
            more: Some(&more),
        };
        let proof = Proof {
            method: Method::Cephx,
            name: self.name.clone(),
            global_id: 4000,
            caps: AuthCaps::from_text("allow *").caps,
            allow_all: false,
        };
        Some(AuthReply::Done {
            proof,
            payload: grant.encode(&mut self.random).ok()?,
            session_key: Some(auth_ticket.info.session_key.clone()),
            connection_secret: secret,
        })
    }

    pub fn ticket(&mut self, service: EntityKind) -> NewTicket {
        let keys = if service == EntityKind::AUTH { &self.auth_keys } else { &self.osd_keys };
        let (secret_id, secret) = keys.current().unwrap();
        let ticket = AuthTicket {
            name: self.name.clone(),
            global_id: 4000,
            created: UTime::ZERO,
            expires: UTime::ZERO,
            caps: AuthCaps::from_text("allow rw"),
            flags: 0,
        };
        let kind = self.key.usable().unwrap();
        NewTicket {
            service: service.0 as u32,
            info: TicketInfo { ticket, session_key: Key::generate(kind, UTime::ZERO, &mut self.random) },
            service_secret: secret.key.clone(),
            secret_id,
            validity: UTime { sec: 3600, nsec: 0 },
        }
    }

    /// The client's part of [`Monitor::ticket`].
    pub fn service_ticket(&mut self, service: EntityKind) -> ServiceTicket {
        let new = self.ticket(service);
        let blob = new.to_blob(&mut self.random).expect("the monitor's own keys seal");
        ServiceTicket {
            service: new.service,
            session_key: new.info.session_key,
            blob: blob.blob,
            secret_id: blob.secret_id,
            validity: new.validity,
        }
    }
}
