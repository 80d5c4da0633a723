//! The codes of operations on objects (`CEPH_OSD_OP_*`), and what a code's bits say.

use std::fmt;

/// One operation's code. A code that shoal does not know survives: the executor answers it with `EOPNOTSUPP`.
///
/// The top four bits are the mode (read, write, both, between OSDs, cache), the next four the type (data,
/// attribute, class call, PG), the rest a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpCode(pub u16);

const MODE_READ: u16 = 0x1000;
const MODE_WRITE: u16 = 0x2000;
const MODE_CACHE: u16 = 0x8000;
const TYPE_MASK: u16 = 0x0f00;
const TYPE_ATTR: u16 = 0x0300;
const TYPE_PG: u16 = 0x0500;

macro_rules! op_codes {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        impl OpCode {
            $(pub const $name: OpCode = OpCode($code);)*

            /// As Ceph's logs and admin commands call it.
            pub const fn name(self) -> &'static str {
                match self.0 { $($code => $text,)* _ => "???" }
            }

            /// Every code that has a name.
            pub const ALL: &[OpCode] = &[$(OpCode($code),)*];
        }
    };
}

op_codes! {
    READ = 0x1201 "read",
    STAT = 0x1202 "stat",
    MAPEXT = 0x1203 "mapext",
    CHECKSUM = 0x121f "checksum",
    MASKTRUNC = 0x1204 "masktrunc",
    SPARSE_READ = 0x1205 "sparse-read",
    NOTIFY = 0x1206 "notify",
    NOTIFY_ACK = 0x1207 "notify-ack",
    ASSERT_VER = 0x1208 "assert-version",
    LIST_WATCHERS = 0x1209 "list-watchers",
    LIST_SNAPS = 0x120a "list-snaps",
    SYNC_READ = 0x120b "sync_read",
    WRITE = 0x2201 "write",
    WRITEFULL = 0x2202 "writefull",
    TRUNCATE = 0x2203 "truncate",
    ZERO = 0x2204 "zero",
    DELETE = 0x2205 "delete",
    APPEND = 0x2206 "append",
    STARTSYNC = 0x2207 "startsync",
    SETTRUNC = 0x2208 "settrunc",
    TRIMTRUNC = 0x2209 "trimtrunc",
    TMAPUP = 0x320a "tmapup",
    TMAPPUT = 0x220b "tmapput",
    TMAPGET = 0x120c "tmapget",
    CREATE = 0x220d "create",
    ROLLBACK = 0x220e "rollback",
    WATCH = 0x220f "watch",
    OMAPGETKEYS = 0x1211 "omap-get-keys",
    OMAPGETVALS = 0x1212 "omap-get-vals",
    OMAPGETHEADER = 0x1213 "omap-get-header",
    OMAPGETVALSBYKEYS = 0x1214 "omap-get-vals-by-keys",
    OMAPSETVALS = 0x2215 "omap-set-vals",
    OMAPSETHEADER = 0x2216 "omap-set-header",
    OMAPCLEAR = 0x2217 "omap-clear",
    OMAPRMKEYS = 0x2218 "omap-rm-keys",
    OMAPRMKEYRANGE = 0x222c "omap-rm-key-range",
    OMAP_CMP = 0x1219 "omap-cmp",
    COPY_FROM = 0x221a "copy-from",
    COPY_FROM2 = 0x222d "copy-from2",
    UNDIRTY = 0x221c "undirty",
    ISDIRTY = 0x121d "isdirty",
    COPY_GET = 0x121e "copy-get",
    CACHE_FLUSH = 0x821f "cache-flush",
    CACHE_EVICT = 0x8220 "cache-evict",
    CACHE_TRY_FLUSH = 0x8221 "cache-try-flush",
    TMAP2OMAP = 0x3222 "tmap2omap",
    SETALLOCHINT = 0x2223 "set-alloc-hint",
    CACHE_PIN = 0x2224 "cache-pin",
    CACHE_UNPIN = 0x2225 "cache-unpin",
    WRITESAME = 0x2226 "write-same",
    CMPEXT = 0x1220 "cmpext",
    SET_REDIRECT = 0x2227 "set-redirect",
    SET_CHUNK = 0x8228 "set-chunk",
    TIER_PROMOTE = 0x2229 "tier-promote",
    UNSET_MANIFEST = 0x222a "unset-manifest",
    TIER_FLUSH = 0x822b "tier-flush",
    TIER_EVICT = 0x822c "tier-evict",
    GETXATTR = 0x1301 "getxattr",
    GETXATTRS = 0x1302 "getxattrs",
    CMPXATTR = 0x1303 "cmpxattr",
    SETXATTR = 0x2301 "setxattr",
    SETXATTRS = 0x2302 "setxattrs",
    RESETXATTRS = 0x2303 "resetxattrs",
    RMXATTR = 0x2304 "rmxattr",
    PULL = 0x4001 "pull",
    PUSH = 0x4002 "push",
    BALANCEREADS = 0x4003 "balance-reads",
    UNBALANCEREADS = 0x4004 "unbalance-reads",
    SCRUB = 0x4005 "scrub",
    SCRUB_RESERVE = 0x4006 "scrub-reserve",
    SCRUB_UNRESERVE = 0x4007 "scrub-unreserve",
    SCRUB_MAP = 0x4009 "scrub-map",
    CALL = 0x1401 "call",
    PGLS = 0x1501 "pgls",
    PGLS_FILTER = 0x1502 "pgls-filter",
    PG_HITSET_LS = 0x1503 "pg-hitset-ls",
    PG_HITSET_GET = 0x1504 "pg-hitset-get",
    PGNLS = 0x1505 "pgnls",
    PGNLS_FILTER = 0x1506 "pgnls-filter",
    SCRUBLS = 0x1507 "scrubls",
}

