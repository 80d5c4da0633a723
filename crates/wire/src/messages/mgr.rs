//! Between the manager, the monitor and the daemons that report to the manager.

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::{
    EntityAddrVec, HealthChecks, ManagerModule, MetricReport, OsdStat, PerfQueries, PerfReports, PgId,
    PgStat, PoolId, ProgressEvent, StoreStatfs, UTime, Uuid,
};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// A command that a daemon serves, as the monitor hands it on to clients (`MonCommand`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CommandDescription {
    /// Words and parameters: `pg ls name=pool,type=CephInt,req=false …`.
    pub signature: String,
    pub help: String,
    pub module: String,
    /// `r`, `rw`, `rx` …
    pub permissions: String,
    /// Always set for readers that predate `flags`.
    pub availability: String,
    /// 1 not forwarded, 2 obsolete, 4 deprecated, 8 for the manager, 16 polled, 32 hidden.
    pub flags: u64,
}

plain_message! {
    /// A manager to the monitor: here I am.
    MMgrBeacon = 0x703, version 11, compat 8, priority 196 {
        paxos: PaxosHeader,
        addrs: EntityAddrVec,
        gid: u64,
        available: bool,
        name: String,
        fsid: Uuid,
        module_names: BTreeSet<String>,
        /// Only from a manager that becomes active.
        commands: Vec<CommandDescription>,
        metadata: BTreeMap<String, String>,
        services: BTreeMap<String, String>,
        modules: Vec<ManagerModule>,
        #[since(9)]
        features: u64,
        #[since(10)]
        client_addrs: Vec<EntityAddrVec>,
        #[since(11)]
        client_names: Vec<String>,
    }
}

plain_message! {
    /// A daemon to the manager: may I report?
    MMgrClose = 0x708, version 1, compat 1 {
        daemon_name: String,
        service_name: String,
    }
}

plain_message! {
    /// The monitor to the manager: its own status, as JSON.
    MMgrDigest = 0x705, version 1, compat 1 {
        mon_status_json: Bytes,
        health_json: Bytes,
    }
}

plain_message! {
    /// An OSD to the manager: its PGs and itself.
    MPGStats = 87, version 2, compat 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        osd: OsdStat,
        pgs: BTreeMap<PgId, PgStat>,
        /// The OSD's map.
        epoch: u32,
        had_map_for: UTime,
        #[since(2)]
        pools: BTreeMap<PoolId, StoreStatfs>,
    }
}

plain_message! {
    /// The manager to the monitor: health, progress, and the digest that `status` and `df` are answered from.
    MMonMgrReport = 0x706, version 3, compat 1 {
        paxos: PaxosHeader,
        health: HealthChecks,
        /// An encoded `ServiceMap`; empty when it has not changed.
        service_map: Bytes,
        #[since(2)]
        progress: BTreeMap<String, ProgressEvent>,
        #[since(3)]
        gid: u64,
    }
    /// An encoded [`crate::types::PgMapDigest`].
    data digest
}

/// A daemon to the manager: here I am.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MMgrOpen {
    pub daemon_name: String,
    /// Empty: by the entity's kind.
    pub service_name: String,
    /// For a daemon that is not one of Ceph's own kinds: what it says of itself.
    pub service: Option<ServiceDaemon>,
    /// Encoded maps of the daemon's configuration and of the built-in defaults.
    pub config: Bytes,
    pub config_defaults: Bytes,
}

#[derive(Clone, Debug, PartialEq, Default, Encode, Decode)]
pub struct ServiceDaemon {
    pub metadata: BTreeMap<String, String>,
    pub status: BTreeMap<String, String>,
}

impl MessageBody for MMgrOpen {
    const TYPE: u16 = 0x700;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        out.front.string(&self.daemon_name);
        out.front.string(&self.service_name);
        out.front.put(&self.service);
        out.front.put(&self.config);
        out.front.put(&self.config_defaults);
    }

    fn decode(header: &Header, payload: &Payload) -> Result<Self, DecodeError> {
        let mut r = Reader::new(&payload.front);
        let mut m = MMgrOpen { daemon_name: r.get()?, ..MMgrOpen::default() };
        if header.version >= 2 {
            (m.service_name, m.service) = r.get()?;
        }
        if header.version >= 3 {
            (m.config, m.config_defaults) = r.get()?;
        }
        Ok(m)
    }
}

/// The manager to a daemon: how often to report, and which counters.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MMgrConfigure {
    pub period_sec: u32,
    /// Counters of a lower priority are not wanted.
    pub threshold: u32,
    /// Figures by key that an OSD is to report from now on; all earlier queries end.
    pub queries: PerfQueries,
}

impl MMgrConfigure {
    /// The kind of a configuration whose payload is queries to OSDs.
    const OSD: u32 = 0;
}

impl MessageBody for MMgrConfigure {
    const TYPE: u16 = 0x701;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        out.front.u32(self.period_sec);
        out.front.u32(self.threshold);
        out.front.put(&self.queries);
        // Queries to daemons of other kinds.
        out.front.bool(false);
    }

    fn decode(header: &Header, payload: &Payload) -> Result<Self, DecodeError> {
        let mut r = Reader::new(&payload.front);
        let period_sec = r.u32()?;
        let threshold = codec::field(&mut r, "threshold", header.version >= 2, u32::default)?;
        let mut queries = codec::field(&mut r, "queries", header.version >= 3, PerfQueries::new)?;
        // An OSD takes queries from either place (`MgrClient::handle_mgr_configure`).
        if queries.is_empty() && header.version >= 4 && r.bool()? && r.u32()? == MMgrConfigure::OSD {
            queries = r.envelope("OSDConfigPayload", 1, |r, _| r.get())?;
        }
        Ok(MMgrConfigure { period_sec, threshold, queries })
    }
}

