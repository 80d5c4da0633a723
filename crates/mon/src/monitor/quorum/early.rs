//! Requests of other monitors' sessions that came to an elected leader before it could propose.
//!
//! The others know of an election before the new leader's first entry has committed, and send what waits in their outboxes. The
//! requests stay here for that moment, within bounds: there is no answer by which a leader could refuse one. Where they do not
//! fit, the leader ends the connection of the monitor that sent one too many, which sends all of its requests again over the next.

use wire::messages::{Caller, Carried};

/// Requests that wait, and the bytes that they hold.
const REQUESTS_MAX: usize = 20_000;
const BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
pub(in crate::monitor) struct EarlyRequest {
    pub from: u64,
    pub serial: u64,
    pub session: u64,
    pub caller: Caller,
    pub message: Carried,
}

impl EarlyRequest {
    fn bytes(&self) -> usize {
        size_of::<EarlyRequest>() + self.message.len()
    }
}

/// There is no room for a request.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::monitor) struct Full;

#[derive(Debug)]
pub(in crate::monitor) struct EarlyRequests {
    requests: Vec<EarlyRequest>,
    bytes: usize,
    pub bytes_max: usize,
}

impl Default for EarlyRequests {
    fn default() -> EarlyRequests {
        EarlyRequests { requests: Vec::new(), bytes: 0, bytes_max: BYTES_MAX }
    }
}

impl EarlyRequests {
    pub fn push(&mut self, request: EarlyRequest) -> Result<(), Full> {
        let bytes = self.bytes + request.bytes();
        if self.requests.len() >= REQUESTS_MAX || bytes > self.bytes_max {
            return Err(Full);
        }
        self.bytes = bytes;
        self.requests.push(request);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// All of them, in the order in which they came.
    pub fn take(&mut self) -> Vec<EarlyRequest> {
        self.bytes = 0;
        std::mem::take(&mut self.requests)
    }

    /// Drops the requests of a monitor, which sends them again.
    pub fn forget(&mut self, member: u64) {
        self.requests.retain(|request| request.from != member);
        self.bytes = self.requests.iter().map(EarlyRequest::bytes).sum();
    }

    pub fn clear(&mut self) {
        self.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use codec::Features;
    use wire::messages::{MMonCommand, Message, PaxosHeader};
    use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityName, Uuid};

    fn request(from: u64, bytes: usize) -> EarlyRequest {
        let (paxos, fsid, command) = (PaxosHeader::default(), Uuid::default(), Vec::new());
        let message = Message::new(MMonCommand { paxos, fsid, command, input: Bytes::from(vec![0; bytes]) });
        let message = Carried::new(&message, Features::ALL);
        EarlyRequest { from, serial: 1, session: 1, caller: caller(), message }
    }

    fn caller() -> Caller {
        let name: AuthName = "client.admin".parse().unwrap();
        Caller {
            unproved: false,
            claimed: EntityName::new(name.kind, 4123),
            name,
            global_id: 4123,
            addrs: EntityAddrVec::default(),
            socket: EntityAddr::default(),
            features: 0,
            secure: true,
            host: String::new(),
        }
    }

    #[test]
    fn requests_beyond_the_bytes_are_refused() {
        let mut early = EarlyRequests::default();
        for _ in 0..3 {
            assert_eq!(early.push(request(1, 64 << 20)), Ok(()));
        }
        assert_eq!(early.push(request(2, 1 << 20)), Ok(()));
        assert_eq!(early.push(request(1, 64 << 20)), Err(Full));
        early.forget(1);
        assert_eq!(early.push(request(2, 64 << 20)), Ok(()));
        assert_eq!(early.take().iter().map(|request| request.from).collect::<Vec<_>>(), [2, 2]);
        assert!(early.is_empty() && early.bytes == 0);
    }

    #[test]
    fn requests_beyond_the_number_are_refused() {
        let mut early = EarlyRequests::default();
        assert!((0..REQUESTS_MAX).all(|_| early.push(request(1, 0)).is_ok()));
        assert_eq!(early.push(request(2, 0)), Err(Full));
    }
}
