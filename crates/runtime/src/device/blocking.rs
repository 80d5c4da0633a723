//! Requests as blocking system calls on the calling thread.

use super::flushes::Flushes;
use super::persistence::Persistence;
use super::transfer::{Completed, Progress, Transfer, Work};
use device::Durability;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// A disk for threads that may block.
#[derive(Clone)]
pub(super) struct Blocking {
    pub file: Arc<File>,
    pub is_block_device: bool,
    pub persistence: Persistence,
    pub flushes: Arc<Flushes>,
    pub shares_flushes: bool,
}

impl Blocking {
    pub fn carry_out(&self, mut transfer: Transfer) -> Completed {
        loop {
            let result = self.call(&mut transfer);
            // SAFETY: a read's result is the kernel's count of the bytes that it put into the spare room.
            #[allow(unsafe_code, reason = "only the kernel knows what it filled")]
            let progress = unsafe { transfer.on_result(result) };
            if let Progress::Ended(result) = progress {
                let is_written = result.is_ok() && transfer.needs_sync();
                let result = match is_written && self.persistence == Persistence::Flush {
                    true => self.sync().map_err(|errno| transfer.fault(errno)).and(result),
                    false => result,
                };
                return Completed { token: transfer.token, result };
            }
        }
    }

    /// One system call. On a disk that cannot write through its cache, a sync after the write is faster than `RWF_DSYNC`,
    /// which leaves the sync to another kernel thread (100 against 130 us).
    fn call(&self, transfer: &mut Transfer) -> Result<usize, Errno> {
        let offset = transfer.offset;
        match &mut transfer.work {
            Work::Read { into } => {
                rustix::io::pread(&*self.file, into.spare(), offset).map(|(filled, _)| filled.len())
            }
            Work::Write { pieces, durability } => {
                let slices: Vec<IoSlice> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                let flags = match durability {
                    Durability::Flushed if self.persistence == Persistence::WriteThrough => {
                        ReadWriteFlags::DSYNC
                    }
                    _ => ReadWriteFlags::empty(),
                };
                rustix::io::pwritev2(&*self.file, &slices, offset, flags)
            }
            Work::Flush => self.sync().map(|()| 0),
            Work::Discard { len } => self.discard(offset, *len).map(|()| 0),
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        self.flushes.begin();
        let result = match self.shares_flushes {
            true => self.flushes.flush(),
            false => self.flushes.judge(sync_file(&self.file)),
        };
        self.flushes.end();
        result
    }

    /// Discards a range. A disk without discards keeps its contents, which the contract allows.
    fn discard(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let result = if self.is_block_device {
            discard_blocks(&self.file, offset, len)
        } else {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&*self.file, hole, offset, len)
        };
        match result {
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => Ok(()),
            other => other,
        }
    }
}

pub(super) fn sync_file(file: &File) -> Result<(), Errno> {
    loop {
        match rustix::fs::fdatasync(file) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// The ioctl `BLKDISCARD`.
fn discard_blocks(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [offset, len];
    // SAFETY: this request reads two 64-bit numbers, which live until it returns.
    #[allow(unsafe_code, reason = "the ioctl has no safe wrapper")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
