//! One request carried out by the thread that asks, which waits until it is done.

use super::transfer::{Finished, Step, Transfer, Work};
use device::Durability;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// A disk, as a thread that may wait uses it.
#[derive(Clone)]
pub(super) struct Blocking {
    pub file: Arc<File>,
    pub is_block_device: bool,
    /// See [`super::Disk`].
    pub writes_through: bool,
}

impl Blocking {
    pub fn carry_out(&self, mut transfer: Transfer) -> Finished {
        loop {
            let result = self.call(&mut transfer);
            // SAFETY: a read's result is the system's own count of what it put into the spare room.
            #[allow(unsafe_code, reason = "see there")]
            let step = unsafe { transfer.on_result(result) };
            if let Step::Finished(result) = step {
                let is_whole = result.is_ok() && transfer.needs_sync() && !self.writes_through;
                let result = match is_whole {
                    true => self.sync().map_err(|errno| transfer.fault(errno)).and(result),
                    false => result,
                };
                return Finished { token: transfer.token, result };
            }
        }
    }

    /// Where the disk has a cache that it cannot write through, one sync after the write is quicker than `RWF_DSYNC`, which
    /// leaves the sync to another thread of the kernel (100 against 130 us).
    fn call(&self, transfer: &mut Transfer) -> Result<usize, Errno> {
        let offset = transfer.offset;
        match &mut transfer.work {
            Work::Read { into } => {
                rustix::io::pread(&*self.file, into.spare(), offset).map(|(filled, _)| filled.len())
            }
            Work::Write { pieces, durability } => {
                let slices: Vec<IoSlice> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                let flags = match durability {
                    Durability::Flushed if self.writes_through => ReadWriteFlags::DSYNC,
                    _ => ReadWriteFlags::empty(),
                };
                rustix::io::pwritev2(&*self.file, &slices, offset, flags)
            }
            Work::Flush => self.sync().map(|()| 0),
            Work::Discard { len } => self.discard(offset, *len).map(|()| 0),
        }
    }

    fn sync(&self) -> Result<(), Errno> {
        loop {
            match rustix::fs::fdatasync(&*self.file) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// A disk that knows no discards keeps what it has, which is as good.
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

/// `BLKDISCARD`.
fn discard_blocks(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [offset, len];
    // SAFETY: this request reads two 64-bit numbers, which live until it returns.
    #[allow(unsafe_code, reason = "the request has no safe name")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
