//! Capabilities on objects (`OSDCap`).
//!
//! A capability is a list of grants, and a request is allowed when one of them allows all of it. Calls of object
//! classes are the exception: of several in one request, each may be allowed by a grant of its own, as long as the
//! grant's other conditions hold.

use super::osd_grammar::{self, OsdCapError};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::{BitOr, BitOrAssign};

/// The bits of `rwx` (`OSD_CAP_*`). `x` is both class bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access(u8);

impl Access {
    pub const NONE: Access = Access(0);
    pub const READ: Access = Access(1 << 1);
    pub const WRITE: Access = Access(1 << 2);
    pub const CLASS_READ: Access = Access(1 << 3);
    pub const CLASS_WRITE: Access = Access(1 << 4);
    pub const EXECUTE: Access = Access(1 << 3 | 1 << 4);
    /// `*`: also what has no letter, such as classes that nobody may call by default.
    pub const ALL: Access = Access(u8::MAX);

    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, o: Access) -> Access {
        Access(self.0 | o.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, o: Access) {
        self.0 |= o.0;
    }
}

/// A client's capabilities on OSDs. The default allows nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OsdCap {
    pub grants: Vec<Grant>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// One rule of its own, or those that a profile stands for: none for a profile that OSDs do not know.
    pub rules: Vec<Rule>,
    pub network: Network,
}

/// Where a client must come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    Any,
    Within {
        address: IpAddr,
        prefix_len: u32,
    },
    /// Text that is no network: the grant parses, and applies to nobody.
    Nowhere,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub scope: Scope,
    pub spec: Spec,
}

/// The objects that a grant covers. Empty text and `None` are "any".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    pub pool: String,
    /// A last `*` stands for any ending.
    pub namespace: Option<String>,
    pub object_prefix: String,
    pub tag: Option<PoolTag>,
}

/// Pools whose application metadata has a key and value; `*` is any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolTag {
    pub application: String,
    pub key: String,
    pub value: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spec {
    Access(Access),
    /// Calls of a class, of one method when it is named, whatever they do and whether or not anyone may call it.
    Class {
        class: String,
        method: String,
    },
}

/// A request, as far as capabilities look at it.
#[derive(Clone, Copy, Debug)]
pub struct OsdAccess<'a> {
    pub pool: &'a str,
    pub namespace: &'a [u8],
    /// The pool's application metadata: application, key, value.
    pub applications: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The key that places the object; its name when it has none.
    pub object: &'a [u8],
    /// Operations other than class calls read or write.
    pub reads: bool,
    pub writes: bool,
    pub classes: &'a [ClassUse<'a>],
    /// Where the client's packets come from.
    pub peer: Option<IpAddr>,
}

/// One class call of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassUse<'a> {
    pub class: &'a str,
    pub method: &'a str,
    pub reads: bool,
    pub writes: bool,
    /// The class is one that `x` is enough for (`osd_class_default_list`).
    pub allowed_by_default: bool,
}

impl OsdCap {
    pub fn parse(text: &str) -> Result<OsdCap, OsdCapError> {
        osd_grammar::parse(text)
    }

    /// `allow *`.
    pub fn everything() -> OsdCap {
        let rule = Rule { scope: Scope::default(), spec: Spec::Access(Access::ALL) };
        OsdCap { grants: vec![Grant { rules: vec![rule], network: Network::Any }] }
    }

    /// Everything, everywhere: what commands to a daemon take. (A grant's network does not count here, as in Ceph.)
    pub fn allows_everything(&self) -> bool {
        let all = |r: &Rule| r.scope == Scope::default() && r.spec == Spec::Access(Access::ALL);
        self.grants.iter().flat_map(|g| &g.rules).any(all)
    }

    pub fn allows(&self, request: &OsdAccess<'_>) -> bool {
        // Which class calls some grant has allowed already.
        let mut classes_allowed = vec![false; request.classes.len()];
        self.grants
            .iter()
            .filter(|g| g.network.contains(request.peer))
            .flat_map(|g| &g.rules)
            .any(|rule| rule.allows(request, &mut classes_allowed))
    }
}

impl Rule {
    fn allows(&self, request: &OsdAccess<'_>, classes_allowed: &mut [bool]) -> bool {
        if !self.scope.matches(request) {
            return false;
        }
        let access = match &self.spec {
            Spec::Access(access) => *access,
            Spec::Class { .. } => Access::NONE,
        };
        if (request.reads && !access.contains(Access::READ))
            || (request.writes && !access.contains(Access::WRITE))
        {
            return false;
        }
        if access == Access::ALL {
            return true;
        }
        for (call, allowed) in request.classes.iter().zip(classes_allowed.iter_mut()) {
            *allowed |= self.spec.allows_call(call);
        }
        classes_allowed.iter().all(|allowed| *allowed)
    }
}

