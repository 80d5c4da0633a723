//! Conformance tests for [`BlockDevice`]: everything but power cuts, which only a simulated device can show.

use super::{BLOCK, BlockDevice, Done, Durability, Request};
use bytes::Bytes;
use codec::Rope;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Smallest device that the tests run on, in bytes.
pub const SIZE_MIN: u64 = 32 << 20;

/// Runs every test on a new device of at least [`SIZE_MIN`] bytes with any contents. `wait` is called when only the device
/// can go on.
pub fn suite<D: BlockDevice>(mut make: impl FnMut() -> D, wait: fn(&mut D)) {
    let tests: &[(&str, fn(&mut Driver<D>))] = &[
        ("written is read", written_is_read),
        ("pieces of any shape", pieces_of_any_shape),
        ("large transfers", large_transfers),
        ("more requests than a queue has room for", many_at_once),
        ("discard leaves neighbours alone", discard_leaves_neighbours_alone),
        ("random writes and reads", random_writes_and_reads),
        ("unaligned requests are refused", unaligned_is_refused),
    ];
    for (name, test) in tests {
        let mut driver = Driver { device: make(), wait, next_token: 0, done: BTreeMap::new() };
        let size = driver.device.size();
        assert!(size >= SIZE_MIN && size.is_multiple_of(BLOCK as u64), "{name}: a device of {size} bytes");
        test(&mut driver);
        assert!(!driver.device.poll(&mut Vec::new()), "{name}: requests are in flight at the end");
    }
}

struct Driver<D> {
    device: D,
    wait: fn(&mut D),
    next_token: u64,
    done: BTreeMap<u64, Bytes>,
}

impl<D: BlockDevice> Driver<D> {
    fn submit(&mut self, request: Request) -> u64 {
        self.next_token += 1;
        self.device.submit(self.next_token, request);
        self.next_token
    }

    fn write(&mut self, offset: u64, data: impl Into<Rope>, durability: Durability) -> u64 {
        self.submit(Request::Write { offset, data: data.into(), durability })
    }

    fn read(&mut self, offset: u64, len: usize) -> u64 {
        self.submit(Request::Read { offset, len })
    }

    fn poll(&mut self) -> bool {
        let mut done = Vec::new();
        let more = self.device.poll(&mut done);
        for Done { token, result } in done {
            assert!((1..=self.next_token).contains(&token), "a token that was never handed out");
            let before = self.done.insert(token, result.expect("a sound device"));
            assert!(before.is_none(), "{token} completed twice");
        }
        more
    }

    /// Polls until no request is in flight.
    fn settle(&mut self) {
        while self.poll() {
            (self.wait)(&mut self.device);
        }
        // A device may hand over its last completions with the poll that says that none is in flight, or with the next.
        self.poll();
    }

    /// Bytes of a completed request.
    fn take(&mut self, token: u64) -> Bytes {
        self.done.remove(&token).unwrap_or_else(|| panic!("request {token} never completed"))
    }

    fn read_now(&mut self, offset: u64, len: usize) -> Bytes {
        let token = self.read(offset, len);
        self.settle();
        self.take(token)
    }
}

