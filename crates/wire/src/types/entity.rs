//! Entity names and addresses (`entity_name_t`, `entity_addr_t`, `entity_addrvec_t`).

use crate::features;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kind of a daemon or client. A number that shoal does not know survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKind(pub u8);

impl EntityKind {
    pub const MON: EntityKind = EntityKind(1);
    pub const MDS: EntityKind = EntityKind(2);
    pub const OSD: EntityKind = EntityKind(4);
    pub const CLIENT: EntityKind = EntityKind(8);
    pub const MGR: EntityKind = EntityKind(16);
    /// Not a peer: the service whose secret protects tickets themselves.
    pub const AUTH: EntityKind = EntityKind(32);

    pub fn name(self) -> &'static str {
        match self {
            EntityKind::MON => "mon",
            EntityKind::MDS => "mds",
            EntityKind::OSD => "osd",
            EntityKind::CLIENT => "client",
            EntityKind::MGR => "mgr",
            EntityKind::AUTH => "auth",
            _ => "unknown",
        }
    }

    pub fn from_name(s: &str) -> Option<EntityKind> {
        [Self::MON, Self::MDS, Self::OSD, Self::CLIENT, Self::MGR, Self::AUTH]
            .into_iter()
            .find(|k| k.name() == s)
    }
}

impl fmt::Debug for EntityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A daemon or client by number (`entity_name_t`): `osd.3`, `client.4123`. A client's number is its global id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    pub kind: EntityKind,
    pub num: i64,
}

impl EntityName {
    pub const fn new(kind: EntityKind, num: i64) -> EntityName {
        EntityName { kind, num }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.num {
            n if n < 0 => write!(f, "{}.?", self.kind.name()),
            n => write!(f, "{}.{n}", self.kind.name()),
        }
    }
}

impl fmt::Debug for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Encode for EntityName {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.kind.0);
        w.i64(self.num);
    }
}

impl Decode for EntityName {
    const MIN_LEN: usize = 9;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(EntityName { kind: EntityKind(r.u8()?), num: r.i64()? })
    }
}

/// Protocol of an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AddrKind(pub u32);

impl AddrKind {
    pub const NONE: AddrKind = AddrKind(0);
    pub const LEGACY: AddrKind = AddrKind(1);
    pub const MSGR2: AddrKind = AddrKind(2);
    /// Either protocol: of clients, and in monitor lists that a person typed (`any:`).
    pub const ANY: AddrKind = AddrKind(3);
}

/// One address of an entity. `nonce` tells two lives of the same address apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EntityAddr {
    pub kind: AddrKind,
    pub nonce: u32,
    /// `None` is the blank address.
    pub socket: Option<SocketAddr>,
}

impl EntityAddr {
    pub fn msgr2(socket: SocketAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: AddrKind::MSGR2, nonce, socket: Some(socket) }
    }

    pub fn is_blank(&self) -> bool {
        self.socket.is_none_or(|s| s.ip().is_unspecified() && s.port() == 0)
    }

    /// The address the way pre-addrvec peers call it: same socket, legacy kind.
    pub fn as_legacy(self) -> EntityAddr {
        EntityAddr { kind: AddrKind::LEGACY, ..self }
    }
}

/// `IP:PORT/NONCE`, as `ceph osd dump` prints the part after the protocol.
pub struct PlainAddr<'a>(&'a EntityAddr);

impl EntityAddr {
    pub fn plain(&self) -> PlainAddr<'_> {
        PlainAddr(self)
    }
}

impl fmt::Display for PlainAddr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.socket {
            Some(s) => write!(f, "{s}/{}", self.0.nonce),
            None => write!(f, ":/{}", self.0.nonce),
        }
    }
}

impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AddrKind::NONE => return f.write_str("-"),
            AddrKind::LEGACY => f.write_str("v1:")?,
            AddrKind::MSGR2 => f.write_str("v2:")?,
            // A client's: nobody connects to it, so no protocol is named.
            AddrKind::ANY => {}
            _ => f.write_str("???:")?,
        }
        write!(f, "{}", self.plain())
    }
}

impl fmt::Debug for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Ceph orders addresses by their bytes in memory on a little-endian machine, and writes maps in that order.
impl Ord for EntityAddr {
    fn cmp(&self, o: &EntityAddr) -> std::cmp::Ordering {
        self.in_memory().cmp(&o.in_memory())
    }
}

impl PartialOrd for EntityAddr {
    fn partial_cmp(&self, o: &EntityAddr) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}

