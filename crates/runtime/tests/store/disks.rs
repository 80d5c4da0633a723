//! Files and loop devices with a store, driven by the thread of a test.

use block_store::format::{FormatOptions, Identity};
use block_store::{Options, Shard};
use runtime::device::{Disk, Method, Queue};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use store::{Collection, Completion, ObjectStore, Placed, ReadRequest, Transaction, Usage};

const PATIENCE: Duration = Duration::from_secs(30);

pub struct TemporaryFile(pub PathBuf);

impl TemporaryFile {
    pub fn new(name: &str, size: u64) -> TemporaryFile {
        let path = std::env::temp_dir().join(format!("shoal-store-{name}-{}", std::process::id()));
        File::create(&path).unwrap().set_len(size).unwrap();
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub struct LoopDevice(pub PathBuf);

impl LoopDevice {
    /// Fails with the reason where this user may not make a loop device.
    pub fn over(file: &Path) -> Result<LoopDevice, String> {
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

/// A shard that sleeps until its disk has completions, as a reactor does.
pub struct OnDisk {
    pub shard: Shard,
    queue: Queue,
}

fn waiting(queue: &Queue) -> impl FnMut() + use<> {
    let wake = queue.wake().clone();
    move || wake.wait(PATIENCE).unwrap()
}

/// Formats a store of one shard.
pub fn format(disk: &Disk, method: Method, log_bytes: u64, identity: u8) {
    let mut queue = disk.queue_by(method).unwrap();
    let mut wait = waiting(&queue);
    let options = FormatOptions {
        identity: Identity([identity; 16]),
        label: "test".into(),
        shards: 1,
        discard: false,
        encryption: None,
        devices: Vec::new(),
        log_bytes: Some(log_bytes),
        zone_bytes: None,
    };
    block_store::format(&mut queue, &options, &mut wait).unwrap();
}

impl OnDisk {
    pub fn open(disk: &Disk, method: Method) -> Result<OnDisk, block_store::OpenError> {
        let queue = disk.queue_by(method).unwrap();
        let mut wait = waiting(&queue);
        let pool = block_store::attach(&mut queue.clone(), &mut wait)?;
        let shard = Shard::open(Box::new(queue.clone()), 0, &pool, Options::default(), &mut wait)?;
        Ok(OnDisk { shard, queue })
    }

    pub fn settle(&mut self) -> Vec<Completion> {
        let mut out = Vec::new();
        while self.poll(&mut out) {}
        out
    }

    pub fn check(&mut self, depth: block_store::check::Depth) -> block_store::check::Report {
        self.settle();
        self.shard.check(depth, &mut waiting(&self.queue))
    }
}

impl ObjectStore for OnDisk {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        self.shard.submit(tag, transaction);
    }

    fn read(&mut self, tag: u64, request: ReadRequest) {
        self.shard.read(tag, request);
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        let before = out.len();
        let busy = self.shard.poll(out);
        if busy && out.len() == before && !self.queue.has_news() && !self.shard.wants_poll() {
            self.queue.wake().wait(Duration::from_millis(1)).unwrap();
        }
        busy
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        self.shard.placed()
    }

    fn usage(&self) -> Usage {
        self.shard.usage()
    }
}
