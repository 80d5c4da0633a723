//! Authentication: admission, refusals, tickets.

use super::{AuthMode, Fixture, START, keys};
use bytes::Bytes;
use codec::{Encode, Features, Reader, Writer};
use machine::net::AuthReply;
use machine::{ConnId, Random};
use std::time::Duration;
use wire::cephx::{
    Authenticate, Authorizer, GET_PRINCIPAL_SESSION_KEY, GET_ROTATING_KEY, Key, KeyKind, MonitorReply,
    RequestHeader, ResponseHeader, RotatingKeys, ServerChallenge, ServiceTicketRequest, TicketBlob, Usage,
    open_from, read_tickets,
};
use wire::messages::{Body, MAuth, PaxosHeader};
use wire::types::{AuthName, EntityKind};

const OSD_AND_MGR: u32 = EntityKind::OSD.0 as u32 | EntityKind::MGR.0 as u32;

fn name(text: &str) -> AuthName {
    text.parse().unwrap()
}

fn challenge(f: &mut Fixture, conn: ConnId, who: &str, global_id: u64) -> ServerChallenge {
    match f.auth_request(conn, true, name(who).hello_monitor(global_id), 1) {
        AuthReply::More(bytes) => codec::decode_exact(&bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn answer(
    f: &mut Fixture,
    conn: ConnId,
    key: &Key,
    challenge: ServerChallenge,
    old: TicketBlob,
    mode: u32,
) -> AuthReply {
    let mut random = Random::from_number(3);
    let payload = Authenticate::answer(key, challenge, old, OSD_AND_MGR, &mut random).unwrap();
    f.auth_request(conn, false, payload, mode)
}

fn log_in(f: &mut Fixture, who: &str) -> (ConnId, u64, MonitorReply) {
    let key = keys()[&name(who)].key.clone();
    let conn = f.conn();
    let challenge = challenge(f, conn, who, 0);
    match answer(f, conn, &key, challenge, TicketBlob::default(), 1) {
        AuthReply::Done { proof, payload, session_key, .. } => {
            let global_id = proof.global_id;
            let reply = MonitorReply::decode(&payload, &key, None).unwrap();
            assert_eq!(Some(reply.session_key.clone()), session_key);
            (conn, global_id, reply)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_key_earns_tickets_whose_session_keys_follow_it() {
    for (who, kind) in [("client.admin", KeyKind::Aes), ("client.new", KeyKind::Aes256k)] {
        let mut f = Fixture::new(AuthMode::Cephx);
        let (_, global_id, reply) = log_in(&mut f, who);
        assert!(global_id >= 4097);
        let services: Vec<u32> = reply.tickets.iter().map(|t| t.service).collect();
        assert_eq!(services, [EntityKind::AUTH, EntityKind::OSD, EntityKind::MGR].map(|k| u32::from(k.0)));
        for ticket in &reply.tickets {
            assert_eq!(ticket.session_key.usable(), Ok(kind));
        }
        // What seals the tickets is the cluster's own affair, and always the newer cipher.
        for keys in f.monitor.state().auth.rotating.values() {
            assert!(keys.secrets.values().all(|s| s.key.usable() == Ok(KeyKind::Aes256k)));
            assert_eq!(keys.secrets.len(), RotatingKeys::COUNT);
        }
    }
}

#[test]
fn wrong_key_unknown_name_and_stray_answer_are_refused_alike() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let conn = f.conn();
    let asked = challenge(&mut f, conn, "client.admin", 0);
    let wrong = Key::generate(KeyKind::Aes, START, &mut Random::from_number(1));
    let refused = answer(&mut f, conn, &wrong, asked, TicketBlob::default(), 1);
    assert!(matches!(refused, AuthReply::Bad { result: -13 }));
    let conn = f.conn();
    let asked = challenge(&mut f, conn, "client.nobody", 0);
    let refused = answer(&mut f, conn, &wrong, asked, TicketBlob::default(), 1);
    assert!(matches!(refused, AuthReply::Bad { result: -13 }));
    let conn = f.conn();
    let refused = answer(&mut f, conn, &wrong, ServerChallenge(5), TicketBlob::default(), 1);
    assert!(matches!(refused, AuthReply::Bad { result: -13 }));
}

#[test]
fn garbage_is_refused() {
    let mut f = Fixture::new(AuthMode::Cephx);
    for payload in [&b""[..], b"\x0a", b"\x63aaaaaaaaaaaaaaaaaaaaa", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let conn = f.conn();
        let reply = f.auth_request(conn, true, Bytes::copy_from_slice(payload), 1);
        assert!(matches!(reply, AuthReply::Bad { .. }), "{payload:?}");
        let reply = f.auth_request(conn, false, Bytes::copy_from_slice(payload), 1);
        assert!(matches!(reply, AuthReply::Bad { .. }), "{payload:?}");
    }
}

#[test]
fn a_secure_session_gets_a_secret_that_the_client_can_open() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let key = keys()[&name("client.admin")].key.clone();
    let conn = f.conn();
    let payload = name("client.admin").hello_monitor(0);
    let AuthReply::More(bytes) = f.auth_request(conn, true, payload, 2) else { panic!("no challenge") };
    let asked = codec::decode_exact(&bytes).unwrap();
    let AuthReply::Done { payload, connection_secret, .. } =
        answer(&mut f, conn, &key, asked, TicketBlob::default(), 2)
    else {
        panic!("refused")
    };
    assert_eq!(connection_secret.len(), 64);
    let reply = MonitorReply::decode(&payload, &key, None).unwrap();
    assert_eq!(reply.connection_secret, connection_secret);
}

#[test]
fn a_global_id_is_kept_by_its_ticket_and_not_without() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let (_, global_id, first) = log_in(&mut f, "client.admin");
    let key = keys()[&name("client.admin")].key.clone();
    let ticket = &first.tickets[0];

    let conn = f.conn();
    let asked = challenge(&mut f, conn, "client.admin", global_id);
    let AuthReply::Done { proof, payload, .. } = answer(&mut f, conn, &key, asked, ticket.to_blob(), 1)
    else {
        panic!("refused")
    };
    assert_eq!(proof.global_id, global_id);
    assert!(MonitorReply::decode(&payload, &key, Some(&ticket.session_key)).is_ok());

    let conn = f.conn();
    let asked = challenge(&mut f, conn, "client.admin", global_id);
    let refused = answer(&mut f, conn, &key, asked, TicketBlob::default(), 1);
    assert!(matches!(refused, AuthReply::Bad { result: -13 }));
    let conn = f.conn();
    let asked = challenge(&mut f, conn, "client.admin", global_id + 1);
    let refused = answer(&mut f, conn, &key, asked, ticket.to_blob(), 1);
    assert!(matches!(refused, AuthReply::Bad { result: -13 }));
}

#[test]
fn global_ids_are_never_given_twice_not_even_across_a_crash() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let (_, first, _) = log_in(&mut f, "client.admin");
    let (_, second, _) = log_in(&mut f, "client.admin");
    assert_ne!(first, second);
    f.kill_and_restart();
    let (_, third, _) = log_in(&mut f, "client.admin");
    assert!(third > second);
}

#[test]
fn no_id_is_given_before_its_reservation_is_durable() {
    let mut f = Fixture::new(AuthMode::Cephx);
    f.disk_is_fast = false;
    f.monitor.spend_global_ids();
    let conn = f.conn();
    let request = machine::net::AuthRequest {
        method: 2,
        first: true,
        payload: name("client.admin").hello_monitor(0),
        peer_kind: EntityKind::CLIENT,
        peer_addr: super::addr(1).0[0],
        mode: 1,
    };
    f.step(super::Input::Net(machine::net::NetEvent::Auth { conn, request: request.into() }));
    assert!(f.auth.is_empty());
    f.finish_write();
    assert!(matches!(f.auth.pop_front(), Some((_, AuthReply::More(_)))));
}

#[test]
fn secrets_rotate_when_the_current_one_expires() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let of = |f: &Fixture| f.monitor.state().auth.rotating[&EntityKind::OSD.0].clone();
    let before = of(&f);
    f.pass(Duration::from_secs(3 * 3600));
    let after = of(&f);
    assert!(after.max_version > before.max_version);
    assert_eq!(after.secrets.len(), RotatingKeys::COUNT);
}

fn mauth(f: &mut Fixture, conn: ConnId, payload: Vec<u8>) -> (i32, Bytes) {
    let message =
        MAuth { paxos: PaxosHeader::default(), protocol: 2, payload: payload.into(), monmap_epoch: 1 };
    f.send(conn, message);
    for body in f.received(conn) {
        if let Body::MAuthReply(reply) = body {
            return (reply.result, reply.payload);
        }
    }
    panic!("no answer")
}

#[test]
fn a_session_renews_its_tickets() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let (_, global_id, granted) = log_in(&mut f, "client.admin");
    let session = f.connect("client.admin", 5000);
    let mut random = Random::from_number(8);
    let auth = &granted.tickets[0];
    let mut w = Writer::new(Features::ALL);
    w.put(&RequestHeader(GET_PRINCIPAL_SESSION_KEY));
    w.raw(&Authorizer::new(global_id, auth.clone(), &mut random).present(&mut random).unwrap());
    w.put(&ServiceTicketRequest(u32::from(EntityKind::OSD.0)));
    let (result, payload) = mauth(&mut f, session, w.into_vec());
    assert_eq!(result, 0);
    let mut r = Reader::new(&payload);
    assert_eq!(r.get::<ResponseHeader>().unwrap().request, GET_PRINCIPAL_SESSION_KEY);
    let tickets = read_tickets(&mut r, &auth.session_key, None).unwrap();
    assert_eq!(tickets.len(), 1);
    assert_eq!(tickets[0].service, u32::from(EntityKind::OSD.0));
}

