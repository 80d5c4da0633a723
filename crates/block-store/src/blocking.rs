//! Blocking device requests, one at a time: for mkfs and recovery, which run before the reactor.

use bytes::Bytes;
use codec::Rope;
use device::{BlockDevice, DeviceError, Done, Durability, Request};

/// Bytes of one discard request. A disk serves no other request meanwhile.
const DISCARD_BYTES: u64 = 1 << 30;

pub struct Blocking<'a> {
    pub device: &'a mut dyn BlockDevice,
    /// Called when only the device can go on.
    pub wait: &'a mut dyn FnMut(),
}

impl Blocking<'_> {
    pub fn ask(&mut self, request: Request) -> Result<Bytes, DeviceError> {
        self.device.submit(0, request);
        let mut done: Vec<Done> = Vec::new();
        loop {
            self.device.poll(&mut done);
            match done.pop() {
                Some(done) => return done.result,
                None => (self.wait)(),
            }
        }
    }

    pub fn read(&mut self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        self.ask(Request::Read { offset, len })
    }

    /// Durable after the next flush.
    pub fn write(&mut self, offset: u64, data: impl Into<Rope>) -> Result<(), DeviceError> {
        let request = Request::Write { offset, data: data.into(), durability: Durability::Later };
        self.ask(request).map(drop)
    }

    pub fn flush(&mut self) -> Result<(), DeviceError> {
        self.ask(Request::Flush).map(drop)
    }

    pub fn discard(&mut self, from: u64, to: u64) -> Result<(), DeviceError> {
        for offset in (from..to).step_by(DISCARD_BYTES as usize) {
            self.ask(Request::Discard { offset, len: DISCARD_BYTES.min(to - offset) })?;
        }
        Ok(())
    }
}
