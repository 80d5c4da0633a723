//! The other clusters that a pool mirrors to and from.

use super::{is_enabled, stored_uuid};
use crate::classes::rbd::{MethodResult, ignore_missing, new_uuid};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use wire::types::Name;
use wire::types::cls::rbd::{DIRECTION_RX, DIRECTION_RX_TX, DIRECTION_TX, MirrorPeer};

const PREFIX: &str = "mirror_peer_";

pub(super) fn all_peers(call: &mut MethodCall<'_>) -> Result<Vec<MirrorPeer>, MethodStop> {
    call.omap_scan(PREFIX)?.iter().map(|(_, value)| omap::stored(value)).collect()
}

fn write(call: &mut MethodCall<'_>, peer: &MirrorPeer) -> Result<(), MethodStop> {
    call.set_omap(omap::key(PREFIX, &peer.uuid), peer)
}

fn must_be_enabled(call: &mut MethodCall<'_>) -> Result<(), MethodStop> {
    if is_enabled(call)? { Ok(()) } else { Err(Errno::INVAL.into()) }
}

/// A peer says that it is there. One that the pool does not know becomes a peer that is only sent to.
pub fn mirror_peer_ping(call: &mut MethodCall<'_>) -> MethodResult {
    let (site_name, mirror_uuid, direction): (Name, Name, u8) = call.argument()?;
    if direction != DIRECTION_TX {
        return Err(Errno::INVAL.into());
    }
    must_be_enabled(call)?;
    if site_name.is_empty() || mirror_uuid.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let peers = all_peers(call)?;
    let by_site = peers.iter().find(|p| p.site_name == site_name);
    let site_fits = by_site.is_some_and(|p| p.mirror_uuid.is_empty() || p.mirror_uuid == mirror_uuid);
    let by_uuid = if site_fits { None } else { peers.iter().find(|p| p.mirror_uuid == mirror_uuid) };
    let mut peer = match (by_site, by_uuid) {
        // Two peers: the uuid decides, and the name stays.
        (Some(_), Some(peer)) => peer.clone(),
        (None, Some(peer)) => MirrorPeer { site_name, ..peer.clone() },
        (Some(peer), None) => MirrorPeer { mirror_uuid, ..peer.clone() },
        (None, None) => MirrorPeer {
            uuid: new_uuid(call),
            direction: DIRECTION_TX,
            site_name,
            mirror_uuid,
            ..MirrorPeer::default()
        },
    };
    if peer.direction == DIRECTION_RX {
        peer.direction = DIRECTION_RX_TX;
    }
    peer.last_seen = call.context.now;
    if !peer.is_valid() {
        return Err(Errno::INVAL.into());
    }
    write(call, &peer)?;
    Ok(0)
}

pub fn mirror_peer_list(call: &mut MethodCall<'_>) -> MethodResult {
    let peers = all_peers(call)?;
    call.finish_with(&peers)
}

/// `ESTALE` for a uuid in use, `EEXIST` for a site's name or mirror uuid in use.
pub fn mirror_peer_add(call: &mut MethodCall<'_>) -> MethodResult {
    let peer: MirrorPeer = call.argument()?;
    must_be_enabled(call)?;
    if !peer.is_valid() {
        return Err(Errno::INVAL.into());
    }
    let own = stored_uuid(call)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    if peer.uuid == own || peer.direction == DIRECTION_TX {
        return Err(Errno::INVAL.into());
    }
    for other in all_peers(call)? {
        if other.uuid == peer.uuid {
            return Err(Errno::STALE.into());
        }
        let same_uuid = !peer.mirror_uuid.is_empty() && other.mirror_uuid == peer.mirror_uuid;
        if other.site_name == peer.site_name || same_uuid {
            return Err(Errno::EXIST.into());
        }
    }
    write(call, &peer)?;
    Ok(0)
}

pub fn mirror_peer_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let uuid: Name = call.argument()?;
    ignore_missing(call.remove_omap_key(omap::key(PREFIX, uuid)))?;
    Ok(0)
}

pub fn mirror_peer_set_client(call: &mut MethodCall<'_>) -> MethodResult {
    let (uuid, client_name): (Name, Name) = call.argument()?;
    let peer: MirrorPeer = call.omap_must(omap::key(PREFIX, uuid))?;
    write(call, &MirrorPeer { client_name, ..peer })?;
    Ok(0)
}

