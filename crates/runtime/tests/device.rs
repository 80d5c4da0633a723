//! Real disks: conformance of files through io_uring and threads and of a loop device, exclusive opens, and errors.

use bytes::Bytes;
use device::conformance::{SIZE_MIN, suite};
use device::{BLOCK, BlockDevice, DeviceError, Done, Durability, Request};
use runtime::device::{Disk, FlushPolicy, Method, OpenError, Persistence, Queue};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, size: u64) -> TemporaryFile {
        let path = std::env::temp_dir().join(format!("shoal-device-{name}-{}", std::process::id()));
        File::create(&path).unwrap().set_len(size).unwrap();
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn wait(queue: &mut Queue) {
    queue.wake().wait(PATIENCE).unwrap();
}

fn conforms(path: &Path, method: Method) {
    let disk = Disk::open(path).unwrap();
    if let Err(error) = disk.queue_by(method) {
        skip::skip!("no {method:?} queue: {error}");
    }
    let flush = |policy| disk.clone().with_flush_policy(policy);
    let disks = [
        flush(FlushPolicy::Always),
        flush(FlushPolicy::Shared),
        flush(FlushPolicy::Never),
        disk.clone().with_persistence(Persistence::WriteThrough),
    ];
    for (disk, may_wait) in disks.iter().flat_map(|disk| [(disk, false), (disk, true)]) {
        let queue = || {
            let mut queue = disk.queue_by(method).unwrap();
            queue.may_wait(may_wait);
            queue
        };
        suite(queue, wait);
    }
}

fn run(queue: &mut Queue, request: Request) -> Result<Bytes, DeviceError> {
    queue.submit(1, request);
    let mut done: Vec<Done> = Vec::new();
    while done.is_empty() {
        queue.poll(&mut done);
        if done.is_empty() {
            wait(queue);
        }
    }
    done.remove(0).result
}

#[test]
fn file_through_ring_conforms() {
    let file = TemporaryFile::new("ring", SIZE_MIN);
    conforms(&file.0, Method::Ring);
}

#[test]
fn file_through_threads_conforms() {
    let file = TemporaryFile::new("threads", SIZE_MIN);
    conforms(&file.0, Method::Threads);
}

struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Fails with the reason where this user may not make a loop device.
    fn over(file: &Path) -> Result<LoopDevice, String> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let made = made.map_err(|error| format!("losetup: {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
        }
        Ok(LoopDevice(String::from_utf8_lossy(&made.stdout).trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn loop_device_conforms() {
    let file = TemporaryFile::new("loop", SIZE_MIN);
    let device = match LoopDevice::over(&file.0) {
        Ok(device) => device,
        Err(reason) => skip::skip!("no loop device: {reason}"),
    };
    conforms(&device.0, Method::Ring);
    conforms(&device.0, Method::Threads);
    let disk = Disk::open(&device.0).unwrap();
    assert!(disk.is_block_device() && disk.size() == SIZE_MIN);
    assert!(matches!(Disk::open(&device.0), Err(OpenError::InUse { .. })), "one at a time");
}

#[test]
fn second_open_names_the_holder() {
    let file = TemporaryFile::new("lock", 1 << 20);
    let disk = Disk::open(&file.0).unwrap();
    // To the lock, a second open of this process is like one of another process.
    let refused = Disk::open(&file.0).unwrap_err().to_string();
    assert!(
        refused.contains("is in use by process ") && refused.contains("stop that process first"),
        "{refused}"
    );
    let queue = disk.queue().unwrap();
    drop(disk);
    assert!(Disk::open(&file.0).is_err(), "a queue keeps the device");
    drop(queue);
    Disk::open(&file.0).unwrap();
}

#[test]
fn directory_and_missing_file_are_refused() {
    assert!(matches!(Disk::open(Path::new("/nowhere/at/all")), Err(OpenError::Missing(_))));
    assert!(matches!(Disk::open(Path::new("/dev/null")), Err(OpenError::NotADisk(_))));
    assert!(matches!(Disk::open(&std::env::temp_dir()), Err(OpenError::NotADisk(_))));
}

#[test]
fn truncated_file_gives_errors() {
    for method in [Method::Ring, Method::Threads] {
        let file = TemporaryFile::new(&format!("short-{method:?}"), 1 << 20);
        let disk = Disk::open(&file.0).unwrap();
        let Ok(mut queue) = disk.queue_by(method) else {
            skip::skip_part!("no {method:?} queue");
            continue;
        };
        File::options().write(true).open(&file.0).unwrap().set_len(1 << 19).unwrap();
        let read = |offset, len| Request::Read { offset, len };
        assert_eq!(run(&mut queue, read(0, 1 << 19)).unwrap().len(), 1 << 19);
        assert_eq!(run(&mut queue, read((1 << 19) - 8192, 16384)).unwrap_err(), DeviceError::Io);
        assert_eq!(run(&mut queue, read(1 << 19, BLOCK)).unwrap_err(), DeviceError::Io);
    }
}

#[test]
fn full_file_system_is_reported() {
    // A limit on file size stands in for a full file system: another errno with the same meaning.
    for method in [Method::Ring, Method::Threads] {
        let dir = std::env::temp_dir().join(format!("shoal-full-{method:?}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "none"]).arg(&dir).status();
        if !mounted.is_ok_and(|status| status.success()) {
            let _ = std::fs::remove_dir(&dir);
            skip::skip!("this user cannot mount a tmpfs");
        }
        let path = dir.join("device");
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let outcome = std::panic::catch_unwind(|| {
            let disk = Disk::open(&path).unwrap();
            let mut queue = disk.queue_by(method).unwrap();
            for may_wait in [false, true] {
                queue.may_wait(may_wait);
                let data = vec![1; 2 << 20].into();
                let request = Request::Write { offset: 0, data, durability: Durability::Flushed };
                assert_eq!(run(&mut queue, request).unwrap_err(), DeviceError::NoSpace);
            }
        });
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
        std::fs::remove_dir(&dir).unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

#[test]
fn blocking_write_is_done_by_the_next_poll() {
    let file = TemporaryFile::new("waited", 1 << 20);
    let disk = Disk::open(&file.0).unwrap();
    let mut queue = disk.queue().unwrap();
    queue.may_wait(true);
    let write = |byte: u8, at: u64| Request::Write {
        offset: at * BLOCK as u64,
        data: vec![byte; BLOCK].into(),
        durability: Durability::Flushed,
    };
    let mut done: Vec<Done> = Vec::new();
    queue.submit(1, write(1, 0));
    assert!(queue.has_news());
    assert!(!queue.poll(&mut done), "nothing is under way behind it");
    assert!(matches!(done.as_slice(), [Done { token: 1, result: Ok(_) }]));
    // With other requests in flight it does not block.
    done.clear();
    queue.submit(2, write(2, 1));
    queue.submit(3, write(3, 2));
    while queue.poll(&mut done) {
        wait(&mut queue);
    }
    done.sort_by_key(|done| done.token);
    assert!(matches!(done.as_slice(), [Done { token: 2, result: Ok(_) }, Done { token: 3, result: Ok(_) }]));
    let read = run(&mut queue, Request::Read { offset: 0, len: 3 * BLOCK }).unwrap();
    assert_eq!([read[0], read[BLOCK], read[2 * BLOCK]], [1, 2, 3]);
}

/// A queue dropped with reads in flight: their memory stays until they end. A sanitizer or a crash would show an error, not an
/// assertion.
#[test]
fn dropping_a_busy_queue_is_safe() {
    for method in [Method::Ring, Method::Threads] {
        let file = TemporaryFile::new(&format!("drop-{method:?}"), 8 << 20);
        let disk = Disk::open(&file.0).unwrap();
        for _ in 0..20 {
            let Ok(mut queue) = disk.queue_by(method) else {
                skip::skip_part!("no {method:?} queue");
                continue;
            };
            for n in 0..64u64 {
                queue.submit(n, Request::Read { offset: n << 16, len: 1 << 16 });
            }
            queue.poll(&mut Vec::new());
        }
    }
}

/// Two queues of a disk flush at the same time, so they share flushes; each write is answered once, and is there.
#[test]
fn flushes_of_two_queues_end() {
    for method in [Method::Ring, Method::Threads] {
        let file = TemporaryFile::new(&format!("shared-{method:?}"), 8 << 20);
        let disk = Disk::open(&file.0).unwrap().with_flush_policy(FlushPolicy::Shared);
        if disk.queue_by(method).is_err() {
            skip::skip_part!("no {method:?} queue");
            continue;
        }
        std::thread::scope(|scope| {
            for half in 0..2u64 {
                let disk = &disk;
                scope.spawn(move || {
                    let mut queue = disk.queue_by(method).unwrap();
                    let mut done: Vec<Done> = Vec::new();
                    for n in 0..64u64 {
                        let (offset, data) =
                            (half << 22 | (n * BLOCK as u64), vec![n as u8 + 1; BLOCK].into());
                        let durability = Durability::Flushed;
                        queue.submit(2 * n, Request::Write { offset, data, durability });
                        queue.submit(2 * n + 1, Request::Flush);
                        while queue.poll(&mut done) {
                            if !queue.has_news() {
                                wait(&mut queue);
                            }
                        }
                    }
                    let mut tokens: Vec<u64> = done.iter().map(|done| done.token).collect();
                    tokens.sort_unstable();
                    assert_eq!(tokens, (0..128).collect::<Vec<_>>(), "{method:?}");
                    assert!(done.iter().all(|done| done.result.is_ok()));
                    let read = Request::Read { offset: half << 22, len: 64 * BLOCK };
                    let read = run(&mut queue, read).unwrap();
                    assert!((0..64).all(|n| read[n * BLOCK] == n as u8 + 1));
                });
            }
        });
    }
}

#[test]
fn flush_policy_overrides_the_kernel() {
    let file = TemporaryFile::new("policy", 1 << 20);
    let disk = Disk::open(&file.0).unwrap();
    assert_ne!(disk.persistence(), Persistence::Completion, "a file has metadata to flush");
    assert_eq!(disk.clone().with_flush_policy(FlushPolicy::Never).persistence(), Persistence::Completion);
    for policy in [FlushPolicy::Always, FlushPolicy::Shared] {
        let disk = disk.clone().with_flush_policy(policy);
        let expected = (Persistence::Flush, policy == FlushPolicy::Shared);
        assert_eq!((disk.persistence(), disk.shares_flushes()), expected);
    }
    assert_eq!(disk.clone().with_flush_policy(FlushPolicy::Auto).persistence(), disk.persistence());
}

/// A killed daemon's successor and the next queue of a process find the disk free, with or without a registered file.
#[test]
fn lock_ends_with_the_last_queue() {
    let file = TemporaryFile::new("unlocked", 1 << 20);
    for _ in 0..50 {
        let disk = Disk::open(&file.0).unwrap();
        let mut queue = disk.queue().unwrap();
        drop(disk);
        let data = vec![3; BLOCK].into();
        run(&mut queue, Request::Write { offset: 0, data, durability: Durability::Flushed }).unwrap();
        queue.submit(9, Request::Read { offset: 0, len: 1 << 20 });
        queue.poll(&mut Vec::new());
        drop(queue);
    }
}
