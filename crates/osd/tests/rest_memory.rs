//! Memory of a PG whose log rests: its allocations, counted.

mod harness;

use bytes::Bytes;
use cap::Cap;
use harness::cluster::pg_of;
use harness::*;
use osd::shard::PgOrder;
use std::alloc::System;
use std::time::Duration;
use wire::messages::MOSDOp;
use wire::types::*;

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

const PGS: u32 = 4;
const RESTING_MAX: usize = 20 << 10;

/// Each PG has a log of 3,000 entries and 3,000 duplicates.
#[test]
#[ignore = "long: 25,000 writes"]
fn resting_pg_takes_less_than_20_kib() {
    let mut host = Host::with(config(), memory_store());
    host.open(1, 4100);
    host.view.pools.get_mut(&POOL).unwrap().pg_num = PGS;
    let since = host.view.epoch;
    host.map((0..PGS).map(|seed| PgOrder::alone(pg_of(seed), 2, since)).collect());
    for number in 0..PGS * 6200 {
        let name = format!("rbd_data.1234567890ab.{:016x}", number / PGS % 500);
        let object = HObject { name: name.into(), hash: number % PGS, ..object("") };
        let write = OsdOp::extent(OpCode::WRITEFULL, 0, 4, Bytes::from_static(b"data"));
        let request = MOSDOp { pg: pg_of(number % PGS), ..host.request(object, vec![write]) };
        let tid = host.send(1, request);
        host.settle();
        assert_eq!(host.reply(tid).result, 0);
    }
    for report in host.pg_reports() {
        assert!(report.log_len >= 3000 && report.duplicates_len >= 3000, "{report:?}");
    }
    host.sent.clear();
    let awake = ALLOCATED.allocated();
    host.pass(Duration::from_secs(11));
    let bodies = (awake - ALLOCATED.allocated()) / PGS as usize;
    let Host { shard, store: _store, .. } = host;
    let before = ALLOCATED.allocated();
    drop(shard);
    let resting = (before - ALLOCATED.allocated()) / PGS as usize;
    println!("a log's body and the cached objects: {} KiB; a resting PG: {resting} bytes", bodies >> 10);
    assert!(bodies > 500 << 10, "{bodies} bytes");
    assert!(resting < RESTING_MAX, "{resting} bytes");
}
