//! Snapshots removed by a metadata server (`MRemoveSnaps`). The monitor answers with the same list.

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use crate::types::SnapId;
use std::collections::BTreeMap;

plain_message! {
    MRemoveSnaps = 90, version 1, compat 0 {
        paxos: PaxosHeader,
        /// By pool.
        snaps: BTreeMap<i32, Vec<SnapId>>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features;
    use crate::messages::{Header, Message, MessageBody, Payload};

    fn payload(front: Vec<u8>) -> Payload {
        Payload { front: front.into(), ..Payload::default() }
    }

    #[test]
    fn message_is_these_bytes() {
        let snaps = BTreeMap::from([(3, vec![SnapId(5), SnapId(9)])]);
        let message = MRemoveSnaps { paxos: PaxosHeader { version: 7 }, snaps };
        let (header, out) = Message::new(message.clone()).encode(features::TENTACLE);
        assert_eq!((header.kind, header.version, header.compat), (90, 1, 0));
        let mut expected = Vec::new();
        let mut put = |bytes: &[u8]| expected.extend_from_slice(bytes);
        put(&7u64.to_le_bytes()); // version
        put(&[0xff, 0xff]); // session_mon
        put(&[0; 8]); // session_mon_tid
        put(&1u32.to_le_bytes());
        put(&3i32.to_le_bytes());
        put(&2u32.to_le_bytes());
        put(&5u64.to_le_bytes());
        put(&9u64.to_le_bytes());
        assert_eq!(out.front.as_slice(), expected);
        assert_eq!(MRemoveSnaps::decode(&header, &payload(expected)), Ok(message));
    }

    #[test]
    fn count_beyond_the_front_is_refused() {
        let mut front = vec![0; 18];
        front.extend(u32::MAX.to_le_bytes());
        front.extend([0; 40]);
        assert!(MRemoveSnaps::decode(&Header::default(), &payload(front)).is_err());
    }
}
