//! The error numbers that go on the wire. They are Linux's, whatever the machine: Ceph fixed them in its protocol.

/// A positive error number; on the wire it is negated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        impl Errno { $($(#[$doc])* pub const $name: Errno = Errno($number);)* }
        impl std::fmt::Debug for Errno {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 { $($number => f.write_str(stringify!($name)),)* n => write!(f, "errno {n}") }
            }
        }
    };
}

errnos! {
    PERM = 1,
    NOENT = 2,
    IO = 5,
    NXIO = 6,
    /// `E2BIG`.
    TOOBIG = 7,
    NOEXEC = 8,
    BADF = 9,
    AGAIN = 11,
    FAULT = 14,
    BUSY = 16,
    EXIST = 17,
    XDEV = 18,
    INVAL = 22,
    NFILE = 23,
    FBIG = 27,
    NOSPC = 28,
    RANGE = 34,
    NAMETOOLONG = 36,
    NOSYS = 38,
    NOMSG = 42,
    NODATA = 61,
    NOLINK = 67,
    OVERFLOW = 75,
    MSGSIZE = 90,
    OPNOTSUPP = 95,
    NOTCONN = 107,
    TIMEDOUT = 110,
    STALE = 116,
    /// `EBLOCKLISTED`: Ceph's name for `ESHUTDOWN`.
    BLOCKLISTED = 108,
    /// `EOLDSNAPC`: Ceph's own.
    OLDSNAPC = 85,
    USERS = 87,
    DQUOT = 122,
    CANCELED = 125,
}

impl Errno {
    /// As a result on the wire.
    pub const fn result(self) -> i32 {
        -self.0
    }
}
