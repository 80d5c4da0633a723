//! What the store needs of a disk.

#[cfg(any(test, feature = "simulated"))]
pub mod conformance;
#[cfg(any(test, feature = "simulated"))]
pub mod dice;
#[cfg(any(test, feature = "simulated"))]
pub mod faulty;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;

use bytes::Bytes;
use codec::Rope;
use thiserror::Error;

/// The unit of reading, writing and checksums. Offsets and lengths of requests are multiples of it.
pub const BLOCK: usize = 4096;

/// A disk, a file, or something that behaves like one. One owner; nothing completes inside `submit`.
///
/// `submit` may hold a request back until the next `poll`, so that many go to the system together: who has submitted
/// polls before it goes to sleep.
///
/// Requests that are under way together may be done in any order, wholly, partly or not at all if the power fails. A
/// write is on stable storage when a [`Request::Flush`] that was submitted after the write's completion has completed,
/// or when it was itself [`Durability::Flushed`]. What is on stable storage stays, until written again or discarded.
pub trait BlockDevice {
    /// In bytes, a multiple of [`BLOCK`].
    fn size(&self) -> u64;
    /// `token` comes back with the completion. Requests that reach beyond the device, or lie askew, are a bug of the
    /// caller and panic.
    fn submit(&mut self, token: u64, request: Request);
    /// Append what has completed since. Returns whether anything is still under way.
    fn poll(&mut self, out: &mut Vec<Done>) -> bool;
}

#[derive(Clone, Debug)]
pub enum Request {
    Read {
        offset: u64,
        len: usize,
    },
    /// Pieces of any length and alignment, whose sum is a multiple of [`BLOCK`]. A device that needs aligned memory
    /// copies pieces that are not.
    Write {
        offset: u64,
        data: Rope,
        durability: Durability,
    },
    /// Everything whose write had completed when this was submitted is on stable storage when this completes.
    Flush,
    /// The range's contents are no longer needed; it reads as anything afterwards, until written.
    Discard {
        offset: u64,
        len: u64,
    },
}

impl Request {
    /// Panics where the request lies askew or reaches beyond a device of `size` bytes: the caller's bug.
    pub fn check(&self, size: u64) {
        let block = BLOCK as u64;
        let (offset, len) = match self {
            Request::Read { offset, len } => (*offset, *len as u64),
            Request::Write { offset, data, .. } => (*offset, data.len() as u64),
            Request::Discard { offset, len } => (*offset, *len),
            Request::Flush => return,
        };
        let fits = offset.checked_add(len).is_some_and(|end| end <= size);
        let is_straight = offset.is_multiple_of(block) && len.is_multiple_of(block);
        assert!(fits && is_straight && len > 0, "{len} bytes at {offset} of a device of {size}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Until a later flush.
    Later,
    /// When this completes, what it wrote is on stable storage. It says nothing of other writes: a disk may write this
    /// one through its cache and leave the rest there.
    Flushed,
}

#[derive(Clone, Debug)]
pub struct Done {
    pub token: u64,
    /// What was read; empty for everything else.
    pub result: Result<Bytes, DeviceError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// `EIO`: this range, now. Others may work.
    #[error("input/output error")]
    Io,
    /// A file on a file system that has no more room.
    #[error("no space left under the device")]
    NoSpace,
    /// Gone: nothing works any more.
    #[error("the device is gone")]
    Gone,
}
