//! A file as a device, with blocking direct I/O and counters.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use bytes::Bytes;
use device::{BLOCK, BlockDevice, DeviceError, Done, Request};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
    /// Time in system calls.
    pub busy: Duration,
}

pub struct FileDevice {
    file: File,
    size: u64,
    done: Vec<Done>,
    counts: Arc<Mutex<Counts>>,
    /// Aligned memory, kept for the next request.
    aligned: Vec<u8>,
}

impl FileDevice {
    pub fn create(path: &Path, size: u64) -> FileDevice {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
        let file = options.open(path).expect("a file that can be made and opened with O_DIRECT");
        file.set_len(size).expect("room for a sparse file");
        FileDevice { file, size, done: Vec::new(), counts: Arc::default(), aligned: Vec::new() }
    }

    pub fn counts(&self) -> Arc<Mutex<Counts>> {
        self.counts.clone()
    }

    fn execute(&mut self, request: Request) -> std::io::Result<Bytes> {
        let counts = self.counts.clone();
        let mut counts = counts.lock().expect("no panic");
        let started = Instant::now();
        let mut out = Bytes::new();
        match request {
            Request::Read { offset, len } => {
                let buffer = aligned(&mut self.aligned, len);
                self.file.read_exact_at(buffer, offset)?;
                out = Bytes::copy_from_slice(buffer);
                counts.reads += 1;
                counts.read_bytes += len as u64;
            }
            Request::Write { offset, data, .. } => {
                let buffer = aligned(&mut self.aligned, data.len());
                let mut at = 0;
                for piece in data.pieces() {
                    buffer[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                self.file.write_all_at(buffer, offset)?;
                counts.writes += 1;
                counts.write_bytes += data.len() as u64;
            }
            Request::Flush => {
                self.file.sync_data()?;
                counts.flushes += 1;
            }
            Request::Discard { .. } => {}
        }
        counts.busy += started.elapsed();
        Ok(out)
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&mut self, token: u64, request: Request) {
        request.check(self.size);
        let result = self.execute(request).map_err(|_| DeviceError::Io);
        self.done.push(Done { token, result });
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        out.append(&mut self.done);
        false
    }
}

/// A slice of `memory` that is aligned to a block.
fn aligned(memory: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if memory.len() < len + BLOCK {
        memory.resize(len + BLOCK, 0);
    }
    let skip = memory.as_ptr().align_offset(BLOCK);
    &mut memory[skip..skip + len]
}
