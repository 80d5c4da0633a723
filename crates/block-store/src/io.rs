//! The device of a shard, shared by its modules: requests and completions are tagged with their owner. Requests that the
//! device has not answered are counted by kind, so that a device that hangs is noticed. Failed reads are repeated
//! ([`crate::patience`]); their owner hears of the last attempt only.

use crate::patience::{Patience, Retries, RetryFigures, Verdict};
use bytes::Bytes;
use codec::Rope;
use device::{BlockDevice, DeviceError, Done, Durability, Request};
use std::time::Duration;
use store::{DeviceWork, RequestCount};

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

/// The device's token: the kind in its two top bits, the owner in the next two, the owner's own token below.
const OWNER_SHIFT: u32 = 60;
const KIND_SHIFT: u32 = 62;
const OWNERS: u64 = 4;

const READ: u64 = 0;
const WRITE: u64 = 1;
const DISCARD: u64 = 2;

pub struct Io {
    device: Box<dyn BlockDevice>,
    done: Vec<Done>,
    work: DeviceWork,
    discards: u64,
    retries: Retries,
}

impl Io {
    pub fn new(device: Box<dyn BlockDevice>) -> Io {
        let (work, retries) = (DeviceWork::default(), Retries::new());
        Io { device, done: Vec::new(), work, discards: 0, retries }
    }

    pub fn set_patience(&mut self, patience: Patience) {
        self.retries.set_patience(patience);
    }

    /// See [`Retries::set_now`].
    pub fn set_now(&mut self, now: Duration) {
        self.retries.set_now(now);
    }

    /// Time of the next repetition of a failed read.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.retries.next_deadline()
    }

    pub fn retry_figures(&self) -> RetryFigures {
        self.retries.figures()
    }

    /// True once the device has lost too many blocks.
    pub fn device_has_failed(&self) -> bool {
        self.retries.device_has_failed()
    }

    pub fn size(&self) -> u64 {
        self.device.size()
    }

    /// A read that is repeated with patience where it fails.
    pub fn read(&mut self, owner: Owner, token: u64, offset: u64, len: usize) {
        self.retries.began(tagged(READ, owner, token), offset, len);
        self.submit(owner, token, Request::Read { offset, len });
    }

    /// A read that is not repeated: its owner reads the parts of it that it needs.
    pub fn read_once(&mut self, owner: Owner, token: u64, offset: u64, len: usize) {
        self.submit(owner, token, Request::Read { offset, len });
    }

    pub fn write(&mut self, owner: Owner, token: u64, offset: u64, data: Rope, durability: Durability) {
        self.retries.written(offset, data.len() as u64);
        self.submit(owner, token, Request::Write { offset, data, durability });
    }

    pub fn flush(&mut self, owner: Owner, token: u64) {
        self.submit(owner, token, Request::Flush);
    }

    pub fn discard(&mut self, owner: Owner, token: u64, offset: u64, len: u64) {
        self.submit(owner, token, Request::Discard { offset, len });
    }

    fn submit(&mut self, owner: Owner, token: u64, request: Request) {
        assert!(token < 1 << OWNER_SHIFT, "a token too large to be tagged");
        let kind = match &request {
            Request::Read { .. } => READ,
            Request::Write { .. } | Request::Flush => WRITE,
            Request::Discard { .. } => DISCARD,
        };
        match self.count(kind) {
            Some(count) => count.waiting += 1,
            None => self.discards += 1,
        }
        self.device.submit(tagged(kind, owner, token), request);
    }

    /// Requests in flight, and failed reads that wait for their repetition.
    pub fn under_way(&self) -> usize {
        (self.work.reads.waiting + self.work.writes.waiting + self.discards) as usize + self.retries.waiting()
    }

    /// Requests that the device has answered or not. A failed read that waits is answered.
    pub fn work(&self) -> DeviceWork {
        self.work
    }

    fn count(&mut self, kind: u64) -> Option<&mut RequestCount> {
        match kind {
            READ => Some(&mut self.work.reads),
            WRITE => Some(&mut self.work.writes),
            _ => None,
        }
    }

    /// Appends the completions since the last call.
    pub fn poll(&mut self, out: &mut Vec<IoCompletion>) {
        for (token, offset, len) in self.retries.due() {
            self.read_again(token, offset, len);
        }
        self.device.poll(&mut self.done);
        let mut done = std::mem::take(&mut self.done);
        for Done { token, result } in done.drain(..) {
            match self.count(token >> KIND_SHIFT) {
                Some(count) => (count.waiting, count.answered) = (count.waiting - 1, count.answered + 1),
                None => self.discards -= 1,
            }
            let result = match self.judge(token, result) {
                Some(result) => result,
                None => continue,
            };
            out.push(IoCompletion { owner: owner(token), token: token & ((1 << OWNER_SHIFT) - 1), result });
        }
        self.done = done;
    }

    /// The final result of a request; `None` if it is a read that is repeated.
    fn judge(
        &mut self,
        token: u64,
        result: Result<Bytes, DeviceError>,
    ) -> Option<Result<Bytes, DeviceError>> {
        if token >> KIND_SHIFT != READ {
            return Some(result);
        }
        if result != Err(DeviceError::Io) {
            // Also where the device is gone: that is final.
            self.retries.ended(token, result.is_ok());
            return Some(result);
        }
        match self.retries.failed(token) {
            Some(Verdict::AtOnce) => {
                let (offset, len) = self.retries.place_of(token);
                self.read_again(token, offset, len);
                None
            }
            Some(Verdict::Later) => None,
            Some(Verdict::DeviceFailed) => Some(Err(DeviceError::Gone)),
            Some(Verdict::Lost) | None => Some(result),
        }
    }

    fn read_again(&mut self, token: u64, offset: u64, len: usize) {
        self.work.reads.waiting += 1;
        self.device.submit(token, Request::Read { offset, len });
    }
}

