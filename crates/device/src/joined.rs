//! Several devices as one: each has a range of the addresses, far from the others.
//!
//! ```text
//! 0          2^56         2·2^56
//! ├ device 0 ┄├ device 1 ┄┄├ device 2 ┄┄
//! ```
//!
//! A request lies within one device, and goes to it. A flush goes to each device with completed writes that no flush has made
//! durable, and completes with the last of them. A device counts as unflushed until such a flush has *completed*: of two
//! flushes under way, neither relies on the other. At first every device is unflushed: an earlier process may have left
//! writes in its cache.
//!
//! A store on one device uses that device without this layer.

use crate::{BLOCK, BlockDevice, Done, Durability, Request};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Bytes of addresses of each device.
pub const DEVICE_SPAN: u64 = 1 << 56;

/// Devices by number: device `n` begins at `n * DEVICE_SPAN`. A number without a device has no addresses.
pub struct Joined<D> {
    devices: Vec<Option<Member<D>>>,
    /// Requests in flight by the token that the devices have.
    requests: BTreeMap<u64, Pending>,
    next: u64,
    /// Flushes in flight, by number.
    flushes: BTreeMap<u64, Flush>,
    /// Completions of flushes that had nothing to flush.
    done: Vec<Done>,
}

struct Member<D> {
    device: D,
    /// Number of completed writes that need a flush, and of those that a completed flush covers.
    written: u64,
    flushed: u64,
    under_way: bool,
}

enum Pending {
    /// A read, a discard or a flushed write.
    Plain { token: u64 },
    /// A write that a flush makes durable.
    Volatile { token: u64, device: usize },
    /// The part of a flush for a device whose completed writes had this number.
    Flush { flush: u64, device: usize, written: u64 },
}

struct Flush {
    token: u64,
    left: usize,
    result: Result<Bytes, crate::DeviceError>,
}

impl<D: BlockDevice> Joined<D> {
    /// Joins the devices with these numbers.
    ///
    /// # Panics
    /// If there is no device 0, or a device is larger than [`DEVICE_SPAN`].
    pub fn new(devices: impl IntoIterator<Item = (usize, D)>) -> Joined<D> {
        let mut joined = Joined {
            devices: Vec::new(),
            requests: BTreeMap::new(),
            next: 0,
            flushes: BTreeMap::new(),
            done: Vec::new(),
        };
        for (number, device) in devices {
            assert!(device.size() <= DEVICE_SPAN, "a device of {} bytes", device.size());
            if joined.devices.len() <= number {
                joined.devices.resize_with(number + 1, || None);
            }
            joined.devices[number] = Some(Member { device, written: 1, flushed: 0, under_way: false });
        }
        assert!(joined.devices.first().is_some_and(Option::is_some), "the first device is there");
        joined
    }

    fn pend(&mut self, pending: Pending) -> u64 {
        self.next += 1;
        self.requests.insert(self.next, pending);
        self.next
    }

    fn flush(&mut self, token: u64) {
        let unflushed: Vec<(usize, u64)> = (self.devices.iter().enumerate())
            .filter_map(|(number, member)| Some((number, member.as_ref()?)))
            .filter(|(_, member)| member.written > member.flushed)
            .map(|(number, member)| (number, member.written))
            .collect();
        if unflushed.is_empty() {
            return self.done.push(Done { token, result: Ok(Bytes::new()) });
        }
        self.next += 1;
        let flush = self.next;
        self.flushes.insert(flush, Flush { token, left: unflushed.len(), result: Ok(Bytes::new()) });
        for (device, written) in unflushed {
            let inner = self.pend(Pending::Flush { flush, device, written });
            self.member(device).device.submit(inner, Request::Flush);
        }
    }

    fn member(&mut self, number: usize) -> &mut Member<D> {
        self.devices[number].as_mut().expect("a device with requests")
    }

    /// The completion of the caller's request, if this is its last part.
    fn complete(&mut self, Done { token: inner, result }: Done) -> Option<Done> {
        match self.requests.remove(&inner).expect("a request in flight") {
            Pending::Plain { token } => Some(Done { token, result }),
            Pending::Volatile { token, device } => {
                // Also where it failed: some of it may have been written.
                self.member(device).written += 1;
                Some(Done { token, result })
            }
            Pending::Flush { flush, device, written } => {
                if result.is_ok() {
                    let member = self.member(device);
                    member.flushed = member.flushed.max(written);
                }
                let whole = self.flushes.get_mut(&flush).expect("a flush in flight");
                whole.left -= 1;
                if result.is_err() {
                    whole.result = result;
                }
                if whole.left > 0 {
                    return None;
                }
                let Flush { token, result, .. } = self.flushes.remove(&flush).expect("just seen");
                Some(Done { token, result })
            }
        }
    }
}

impl<D: BlockDevice> BlockDevice for Joined<D> {
    /// The end of the last device. There are no blocks between the devices.
    fn size(&self) -> u64 {
        let last = self.devices.last().and_then(Option::as_ref).expect("a device is last");
        (self.devices.len() as u64 - 1) * DEVICE_SPAN + last.device.size()
    }

    fn size_of(&self, number: usize) -> Option<u64> {
        Some(self.devices.get(number)?.as_ref()?.device.size())
    }