impl OpCode {
    /// The client wants to see something of the object. A class call carries the bit by an accident of history:
    /// whether it reads is the method's to say.
    pub const fn reads(self) -> bool {
        self.0 & MODE_READ != 0 && self.0 != OpCode::CALL.0
    }

    /// The object may change. For a class call the method says.
    pub const fn writes(self) -> bool {
        self.0 & MODE_WRITE != 0
    }

    /// Cache tiering's own.
    pub const fn is_cache(self) -> bool {
        self.0 & MODE_CACHE != 0
    }

    /// About a whole PG, not an object: listings.
    pub const fn is_pg(self) -> bool {
        self.0 & TYPE_MASK == TYPE_PG
    }

    /// Its output is as long as the extent in its parameters; length 0 means the whole object.
    pub const fn returns_data(self) -> bool {
        matches!(self, OpCode::READ | OpCode::SYNC_READ | OpCode::SPARSE_READ)
    }

    /// Its input starts with an attribute's name.
    pub const fn is_attr(self) -> bool {
        self.0 & TYPE_MASK == TYPE_ATTR
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "???" => write!(f, "op {:#x}", self.0),
            name => f.write_str(name),
        }
    }
}

impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_names_agree_with_a_few_known_codes() {
        assert_eq!(OpCode::READ.0, 0x1201);
        assert_eq!(OpCode::WRITEFULL.0, 0x2202);
        assert_eq!(OpCode::CALL.0, 0x1401);
        assert_eq!(OpCode::PGNLS.name(), "pgnls");
        assert!(OpCode::TMAPUP.reads() && OpCode::TMAPUP.writes());
        assert!(!OpCode::CALL.reads() && !OpCode::CALL.writes());
        assert!(OpCode::PGNLS.is_pg() && OpCode::RMXATTR.is_attr());
        assert_eq!(OpCode(0x1fff).to_string(), "op 0x1fff");
    }

    #[test]
    fn no_code_is_listed_twice() {
        let unique: std::collections::BTreeSet<_> = OpCode::ALL.iter().collect();
        assert_eq!(unique.len(), OpCode::ALL.len());
    }
}
