//! Join tokens, hosts that join with them, and hosts that leave.

use super::{AuthMode, FSID, Fixture, START, addr, parse};
use crate::join_token::{JoinToken, TokenError};
use codec::Encode;
use machine::ConnId;
use machine::identity::Proof;
use machine::net::{NetEvent, Peer};
use serde_json::Value;
use std::time::Duration;
use wire::messages::{Body, MMonCommand, MMonMgrReport, Message, PaxosHeader};
use wire::types::{AuthName, EntityName, HealthChecks, PgCount, PgMapDigest, PgState};

struct Joining {
    f: Fixture,
    admin: ConnId,
}

const ID: &str = "00000000-0000-4000-8000-000000000001";
const OTHER_ID: &str = "00000000-0000-4000-8000-000000000002";

fn osd(n: u8) -> String {
    format!("10000000-0000-4000-8000-0000000000{n:02}:1099511627776:hdd")
}

impl Joining {
    fn new() -> Joining {
        let mut f = Fixture::new(AuthMode::Cephx);
        let admin = f.connect("client.admin", 5000);
        Joining { f, admin }
    }

    fn token(&mut self, args: &str) -> JoinToken {
        let text = self.f.ok(self.admin, &format!(r#"{{"prefix":"shoal token create"{args}}}"#));
        text.parse().unwrap()
    }

    fn connect(&mut self, name: &AuthName, secure: bool) -> ConnId {
        let conn = self.f.conn();
        let claimed = EntityName::new(name.kind, 5555);
        let peer = Peer::identified(Proof::cephx(name.clone(), 5555, ""), claimed, addr(1).0[0]).unwrap();
        let peer = Peer { features: wire::features::TENTACLE, secure, ..peer };
        self.f.step(super::Input::Net(NetEvent::Ready { conn, peer: peer.into() }));
        conn
    }

    /// `shoal join` over a secure connection with the token's key: errno, status, answer.
    fn join(&mut self, token: &JoinToken, name: &str, id: &str, more: &str) -> (i32, String, Value) {
        let conn = self.connect(&token.entity(), true);
        let (errno, status, body) = self.f.command(conn, &self.command(name, id, more));
        (errno, status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    fn command(&self, name: &str, id: &str, more: &str) -> String {
        let clock = START.sec + (self.f.now.0 / 1_000_000_000) as u32;
        format!(
            r#"{{"prefix":"shoal join","name":"{name}","id":"{id}","addr":"10.0.0.9","clock":{clock}{more}}}"#
        )
    }

    fn joined(&mut self, token: &JoinToken, name: &str, id: &str, more: &str) -> Value {
        let (errno, status, answer) = self.join(token, name, id, more);
        assert_eq!(errno, 0, "{status}");
        answer
    }

    fn hosts(&mut self) -> Value {
        parse(&self.f.ok(self.admin, r#"{"prefix":"shoal host ls","format":"json"}"#))
    }

    fn tokens(&mut self) -> Value {
        parse(&self.f.ok(self.admin, r#"{"prefix":"shoal token ls","format":"json"}"#))
    }

    fn has_entity(&self, name: &str) -> bool {
        self.f.monitor.state().auth.entities.contains_key(&name.parse().unwrap())
    }
}

fn report(digest: &PgMapDigest) -> MMonMgrReport {
    MMonMgrReport {
        paxos: PaxosHeader::default(),
        gid: 1,
        health: HealthChecks::default(),
        service_map: Default::default(),
        digest: digest.to_vec(wire::features::SUPPORTED).into(),
        progress: Default::default(),
    }
}

fn keys(answer: &Value) -> Vec<String> {
    let keys = answer["keys"].as_array().unwrap().iter();
    keys.map(|key| key["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn token_names_cluster_monitors_and_key() {
    let mut j = Joining::new();
    let token = j.token("");
    assert_eq!((token.fsid, token.expires), (FSID, START.sec + 24 * 3600));
    assert_eq!(token.monitors, ["127.0.0.1:3300".parse().unwrap()]);
    let entity = &j.f.monitor.state().auth.entities[&token.entity()];
    assert_eq!(entity.key, token.key);
    assert_eq!(entity.caps["mon"], "profile shoal-join");
    let listed = j.tokens();
    assert_eq!(listed[0]["id"], token.id.as_str());
    assert!(!listed.to_string().contains(&token.key.to_base64()), "{listed}");
    assert!(matches!("shoal1-x".parse::<JoinToken>(), Err(TokenError::Mistyped)));
}

#[test]
fn join_gives_osds_keys_and_place_in_one_step() {
    let mut j = Joining::new();
    let token = j.token("");
    let before = j.f.monitor.state().version;
    let osds = format!(r#","osds":["{}","{}"]"#, osd(1), osd(2));
    let answer = j.joined(&token, "h4", ID, &osds);
    assert_eq!(j.f.monitor.state().version, before + 1);
    assert_eq!(answer["osds"][1]["id"], 1);
    assert_eq!(answer["monitor"], false);
    assert_eq!(keys(&answer), ["client.host-h4", "osd.0", "osd.1"]);
    let state = j.f.monitor.state();
    let crush = &state.osdmap().crush;
    assert_eq!(crate::crush::location_text(crush, 1), "root=default,host=h4");
    assert_eq!(crate::crush::class_of(crush, 1), Some("hdd"));
    let key = answer["keys"][1]["key"].as_str().unwrap();
    assert_eq!(state.auth.entities[&"osd.0".parse().unwrap()].key.to_base64(), key);
    let hosts = j.hosts();
    assert_eq!((&hosts[0]["name"], &hosts[0]["addr"]), (&"h4".into(), &"10.0.0.9".into()));
    assert_eq!(hosts[0]["osds"].as_array().unwrap().len(), 2);
}

#[test]
fn repeated_join_gives_the_same_and_counts_once() {
    let mut j = Joining::new();
    let token = j.token(r#","uses":1"#);
    let osds = format!(r#","osds":["{}"]"#, osd(1));
    let first = j.joined(&token, "h4", ID, &osds);
    assert_eq!(j.joined(&token, "h4", ID, &osds), first);
    let more = format!(r#","osds":["{}","{}"]"#, osd(1), osd(2));
    assert_eq!(j.joined(&token, "h4", ID, &more)["osds"][1]["id"], 1, "a known host adds a disk");
    assert_eq!((&j.tokens()[0]["used"], &j.tokens()[0]["uses_left"]), (&1.into(), &0.into()));
    let (errno, status, _) = j.join(&token, "h5", OTHER_ID, "");
    assert_eq!(errno, 1);
    assert!(status.contains("used up"), "{status}");
    assert_eq!(j.hosts().as_array().unwrap().len(), 1, "a refusal changes nothing");
}

#[test]
fn expired_token_ends_with_its_key() {
    let mut j = Joining::new();
    let token = j.token(r#","expires":60"#);
    j.joined(&token, "h4", ID, "");
    let conn = j.connect(&token.entity(), true);
    j.f.pass(Duration::from_secs(58));
    assert!(j.has_entity(&token.entity().to_string()));
    j.f.pass(Duration::from_secs(4));
    assert!(!j.has_entity(&token.entity().to_string()));
    assert_eq!(j.tokens(), parse("[]"));
    let command = j.command("h5", OTHER_ID, "");
    assert_eq!(j.f.says(conn, &command).0, 13, "the open session has lost its capability, too");
    assert!(j.has_entity("client.host-h4"), "hosts that joined stay");
}

#[test]
fn revoked_token_ends_at_once() {
    let mut j = Joining::new();
    let token = j.token("");
    let revoke = format!(r#"{{"prefix":"shoal token revoke","id":"{}"}}"#, token.id);
    j.f.ok(j.admin, &revoke);
    assert!(!j.has_entity(&token.entity().to_string()));
    assert_eq!(j.join(&token, "h4", ID, "").0, 13);
    assert_eq!(j.f.says(j.admin, &revoke).0, 2);
}

#[test]
fn token_without_its_key_is_forgotten() {
    let mut j = Joining::new();
    let token = j.token("");
    j.f.ok(j.admin, &format!(r#"{{"prefix":"auth rm","entity":"{}"}}"#, token.entity()));
    j.f.pass(Duration::from_secs(2));
    assert_eq!(j.tokens(), parse("[]"));
}

#[test]
fn joining_needs_secure_mode_and_a_token() {
    let mut j = Joining::new();
    let token = j.token("");
    let command = j.command("h4", ID, "");
    let plain = j.connect(&token.entity(), false);
    let (errno, status) = j.f.says(plain, &command);
    assert!(errno == 1 && status.contains("secure mode"), "{status}");
    let admin = j.connect(&"client.admin".parse().unwrap(), true);
    let (errno, status) = j.f.says(admin, &command);
    assert!(errno == 1 && status.contains("no token"), "{status}");
    let holder = j.connect(&token.entity(), true);
    for other in [r#"{"prefix":"osd dump"}"#, r#"{"prefix":"status"}"#, r#"{"prefix":"shoal token create"}"#]
    {
        assert_eq!(j.f.says(holder, other).0, 13, "{other}");
    }
    assert!(j.f.monitor.state().joining.hosts.is_empty());
}

#[test]
fn repeated_join_tells_keys_in_secure_mode_alone() {
    let mut j = Joining::new();
    let token = j.token("");
    let command = j.command("h4", ID, &format!(r#","osds":["{}"]"#, osd(1)));
    let say = |j: &mut Joining, secure: bool| {
        let conn = j.connect(&token.entity(), secure);
        j.f.sent.clear();
        let body = MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: FSID,
            command: vec![command.clone()],
            input: Default::default(),
        };
        let message = Message::with_tid(77, body);
        j.f.step(super::Input::Net(NetEvent::Message { conn, message, held: Default::default() }));
        let acks = j.f.received(conn).into_iter();
        let ack = acks.filter_map(|body| if let Body::MMonCommandAck(ack) = body { Some(ack) } else { None });
        let ack = ack.last().unwrap();
        (ack.result, String::from_utf8_lossy(&ack.output).contains("osd.0"))
    };
    assert_eq!(say(&mut j, true), (0, true));
    assert_eq!(say(&mut j, false), (-1, false));
    assert_eq!(say(&mut j, true), (0, true));
    let used: Vec<u32> = j.f.monitor.state().joining.tokens.values().map(|token| token.used).collect();
    assert_eq!(used, [1]);
}

#[test]
fn hosts_with_wrong_clocks_and_names_are_refused() {
    let mut j = Joining::new();
    let token = j.token("");
    let conn = j.connect(&token.entity(), true);
    let late = j.command("h4", ID, "").replace(&START.sec.to_string(), &(START.sec - 75).to_string());
    let (errno, status) = j.f.says(conn, &late);
    assert!(errno == 22 && status.contains("75 s behind"), "{status}");
    assert_eq!(j.join(&token, "a.b", ID, "").0, 22);
    assert_eq!(j.join(&token, "default", ID, "").0, 17, "the root's name");
    j.joined(&token, "h4", ID, "");
    let (errno, status, _) = j.join(&token, "h4", OTHER_ID, "");
    assert!(errno == 17 && status.contains("--dead"), "{status}");
    let (errno, status, _) = j.join(&token, "a", OTHER_ID, "");
    assert!(errno == 17 && status.contains("a monitor a"), "{status}");
    assert_eq!(j.join(&token, "h5", OTHER_ID, r#","osds":["x:1:hdd"]"#).0, 22);
}

#[test]
fn monitors_come_with_tokens_that_allow_them() {
    let mut j = Joining::new();
    let plain = j.token("");
    assert_eq!(j.join(&plain, "h1", ID, r#","monitor":"yes""#).0, 1);
    let token = j.token(r#","mons":true"#);
    let id = |n: u8| format!("00000000-0000-4000-8000-0000000000{n:02}");
    let has_monitor: Vec<bool> = (1..5)
        .map(|n| j.joined(&token, &format!("h{n}"), &id(n), "")["monitor"].as_bool().unwrap())
        .collect();
    assert_eq!(has_monitor, [true, true, false, false], "one is there: two more make three");
    assert!(j.joined(&token, "h5", &id(5), r#","monitor":"yes""#)["monitor"].as_bool().unwrap());
    assert!(!j.joined(&token, "h6", &id(6), r#","monitor":"no""#)["monitor"].as_bool().unwrap());
    j.joined(&token, "h7", &id(7), r#","monitor":"yes""#);
    assert_eq!(j.join(&token, "h8", &id(8), r#","monitor":"yes""#).0, 16, "five are enough");
    let again = j.joined(&token, "h1", &id(1), "");
    assert_eq!(
        keys(&again),
        ["client.admin", "client.host-h1", "mgr.h1"],
        "this test's cluster has no key of mon."
    );
}

#[test]
fn names_of_others_open_nothing() {
    let mut j = Joining::new();
    let token = j.token("");
    let claim = |j: &mut Joining, name: &str, addr: &str| {
        let conn = j.connect(&token.entity(), true);
        let command = j.command(name, ID, "").replace("10.0.0.9", addr);
        j.f.says(conn, &command)
    };
    let (errno, status) = claim(&mut j, "a", "127.0.0.1");
    assert!(errno == 1 && status.contains("--mons"), "the first monitor's name and address: {status}");
    j.f.ok(j.admin, r#"{"prefix":"auth add","entity":"client.host-boss","caps":["mon","allow *"]}"#);
    let (errno, status) = claim(&mut j, "boss", "10.0.0.9");
    assert!(errno == 17 && status.contains("client.host-boss"), "{status}");
    let old =
        parse(&j.f.ok(j.admin, r#"{"prefix":"auth get-or-create-key","entity":"osd.1","format":"json"}"#));
    let osds = format!(r#","osds":["{}","{}"]"#, osd(1), osd(2));
    let answer = j.joined(&token, "h4", ID, &osds);
    assert_eq!(answer["keys"][2]["name"], "osd.1");
    assert_ne!(answer["keys"][2]["key"], old["key"], "a key that somebody may have");
    let mons = j.token(r#","mons":true"#);
    let own = j.command("a", OTHER_ID, "").replace("10.0.0.9", "127.0.0.1");
    let conn = j.connect(&mons.entity(), true);
    let (errno, status) = j.f.says(conn, &own);
    assert_eq!(errno, 0, "the first host joins its own cluster: {status}");
}

#[test]
fn host_with_needed_data_stays() {
    let mut j = Joining::new();
    let token = j.token("");
    j.joined(&token, "h4", ID, &format!(r#","osds":["{}"]"#, osd(1)));
    let own = j.connect(&"client.host-h4".parse().unwrap(), false);
    j.joined(&token, "h5", OTHER_ID, "");
    let remove = r#"{"prefix":"shoal host rm","name":"h4"}"#;
    assert_eq!(j.f.says(own, r#"{"prefix":"shoal host rm","name":"h5"}"#).0, 13, "another host's");
    j.f.ok(j.admin, r#"{"prefix":"osd in","ids":["0"]}"#);
    let (errno, status) = j.f.says(own, remove);
    assert!(errno == 16 && status.contains("osd.0 in"), "{status}");
    j.f.ok(own, r#"{"prefix":"shoal host out","name":"h4"}"#);
    j.f.ok(j.admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    let (errno, status) = j.f.says(own, remove);
    assert!(errno == 16 && status.contains("4 of 4 placement groups are not clean"), "{status}");
    assert!(status.contains("no manager is active"), "{status}");

    let mgr = j.f.connect("mgr.x", 6900);
    j.f.send(mgr, super::senders::beacon(true));
    let clean = PgState::ACTIVE.with(PgState::CLEAN);
    let mut digest =
        PgMapDigest { num_pg: 4, num_pg_by_state: [(clean, 4)].into(), ..PgMapDigest::default() };
    digest.num_pg_by_osd.insert(0, PgCount { acting: 1, ..PgCount::default() });
    j.f.send(mgr, report(&digest));
    let (errno, status) = j.f.says(own, remove);
    assert!(errno == 16 && status.contains("1 placement groups are on its OSDs"), "{status}");
    digest.num_pg_by_osd.clear();
    j.f.send(mgr, report(&digest));
    j.f.ok(own, remove);
    assert_eq!(j.hosts()[0]["name"], "h5");
    assert!(!j.has_entity("osd.0") && !j.has_entity("client.host-h4"));
    assert!(!j.f.monitor.state().osdmap().exists(0));
}

#[test]
fn last_monitor_and_last_failure_domains_are_needed() {
    let mut j = Joining::new();
    let token = j.token("");
    j.joined(&token, "h4", ID, &format!(r#","osds":["{}"]"#, osd(1)));
    j.f.ok(j.admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    let show = |j: &mut Joining, name: &str| {
        parse(&j.f.ok(j.admin, &format!(r#"{{"prefix":"shoal host show","name":"{name}","format":"json"}}"#)))
    };
    let shown = show(&mut j, "h4");
    assert_eq!(shown["pgs"], 4);
    let why = shown["needed_because"].to_string();
    assert!(why.contains("0 would be left"), "{why}");
    assert_eq!(j.f.says(j.admin, r#"{"prefix":"shoal host show","name":"h9"}"#).0, 2);
}

#[test]
fn room_of_the_others_decides_by_weight() {
    const GIB: u64 = 1 << 30;
    let mut c = super::cluster::Cluster::of(&["h1", "h2", "h3", "h4"]);
    let mgr = c.connect("mgr.x", 6900);
    c.send(mgr, super::senders::beacon(true));
    let why = |c: &mut super::cluster::Cluster, used: u64| {
        let mut digest = PgMapDigest::default();
        digest.osd_sum.statfs.total = 400 * GIB;
        digest.osd_sum.statfs.available = (400 - used) * GIB;
        c.send(mgr, report(&digest));
        let host = parse(&c.done(r#"{"prefix":"shoal host show","name":"h4","format":"json"}"#));
        host["needed_because"].to_string()
    };
    assert_eq!(why(&mut c, 250), "[]");
    let said = why(&mut c, 290);
    assert!(said.contains("97 % full") && said.contains("85 %"), "{said}");
    c.take_down(3);
    assert_eq!(why(&mut c, 290), "[]", "the sum is of those that are up");
}
