//! Benchmark of the index in processor time, with a disk in memory: `cargo run --release -p block-store --example index_speed`.

use block_store::index::{Get, Index, Limit, LogMark, Options, Purpose, TakeSpace, Ticket};
use block_store::io::Io;
use bytes::Bytes;
use device::BLOCK;
use device::simulated::{Pace, Simulated};
use std::time::Duration;

/// Objects with four entries each: about one memtable.
const OBJECTS: u64 = 25_000;
const PGS: u64 = 64;
const DISK_BYTES: u64 = 4 << 30;

/// Space that is never freed: the disk is large enough.
struct Endless(u64);

impl TakeSpace for Endless {
    fn take(&mut self, len: u64, _: Purpose) -> Option<u64> {
        self.0 += len;
        (self.0 <= DISK_BYTES).then(|| self.0 - len)
    }

    fn give_back(&mut self, _: u64, _: u64) {}
}

fn mix(value: u64) -> u64 {
    let z = (value.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (z >> 31)
}

/// A key like those of `object::key`: area, pool, reversed hash, name.
fn object_key(i: u64) -> Vec<u8> {
    let mut key = vec![0x20, 0, 0, 0, 0, 0, 0, 0, 9, 0x80, 0, 0, 0, 0, 0, 0, 3];
    key.extend_from_slice(&(mix(i) as u32).to_be_bytes());
    key.extend_from_slice(format!("\0\0\0\0\x02rbd_data.1f3a6b8b4567.{i:016x}").as_bytes());
    key
}

fn page_key(object: u64, page: u64) -> Vec<u8> {
    [&[0x30][..], &object.to_be_bytes(), &page.to_be_bytes()].concat()
}

fn log_key(pg: u64, version: u64) -> Vec<u8> {
    [&[0x40][..], &pg.to_be_bytes(), format!("\x01{:010}.{version:020}", 17).as_bytes()].concat()
}

fn info_key(pg: u64) -> Vec<u8> {
    [&[0x40][..], &pg.to_be_bytes(), b"\x01_info"].concat()
}

/// Processor time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn time(what: &str, count: u64, mut step: impl FnMut(u64)) {
    let started = cpu();
    (0..count).for_each(&mut step);
    println!("{what:46} {:7.0} ns", (cpu() - started).as_secs_f64() * 1e9 / count as f64);
}

fn main() {
    let disk = Simulated::new(DISK_BYTES, Pace::AtOnce, 1);
    let mut io = Io::new(Box::new(disk));
    let mut space = Endless(0);
    let mut index =
        Index::new(Options { memtable_bytes: usize::MAX, cache_bytes: 256 << 20, ..Options::default() });
    let value = |len: usize| Some(Bytes::from(vec![7; len]));
    let objects: Vec<_> = (0..OBJECTS).map(object_key).collect();
    let mark = LogMark(1);

    time("put a new object's record, random order", OBJECTS, |i| {
        index.apply([(&objects[i as usize], value(250))], mark)
    });
    time("put it again", OBJECTS, |i| index.apply([(&objects[i as usize], value(250))], mark));
    let pages: Vec<_> = (0..OBJECTS).map(|i| page_key(mix(i) % OBJECTS, mix(!i) % 64)).collect();
    time("put a page of extents, random order", OBJECTS, |i| {
        index.apply([(&pages[i as usize], value(200))], mark)
    });
    let entries: Vec<_> = (0..OBJECTS).map(|i| log_key(mix(i) % PGS, i)).collect();
    time("append to one of 64 PG logs", OBJECTS, |i| index.apply([(&entries[i as usize], value(180))], mark));
    time("trim those logs", OBJECTS, |i| index.apply([(&entries[i as usize], None)], mark));
    let infos: Vec<_> = (0..PGS).map(info_key).collect();
    time("put one of 64 PG infos", OBJECTS, |i| {
        index.apply([(&infos[(mix(i) % PGS) as usize], value(400))], mark)
    });
    time("  of each of those, to make the value", OBJECTS, |_| drop(std::hint::black_box(value(250))));
    let ask = |i: u64| &objects[(mix(i) % OBJECTS) as usize];
    time("get from the memtable", OBJECTS, |i| {
        assert!(matches!(index.get(ask(i), Ticket(1), &mut io), Get::Found(_)));
    });

    let entries = 4 * OBJECTS;
    index.freeze();
    let mut worst = Duration::ZERO;
    let mut turn = |index: &mut Index, io: &mut Io| {
        let mut done = Vec::new();
        io.poll(&mut done);
        done.into_iter().for_each(|done| index.on_done(done.token, done.result, io));
        index.ready(&mut Vec::new());
        let begun = cpu();
        let more = index.maintain(mark, io, &mut space);
        worst = worst.max(cpu() - begun);
        more || io.under_way() > 0
    };
    let started = cpu();
    while turn(&mut index, &mut io) {}
    let each = (cpu() - started).as_secs_f64() * 1e9 / entries as f64;
    println!("{:46} {each:7.0} ns", "flush, an entry");
    for i in 0..OBJECTS {
        while index.get(&objects[i as usize], Ticket(1), &mut io) == Get::Pending {
            turn(&mut index, &mut io);
        }
    }
    time("get from the cache", OBJECTS, |i| {
        let answer = index.get(ask(i), Ticket(1), &mut io);
        assert!(matches!(answer, Get::Found(_)), "{answer:?}");
    });
    time("get what is not there", OBJECTS, |i| {
        let answer = index.get(&object_key(OBJECTS + i), Ticket(1), &mut io);
        std::hint::black_box(answer);
    });
    let limit = Limit::new(100, 1 << 20);
    time("scan 100 in the cache", 20_000, |i| {
        let mut seen = 0;
        index.scan(ask(i), &[0x30], limit, Ticket(1), &mut io, &mut |_, value| seen += value.len());
        std::hint::black_box(seen);
    });
    println!("{:46} {:7.0} us", "the longest turn of the background", worst.as_secs_f64() * 1e6);
    println!("{:?}, {} blocks", index.usage(), index.usage().device / BLOCK as u64);
}
