//! A RAM disk without latency: a request completes at the next poll.

use bytes::Bytes;
use device::{BlockDevice, Done, Request};

pub struct Ram {
    bytes: Vec<u8>,
    done: Vec<Done>,
}

impl Ram {
    pub fn new(len: usize) -> Ram {
        Ram { bytes: vec![0; len], done: Vec::new() }
    }
}

impl BlockDevice for Ram {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn submit(&mut self, token: u64, request: Request) {
        request.check(self.size());
        let mut read = Bytes::new();
        match request {
            Request::Read { offset, len } => {
                read = Bytes::copy_from_slice(&self.bytes[offset as usize..][..len]);
            }
            Request::Write { offset, data, .. } => {
                let mut at = offset as usize;
                for slice in data.pieces() {
                    self.bytes[at..][..slice.len()].copy_from_slice(slice);
                    at += slice.len();
                }
            }
            Request::Flush | Request::Discard { .. } => {}
        }
        self.done.push(Done { token, result: Ok(read) });
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        out.append(&mut self.done);
        false
    }
}
