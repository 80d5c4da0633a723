//! A fixed run of one OSD core for callgrind: fill, overwrite or read 4 KiB objects in batches of 64, or write each under a new
//! snapshot, so that it is cloned first.
//!
//! `bench/instructions/run` builds it and counts `server_turn` alone: the session machine from received bytes on, the
//! shard, the store, and the framing of replies. The client end of the connection is outside of the count.
//!
//! `instructions mem|disk fill|write|read|clone BATCHES` prints the number of counted operations.

mod client;
mod ram;
mod server;

use bytes::Bytes;
use client::Client;
use machine::Random;
use server::Server;
use wire::messages::{MOSDOp, Message, OsdOps};
use wire::types::{EntityKind, EntityName, HObject, OpCode, OsdFlags, OsdOp, PgId, ReqId, SnapId, UTime};

/// As in the daemon: what memory costs depends on it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

pub const PGS: u32 = 64;
const OBJECTS: u32 = 4096;
const DEPTH: u32 = 64;
const BLOCK: usize = 4096;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [store, phase, batches] = &args[..] else {
        panic!("usage: instructions mem|disk fill|write|read|clone BATCHES")
    };
    let batches: u32 = batches.parse().expect("a number of batches");
    let mut server = Server::new(store == "disk");
    let mut client = Client::new(server.addrs.clone());
    while !client.ready {
        let bytes = client.take_written();
        let answer = server.handshake(bytes);
        client.receive(answer);
    }
    server.make_pgs(phase == "clone");
    let mut random = Random::from_number(1);
    let mut tid = 0;
    for batch in 0..OBJECTS / DEPTH {
        let objects = (0..DEPTH).map(|i| batch * DEPTH + i);
        turn(&mut server, &mut client, &mut tid, objects, OpCode::WRITE, 0, phase == "fill");
    }
    let code = if phase == "read" { OpCode::READ } else { OpCode::WRITE };
    for batch in 0..if phase == "fill" { 0 } else { batches } {
        // One object twice would be cloned once: these are all different.
        let (first, snap) = match phase == "clone" {
            true => (random.below(OBJECTS.into()) as u32, u64::from(batch) + 1),
            false => (0, 0),
        };
        let object = |n: u32, random: &mut Random| match snap {
            0 => random.below(OBJECTS.into()) as u32,
            _ => (first + n * 61) % OBJECTS,
        };
        let objects: Vec<u32> = (0..DEPTH).map(|n| object(n, &mut random)).collect();
        turn(&mut server, &mut client, &mut tid, objects.into_iter(), code, snap, true);
    }
    assert_eq!((client.replies, client.failures), (tid, 0));
    let counted = if phase == "fill" { OBJECTS } else { batches * DEPTH };
    println!("{counted}");
}

fn turn(
    server: &mut Server,
    client: &mut Client,
    tid: &mut u64,
    objects: impl Iterator<Item = u32>,
    code: OpCode,
    snap: u64,
    counts: bool,
) {
    let until = *tid + u64::from(DEPTH);
    for object in objects {
        *tid += 1;
        client.send(Message { tid: *tid, ..Message::new(request(object, code, snap)) });
    }
    let mut bytes = client.take_written();
    while client.replies < until {
        match counts {
            true => server.server_turn(bytes),
            false => server.turn(bytes),
        }
        client.receive(server.take_written());
        bytes = client.take_written();
    }
}

/// `snap`: the newest snapshot that the client knows, 0 for none.
fn request(n: u32, code: OpCode, snap: u64) -> MOSDOp {
    let hash = n.wrapping_mul(0x9e37_79b1);
    let name = format!("benchmark_data_host_12345_object{n}");
    let data = if code == OpCode::WRITE { Bytes::from(vec![n as u8; BLOCK]) } else { Bytes::new() };
    MOSDOp {
        pg: PgId { pool: 1, seed: hash % PGS }.into(),
        epoch: 10,
        flags: OsdFlags::ONDISK,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
        client_incarnation: 0,
        mtime: UTime { sec: 77, nsec: 0 },
        object: HObject { pool: 1, hash, snap: SnapId::HEAD, name: name.as_str().into(), ..HObject::min() },
        ops: OsdOps::from_iter([OsdOp::extent(code, 0, BLOCK as u64, data)]),
        snap_seq: SnapId(snap),
        // Older snapshots were removed: the list does not grow with the run.
        snaps: if snap == 0 { Vec::new() } else { vec![SnapId(snap)] },
        retry_attempt: 0,
        features: u64::MAX,
    }
}
