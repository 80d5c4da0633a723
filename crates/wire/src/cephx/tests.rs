//! Both conversations from end to end, with each kind of key; keys that stock tools made; hostile input.

use super::*;
use crate::types::{EntityKind, UTime};
use codec::{Decode, Encode, Features, Reader};
use proptest::prelude::*;

/// Counts up: enough to tell a nonce from the next.
struct Counter(u8);

impl Entropy for Counter {
    fn fill(&mut self, out: &mut [u8]) {
        out.iter_mut().for_each(|b| {
            *b = self.0;
            self.0 = self.0.wrapping_add(1);
        });
    }
}

const KINDS: [KeyKind; 2] = [KeyKind::Aes, KeyKind::Aes256k];
const OSD: u32 = 4;
/// When tickets here end, in seconds.
const EXPIRES: u32 = 4600;

fn key(kind: KeyKind, seed: u8) -> Key {
    Key::generate(kind, UTime::ZERO, &mut Counter(seed))
}

fn rotating() -> RotatingKeys {
    let mut keys = RotatingKeys::default();
    for i in 0..5 {
        keys.rotate(RotatingSecret { key: key(KeyKind::Aes256k, 50 + i), expires: UTime::ZERO });
    }
    keys
}

fn new_ticket(service: u32, session_kind: KeyKind, keys: &RotatingKeys) -> NewTicket {
    let (secret_id, secret) = keys.current().unwrap();
    let ticket = AuthTicket {
        name: "client.admin".parse().unwrap(),
        global_id: 4123,
        created: UTime { sec: 1000, nsec: 0 },
        expires: UTime { sec: EXPIRES, nsec: 0 },
        caps: AuthCaps::from_text("allow *"),
        flags: 0,
    };
    NewTicket {
        service,
        info: TicketInfo { ticket, session_key: key(session_kind, 100 + service as u8) },
        service_secret: secret.key.clone(),
        secret_id,
        validity: UTime { sec: 3600, nsec: 0 },
    }
}

/// A client with a key of `kind` gets tickets from a monitor.
fn tickets_from_monitor(kind: KeyKind, keys: &RotatingKeys) -> MonitorReply {
    let client_key = key(kind, 1);
    let challenge = ServerChallenge(0x1122334455667788);
    let answer =
        Authenticate::answer(&client_key, challenge, TicketBlob::default(), OSD, &mut Counter(9)).unwrap();
    let mut r = Reader::new(&answer);
    assert_eq!(r.get(), Ok(RequestHeader(GET_AUTH_SESSION_KEY)));
    let request: Authenticate = r.get().unwrap();
    assert_eq!(request.proof, prove(&client_key, challenge.0, request.client_challenge).unwrap());
    assert_ne!(request.proof, prove(&key(kind, 2), challenge.0, request.client_challenge).unwrap());
    assert_ne!(request.proof, prove(&client_key, challenge.0 + 1, request.client_challenge).unwrap());

    let auth = new_ticket(EntityKind::AUTH.0 as u32, kind, keys);
    let osd = [new_ticket(OSD, kind, keys)];
    let grant = MonitorGrant {
        key: &client_key,
        auth_ticket: &auth,
        old_session_key: None,
        connection_secret: &[7; 64],
        more: Some(&osd),
    };
    let payload = grant.encode(&mut Counter(33)).unwrap();
    assert!(MonitorReply::decode(&payload, &key(kind, 2), None).is_err(), "another key opens nothing");
    MonitorReply::decode(&payload, &client_key, None).unwrap()
}

fn verifier(keys: &RotatingKeys) -> Verifier<'_> {
    Verifier { service: OSD, keys, now_at_least: UTime::ZERO }
}

