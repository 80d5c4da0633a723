//! A control machine's configuration, for tests.

use super::{Addrs, ControlConfig, VersionText};
use command::options::{Identity, Layers};
use wire::types::{AuthName, EntityKind, OsdId, Uuid};

pub(crate) fn config(cores: u16) -> ControlConfig {
    let mon = mon_client::Config {
        auth_name: AuthName::new(EntityKind::OSD, "0"),
        key: None,
        services: 0,
        rotating_keys: false,
        hostname: "test".into(),
        monitors: Vec::new(),
        timing: mon_client::Timing::default(),
    };
    ControlConfig {
        osd: OsdId(0),
        osd_fsid: Uuid([7; 16]),
        cores,
        mon,
        addrs: Addrs::default(),
        metadata: Default::default(),
        options: Layers::new(Identity::named("osd.0")),
        version: VersionText::default(),
    }
}