#[test]
fn a_daemon_gets_its_own_services_secrets_sealed_with_its_key() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let session = f.connect("osd.0", 6800);
    let (result, payload) = mauth(&mut f, session, RequestHeader(GET_ROTATING_KEY).to_vec(Features::ALL));
    assert_eq!(result, 0);
    let mut r = Reader::new(&payload);
    r.get::<ResponseHeader>().unwrap();
    let key = &keys()[&name("osd.0")].key;
    let secrets: RotatingKeys = open_from(&mut r, key, Usage::RotatingSecret).unwrap();
    assert_eq!(secrets, f.monitor.state().auth.rotating[&EntityKind::OSD.0]);
    // A client's kind has no secrets to give.
    let client = f.connect("client.admin", 5000);
    let (result, _) = mauth(&mut f, client, RequestHeader(GET_ROTATING_KEY).to_vec(Features::ALL));
    assert_eq!(result, -13);
}

/// After a stop of days all secrets have expired, and tickets will be sealed with new ones.
#[test]
fn daemon_gets_no_secrets_that_are_to_be_rotated() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let before = f.monitor.state().auth.rotating[&EntityKind::OSD.0].max_version;
    let long_after = f.now + Duration::from_secs(4 * 24 * 3600);
    f = Fixture::start(AuthMode::Cephx, f.disk.clone(), long_after);
    f.disk_is_fast = false;
    let session = f.connect("osd.0", 6800);
    let request = || RequestHeader(GET_ROTATING_KEY).to_vec(Features::ALL);
    assert_eq!(mauth(&mut f, session, request()).0, -11);
    f.disk_is_fast = true;
    while !f.writes.is_empty() {
        f.finish_write();
    }
    f.pass(Duration::from_secs(5));
    assert!(f.monitor.state().auth.rotating[&EntityKind::OSD.0].max_version > before);
    let session = f.connect("osd.0", 6800);
    assert_eq!(mauth(&mut f, session, request()).0, 0);
}

