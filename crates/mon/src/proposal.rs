//! Proposals: entries of the log that the monitors replicate.
//!
//! A proposal holds finished values. The proposer has drawn the random keys, read the clock and chosen the
//! ids. Applying it needs only the state before, so replicas stay equal.

use crate::answered::Given;
use crate::auth_entity::AuthEntity;
use crate::config_target::ConfigChange;
use crate::joining::{Host, Token};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::cephx::RotatingKeys;
use wire::types::{
    AuthName, EntityKind, LogEntry, MgrMap, MonMap, OsdMap, OsdMapIncremental, PgId, UTime, Uuid,
};

/// Changes that happen together, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Wall time at the proposer.
    pub at: UTime,
    /// The version of the state that it was made for; it changes no other. `None`: of a cluster from before there were
    /// several monitors.
    pub base: Option<u64>,
    pub changes: Vec<Change>,
}

/// A step of the OSDMap, written for the features that it names itself: its checksum is of those bytes.
#[derive(Clone, Debug)]
pub struct SealedStep {
    step: Arc<OsdMapIncremental>,
    /// The map after the step, where this monitor has sealed it: a large map is made once, and shared.
    next: Option<Arc<OsdMap>>,
}

impl SealedStep {
    /// Seals a step, which must fit the map.
    pub fn seal(mut step: OsdMapIncremental, map: &OsdMap) -> Option<SealedStep> {
        let next = step.seal(map).ok()?;
        Some(SealedStep { step: Arc::new(step), next: Some(Arc::new(next)) })
    }

    pub fn of_sealed(step: impl Into<Arc<OsdMapIncremental>>) -> SealedStep {
        SealedStep { step: step.into(), next: None }
    }

    pub fn step(&self) -> &Arc<OsdMapIncremental> {
        &self.step
    }

    /// # Panics
    /// When the step does not fit the map: it was made from this very map, so the log is broken.
    pub fn map_after(&self, map: &OsdMap) -> Arc<OsdMap> {
        match &self.next {
            Some(next) => {
                assert_eq!(next.epoch, map.epoch + 1, "a step is applied to the map that it was sealed for");
                next.clone()
            }
            None => Arc::new(map.apply(&self.step).expect("a step in the log fits the map before it")),
        }
    }
}

impl PartialEq for SealedStep {
    fn eq(&self, other: &SealedStep) -> bool {
        self.step == other.step
    }
}

impl Encode for SealedStep {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.step.to_vec(Features(self.step.encode_features)));
    }
}

impl Decode for SealedStep {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        codec::decode_exact::<OsdMapIncremental>(r.blob()?).map(SealedStep::of_sealed)
    }
}

/// A daemon's description of itself: version, host, devices.
pub type Metadata = BTreeMap<String, String>;

macro_rules! changes {
    ($($(#[$doc:meta])* $tag:literal $name:ident { $($field:ident: $ty:ty),* $(,)? },)*) => {
        #[derive(Clone, Debug, PartialEq)]
        pub enum Change {
            $($(#[$doc])* $name { $($field: $ty),* },)*
        }

        impl Encode for Change {
            fn encode(&self, w: &mut Writer) {
                match self {
                    $(Change::$name { $($field),* } => {
                        w.u8($tag);
                        $(w.put($field);)*
                    })*
                }
            }
        }

        impl Decode for Change {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                match r.u8()? {
                    $($tag => Ok(Change::$name { $($field: r.get()?),* }),)*
                    tag => Err(r.invalid("change", tag)),
                }
            }
        }
    };
}

changes! {
    /// The next epoch of who the monitors are, whole.
    1 MonMap { map: MonMap },
    /// From one OSDMap to the next.
    2 OsdMap { step: SealedStep },
    /// An OSD's metadata from its boot; `None` removes it.
    3 OsdMetadata { osd: i32, metadata: Option<Metadata> },
    4 MgrMap { map: Box<MgrMap> },
    /// Descriptions of the active manager's commands, encoded as they came.
    5 MgrCommands { descriptions: Bytes },
    6 AuthSet { name: AuthName, entity: AuthEntity },
    7 AuthRemove { name: AuthName },
    8 Rotating { service: u8, keys: RotatingKeys },
    9 GlobalIdLimit { limit: u64 },
    10 Config { by: String, changes: Vec<ConfigChange> },
    /// `None` removes.
    11 ConfigKey { key: String, value: Option<Bytes> },
    12 Log { entry: LogEntry },
    13 MonMetadata { name: String, metadata: Metadata },
    14 MgrMetadata { name: String, metadata: Option<Metadata> },
    /// A health check that nobody wants to hear of until then (zero: until it goes away).
    15 Mute { code: String, until: UTime, sticky: bool, summary: String, count: i64 },
    16 Unmute { code: String },
    /// An OSD has made a PG of a new pool.
    17 PgCreated { pg: PgId },
    /// A PG is lost and is to be made anew.
    18 PgCreate { pg: PgId },
    /// OSDMaps before this epoch are no longer needed.
    19 OsdMapFloor { epoch: u32 },
    /// No OSD has made the PG in an interval before this epoch: it begins there.
    20 PgUnborn { pg: PgId, since: u32 },
    /// A monitor that had no disk yet has come with this one.
    21 MonDisk { name: String, disk: Uuid },
    /// A monitor has lost its disk: with its new one it is another member of the log.
    22 MonReplaced { name: String, disk: Uuid },
    /// The answer to the command that this proposal carries out.
    23 Answered { given: Given },
    /// A monitor is to be taken out: first of the log, then of the map.
    24 MonLeaving { name: String },
    /// A join token is made, used or (`None`) ends.
    30 JoinToken { id: String, token: Option<Token> },
    /// A host joins, or (`None`) leaves.
    31 Host { name: String, host: Option<Host> },
}

impl Change {
    pub fn auth_rotating(service: EntityKind, keys: RotatingKeys) -> Change {
        Change::Rotating { service: service.0, keys }
    }
}

impl Encode for Proposal {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.at);
            w.put(&self.changes);
            w.put(&self.base);
        });
    }
}

impl Decode for Proposal {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("proposal", 2, |r, version| {
            let (at, changes) = (r.get()?, r.get()?);
            Ok(Proposal { at, changes, base: if version >= 2 { r.get()? } else { None } })
        })
    }
}
