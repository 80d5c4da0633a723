//! The device of a shard, shared by its modules: requests and completions are tagged with their owner.

use bytes::Bytes;
use codec::Rope;
use device::{BlockDevice, DeviceError, Done, Durability, Request};

/// Modules of a shard that submit requests. Each has its own tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Owner {
    /// Log records.
    Log = 0,
    /// Object data.
    Data = 1,
    /// Tables of the index.
    Index = 2,
    /// Headers and manifests.
    Header = 3,
}

/// A completion with its owner.
#[derive(Clone, Debug)]
pub struct IoCompletion {
    pub owner: Owner,
    pub token: u64,
    pub result: Result<Bytes, DeviceError>,
}

/// The device's token is the owner in its top bits and the owner's own token below.
const OWNER_SHIFT: u32 = 60;

pub struct Io {
    device: Box<dyn BlockDevice>,
    done: Vec<Done>,
    under_way: usize,
}

impl Io {
    pub fn new(device: Box<dyn BlockDevice>) -> Io {
        Io { device, done: Vec::new(), under_way: 0 }
    }

    pub fn size(&self) -> u64 {
        self.device.size()
    }

    pub fn read(&mut self, owner: Owner, token: u64, offset: u64, len: usize) {
        self.submit(owner, token, Request::Read { offset, len });
    }

    pub fn write(&mut self, owner: Owner, token: u64, offset: u64, data: Rope, durability: Durability) {
        self.submit(owner, token, Request::Write { offset, data, durability });
    }

    pub fn flush(&mut self, owner: Owner, token: u64) {
        self.submit(owner, token, Request::Flush);
    }

    pub fn discard(&mut self, owner: Owner, token: u64, offset: u64, len: u64) {
        self.submit(owner, token, Request::Discard { offset, len });
    }

    pub fn submit(&mut self, owner: Owner, token: u64, request: Request) {
        assert!(token < 1 << OWNER_SHIFT, "a token too large to be tagged");
        self.under_way += 1;
        self.device.submit((owner as u64) << OWNER_SHIFT | token, request);
    }

    /// Requests in flight.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Appends the completions since the last call.
    pub fn poll(&mut self, out: &mut Vec<IoCompletion>) {
        self.device.poll(&mut self.done);
        self.under_way -= self.done.len();
        out.extend(self.done.drain(..).map(|done| IoCompletion {
            owner: owner(done.token),
            token: done.token & ((1 << OWNER_SHIFT) - 1),
            result: done.result,
        }));
    }
}

fn owner(token: u64) -> Owner {
    match token >> OWNER_SHIFT {
        0 => Owner::Log,
        1 => Owner::Data,
        2 => Owner::Index,
        3 => Owner::Header,
        other => unreachable!("the device returned a token of unknown owner {other}"),
    }
}
