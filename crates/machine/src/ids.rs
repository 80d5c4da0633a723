//! Numbers that name things inside one daemon.

/// A connection, for its life; never reused within a process. The host numbers those it accepts, a role those it
/// opens; a bit keeps the two apart. Either says which core the connection lives on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

impl ConnId {
    const OUTGOING: u64 = 1 << 63;
    const CORE_SHIFT: u32 = 57;
    /// Number of cores that fit an id.
    pub const CORES_MAX: u16 = 64;
    const NUMBER: u64 = (1 << ConnId::CORE_SHIFT) - 1;

    /// On core 0.
    pub const fn accepted(n: u64) -> ConnId {
        ConnId(n & ConnId::NUMBER)
    }

    /// On core 0.
    pub const fn outgoing(n: u64) -> ConnId {
        ConnId(n & ConnId::NUMBER | ConnId::OUTGOING)
    }

    pub const fn accepted_on(core: CoreId, n: u64) -> ConnId {
        ConnId(n & ConnId::NUMBER | (core.0 as u64) << ConnId::CORE_SHIFT)
    }

    pub const fn outgoing_on(core: CoreId, n: u64) -> ConnId {
        ConnId(ConnId::accepted_on(core, n).0 | ConnId::OUTGOING)
    }

    pub const fn is_outgoing(self) -> bool {
        self.0 & ConnId::OUTGOING != 0
    }

    /// The core whose endpoint holds it.
    pub const fn core(self) -> CoreId {
        CoreId(((self.0 & !ConnId::OUTGOING) >> ConnId::CORE_SHIFT) as u16)
    }
}

/// A reactor core of this daemon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CoreId(pub u16);

/// Ties a store commit to what submitted it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// Ties the answer of a store read to what asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadTag(pub u64);