impl Spec {
    fn allows_call(&self, call: &ClassUse<'_>) -> bool {
        match self {
            Spec::Class { class, method }
                if class == call.class && (method.is_empty() || method == call.method) =>
            {
                true
            }
            // As in Ceph, a grant of one class also lets methods through that neither read nor write.
            Spec::Class { .. } => call.allowed_by_default && !call.reads && !call.writes,
            Spec::Access(access) => {
                call.allowed_by_default
                    && (!call.reads || access.contains(Access::CLASS_READ))
                    && (!call.writes || access.contains(Access::CLASS_WRITE))
            }
        }
    }
}

impl Scope {
    fn matches(&self, request: &OsdAccess<'_>) -> bool {
        (self.pool.is_empty() || self.pool == request.pool)
            && self.namespace.as_ref().is_none_or(|n| namespace_matches(n, request.namespace))
            && self.tag.as_ref().is_none_or(|t| t.matches(request.applications))
            && request.object.starts_with(self.object_prefix.as_bytes())
    }
}

fn namespace_matches(pattern: &str, namespace: &[u8]) -> bool {
    let starts = |start: &str| namespace.starts_with(start.as_bytes());
    pattern.as_bytes() == namespace || pattern.strip_suffix('*').is_some_and(starts)
}

impl PoolTag {
    fn matches(&self, applications: &BTreeMap<String, BTreeMap<String, String>>) -> bool {
        let Some(metadata) = applications.get(&self.application) else { return false };
        match (self.key.as_str(), self.value.as_str()) {
            ("*", "*") => true,
            ("*", value) => metadata.values().any(|v| v == value),
            (key, "*") => metadata.contains_key(key),
            (key, value) => metadata.get(key).is_some_and(|v| v == value),
        }
    }
}

impl Network {
    /// `ADDRESS/BITS`; anything else is nowhere.
    pub(super) fn parse(text: &str) -> Network {
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            Some(Network::Within { address: address.parse().ok()?, prefix_len: bits.parse().ok()? })
        });
        parsed.unwrap_or(Network::Nowhere)
    }

    fn contains(self, peer: Option<IpAddr>) -> bool {
        let (address, prefix_len) = match self {
            Network::Any => return true,
            Network::Nowhere => return false,
            Network::Within { address, prefix_len } => (address, prefix_len),
        };
        match (address, peer) {
            (IpAddr::V4(a), Some(IpAddr::V4(b))) => {
                let differ = u32::from(a) ^ u32::from(b);
                differ.leading_zeros() >= prefix_len.min(u32::BITS)
            }
            (IpAddr::V6(a), Some(IpAddr::V6(b))) => {
                let differ = u128::from(a) ^ u128::from(b);
                differ.leading_zeros() >= prefix_len.min(u128::BITS)
            }
            _ => false,
        }
    }
}

/// The rules that a profile stands for, over the pool and namespace that it was given.
pub(super) fn profile_rules(name: &str, pool: String, namespace: Option<String>) -> Vec<Rule> {
    let within = || Scope { pool: pool.clone(), namespace: namespace.clone(), ..Scope::default() };
    let prefix_anywhere = |prefix: &str| Scope { object_prefix: prefix.into(), ..Scope::default() };
    let access = |scope, access| Rule { scope, spec: Spec::Access(access) };
    let rbd_method = |scope, method: &str| Rule {
        scope,
        spec: Spec::Class { class: "rbd".into(), method: method.into() },
    };
    // The pool's own settings are in an object of its default namespace.
    let rbd_info = || Scope {
        pool: pool.clone(),
        namespace: Some(String::new()),
        object_prefix: "rbd_info".into(),
        tag: None,
    };
    match name {
        "read-only" => vec![access(within(), Access::READ)],
        "read-write" => vec![access(within(), Access::READ | Access::WRITE)],
        "rbd" => vec![
            access(prefix_anywhere("rbd_info"), Access::READ),
            access(prefix_anywhere("rbd_children"), Access::CLASS_READ),
            access(prefix_anywhere("rbd_mirroring"), Access::CLASS_READ),
            rbd_method(rbd_info(), "metadata_list"),
            access(within(), Access::READ | Access::WRITE | Access::EXECUTE),
        ],
        "rbd-read-only" => {
            let header = || Scope { object_prefix: "rbd_header.".into(), ..within() };
            vec![
                rbd_method(rbd_info(), "metadata_list"),
                access(within(), Access::READ | Access::CLASS_READ),
                rbd_method(header(), "child_attach"),
                rbd_method(header(), "child_detach"),
            ]
        }
        _ => Vec::new(),
    }
}