#[test]
fn without_cephx_everyone_is_let_in_and_cephx_is_not_spoken() {
    let mut f = Fixture::new(AuthMode::None);
    let conn = f.conn();
    let reply = f.auth_request(conn, true, name("client.anyone").hello_monitor(0), 1);
    assert!(matches!(reply, AuthReply::Done { ref proof, session_key: None, .. } if proof.allow_all));
}

/// Codes of checks about keys.
fn insecure(f: &mut Fixture, admin: ConnId) -> Vec<String> {
    let health = super::parse(&f.ok(admin, r#"{"prefix":"health","detail":"detail","format":"json"}"#));
    let codes = health["checks"].as_object().unwrap().keys();
    codes.filter(|code| code.starts_with("AUTH_")).cloned().collect()
}

fn kind_of(f: &Fixture, who: &str) -> KeyKind {
    f.monitor.state().auth.entities[&name(who)].key.usable().unwrap()
}

fn set(what: &str, value: &str) -> String {
    format!(r#"{{"prefix":"mon set","name":"{what}","value":"{value}"}}"#)
}

#[test]
fn older_cipher_warns_once_the_newer_is_preferred() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    f.ok(admin, r#"{"prefix":"auth add","entity":"client.a"}"#);
    assert_eq!((kind_of(&f, "client.a"), insecure(&mut f, admin)), (KeyKind::Aes, vec![]));
    f.ok(admin, &set("auth_preferred_cipher", "aes256k"));
    f.ok(admin, r#"{"prefix":"auth add","entity":"client.b"}"#);
    assert_eq!(kind_of(&f, "client.b"), KeyKind::Aes256k);
    assert_eq!(
        insecure(&mut f, admin),
        [
            "AUTH_INSECURE_CLIENT_KEY_TYPE",
            "AUTH_INSECURE_KEYS_ALLOWED",
            "AUTH_INSECURE_KEYS_CREATABLE",
            "AUTH_INSECURE_SERVICE_KEY_TYPE"
        ]
    );
    let health = super::parse(&f.ok(admin, r#"{"prefix":"health","detail":"detail","format":"json"}"#));
    let clients = &health["checks"]["AUTH_INSECURE_CLIENT_KEY_TYPE"];
    let lines: Vec<&str> =
        clients["detail"].as_array().unwrap().iter().filter_map(|line| line["message"].as_str()).collect();
    let summary = format!("{} auth client entities with insecure key types", lines.len());
    assert_eq!(clients["summary"]["message"], summary);
    assert!(lines.contains(&"entity client.a using insecure key type: aes"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("client.b using") || line.contains("osd.0")), "{lines:?}");
    f.ok(
        admin,
        r#"{"prefix":"config set","who":"mon","name":"mon_auth_allow_insecure_key","value":"false"}"#,
    );
    assert!(!insecure(&mut f, admin).contains(&"AUTH_INSECURE_KEYS_CREATABLE".to_owned()));
    let old = r#"{"prefix":"auth add","entity":"client.c","key_type":"aes"}"#;
    let why = "creating key with insecure key type (\"aes\") not allowed";
    assert_eq!(f.says(admin, old), (command::errno::EINVAL, why.into()));
    f.ok(admin, &set("auth_service_cipher", "aes"));
    assert!(insecure(&mut f, admin).contains(&"AUTH_INSECURE_SERVICE_TICKETS".to_owned()));
}

#[test]
fn cipher_that_is_not_allowed_shuts_clients_out() {
    use command::errno::{EBUSY, EINVAL};
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.new", 5000);
    let only_new = set("auth_allowed_ciphers", "aes256k");
    for wrong in [
        set("auth_allowed_ciphers", "des"),
        set("auth_allowed_ciphers", ""),
        set("auth_preferred_cipher", ""),
    ] {
        assert_eq!(f.says(admin, &wrong), (EINVAL, "(22) Invalid argument".into()), "{wrong}");
    }
    assert_eq!(f.says(admin, &set("auth_preferred_cipher", "aes")), (0, "already set".into()));
    // It reads the key of an encrypted OSD's store.
    f.ok(admin, r#"{"prefix":"auth add","entity":"client.osd-lockbox.5"}"#);
    let emergency = r#"{"prefix":"config set","who":"mon","name":"mon_auth_emergency_allowed_ciphers","value":"aes256k"}"#;
    assert_eq!(f.says(admin, emergency).0, EINVAL, "only a monitor's own file may have it");
    let (errno, status) = f.says(admin, &only_new);
    assert_eq!(errno, EBUSY);
    let needed = ["osd.0", "client.admin", "client.osd-lockbox.5", "mgr.x"];
    assert!(status.starts_with(&format!("keys of {} could no longer", needed.join(", "))), "{status}");
    for who in needed {
        let key = Key::generate(KeyKind::Aes256k, START, &mut Random::from_number(11)).to_base64();
        let keyring = format!("[{who}]\n\tkey = {key}\n\tcaps mon = \"allow *\"\n");
        assert_eq!(f.command_with(admin, r#"{"prefix":"auth import"}"#, keyring.as_bytes()).0, 0);
    }
    f.ok(admin, &only_new);
    assert_eq!(insecure(&mut f, admin), ["AUTH_INSECURE_CLIENT_KEY_TYPE"], "client.poor");
    f.ok(admin, r#"{"prefix":"shoal token create"}"#);
    let tokens =
        f.monitor.state().auth.entities.iter().filter(|(name, _)| crate::join_token::id_of(name).is_some());
    let kinds: Vec<_> = tokens.map(|(_, entity)| entity.key.usable().unwrap()).collect();
    assert_eq!(kinds, [KeyKind::Aes256k], "a key that can be used");
    let old = r#"{"prefix":"auth add","entity":"client.c","key_type":"aes"}"#;
    let why = "refusing to create key with type (aes) that cannot be used for auth (auth_allowed_ciphers)";
    assert_eq!(f.says(admin, old), (EINVAL, why.into()));
    let poor = keys()[&name("client.poor")].key.clone();
    let conn = f.conn();
    let asked = challenge(&mut f, conn, "client.poor", 0);
    let refused = answer(&mut f, conn, &poor, asked, TicketBlob::default(), 1);
    assert!(matches!(refused, AuthReply::Bad { result: -13 }));
    log_in(&mut f, "client.new");
}