/// A counter as a daemon declares it (`PerfCounterType`).
#[derive(Clone, Debug, PartialEq, Eq, Default, Encode, Decode)]
#[envelope(version = 3, compat = 1)]
pub struct CounterDeclaration {
    pub path: String,
    pub description: String,
    pub nick: String,
    pub kind: u8,
    #[since(2)]
    pub priority: u8,
    #[since(3)]
    pub unit: u8,
}

/// Something of a daemon that health looks at (`DaemonHealthMetric`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct HealthMetric {
    /// 0 slow operations (count, oldest in seconds), 1 PGs that wait to be created.
    pub kind: u8,
    /// Two 32-bit numbers: the first in the lower half.
    pub value: u64,
}

impl HealthMetric {
    const SLOW_OPS: u8 = 0;

    pub fn slow_ops(count: u32, oldest_sec: u32) -> HealthMetric {
        HealthMetric { kind: HealthMetric::SLOW_OPS, value: u64::from(oldest_sec) << 32 | u64::from(count) }
    }

    /// Number of slow operations, and the age of the oldest in seconds.
    pub fn as_slow_ops(self) -> Option<(u32, u32)> {
        (self.kind == HealthMetric::SLOW_OPS).then_some((self.value as u32, (self.value >> 32) as u32))
    }
}

/// A daemon to the manager: counters, state, configuration.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MMgrReport {
    pub daemon_name: String,
    pub declared: Vec<CounterDeclaration>,
    /// Values of all declared counters, packed by their kind, in order of path.
    pub packed: Bytes,
    pub undeclared: Vec<String>,
    pub service_name: String,
    pub status: Option<BTreeMap<String, String>>,
    pub health: Vec<HealthMetric>,
    pub config: Bytes,
    pub task_status: Option<BTreeMap<String, String>>,
    /// Answers to the manager's metric queries. Those of OSDs before 16 stand elsewhere in the message, and are read as if they
    /// stood here.
    pub metrics: Option<MetricReport>,
}

/// A counter's value as a report carries it; an average has the number of measurements too.
pub type PackedValue = (u64, Option<u64>);

impl MMgrReport {
    /// Bit of [`CounterDeclaration::kind`] for an average.
    pub const KIND_AVERAGE: u8 = 0x4;

    /// Values of all declared counters in order of path, as [`MMgrReport::packed`] holds them.
    pub fn pack(values: impl IntoIterator<Item = PackedValue>) -> Bytes {
        let mut w = Writer::new(codec::Features::ALL);
        w.envelope(1, 1, |w| {
            for (value, count) in values {
                w.u64(value);
                // A writer counts before and after a measurement; a reader takes a value for which both agree.
                count.into_iter().for_each(|count| [count; 2].iter().for_each(|n| w.u64(*n)));
            }
        });
        w.into_bytes()
    }

    /// The values, for declarations in order of path.
    pub fn unpack(&self, kinds: impl IntoIterator<Item = u8>) -> Result<Vec<PackedValue>, DecodeError> {
        Reader::new(&self.packed).envelope("packed counters", 1, |r, _| {
            let mut values = Vec::new();
            for kind in kinds {
                let value = r.u64()?;
                let count = match kind & MMgrReport::KIND_AVERAGE != 0 {
                    true => {
                        let count = r.u64()?;
                        r.u64()?;
                        Some(count)
                    }
                    false => None,
                };
                values.push((value, count));
            }
            Ok(values)
        })
    }
}

impl MessageBody for MMgrReport {
    const TYPE: u16 = 0x702;
    const VERSION: u16 = 9;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.string(&self.daemon_name);
        w.put(&self.declared);
        w.put(&self.packed);
        w.put(&self.undeclared);
        w.string(&self.service_name);
        w.put(&self.status);
        w.put(&self.health);
        w.put(&self.config);
        // The place of answers to metric queries before 16.
        w.u32(0);
        w.put(&self.task_status);
        w.put(&self.metrics);
    }

    fn decode(header: &Header, payload: &Payload) -> Result<Self, DecodeError> {
        let mut r = Reader::new(&payload.front);
        let v = header.version;
        let mut m = MMgrReport {
            daemon_name: r.get()?,
            declared: r.get()?,
            packed: r.get()?,
            ..MMgrReport::default()
        };
        m.undeclared = codec::field(&mut r, "undeclared", v >= 2, Vec::new)?;
        m.service_name = codec::field(&mut r, "service_name", v >= 3, String::new)?;
        m.status = codec::field(&mut r, "status", v >= 3, || None)?;
        m.health = codec::field(&mut r, "health", v >= 5, Vec::new)?;
        m.config = codec::field(&mut r, "config", v >= 6, Bytes::new)?;
        let reports = codec::field(&mut r, "metric reports", v >= 7, PerfReports::new)?;
        m.task_status = codec::field(&mut r, "task_status", v >= 8, || None)?;
        m.metrics = codec::field(&mut r, "metrics", v >= 9, || None)?;
        if m.metrics.is_none() && !reports.is_empty() {
            m.metrics = Some(MetricReport::Osd(reports));
        }
        Ok(m)
    }
}
