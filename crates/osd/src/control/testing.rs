//! A control machine's configuration and its monitors, for tests.

use super::{Addrs, Control, ControlConfig, Effect, VersionText};
use command::options::{Identity, Layers};
use machine::identity::Proof;
use machine::net::{Grant, NetEffect, NetEvent, Peer};
use machine::{ConnId, Effects, Random, Time};
use mon_client::Input;
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, OsdId, Uuid};

pub(super) const NOW: Time = Time(1);

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

/// The monitor that is called, and the connection.
pub(super) fn called(fx: &mut super::Fx) -> (ConnId, EntityAddrVec) {
    let call = fx.take().into_iter().find_map(|effect| match effect {
        Effect::Net(NetEffect::Connect { conn, to, .. }) => Some((conn, to)),
        _ => None,
    });
    call.expect("a monitor is called")
}

/// The monitor at the other end lets the OSD in.
pub(super) fn admit(control: &mut Control, conn: ConnId) {
    let proof = Proof::none("mon.".parse().unwrap(), 0);
    let addr = EntityAddr::default();
    let peer = Peer::identified(proof, EntityName::new(EntityKind::MON, 0), addr).unwrap();
    let grant = Grant { global_id: 9, tickets: Vec::new() };
    for event in [NetEvent::Granted { conn, grant }, NetEvent::Ready { conn, peer: Box::new(peer) }] {
        control.with_mon(NOW, &mut Effects::new(), |mon, wanted| {
            machine::Machine::step(mon, NOW, Input::Net(event), wanted);
        });
    }
}

/// An OSD that has called the first of so many monitors, and was let in.
pub(super) fn connected(monitors: u16) -> (Control, EntityAddrVec) {
    let mut config = config(1);
    let addr = |port| EntityAddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 0));
    config.mon.monitors = (1..=monitors).map(addr).collect();
    let (mut control, mut fx) = (Control::new(config, false, Random::from_number(1)), Effects::new());
    control.with_mon(NOW, &mut fx, |mon, wanted| mon.start(NOW, wanted));
    let (conn, monitor) = called(&mut fx);
    admit(&mut control, conn);
    (control, monitor)
}