impl EntityAddr {
    /// Kind, nonce and `sockaddr` as they lie in memory; what a shorter address does not use is zero.
    fn in_memory(&self) -> [u8; 36] {
        let mut w = Writer::new(codec::Features::NONE);
        w.u32(self.kind.0);
        w.u32(self.nonce);
        self.encode_sockaddr(&mut w);
        let mut out = [0; 36];
        out[..w.len()].copy_from_slice(w.as_slice());
        out
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

impl EntityAddr {
    /// A `sockaddr` without padding: `u16 family` then, for IPv4, port and address in network order and 8
    /// zeroes; for IPv6, port, flow, address, scope.
    fn encode_sockaddr(&self, w: &mut Writer) {
        match self.socket {
            // Ceph writes its whole union of address families when there is none.
            None => w.raw(&[0; 28]),
            Some(SocketAddr::V4(a)) => {
                w.u16(AF_INET);
                w.raw(&a.port().to_be_bytes());
                w.raw(&a.ip().octets());
                w.raw(&[0; 8]);
            }
            Some(SocketAddr::V6(a)) => {
                w.u16(AF_INET6);
                w.raw(&a.port().to_be_bytes());
                w.u32(a.flowinfo());
                w.raw(&a.ip().octets());
                w.u32(a.scope_id());
            }
        }
    }

    fn decode_sockaddr(mut r: Reader<'_>) -> Result<Option<SocketAddr>, DecodeError> {
        if r.remaining() < 2 {
            return Ok(None);
        }
        match r.u16()? {
            0 => Ok(None),
            AF_INET => {
                let port = u16::from_be_bytes(r.get()?);
                let ip = Ipv4Addr::from(r.get::<[u8; 4]>()?);
                Ok(Some(SocketAddr::new(IpAddr::V4(ip), port)))
            }
            AF_INET6 => {
                let port = u16::from_be_bytes(r.get()?);
                let flow = r.u32()?;
                let ip = Ipv6Addr::from(r.get::<[u8; 16]>()?);
                let scope = r.u32().unwrap_or(0);
                Ok(Some(std::net::SocketAddrV6::new(ip, port, flow, scope).into()))
            }
            family => Err(r.invalid("sockaddr family", family)),
        }
    }

    /// The form before `MSG_ADDR2`: `u32 0, u32 nonce`, then 128 bytes of `sockaddr_storage` with a big-endian family.
    fn encode_legacy(&self, w: &mut Writer) {
        w.u32(0);
        w.u32(self.nonce);
        let mut inner = Writer::new(w.features());
        self.encode_sockaddr(&mut inner);
        let mut storage = inner.into_vec();
        if storage.len() >= 2 {
            storage.swap(0, 1);
        }
        storage.resize(128, 0);
        w.raw(&storage);
    }

    fn decode_legacy(r: &mut Reader<'_>) -> Result<EntityAddr, DecodeError> {
        // The marker byte is gone already: three bytes are left of the u32.
        r.skip(3)?;
        let nonce = r.u32()?;
        let mut storage = r.get::<[u8; 128]>()?;
        storage.swap(0, 1);
        let socket = EntityAddr::decode_sockaddr(Reader::new(&storage))?;
        let kind = if socket.is_some() { AddrKind::LEGACY } else { AddrKind::NONE };
        Ok(EntityAddr { kind, nonce, socket })
    }

    fn decode_marked(r: &mut Reader<'_>) -> Result<EntityAddr, DecodeError> {
        r.envelope("entity_addr_t", 1, |r, _| {
            let (kind, nonce) = (AddrKind(r.u32()?), r.u32()?);
            let len = r.u32()? as usize;
            let socket = EntityAddr::decode_sockaddr(r.sub("sockaddr", len)?)?;
            Ok(EntityAddr { kind, nonce, socket })
        })
    }
}

/// With `MSG_ADDR2`: a marker byte 1 and an envelope. Without: the legacy form.
impl Encode for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        if !w.features().has(features::MSG_ADDR2) {
            return self.encode_legacy(w);
        }
        w.u8(1);
        w.envelope(1, 1, |w| {
            w.u32(self.kind.0);
            w.u32(self.nonce);
            w.blob_of(|w| self.encode_sockaddr(w));
        });
    }
}

impl Decode for EntityAddr {
    const MIN_LEN: usize = 7;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => EntityAddr::decode_legacy(r),
            1 => EntityAddr::decode_marked(r),
            marker => Err(r.invalid("entity_addr_t marker", marker)),
        }
    }
}

/// All addresses of an entity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityAddrVec(pub Vec<EntityAddr>);

impl EntityAddrVec {
    pub fn one(addr: EntityAddr) -> EntityAddrVec {
        EntityAddrVec(vec![addr])
    }

    pub fn msgr2(&self) -> Option<EntityAddr> {
        self.0.iter().copied().find(|a| a.kind == AddrKind::MSGR2)
    }

    /// The address that a peer without address vectors is told.
    pub fn legacy(&self) -> EntityAddr {
        let v1 = self.0.iter().copied().find(|a| a.kind == AddrKind::LEGACY);
        v1.or_else(|| self.0.first().map(|a| a.as_legacy())).unwrap_or_default()
    }
}

impl From<EntityAddr> for EntityAddrVec {
    fn from(a: EntityAddr) -> EntityAddrVec {
        EntityAddrVec::one(a)
    }
}

impl fmt::Display for EntityAddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return write!(f, "{one}");
        }
        f.write_str("[")?;
        for (i, a) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{a}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for EntityAddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// With `MSG_ADDR2`: a marker byte 2 and a vector. Without: one legacy address.
impl Encode for EntityAddrVec {
    fn encode(&self, w: &mut Writer) {
        if !w.features().has(features::MSG_ADDR2) {
            return self.legacy().encode(w);
        }
        w.u8(2);
        w.put(&self.0);
    }
}

impl Decode for EntityAddrVec {
    const MIN_LEN: usize = 5;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => EntityAddr::decode_legacy(r).map(EntityAddrVec::one),
            1 => EntityAddr::decode_marked(r).map(EntityAddrVec::one),
            2 => r.get().map(EntityAddrVec),
            marker => Err(r.invalid("entity_addrvec_t marker", marker)),
        }
    }
}

/// A name and its address (`entity_inst_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntityInst {
    pub name: EntityName,
    pub addr: EntityAddr,
}

impl Encode for EntityInst {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.name);
        w.put(&self.addr);
    }
}

impl Decode for EntityInst {
    const MIN_LEN: usize = 16;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(EntityInst { name: r.get()?, addr: r.get()? })
    }
}
