//! Commands of the manager that clients send to a monitor.

use super::senders::beacon;
use super::*;
use command::errno::{EACCES, EAGAIN, EINVAL, EPERM, ETIMEDOUT};
use machine::net::CloseReason;
use wire::messages::{CommandDescription, MMgrBeacon, MMgrCommandReply};

const PG_STAT: &str = r#"{"prefix":"pg stat"}"#;

fn described(auth: AuthMode, available: bool) -> Fixture {
    let mut f = Fixture::new(auth);
    let manager = f.connect("mgr.x", 6810);
    let command = |signature: &str, permissions: &str| CommandDescription {
        signature: signature.into(),
        help: String::new(),
        module: "pg".into(),
        permissions: permissions.into(),
        availability: "cli".into(),
        flags: 8,
    };
    let commands = vec![command("pg stat", "r"), command("pg repair name=pgid,type=CephPgid", "rw")];
    f.send(manager, MMgrBeacon { addrs: addr(6810), commands, available, ..beacon(true) });
    f.pass(Duration::from_secs(3));
    f.sent.clear();
    f
}

/// Sends a command and returns what the monitor passed on: the connection, and the message.
fn ask(f: &mut Fixture, client: ConnId, json: &str) -> Vec<(ConnId, Message)> {
    let command = vec![json.to_owned()];
    let input = Bytes::from_static(b"input");
    f.send(client, MMonCommand { paxos: PaxosHeader::default(), fsid: FSID, command, input });
    passed_on(f)
}

fn passed_on(f: &mut Fixture) -> Vec<(ConnId, Message)> {
    let is_command = |(_, message): &(ConnId, Message)| matches!(message.body, Body::MMgrCommand(_));
    let (passed, others) = f.sent.drain(..).partition(is_command);
    f.sent = others;
    let passed: VecDeque<(ConnId, Message)> = passed;
    passed.into()
}

fn answers(f: &mut Fixture, client: ConnId) -> Vec<(i32, String, Bytes)> {
    let acks = f.received(client).into_iter().filter_map(|body| match body {
        Body::MMonCommandAck(ack) => Some((-ack.result, ack.status.clone(), ack.output.clone())),
        _ => None,
    });
    acks.collect()
}

fn reply(f: &mut Fixture, (conn, asked): &(ConnId, Message), result: i32) {
    let body = MMgrCommandReply { result, status: "status".into(), output: Bytes::from_static(b"output") };
    let message = Message::with_tid(asked.tid, body);
    f.step(Input::Net(NetEvent::Message { conn: *conn, message, held: Held::default() }));
}

#[test]
fn manager_answers_over_the_monitor() {
    for auth in [AuthMode::None, AuthMode::Cephx] {
        let mut f = described(auth, true);
        let admin = f.connect("client.admin", 7000);
        let asked = ask(&mut f, admin, PG_STAT);
        let [(_, Message { body: Body::MMgrCommand(command), .. })] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((&*command.command[0], &command.input[..], command.fsid), (PG_STAT, &b"input"[..], FSID));
        assert_eq!(answers(&mut f, admin), []);
        reply(&mut f, &asked[0], -EAGAIN);
        assert_eq!(answers(&mut f, admin), [(EAGAIN, "status".into(), Bytes::from_static(b"output"))]);
        reply(&mut f, &asked[0], 0);
        assert_eq!(answers(&mut f, admin), [], "once");
    }
}

#[test]
fn caps_and_arguments_are_checked_by_the_monitor() {
    let mut f = described(AuthMode::Cephx, true);
    let poor = f.connect("client.poor", 7001);
    assert_eq!(ask(&mut f, poor, PG_STAT).len(), 1, "its mon caps allow reading");
    let refused = |f: &mut Fixture, json: &str| {
        assert_eq!(ask(f, poor, json).len(), 0, "{json}");
        answers(f, poor)[0].0
    };
    assert_eq!(refused(&mut f, r#"{"prefix":"pg repair","pgid":"1.0"}"#), EACCES);
    assert_eq!(refused(&mut f, r#"{"prefix":"no such"}"#), EINVAL);
    let admin = f.connect("client.admin", 7000);
    assert_eq!(ask(&mut f, admin, r#"{"prefix":"pg repair"}"#).len(), 0);
    assert_eq!(answers(&mut f, admin)[0].0, EINVAL);
    let command = vec![PG_STAT.to_owned()];
    let fsid = Uuid([1; 16]);
    f.send(admin, MMonCommand { paxos: PaxosHeader::default(), fsid, command, input: Bytes::new() });
    assert_eq!((passed_on(&mut f).len(), answers(&mut f, admin)[0].0), (0, EPERM));
}

#[test]
fn command_goes_to_the_next_connection() {
    let mut f = described(AuthMode::None, true);
    let admin = f.connect("client.admin", 7000);
    let first = ask(&mut f, admin, PG_STAT);
    f.step(Input::Net(NetEvent::Closed { conn: first[0].0, why: CloseReason::TimedOut }));
    assert_eq!(passed_on(&mut f).len(), 0);
    f.pass(Duration::from_secs(2));
    let second = passed_on(&mut f);
    assert_ne!((first[0].0, second.len()), (second[0].0, 1));
    reply(&mut f, &first[0], 0);
    assert_eq!(answers(&mut f, admin), [], "a word over the old connection");
    reply(&mut f, &second[0], 0);
    assert_eq!(answers(&mut f, admin).len(), 1);
}

#[test]
fn command_that_ends_two_managers_meets_no_third() {
    let mut f = described(AuthMode::None, true);
    let admin = f.connect("client.admin", 7000);
    let mut sent = ask(&mut f, admin, PG_STAT);
    for _ in 0..2 {
        assert_eq!((sent.len(), answers(&mut f, admin).len()), (1, 0));
        f.step(Input::Net(NetEvent::Closed { conn: sent[0].0, why: CloseReason::TimedOut }));
        f.pass(Duration::from_secs(2));
        sent = passed_on(&mut f);
    }
    assert_eq!((sent.len(), answers(&mut f, admin)[0].0), (0, EAGAIN));
}

#[test]
fn command_without_a_manager_times_out() {
    let mut f = described(AuthMode::None, false);
    let admin = f.connect("client.admin", 7000);
    assert_eq!(ask(&mut f, admin, PG_STAT).len(), 0);
    f.pass(Duration::from_secs(119));
    assert_eq!(answers(&mut f, admin), []);
    f.pass(Duration::from_secs(2));
    assert_eq!(answers(&mut f, admin)[0].0, ETIMEDOUT);
}

#[test]
fn waiting_commands_are_bounded() {
    let mut f = described(AuthMode::None, false);
    let admin = f.connect("client.admin", 7000);
    for _ in 0..1000 {
        ask(&mut f, admin, PG_STAT);
    }
    assert_eq!(answers(&mut f, admin), []);
    ask(&mut f, admin, PG_STAT);
    assert_eq!(answers(&mut f, admin)[0].0, EAGAIN);
    f.step(Input::Net(NetEvent::Closed { conn: admin, why: CloseReason::TimedOut }));
    let again = f.connect("client.admin", 7001);
    ask(&mut f, again, PG_STAT);
    assert_eq!(answers(&mut f, again), [], "the first client's commands are forgotten");
}