/// `EEXIST` for another peer's name.
pub fn mirror_peer_set_cluster(call: &mut MethodCall<'_>) -> MethodResult {
    let (uuid, site_name): (Name, Name) = call.argument()?;
    let peers = all_peers(call)?;
    if peers.iter().any(|p| p.uuid != uuid && p.site_name == site_name) {
        return Err(Errno::EXIST.into());
    }
    let peer = peers.into_iter().find(|p| p.uuid == uuid).ok_or(MethodStop::Failed(Errno::NOENT))?;
    write(call, &MirrorPeer { site_name, ..peer })?;
    Ok(0)
}

pub fn mirror_peer_set_direction(call: &mut MethodCall<'_>) -> MethodResult {
    let (uuid, direction): (Name, u8) = call.argument()?;
    let peer: MirrorPeer = call.omap_must(omap::key(PREFIX, uuid))?;
    write(call, &MirrorPeer { direction, ..peer })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::mirroring;
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn peer(uuid: &str, site: &str) -> MirrorPeer {
        MirrorPeer {
            uuid: uuid.into(),
            site_name: site.into(),
            client_name: "c".into(),
            ..MirrorPeer::default()
        }
    }

    fn list(o: &mut Object) -> Vec<MirrorPeer> {
        decode(&o.call_bare("rbd", "mirror_peer_list").unwrap())
    }

    fn ping(site: &str, uuid: &str, direction: u8) -> (String, String, u8) {
        (site.to_string(), uuid.to_string(), direction)
    }

    #[test]
    fn peers_are_distinct() {
        let mut o = mirroring();
        o.call("rbd", "mirror_peer_add", &peer("1", "a")).unwrap();
        assert_eq!(o.call("rbd", "mirror_peer_add", &peer("1", "b")), Err(Errno::STALE));
        assert_eq!(o.call("rbd", "mirror_peer_add", &peer("2", "a")), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "mirror_peer_add", &peer("pool-uuid", "b")), Err(Errno::INVAL));
        assert_eq!(o.call("rbd", "mirror_peer_add", &peer("2", "")), Err(Errno::INVAL));
        o.call("rbd", "mirror_peer_add", &peer("2", "b")).unwrap();
        let set = |name: &str| ("2".to_string(), name.to_string());
        assert_eq!(o.call("rbd", "mirror_peer_set_cluster", &set("a")), Err(Errno::EXIST));
        o.call("rbd", "mirror_peer_set_cluster", &set("b2")).unwrap();
        o.call("rbd", "mirror_peer_set_client", &set("client2")).unwrap();
        o.call("rbd", "mirror_peer_set_direction", &("2".to_string(), DIRECTION_RX)).unwrap();
        let second = list(&mut o).remove(1);
        assert_eq!((&second.site_name[..], &second.client_name[..]), (&b"b2"[..], &b"client2"[..]));
        assert_eq!(o.call("rbd", "mirror_mode_set", &0u32), Err(Errno::BUSY));
        o.call("rbd", "mirror_peer_remove", &"2".to_string()).unwrap();
        o.call("rbd", "mirror_peer_remove", &"2".to_string()).unwrap();
        assert_eq!(o.call("rbd", "mirror_peer_set_client", &set("x")), Err(Errno::NOENT));
        assert_eq!(list(&mut o), [peer("1", "a")]);
    }

    #[test]
    fn ping_makes_or_completes_a_peer() {
        let mut o = mirroring();
        assert_eq!(o.call("rbd", "mirror_peer_ping", &ping("", "u", 1)), Err(Errno::INVAL));
        assert_eq!(o.call("rbd", "mirror_peer_ping", &ping("a", "u", 0)), Err(Errno::INVAL));
        o.call("rbd", "mirror_peer_ping", &ping("a", "u", 1)).unwrap();
        let made = list(&mut o).remove(0);
        assert_eq!((made.direction, made.last_seen, made.uuid.len()), (DIRECTION_TX, o.now, 36));
        // A known uuid under another name.
        o.call("rbd", "mirror_peer_ping", &ping("a2", "u", 1)).unwrap();
        assert_eq!(list(&mut o)[0].site_name, "a2");
        // A peer that was only received from.
        let receiving = MirrorPeer { direction: DIRECTION_RX, ..peer("0", "b") };
        o.call("rbd", "mirror_peer_add", &receiving).unwrap();
        o.call("rbd", "mirror_peer_ping", &ping("b", "v", 1)).unwrap();
        let peers = list(&mut o);
        let completed = peers.iter().find(|p| p.site_name == "b").unwrap();
        assert_eq!((completed.direction, &completed.mirror_uuid[..]), (DIRECTION_RX_TX, &b"v"[..]));
        assert_eq!(Object::existing().call("rbd", "mirror_peer_ping", &ping("a", "u", 1)), Err(Errno::INVAL));
    }
}
