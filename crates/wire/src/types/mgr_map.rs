//! The active manager, and its services (`MgrMap`).

use super::{EntityAddrVec, Epoch, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// A setting of a manager module, as `ceph config help` tells it (`MgrMap::ModuleOption`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ManagerOption {
    pub name: String,
    /// `Option::type_t`: 0 unsigned, 1 signed, 2 text, 3 real, 4 flag, ….
    pub kind: u8,
    /// 0 basic, 1 advanced, 2 for developers.
    pub level: u8,
    pub flags: u32,
    pub default_value: String,
    pub min: String,
    pub max: String,
    pub enum_allowed: BTreeSet<String>,
    pub description: String,
    pub long_description: String,
    pub tags: BTreeSet<String>,
    pub see_also: BTreeSet<String>,
}

/// A module of the manager (`MgrMap::ModuleInfo`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ManagerModule {
    pub name: String,
    pub can_run: bool,
    /// Why it cannot.
    pub error: String,
    #[since(2)]
    pub options: BTreeMap<String, ManagerOption>,
}

/// A manager that waits (`MgrMap::StandbyInfo`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ManagerStandby {
    pub gid: u64,
    pub name: String,
    pub modules: Vec<ManagerModule>,
    pub features: u64,
}

/// The modules' names stand a second time in front of them, for readers that know no more.
impl Encode for ManagerStandby {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.u64(self.gid);
            w.string(&self.name);
            w.put(&self.modules.iter().map(|m| m.name.as_str().to_owned()).collect::<BTreeSet<String>>());
            w.put(&self.modules);
            w.u64(self.features);
        });
    }
}

impl Decode for ManagerStandby {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MgrMap::StandbyInfo", 4, |r, version| {
            if version < 3 {
                return Err(DecodeError::TooOld { what: "MgrMap::StandbyInfo", version });
            }
            let gid = codec::field(r, "gid", true, u64::default)?;
            let name = codec::field(r, "name", true, String::default)?;
            let _names = r.get::<BTreeSet<String>>()?;
            let modules = codec::field(r, "modules", true, Vec::default)?;
            let features = codec::field(r, "features", version >= 4, u64::default)?;
            Ok(ManagerStandby { gid, name, modules, features })
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MgrMap {
    pub epoch: Epoch,
    pub active_addrs: EntityAddrVec,
    /// The global id of the active manager's session; 0 when none is.
    pub active_gid: u64,
    /// It has started and takes commands.
    pub available: bool,
    pub active_name: String,
    pub standbys: BTreeMap<u64, ManagerStandby>,
    /// Modules that a person has switched on, beside those that always run, by release.
    pub modules: BTreeSet<String>,
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    pub force_disabled_modules: BTreeSet<String>,
    pub available_modules: Vec<ManagerModule>,
    /// Where a module serves people: name to URL.
    pub services: BTreeMap<String, String>,
    pub active_change: UTime,
    pub active_features: u64,
    pub last_failure_osd_epoch: Epoch,
    /// The manager's own RADOS clients, to be blocked when it fails: in ascending order of their names.
    pub clients: Vec<(String, EntityAddrVec)>,
    pub flags: u64,
}

impl MgrMap {
    /// A person has taken the managers down.
    pub const FLAG_DOWN: u64 = 1;
}

impl Encode for MgrMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(14, 6, |w| {
            w.u32(self.epoch);
            w.put(&self.active_addrs);
            w.u64(self.active_gid);
            w.bool(self.available);
            w.put(&self.active_name);
            w.put(&self.standbys);
            w.put(&self.modules);
            w.put(&self.services);
            w.put(&self.available_modules);
            w.put(&self.active_change);
            w.put(&self.always_on_modules);
            w.u64(self.active_features);
            w.u32(self.last_failure_osd_epoch);
            w.count(self.clients.len());
            self.clients.iter().for_each(|(_, addrs)| w.put(addrs));
            w.count(self.clients.len());
            self.clients.iter().for_each(|(name, _)| w.put(name));
            w.u64(self.flags);
            w.put(&self.force_disabled_modules);
        });
    }
}

impl Decode for MgrMap {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MgrMap", 14, |r, version| {
            if version < 6 {
                return Err(DecodeError::TooOld { what: "MgrMap", version });
            }
            let mut map = MgrMap {
                epoch: codec::field(r, "epoch", true, Epoch::default)?,
                active_addrs: codec::field(r, "active_addrs", true, EntityAddrVec::default)?,
                active_gid: codec::field(r, "active_gid", true, u64::default)?,
                available: codec::field(r, "available", true, bool::default)?,
                active_name: codec::field(r, "active_name", true, String::default)?,
                standbys: codec::field(r, "standbys", true, BTreeMap::default)?,
                modules: codec::field(r, "modules", true, BTreeSet::default)?,
                services: codec::field(r, "services", true, BTreeMap::default)?,
                available_modules: codec::field(r, "available_modules", true, Vec::default)?,
                active_change: codec::field(r, "active_change", version >= 7, UTime::default)?,
                always_on_modules: codec::field(r, "always_on", version >= 8, BTreeMap::default)?,
                active_features: codec::field(r, "active_features", version >= 9, u64::default)?,
                last_failure_osd_epoch: codec::field(r, "last_failure", version >= 10, Epoch::default)?,
                ..MgrMap::default()
            };
            let addrs: Vec<EntityAddrVec> = codec::field(r, "client_addrs", version >= 11, Vec::default)?;
            let nameless = || vec![String::new(); addrs.len()];
            let names: Vec<String> = codec::field(r, "client_names", version >= 12, nameless)?;
            if names.len() != addrs.len() {
                return Err(r.invalid("MgrMap client names", names.len()));
            }
            map.clients = names.into_iter().zip(addrs).collect();
            map.flags = codec::field(r, "flags", version >= 13, u64::default)?;
            map.force_disabled_modules = codec::field(r, "force_disabled", version >= 14, BTreeSet::default)?;
            Ok(map)
        })
    }
}
