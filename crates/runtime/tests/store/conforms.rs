//! The conformance suite of stores on real disks.

use super::disks::{LoopDevice, OnDisk, TemporaryFile, format};
use runtime::device::{Disk, Method};
use std::cell::Cell;
use std::path::Path;
use store::conformance::suite;

const DISK_BYTES: u64 = 128 << 20;
const LOG_BYTES: u64 = 4 << 20;

fn conforms(path: &Path, method: Method) {
    let disk = Disk::open(path).unwrap();
    if let Err(error) = disk.queue_by(method) {
        skip::skip!("no {method:?} queue: {error}");
    }
    let made = Cell::new(0);
    suite(|| {
        made.set(made.get() + 1);
        format(&disk, method, LOG_BYTES, made.get());
        Box::new(OnDisk::open(&disk, method).unwrap())
    });
    println!("{} stores on {}, by {method:?}", made.get(), path.display());
    assert!(made.get() > 20, "the suite ran");
}

#[test]
fn conforms_on_file_through_ring() {
    let file = TemporaryFile::new("ring", DISK_BYTES);
    conforms(&file.0, Method::Ring);
}

#[test]
fn conforms_on_file_through_threads() {
    let file = TemporaryFile::new("threads", DISK_BYTES);
    conforms(&file.0, Method::Threads);
}

#[test]
fn conforms_on_loop_device() {
    let file = TemporaryFile::new("loop", DISK_BYTES);
    let device = match LoopDevice::over(&file.0) {
        Ok(device) => device,
        Err(reason) => skip::skip!("no loop device: {reason}"),
    };
    conforms(&device.0, Method::Ring);
    assert!(Disk::open(&device.0).unwrap().is_block_device());
}