/// Bytes that differ for every seed and place.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64)
        .map(|at| (at ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

fn written_is_read<D: BlockDevice>(d: &mut Driver<D>) {
    let last = d.device.size() - BLOCK as u64;
    for (n, offset) in [0, 7 * BLOCK as u64, last].into_iter().enumerate() {
        for durability in [Durability::Later, Durability::Flushed] {
            let data = pattern(n as u64 + 10 * durability as u64, BLOCK);
            let write = d.write(offset, data.clone(), durability);
            d.settle();
            assert!(d.take(write).is_empty(), "a write brings no bytes");
            assert!(d.read_now(offset, BLOCK) == data, "at {offset}, {durability:?}");
        }
    }
    let flush = d.submit(Request::Flush);
    d.settle();
    assert!(d.take(flush).is_empty());
    assert!(d.read_now(0, 2 * BLOCK)[..BLOCK] == pattern(10, BLOCK), "part of a larger read");
}

fn pieces_of_any_shape<D: BlockDevice>(d: &mut Driver<D>) {
    let shapes: &[&[usize]] = &[
        &[1, BLOCK - 1],
        &[BLOCK, BLOCK, BLOCK],
        &[100, BLOCK, BLOCK - 100],
        &[3 * BLOCK + 17, BLOCK - 17, 8 * BLOCK],
        &[64 * BLOCK, 1, 2 * BLOCK - 2, 1],
        &[7; 4 * BLOCK],
    ];
    for (n, lens) in shapes.iter().enumerate() {
        let len: usize = lens.iter().sum();
        let len = len - len % BLOCK;
        let whole = Bytes::from(pattern(n as u64, len));
        let (mut rope, mut at) = (Rope::new(), 0);
        for piece in *lens {
            let end = len.min(at + piece);
            // Half of the shapes have pieces with memory of their own, aligned as the allocator chose.
            let piece = whole.slice(at..end);
            rope.push(if n % 2 == 0 { piece } else { Bytes::copy_from_slice(&piece) });
            at = end;
        }
        let write = d.write(BLOCK as u64, rope, Durability::Later);
        d.settle();
        d.take(write);
        assert!(d.read_now(BLOCK as u64, len) == whole, "shape {n}");
    }
}

fn large_transfers<D: BlockDevice>(d: &mut Driver<D>) {
    let data = pattern(1, 8 << 20);
    let write = d.write(4 << 20, data.clone(), Durability::Flushed);
    d.settle();
    d.take(write);
    assert!(d.read_now(4 << 20, 8 << 20) == data);
    let parts: Vec<(usize, u64)> =
        (0..16).map(|n| (n << 19, d.read((4 << 20) + (n << 19) as u64, 1 << 19))).collect();
    d.settle();
    for (at, token) in parts {
        assert!(d.take(token) == data[at..at + (1 << 19)], "the part at {at}");
    }
}

fn many_at_once<D: BlockDevice>(d: &mut Driver<D>) {
    const COUNT: u64 = 5000;
    let writes: Vec<u64> =
        (0..COUNT).map(|n| d.write(n * BLOCK as u64, pattern(n, BLOCK), Durability::Later)).collect();
    d.settle();
    writes.into_iter().for_each(|token| drop(d.take(token)));
    let reads: Vec<u64> = (0..COUNT).map(|n| d.read(n * BLOCK as u64, BLOCK)).collect();
    d.settle();
    for (n, token) in reads.into_iter().enumerate() {
        assert!(d.take(token) == pattern(n as u64, BLOCK), "block {n}");
    }
}

fn discard_leaves_neighbours_alone<D: BlockDevice>(d: &mut Driver<D>) {
    const AT: u64 = 1 << 20;
    const LEN: usize = 1 << 20;
    let write = d.write(0, pattern(5, 3 << 20), Durability::Flushed);
    d.settle();
    d.take(write);
    let discard = d.submit(Request::Discard { offset: AT, len: LEN as u64 });
    d.settle();
    assert!(d.take(discard).is_empty());
    let all = pattern(5, 3 << 20);
    assert!(d.read_now(0, AT as usize) == all[..AT as usize], "before it");
    let behind = AT as usize + LEN;
    assert!(d.read_now(behind as u64, LEN) == all[behind..], "behind it");
    let again = d.write(AT, pattern(6, LEN), Durability::Flushed);
    d.settle();
    d.take(again);
    assert!(d.read_now(AT, LEN) == pattern(6, LEN), "written again");
}

/// Rounds of requests that do not overlap, compared with a copy in memory.
fn random_writes_and_reads<D: BlockDevice>(d: &mut Driver<D>) {
    const BLOCKS: usize = 1024;
    const LEN_MAX: u64 = 40;
    let mut model = pattern(0, BLOCKS * BLOCK);
    let fill = d.write(0, model.clone(), Durability::Later);
    d.settle();
    d.take(fill);
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for round in 0..60 {
        let mut block = random(20) as usize;
        let mut reads = Vec::new();
        loop {
            let len = 1 + random(LEN_MAX) as usize;
            if block + len > BLOCKS {
                break;
            }
            let range = block * BLOCK..(block + len) * BLOCK;
            let offset = range.start as u64;
            match random(10) {
                0..4 => reads.push((range.clone(), d.read(offset, range.len()))),
                kind => {
                    let data = pattern(random(1 << 30), range.len());
                    model[range].copy_from_slice(&data);
                    let durability = if kind == 9 { Durability::Flushed } else { Durability::Later };
                    d.write(offset, data, durability);
                }
            }
            if random(16) == 0 {
                d.submit(Request::Flush);
            }
            if random(8) == 0 {
                d.poll();
            }
            block += len + random(20) as usize;
        }
        d.settle();
        for (range, token) in reads {
            assert!(d.take(token) == model[range.clone()], "round {round}, {range:?}");
        }
        d.done.clear();
    }
    assert!(d.read_now(0, BLOCKS * BLOCK) == model);
}

fn unaligned_is_refused<D: BlockDevice>(d: &mut Driver<D>) {
    let size = d.device.size();
    let block = BLOCK as u64;
    for request in [
        Request::Read { offset: 1, len: BLOCK },
        Request::Read { offset: 0, len: BLOCK - 1 },
        Request::Read { offset: size, len: BLOCK },
        Request::Read { offset: 0u64.wrapping_sub(block), len: 2 * BLOCK },
        Request::Write {
            offset: size - block,
            data: vec![0; 2 * BLOCK].into(),
            durability: Durability::Later,
        },
        Request::Write { offset: 0, data: vec![0; 5].into(), durability: Durability::Flushed },
        Request::Discard { offset: 0, len: size + block },
        Request::Discard { offset: 7, len: block },
    ] {
        let shown = format!("{request:?}");
        let refused = catch_unwind(AssertUnwindSafe(|| d.device.submit(u64::MAX, request)));
        assert!(refused.is_err(), "{shown} was taken");
    }
}
