//! What the store needs of a disk.

use bytes::Bytes;
use codec::Rope;
use thiserror::Error;

/// The unit of reading, writing and checksums. Offsets and lengths of requests are multiples of it.
pub const BLOCK: usize = 4096;

/// A disk, a file, or something that behaves like one. One owner; nothing completes inside `submit`.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Until a later flush.
    Later,
    /// As if a [`Request::Flush`] had been submitted when the write completed, and this completes with that.
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
