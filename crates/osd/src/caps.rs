//! Capabilities of a client, compared with its request.

use crate::classes::Method;
use machine::identity::Capabilities;
use machine::net::Peer;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use wire::caps::{ClassUse, OsdAccess, OsdCap};
use wire::messages::MOSDOp;

/// A peer's capabilities, from its ticket. Text that does not parse allows nothing.
pub fn of_peer(peer: &Peer) -> OsdCap {
    match peer.identity.capabilities() {
        Capabilities::Everything => OsdCap::everything(),
        Capabilities::Text(text) => OsdCap::parse(&text).unwrap_or_default(),
    }
}

/// `reads` and `writes` are those of operations other than `calls`.
pub fn allow(
    cap: &OsdCap,
    peer: &Peer,
    pool: &str,
    applications: &BTreeMap<String, BTreeMap<String, String>>,
    request: &MOSDOp,
    (reads, writes): (bool, bool),
    calls: &[&'static Method],
) -> bool {
    let classes: SmallVec<[ClassUse<'_>; 2]> = calls
        .iter()
        .map(|m| ClassUse {
            class: m.class,
            method: m.name,
            reads: m.reads,
            writes: m.writes,
            allowed_by_default: m.allowed_by_default(),
        })
        .collect();
    cap.allows(&OsdAccess {
        pool,
        namespace: &request.object.namespace,
        applications,
        object: request.object.effective_key(),
        reads,
        writes,
        classes: &classes,
        peer: peer.socket.socket.map(|s| s.ip()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use codec::{Encode, Features};
    use machine::identity::{Method, Proof};
    use wire::types::{EntityAddr, EntityKind, EntityName};

    fn peer(caps: Bytes, allow_all: bool) -> Peer {
        let claimed = EntityName::new(EntityKind::CLIENT, 1);
        let name = "client.x".parse().unwrap();
        let proof = Proof { method: Method::Cephx, name, global_id: 1, caps, allow_all };
        Peer::identified(proof, claimed, EntityAddr::default()).unwrap()
    }

    #[test]
    fn a_ticket_says_what_a_peer_may_do() {
        let text = |t: &str| Bytes::from(t.to_string().to_vec(Features::NONE));
        assert_eq!(of_peer(&peer(text("allow r"), false)), OsdCap::parse("allow r").unwrap());
        assert_eq!(of_peer(&peer(text("nonsense"), false)), OsdCap::default());
        assert_eq!(of_peer(&peer(Bytes::from_static(b"\xff"), false)), OsdCap::default());
        assert_eq!(of_peer(&peer(Bytes::new(), false)), OsdCap::default());
        assert!(of_peer(&peer(Bytes::new(), true)).allows_everything());
    }
}
