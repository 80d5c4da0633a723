//! Numbers that name things inside one daemon.

/// A connection, for its life; never reused within a process. The host numbers those it accepts, a role those it
/// opens; a bit keeps the two apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

impl ConnId {
    const OUTGOING: u64 = 1 << 63;

    pub const fn accepted(n: u64) -> ConnId {
        ConnId(n & !ConnId::OUTGOING)
    }

    pub const fn outgoing(n: u64) -> ConnId {
        ConnId(n | ConnId::OUTGOING)
    }

    pub const fn is_outgoing(self) -> bool {
        self.0 & ConnId::OUTGOING != 0
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