    fn submit(&mut self, token: u64, request: Request) {
        let offset = match &request {
            Request::Flush => return self.flush(token),
            Request::Read { offset, .. }
            | Request::Write { offset, .. }
            | Request::Discard { offset, .. } => *offset,
        };
        let (device, within) = ((offset / DEVICE_SPAN) as usize, offset % DEVICE_SPAN);
        let size = self.size_of(device).unwrap_or(0);
        let (request, is_volatile) = match request {
            Request::Read { len, .. } => (Request::Read { offset: within, len }, false),
            Request::Write { data, durability, .. } => {
                let is_volatile = durability == Durability::Later;
                (Request::Write { offset: within, data, durability }, is_volatile)
            }
            Request::Discard { len, .. } => (Request::Discard { offset: within, len }, false),
            Request::Flush => unreachable!("taken above"),
        };
        request.check(size);
        let inner = self.pend(match is_volatile {
            true => Pending::Volatile { token, device },
            false => Pending::Plain { token },
        });
        self.member(device).device.submit(inner, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        out.append(&mut self.done);
        let mut done = Vec::new();
        for member in self.devices.iter_mut().flatten() {
            member.under_way = member.device.poll(&mut done);
        }
        for one in done {
            out.extend(self.complete(one));
        }
        self.devices.iter().flatten().any(|member| member.under_way)
    }
}

/// The number of the device that a block is on.
pub const fn device_of_block(block: u64) -> usize {
    (block / (DEVICE_SPAN / BLOCK as u64)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceError;
    use crate::conformance::{SIZE_MIN, suite};
    use crate::simulated::{Pace, Simulated};

    fn disk(seed: u64) -> Simulated {
        Simulated::new(SIZE_MIN, Pace::AtOnce, seed)
    }

    fn pair() -> (Joined<Simulated>, [Simulated; 2]) {
        let disks = [disk(1), disk(2)];
        (Joined::new([(0, disks[0].clone()), (2, disks[1].clone())]), disks)
    }

    fn write(device: &mut Joined<Simulated>, offset: u64, durability: Durability) {
        device.submit(1, Request::Write { offset, data: Bytes::from(vec![7; BLOCK]).into(), durability });
        assert!(settle(device).iter().all(|(_, is_done)| *is_done));
    }

    fn settle(device: &mut Joined<Simulated>) -> Vec<(u64, bool)> {
        let mut out = Vec::new();
        while device.poll(&mut out) {}
        out.into_iter().map(|done| (done.token, done.result.is_ok())).collect()
    }

    fn flushes(disks: &[Simulated; 2]) -> [u64; 2] {
        [disks[0].counts().flushes, disks[1].counts().flushes]
    }

    #[test]
    fn joined_device_conforms() {
        for pace in [Pace::AtOnce, Pace::Shuffled { per_poll_max: 4 }] {
            suite(|| Joined::new([(0, Simulated::new(SIZE_MIN, pace, 1))]), |_| ());
        }
    }

    #[test]
    fn requests_go_to_the_device_of_their_address() {
        let (mut device, disks) = pair();
        assert_eq!(device.size(), 2 * DEVICE_SPAN + SIZE_MIN);
        assert_eq!([0, 1, 2, 3].map(|n| device.size_of(n)), [Some(SIZE_MIN), None, Some(SIZE_MIN), None]);
        write(&mut device, 8192, Durability::Later);
        write(&mut device, 2 * DEVICE_SPAN + 4096, Durability::Later);
        assert_eq!([disks[0].peek(8192)[0], disks[1].peek(4096)[0]], [7, 7]);
        assert_ne!(disks[0].peek(4096)[0], 7);
        device.submit(3, Request::Read { offset: 2 * DEVICE_SPAN + 4096, len: BLOCK });
        let mut done = Vec::new();
        while device.poll(&mut done) {}
        assert_eq!((done[0].token, done[0].result.as_ref().unwrap()[0]), (3, 7));
    }

    #[test]
    fn flush_goes_to_devices_with_unflushed_writes() {
        let (mut device, disks) = pair();
        device.submit(1, Request::Flush);
        assert_eq!(
            (settle(&mut device), flushes(&disks)),
            (vec![(1, true)], [1, 1]),
            "of an earlier process"
        );
        device.submit(2, Request::Flush);
        assert_eq!((settle(&mut device), flushes(&disks)), (vec![(2, true)], [1, 1]));
        write(&mut device, 2 * DEVICE_SPAN, Durability::Later);
        device.submit(3, Request::Flush);
        assert_eq!((settle(&mut device), flushes(&disks)), (vec![(3, true)], [1, 2]));
        write(&mut device, 0, Durability::Flushed);
        device.submit(4, Request::Flush);
        assert_eq!((settle(&mut device), flushes(&disks)), (vec![(4, true)], [1, 2]));
    }

    /// Neither may rely on the other one, which has not completed.
    #[test]
    fn second_flush_beside_a_first_one_flushes_too() {
        let (mut device, disks) = pair();
        write(&mut device, 0, Durability::Later);
        disks[0].stall(true);
        device.submit(1, Request::Flush);
        device.submit(2, Request::Flush);
        let mut done = Vec::new();
        (0..4).for_each(|_| assert!(device.poll(&mut done)));
        assert!(done.is_empty(), "{done:?}");
        disks[0].stall(false);
        assert_eq!(settle(&mut device), [(1, true), (2, true)]);
        assert_eq!(disks[0].at_risk(), 0);
    }

    #[test]
    fn failed_flush_of_one_device_fails_the_whole_and_is_repeated() {
        let (mut device, disks) = pair();
        disks[1].fail_flushes();
        device.submit(1, Request::Flush);
        assert_eq!(settle(&mut device), [(1, false)]);
        disks[1].heal();
        device.submit(2, Request::Flush);
        assert_eq!((settle(&mut device), flushes(&disks)), (vec![(2, true)], [1, 2]));
        disks[0].unplug();
        device.submit(3, Request::Read { offset: 0, len: BLOCK });
        let mut done = Vec::new();
        while device.poll(&mut done) {}
        assert_eq!(done[0].result, Err(DeviceError::Gone));
    }
}
