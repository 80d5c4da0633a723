//! Mirroring of images to other clusters: peers, images, and the status that each site reports.

use crate::types::{AddrKind, EntityInst, Name, UTime};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

pub const DIRECTION_RX: u8 = 0;
pub const DIRECTION_TX: u8 = 1;
pub const DIRECTION_RX_TX: u8 = 2;

/// Another cluster (`cls::rbd::MirrorPeer`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorPeer {
    pub uuid: Name,
    pub site_name: Name,
    pub client_name: Name,
    /// `DIRECTION_*`.
    pub direction: u8,
    pub mirror_uuid: Name,
    pub last_seen: UTime,
}

impl Default for MirrorPeer {
    fn default() -> MirrorPeer {
        MirrorPeer {
            uuid: Name::EMPTY,
            site_name: Name::EMPTY,
            client_name: Name::EMPTY,
            direction: DIRECTION_RX_TX,
            mirror_uuid: Name::EMPTY,
            last_seen: UTime::ZERO,
        }
    }
}

impl MirrorPeer {
    pub fn is_valid(&self) -> bool {
        let direction_is_valid = match self.direction {
            DIRECTION_TX => true,
            DIRECTION_RX | DIRECTION_RX_TX => !self.client_name.is_empty(),
            _ => false,
        };
        direction_is_valid && !self.uuid.is_empty() && !self.site_name.is_empty()
    }
}

impl Encode for MirrorPeer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.uuid);
            w.put(&self.site_name);
            w.put(&self.client_name);
            // The pool's number, which nobody uses.
            w.i64(-1);
            w.u8(self.direction);
            w.put(&self.mirror_uuid);
            w.put(&self.last_seen);
        });
    }
}

impl Decode for MirrorPeer {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MirrorPeer", 2, |r, version| {
            let uuid = codec::field(r, "uuid", true, Name::default)?;
            let site_name = codec::field(r, "site_name", true, Name::default)?;
            let client_name = codec::field(r, "client_name", true, Name::default)?;
            codec::field::<i64>(r, "pool_id", true, || -1)?;
            Ok(MirrorPeer {
                uuid,
                site_name,
                client_name,
                direction: codec::field(r, "mirror_peer_direction", version >= 2, || DIRECTION_RX_TX)?,
                mirror_uuid: codec::field(r, "mirror_uuid", version >= 2, Name::default)?,
                last_seen: codec::field(r, "last_seen", version >= 2, || UTime::ZERO)?,
            })
        })
    }
}

pub const IMAGE_DISABLING: u8 = 0;
pub const IMAGE_ENABLED: u8 = 1;

/// A mirrored image (`cls::rbd::MirrorImage`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct MirrorImage {
    pub global_id: Name,
    /// `IMAGE_*`.
    pub state: u8,
    #[since(2)]
    pub mode: u8,
}

pub const STATUS_UNKNOWN: u8 = 0;
pub const STATUS_ERROR: u8 = 1;

/// State of one image at one site (`cls::rbd::MirrorImageSiteStatus`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MirrorSiteStatus {
    /// Empty: this cluster.
    pub mirror_uuid: Name,
    /// `STATUS_*`.
    pub state: u8,
    pub description: Name,
    pub last_update: UTime,
    pub up: bool,
}

impl MirrorSiteStatus {
    pub fn is_local(&self) -> bool {
        self.mirror_uuid.is_empty()
    }

    fn encode_fields(&self, with_uuid: bool, w: &mut Writer) {
        if with_uuid {
            w.put(&self.mirror_uuid);
        }
        w.u8(self.state);
        w.put(&self.description);
        w.put(&self.last_update);
        w.bool(self.up);
    }

    fn decode_fields(with_uuid: bool, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(MirrorSiteStatus {
            mirror_uuid: codec::field(r, "mirror_uuid", with_uuid, Name::default)?,
            state: codec::field(r, "state", true, || 0)?,
            description: codec::field(r, "description", true, Name::default)?,
            last_update: codec::field(r, "last_update", true, || UTime::ZERO)?,
            up: codec::field(r, "up", true, || false)?,
        })
    }
}

/// Readers of version 1 know the local site only, so another site's status demands version 2.
impl Encode for MirrorSiteStatus {
    fn encode(&self, w: &mut Writer) {
        let version = if self.is_local() { 1 } else { 2 };
        w.envelope(version, version, |w| self.encode_fields(version >= 2, w));
    }
}

impl Decode for MirrorSiteStatus {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MirrorImageSiteStatus", 2, |r, version| MirrorSiteStatus::decode_fields(version >= 2, r))
    }
}

/// The client that reported a status. Its address has no protocol: that is not part of its identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusOrigin(pub EntityInst);

impl StatusOrigin {
    pub fn of(EntityInst { name, addr }: EntityInst) -> StatusOrigin {
        let mut addr = addr;
        addr.kind = AddrKind::ANY;
        StatusOrigin(EntityInst { name, addr })
    }
}

impl Encode for StatusOrigin {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.0));
    }
}

impl Decode for StatusOrigin {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MirrorImageSiteStatusOnDisk", 1, |r, _| r.get().map(StatusOrigin::of))
    }
}

/// A site's status as stored (`cls::rbd::MirrorImageSiteStatusOnDisk`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct StoredSiteStatus {
    pub origin: StatusOrigin,
    pub status: MirrorSiteStatus,
}

/// State of one image at all sites (`cls::rbd::MirrorImageStatus`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MirrorStatus {
    pub sites: Vec<MirrorSiteStatus>,
}

impl Encode for MirrorStatus {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            let local = self.sites.iter().find(|s| s.is_local());
            local.unwrap_or(&MirrorSiteStatus::default()).encode_fields(false, w);
            w.bool(local.is_some());
            let remote = || self.sites.iter().filter(|s| !s.is_local());
            w.count(remote().count());
            remote().for_each(|s| s.encode_fields(true, w));
        });
    }
}

impl Decode for MirrorStatus {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MirrorImageStatus", 2, |r, version| {
            let local = MirrorSiteStatus::decode_fields(false, r)?;
            if version < 2 {
                return Ok(MirrorStatus { sites: vec![local] });
            }
            let mut sites = Vec::new();
            if r.bool()? {
                sites.push(local);
            }
            let count = r.count("remote statuses", 18)?;
            for _ in 0..count {
                sites.push(MirrorSiteStatus::decode_fields(true, r)?);
            }
            Ok(MirrorStatus { sites })
        })
    }
}

/// Assignment of an image to an rbd-mirror daemon (`cls::rbd::MirrorImageMap`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MirrorImageMap {
    pub instance: Name,
    pub mapped_time: UTime,
    pub data: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    fn site(uuid: &str) -> MirrorSiteStatus {
        MirrorSiteStatus { mirror_uuid: uuid.into(), state: 4, ..MirrorSiteStatus::default() }
    }

    #[test]
    fn status_of_remote_site_demands_version_2() {
        assert_eq!(site("").to_vec(Features::NONE)[..2], [1, 1]);
        assert_eq!(site("a").to_vec(Features::NONE)[..2], [2, 2]);
        for status in [site(""), site("a")] {
            assert_eq!(codec::decode_exact::<MirrorSiteStatus>(&status.to_vec(Features::NONE)), Ok(status));
        }
    }

    #[test]
    fn status_without_local_site_says_so() {
        for sites in [vec![], vec![site("")], vec![site("a"), site("b")], vec![site(""), site("a")]] {
            let status = MirrorStatus { sites };
            assert_eq!(codec::decode_exact::<MirrorStatus>(&status.to_vec(Features::NONE)), Ok(status));
        }
    }
}
