//! A shard's one device, shared by its parts: whose is a completion?

use bytes::Bytes;
use codec::Rope;
use device::{BlockDevice, DeviceError, Done, Durability, Request};

/// The parts of a shard that submit requests. Each has its tokens to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Owner {
    /// Log records, header slots, the superblock.
    Log = 0,
    /// Objects' bytes.
    Data = 1,
    /// Tables of the index.
    Index = 2,
    Header = 3,
}

/// A completion, sorted by whom it concerns.
#[derive(Clone, Debug)]
pub struct Finished {
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

    /// Requests whose completion has not been handed out.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Append what has completed since.
    pub fn poll(&mut self, out: &mut Vec<Finished>) {
        self.device.poll(&mut self.done);
        self.under_way -= self.done.len();
        out.extend(self.done.drain(..).map(|done| Finished {
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
        other => unreachable!("the device made up a token of owner {other}"),
    }
}