#[test]
fn ticket_is_refused_once_it_has_expired_for_certain() {
    let keys = rotating();
    let reply = tickets_from_monitor(KeyKind::Aes256k, &keys);
    let ticket = reply.tickets.iter().find(|t| t.service == OSD).unwrap().clone();
    let mut e = Counter(77);
    let first = Authorizer::new(4123, ticket, &mut e).present(&mut e).unwrap();
    for (now_at_least, is_accepted) in [(0, true), (EXPIRES, true), (EXPIRES + 1, false)] {
        let verifier = Verifier { now_at_least: UTime { sec: now_at_least, nsec: 0 }, ..verifier(&keys) };
        match verifier.verify(&first, None, &[], &mut e) {
            Ok(ChallengeOrReply::Challenge { .. }) => assert!(is_accepted),
            Err(AuthorizerError::Expired) => assert!(!is_accepted),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn service_accepts_ticket_from_monitor() {
    for kind in KINDS {
        let keys = rotating();
        let reply = tickets_from_monitor(kind, &keys);
        assert_eq!(reply.connection_secret, Secret::new(&[7; 64]));
        let ticket = reply.tickets.iter().find(|t| t.service == OSD).unwrap().clone();
        assert_eq!(ticket.validity.sec, 3600);

        let mut e = Counter(77);
        let service = verifier(&keys);
        let authorizer = Authorizer::new(4123, ticket, &mut e);
        let first = authorizer.present(&mut e).unwrap();
        let ChallengeOrReply::Challenge { number, payload } =
            service.verify(&first, None, &[], &mut e).unwrap()
        else {
            panic!("a first authorizer is always challenged")
        };
        let second = authorizer.answer(&payload, &mut e).unwrap();
        let ChallengeOrReply::Accepted(ok) = service.verify(&second, Some(number), &[5; 64], &mut e).unwrap()
        else {
            panic!("an answered challenge is accepted")
        };
        assert_eq!(ok.info.ticket.name.to_string(), "client.admin");
        assert_eq!(ok.info.ticket.caps.text().unwrap(), "allow *");
        assert_eq!(ok.info.session_key, *authorizer.session_key());
        assert_eq!(authorizer.finish(&ok.reply).unwrap(), Secret::new(&[5; 64]));

        // A replay of either payload on another connection meets another challenge.
        let replay = service.verify(&second, Some(number + 1), &[], &mut e);
        assert_eq!(replay.err(), Some(AuthorizerError::Challenge));
        let replay = service.verify(&first, Some(number), &[], &mut e);
        assert_eq!(replay.err(), Some(AuthorizerError::Challenge));
        // Another service, and keys that have rotated on.
        let other = Verifier { service: 2, ..service }.verify(&first, None, &[], &mut e);
        assert_eq!(other.err(), Some(AuthorizerError::Service(OSD)));
        let mut later = keys.clone();
        for _ in 0..2 {
            later.rotate(RotatingSecret { key: key(KeyKind::Aes256k, 200), expires: UTime::ZERO });
        }
        let expired = Verifier { keys: &later, ..service }.verify(&first, None, &[], &mut e);
        assert_eq!(expired.err(), Some(AuthorizerError::SecretId(4)));
    }
}

#[test]
fn reclaimed_global_id_gets_ticket_under_old_session_key() {
    for kind in KINDS {
        let (client_key, old) = (key(kind, 1), key(kind, 3));
        let auth = new_ticket(32, kind, &rotating());
        let grant = MonitorGrant {
            key: &client_key,
            auth_ticket: &auth,
            old_session_key: Some(&old),
            connection_secret: &[],
            more: None,
        };
        let payload = grant.encode(&mut Counter(3)).unwrap();
        assert!(MonitorReply::decode(&payload, &client_key, None).is_err());
        let reply = MonitorReply::decode(&payload, &client_key, Some(&old)).unwrap();
        assert_eq!(reply.tickets[0].secret_id, auth.secret_id);
    }
}

#[test]
fn rotating_keys_round_trip_sealed() {
    for kind in KINDS {
        let (keys, daemon) = (rotating(), key(kind, 8));
        assert_eq!(keys.secrets.keys().copied().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(keys.current().unwrap().0, 4);
        let sealed = seal(&daemon, Usage::RotatingSecret, &keys, &mut Counter(0)).unwrap();
        assert_eq!(open::<RotatingKeys>(&daemon, Usage::RotatingSecret, &sealed).unwrap(), keys);
    }
}

/// Printed by `ceph-authtool --gen-print-key` of 16.2.15 and of 20.2.4.
const STOCK_KEYS: [(&str, KeyKind); 2] = [
    ("AQDVFQJrQn4zFxAAzx8zH9uvfYbeIjKRCj1R1w==", KeyKind::Aes),
    ("AgDVFQJr8pKvGCAAbNdRZhbmyZic4ZbAIH2/KrJJ0g7zT3ZEv2GMhKEDJDI=", KeyKind::Aes256k),
];

#[test]
fn keys_round_trip_in_keyring_form() {
    for (text, kind) in STOCK_KEYS {
        let key = Key::from_base64(text).unwrap();
        assert_eq!(key.usable(), Ok(kind));
        assert_eq!(key.secret.len(), kind.secret_len());
        assert_eq!(key.to_base64(), text);
        assert!(!format!("{key:?}").contains("zx8z"));
    }
    assert_eq!(Key::from_base64("AQBmLIBo"), Err(KeyError::Encoding));
    assert_eq!(Key::from_base64("?"), Err(KeyError::Base64));
    assert_eq!(Key::from_base64("AwAAAAAAAAAAAAAA"), Err(KeyError::Kind(3)));
    assert_eq!(Key::from_base64("AQAAAAAAAAAAAAAA"), Err(KeyError::Length));
}

fn never_panics<T: Decode + Encode>(bytes: &[u8]) {
    if let Ok(value) = Reader::new(bytes).get::<T>() {
        let _ = value.to_vec(Features::ALL);
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        never_panics::<Key>(&bytes);
        never_panics::<TicketInfo>(&bytes);
        never_panics::<Authenticate>(&bytes);
        never_panics::<RotatingKeys>(&bytes);
        let mut e = Counter(0);
        for kind in KINDS {
            let key = key(kind, 0);
            let _ = open::<TicketInfo>(&key, Usage::TicketInfo, &bytes);
            let _ = MonitorReply::decode(&bytes, &key, Some(&key));
            let _ = read_tickets(&mut Reader::new(&bytes), &key, Some(&key));
        }
        let _ = verifier(&rotating()).verify(&bytes, None, &[], &mut e);
    }
}
