//! Objects that were found damaged: known, and to whom, until they are whole or gone; over a restart, too.

mod harness;

use bytes::Bytes;
use harness::{Host, object, pg, read, write, write_full};
use osd::shard::{PgOrder, ToControl};
use wire::types::*;

const EIO: i32 = -5;

/// Two objects, of which one has been read in vain.
fn with_a_damaged_one() -> Host {
    let mut host = Host::serving();
    for name in ["bad", "good"] {
        assert_eq!(host.ask(name, vec![write_full(b"0123456789")]).result, 0);
    }
    assert_eq!(host.damaged(), []);
    host.rot("bad");
    host.control.clear();
    for _ in 0..2 {
        assert_eq!(host.ask("bad", vec![read(0, 10)]).result, EIO);
    }
    let told = host.control.iter().filter(|said| matches!(said, ToControl::Damaged { .. }));
    assert_eq!(told.count(), 1, "once, however often it is read");
    host
}

#[test]
fn damage_is_known_over_a_restart() {
    let mut host = with_a_damaged_one();
    assert_eq!(host.damaged(), [(pg(), 1)]);
    let mut host = host.restart();
    assert_eq!(host.damaged(), [(pg(), 1)]);
}

#[test]
fn damage_ends_when_object_is_removed_rewritten_or_readable() {
    for end in ["removed", "written", "read"] {
        let mut host = with_a_damaged_one().restart();
        assert_eq!(host.ask("bad", vec![write(2, b"part")]).result, 0);
        assert_eq!(host.damaged(), [(pg(), 1)], "a part of it");
        let op = match end {
            "removed" => OsdOp::bare(OpCode::DELETE),
            "written" => write_full(b"anew"),
            _ => read(0, 10),
        };
        let reply = host.ask("bad", vec![op]);
        assert!(reply.result >= 0, "{end}: {reply:?}");
        assert_eq!(host.damaged(), [], "{end}");
        let mut host = host.restart();
        assert_eq!(host.damaged(), [], "{end}, and the daemon started again");
    }
}

/// It goes where the object goes.
#[test]
fn damage_goes_with_its_object_when_a_pg_is_split() {
    let mut host = with_a_damaged_one();
    let child = SpgId::from(PgId { pool: harness::POOL, seed: 1 });
    let home = if object("bad").hash & 1 == 1 { child } else { pg() };
    host.view.pools.get_mut(&harness::POOL).unwrap().pg_num = 2;
    let epoch = host.view.epoch + 1;
    host.map(vec![PgOrder::Split { pg: pg(), split_bits: 1, children: vec![(child, 1)], epoch }]);
    assert_eq!(host.damaged(), [(home, 1)]);
    let mut host = host.restart();
    assert_eq!(host.damaged(), [(home, 1)]);
}

/// A failure that is not logged would be answered before the write ahead of it, and would overtake later writes when it is
/// sent again.
#[test]
fn write_that_cannot_read_fails_in_its_order_and_for_good() {
    let mut host = Host::serving();
    assert_eq!(host.ask("bad", vec![write_full(b"0123456789")]).result, 0);
    host.rot("bad");
    let ahead = host.request(object("bad"), vec![write(0, b"x")]);
    let compare = || OsdOp::extent(OpCode::CMPEXT, 4, 2, Bytes::from_static(b"45"));
    let failing = host.request(object("bad"), vec![compare(), write(4, b"y")]);
    let first = host.send(1, ahead);
    let second = host.send(1, failing.clone());
    host.settle();
    let replies: Vec<u64> = host.sent.iter().map(|(_, message)| message.tid).collect();
    assert_eq!(replies, [first, second]);
    assert_eq!((host.reply(first).result, host.reply(second).result), (0, EIO));

    host.heal();
    host.resend(1, second, failing);
    host.settle();
    assert_eq!(host.reply(second).result, EIO, "a request comes out once");
    let mut host = host.restart();
    assert_eq!(host.ask("bad", vec![read(0, 10)]).ops[0].output.to_bytes(), b"x123456789"[..]);
}
