//! Options of an OSD: a change from any layer reaches the shards and the host in the same step.

use command::options::{Identity, Layers, Source};
use machine::{CoreId, Effects, Machine, Random, Time};
use osd::control::{Addrs, Control, ControlConfig, Effect, Input, VersionText};
use osd::ops::Limits;
use osd::options::LimitOptions;
use osd::shard;
use std::collections::BTreeMap;
use wire::types::{AuthName, EntityKind, OsdId, Uuid};

const CORES: u16 = 2;

fn control(file: &[(&str, &str)]) -> Control {
    let mut options = Layers::new(Identity::named("osd.0"));
    assert_eq!(options.fill(Source::File, file.iter().copied()), []);
    let config = ControlConfig {
        osd: OsdId(0),
        osd_fsid: Uuid::default(),
        cores: CORES,
        mon: mon_client::Config {
            auth_name: AuthName::new(EntityKind::OSD, "0"),
            key: None,
            services: 0,
            rotating_keys: false,
            hostname: "h".into(),
            monitors: Vec::new(),
            timing: mon_client::Timing::default(),
        },
        addrs: Addrs::default(),
        metadata: BTreeMap::new(),
        options,
        version: VersionText::default(),
    };
    Control::new(config, false, Random::from_number(1))
}

/// The answer of one admin command, the limits that each core is told, and the layers that the host is told.
fn admin(control: &mut Control, command: &str) -> (command::Answer, Vec<(CoreId, Limits)>, Option<Layers>) {
    let mut effects = Effects::new();
    control.step(Time::ZERO, Input::Admin { id: 1, command: command.into() }, &mut effects);
    let (mut answer, mut limits, mut layers) = (None, Vec::new(), None);
    for effect in effects.take() {
        match effect {
            Effect::AdminAnswer { answer: given, .. } => answer = Some(given),
            Effect::Shard { core, input: shard::Input::Limits(options) } => {
                limits.push((core, Limits::of(&options, u64::MAX)));
            }
            Effect::Options(told) => layers = Some((*told).clone()),
            _ => {}
        }
    }
    (answer.expect("an admin command is answered"), limits, layers)
}

#[test]
fn limits_follow_an_override_and_its_removal() {
    let mut control = control(&[("osd_max_object_size", "1M")]);
    let set = r#"{"prefix":"config set","var":"osd_max_object_size","val":["8K"],"format":"json"}"#;
    let (answer, limits, layers) = admin(&mut control, set);
    assert_eq!((answer.result, answer.status.as_str()), (0, ""));
    assert_eq!(
        limits.iter().map(|(core, l)| (core.0, l.max_object_size)).collect::<Vec<_>>(),
        [(0, 8192), (1, 8192)]
    );
    assert_eq!(layers.unwrap().get::<u64>("osd_max_object_size"), 8192);
    let unset = r#"{"prefix":"config unset","var":"osd_max_object_size","format":"json"}"#;
    let (_, limits, _) = admin(&mut control, unset);
    assert!(limits.iter().all(|(_, l)| l.max_object_size == 1 << 20), "what the file says holds again");
}

#[test]
fn a_command_that_changes_nothing_tells_nobody() {
    let mut control = control(&[]);
    let get = r#"{"prefix":"config get","var":"osd_max_object_size","format":"json"}"#;
    let (answer, limits, layers) = admin(&mut control, get);
    assert_eq!(answer.body, r#"{"osd_max_object_size":"134217728"}"#);
    assert!(limits.is_empty() && layers.is_none());
    let wrong = r#"{"prefix":"config set","var":"osd_max_object_size","val":["much"]}"#;
    let (answer, limits, layers) = admin(&mut control, wrong);
    assert!(answer.result < 0 && limits.is_empty() && layers.is_none());
}

#[test]
fn limits_default_to_the_table() {
    let options = LimitOptions::read(&Layers::new(Identity::named("osd.0")));
    let limits = Limits::of(&options, 7);
    assert_eq!(limits.max_write_size, 90 << 20, "osd_max_write_size counts MiB");
    assert_eq!((limits.max_object_size, limits.max_pgls, limits.max_metadata_size), (128 << 20, 1024, 7));
    assert_eq!(Limits { max_metadata_size: 7, ..Limits::default() }, limits);
}
