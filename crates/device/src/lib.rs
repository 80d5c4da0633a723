//! Block devices: the contract between a store and a disk, and devices for tests.
//!
//! [`BlockDevice`] is the contract: requests go in with `submit`, completions come out of `poll`, in any order. It says
//! what a flush makes durable and what a power cut may leave. Five kinds of device keep it:
//!
//! - a file or block device, in the crate `runtime` (`runtime::device`): io_uring or threads;
//! - [`encrypted::Encrypted`], AES-256-XTS on top of any other device;
//! - [`joined::Joined`], several devices as one;
//! - [`simulated::Simulated`], a disk in memory that reorders, loses and tears whatever the contract allows, and fails
//!   where a test says so;
//! - [`faulty::Faulty`], bit rot on top of any other device.
//!
//! [`conformance::suite`] holds every device to the contract, except for power cuts, which only the simulated one can
//! show. A store depends on this crate alone, so the same store code runs on all of them.

#[cfg(any(test, feature = "simulated"))]
pub mod conformance;
#[cfg(any(test, feature = "simulated"))]
pub mod dice;
pub mod encrypted;
#[cfg(any(test, feature = "simulated"))]
pub mod faulty;
pub mod joined;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;

use bytes::Bytes;
use codec::Rope;
use thiserror::Error;

/// Bytes of a block: the unit of reading, writing and checksums. Offsets and lengths of requests are multiples of it.
pub const BLOCK: usize = 4096;

/// A disk with asynchronous requests and one owner. No request completes inside `submit`.
///
/// - **Batching.** `submit` may queue a request until the next `poll`, so that one system call takes many. The owner polls
///   before it sleeps.
/// - **Order.** Requests in flight together are carried out in any order. After a power cut each of them is done, half
///   done, or not done.
/// - **Durability.** A write is on stable storage when a [`Request::Flush`] that was submitted after the write had completed
///   completes, or when a [`Durability::Flushed`] write completes. Stable contents stay until they are written again or
///   discarded.
pub trait BlockDevice {
    /// In bytes, a multiple of [`BLOCK`].
    fn size(&self) -> u64;
    /// Bytes of the device with this number, where several are [joined](joined::Joined); `None` if there is none. A single
    /// device has number 0.
    fn size_of(&self, number: usize) -> Option<u64> {
        (number == 0).then(|| self.size())
    }
    /// Starts a request; its completion carries `token`. Panics when the request reaches beyond the device or is not aligned
    /// to blocks: that is a bug of the caller.
    fn submit(&mut self, token: u64, request: Request);
    /// Appends the completions since the last call. Returns true while requests are in flight.
    fn poll(&mut self, out: &mut Vec<Done>) -> bool;
}

impl<D: BlockDevice + ?Sized> BlockDevice for &mut D {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn size_of(&self, number: usize) -> Option<u64> {
        (**self).size_of(number)
    }

    fn submit(&mut self, token: u64, request: Request) {
        (**self).submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        (**self).poll(out)
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for Box<D> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn size_of(&self, number: usize) -> Option<u64> {
        (**self).size_of(number)
    }

    fn submit(&mut self, token: u64, request: Request) {
        (**self).submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        (**self).poll(out)
    }
}

#[derive(Clone, Debug)]
pub enum Request {
    Read {
        offset: u64,
        len: usize,
    },
    /// The rope's pieces may have any length and alignment; their sum is a multiple of [`BLOCK`]. A device that needs
    /// aligned memory copies the others.
    Write {
        offset: u64,
        data: Rope,
        durability: Durability,
    },
    /// On completion, every write that had completed before this was submitted is on stable storage.
    Flush,
    /// Trims a range: it reads as anything until it is written again.
    Discard {
        offset: u64,
        len: u64,
    },
}

impl Request {
    /// Panics when the request is not aligned to blocks or reaches beyond a device of `size` bytes: the caller's bug.
    pub fn check(&self, size: u64) {
        let block = BLOCK as u64;
        let (offset, len) = match self {
            Request::Read { offset, len } => (*offset, *len as u64),
            Request::Write { offset, data, .. } => (*offset, data.len() as u64),
            Request::Discard { offset, len } => (*offset, *len),
            Request::Flush => return,
        };
        let fits = offset.checked_add(len).is_some_and(|end| end <= size);
        let is_aligned = offset.is_multiple_of(block) && len.is_multiple_of(block);
        assert!(fits && is_aligned && len > 0, "{len} bytes at {offset} of a device of {size}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Volatile until a later flush.
    Later,
    /// On stable storage at completion (FUA). Other writes are unaffected: a disk may write this one through its cache and
    /// leave the rest there.
    Flushed,
}

#[derive(Clone, Debug)]
pub struct Done {
    pub token: u64,
    /// The bytes of a read; empty for other requests.
    pub result: Result<Bytes, DeviceError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// `EIO` for this range at this moment. Other ranges may work.
    #[error("input/output error")]
    Io,
    /// The file system under a file is full.
    #[error("no space left under the device")]
    NoSpace,
    /// The device was removed: every request fails.
    #[error("the device is gone")]
    Gone,
}
