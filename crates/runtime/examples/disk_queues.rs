//! Durable 4 KiB writes of several queues to one disk: rate, CPU time and flushes a write.
//!
//! ```text
//! cargo run --release -p runtime --example disk_queues -- PATH QUEUES DEPTH SECONDS [auto|always|shared|never]
//! ```
//!
//! PATH is a file or block device whose contents are lost. Each queue belongs to a thread and keeps DEPTH writes of 4 KiB in
//! flight, each durable at its completion, as log records of a store's shards are. The flushes that reached the disk are
//! those of the kernel's statistics; other programs' are among them.

use device::{BLOCK, BlockDevice, Done, Durability, Request};
use runtime::device::{Disk, FlushPolicy, Queue};
use runtime::system;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, queues, depth, seconds, policy @ ..] = &args[..] else {
        panic!("disk_queues PATH QUEUES DEPTH SECONDS [auto|always|shared|never]");
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let (queues, depth, seconds) = (number(queues), number(depth), number(seconds));
    let path = Path::new(path);
    if !path.exists() {
        let zeroes = vec![0; 64 << 20];
        std::fs::write(path, zeroes).expect("the file can be written");
    }
    let policy: FlushPolicy =
        policy.first().map_or(Ok(FlushPolicy::Auto), |text| text.parse()).expect("a policy");
    let disk = Disk::open(path).expect("the disk can be opened").with_flush_policy(policy);
    let flushes_before = flushes_of(path);
    let (cpu_before, began) = (system::cpu_time(), Instant::now());
    let until = began + Duration::from_secs(seconds);
    let writes: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..queues)
            .map(|n| {
                let disk = &disk;
                scope.spawn(move || {
                    let queue = disk.queue().expect("a queue");
                    let part = disk.size() / queues / BLOCK as u64 * BLOCK as u64;
                    write(queue, n * part, part, depth, until)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let took = began.elapsed().as_secs_f64();
    let cpu_us = (system::cpu_time() - cpu_before).as_secs_f64() * 1e6;
    let flushes = flushes_of(path).zip(flushes_before).map(|(after, before)| after - before);
    println!(
        "{queues} queue(s), depth {depth}, cache {}, durable by {}: {:.0} writes/s, {:.1} us of CPU and {} flushes a write",
        disk.write_cache(),
        disk.persistence(),
        writes as f64 / took,
        cpu_us / writes as f64,
        flushes.map_or("unknown".into(), |flushes| format!("{:.2}", flushes as f64 / writes as f64)),
    );
}

/// Writes one block after the other until the time is over. Returns their number.
fn write(mut queue: Queue, start: u64, len: u64, depth: u64, until: Instant) -> u64 {
    let (mut submitted, mut done) = (0, 0);
    let mut out: Vec<Done> = Vec::new();
    loop {
        while submitted - done < depth && Instant::now() < until {
            let offset = start + submitted * BLOCK as u64 % len;
            let data = vec![submitted as u8; BLOCK].into();
            queue.submit(submitted, Request::Write { offset, data, durability: Durability::Flushed });
            submitted += 1;
        }
        queue.poll(&mut out);
        let is_idle = out.is_empty();
        for one in out.drain(..) {
            one.result.expect("the write succeeds");
            done += 1;
        }
        if done == submitted && Instant::now() >= until {
            return done;
        }
        if is_idle && !queue.has_news() {
            queue.wake().wait(Duration::from_secs(1)).expect("an eventfd can be read");
        }
    }
}

/// Flushes that the disk under a path has carried out.
fn flushes_of(path: &Path) -> Option<u64> {
    let metadata = File::open(path).ok()?.metadata().ok()?;
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let place = format!("/sys/dev/block/{}:{}/stat", libc::major(device), libc::minor(device));
    std::fs::read_to_string(place).ok()?.split_whitespace().nth(15)?.parse().ok()
}