fn tagged(kind: u64, owner: Owner, token: u64) -> u64 {
    kind << KIND_SHIFT | (owner as u64) << OWNER_SHIFT | token
}

fn owner(token: u64) -> Owner {
    match (token >> OWNER_SHIFT) % OWNERS {
        0 => Owner::Log,
        1 => Owner::Data,
        2 => Owner::Index,
        3 => Owner::Header,
        other => unreachable!("the device returned a token of unknown owner {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::BLOCK;
    use device::simulated::{Pace, Simulated};

    #[test]
    fn owner_hears_of_the_last_attempt_only() {
        let disk = Simulated::new(64 * BLOCK as u64, Pace::AtOnce, 1);
        let mut io = Io::new(Box::new(disk.clone()));
        io.set_now(Duration::from_secs(1));
        disk.fail_reads(0..BLOCK as u64);
        io.read(Owner::Index, 5, 0, BLOCK);
        io.read(Owner::Data, 6, BLOCK as u64, BLOCK);
        io.read_once(Owner::Data, 7, 0, 2 * BLOCK);
        let mut done = Vec::new();
        io.poll(&mut done);
        let tokens = |done: &[IoCompletion]| -> Vec<_> {
            done.iter().map(|done| (done.token, done.result.is_ok())).collect()
        };
        assert_eq!(tokens(&done), [(6, true), (7, false)]);
        // The device has answered, and the read is not over.
        assert_eq!((io.work().reads.waiting, io.under_way()), (0, 1));
        assert_eq!(io.next_deadline(), Some(Duration::from_millis(1100)));
        done.clear();
        disk.heal();
        io.poll(&mut done);
        assert_eq!(tokens(&done), []);
        io.set_now(Duration::from_millis(1100));
        io.poll(&mut done);
        assert_eq!(tokens(&done), [(5, true)]);
        assert_eq!((io.work().reads.waiting, io.under_way(), io.next_deadline()), (0, 0, None));
    }

    #[test]
    fn requests_are_counted_by_kind_until_they_are_answered() {
        let disk = Simulated::new(64 * BLOCK as u64, Pace::AtOnce, 1);
        let mut io = Io::new(Box::new(disk));
        io.read(Owner::Index, 5, 0, BLOCK);
        io.write(Owner::Log, 5, 0, Rope::from(Bytes::from(vec![1; BLOCK])), Durability::Later);
        io.flush(Owner::Header, 6);
        io.discard(Owner::Data, 7, 0, BLOCK as u64);
        let (reads, writes) = (io.work().reads, io.work().writes);
        assert_eq!((reads.waiting, writes.waiting, io.under_way()), (1, 2, 4));
        assert_eq!((reads.answered, writes.answered), (0, 0));
        let mut done = Vec::new();
        io.poll(&mut done);
        let owners: Vec<_> = done.iter().map(|done| (done.owner, done.token)).collect();
        assert_eq!(owners, [(Owner::Index, 5), (Owner::Log, 5), (Owner::Header, 6), (Owner::Data, 7)]);
        let (reads, writes) = (io.work().reads, io.work().writes);
        assert_eq!((reads.waiting, writes.waiting, io.under_way()), (0, 0, 0));
        assert_eq!((reads.answered, writes.answered), (1, 2));
    }
}
