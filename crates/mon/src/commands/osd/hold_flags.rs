//! noup, nodown, noin and noout of single OSDs, CRUSH buckets and device classes: `osd set-group`, `osd add-noout`, ….

use super::{propose, step};
use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use crate::osd_flags::Hold;
use command::parse_osd;
use placement::crush::edit::{class_id, item_id};
use std::fmt::Write;
use wire::types::{OsdMap, OsdMapIncremental};

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "osd set-group name=flags,type=CephString name=who,type=CephString,n=N",
        "set flags of OSDs, CRUSH buckets or device classes", "osd", "rw", |ctx| group(ctx, true);
    "osd unset-group name=flags,type=CephString name=who,type=CephString,n=N",
        "clear flags of OSDs, CRUSH buckets or device classes", "osd", "rw", |ctx| group(ctx, false);
    "osd add-noup name=ids,type=CephString,n=N", "keep OSDs from being marked up", "osd", "rw",
        |ctx| single(ctx, Hold::Up, true);
    "osd add-nodown name=ids,type=CephString,n=N", "keep OSDs from being marked down", "osd", "rw",
        |ctx| single(ctx, Hold::Down, true);
    "osd add-noin name=ids,type=CephString,n=N", "keep OSDs from being marked in", "osd", "rw",
        |ctx| single(ctx, Hold::In, true);
    "osd add-noout name=ids,type=CephString,n=N", "keep OSDs from being marked out", "osd", "rw",
        |ctx| single(ctx, Hold::Out, true);
    "osd rm-noup name=ids,type=CephString,n=N", "let OSDs be marked up", "osd", "rw",
        |ctx| single(ctx, Hold::Up, false);
    "osd rm-nodown name=ids,type=CephString,n=N", "let OSDs be marked down", "osd", "rw",
        |ctx| single(ctx, Hold::Down, false);
    "osd rm-noin name=ids,type=CephString,n=N", "let OSDs be marked in", "osd", "rw",
        |ctx| single(ctx, Hold::In, false);
    "osd rm-noout name=ids,type=CephString,n=N", "let OSDs be marked out", "osd", "rw",
        |ctx| single(ctx, Hold::Out, false);
};

fn group(ctx: &mut Ctx<'_>, on: bool) -> Outcome {
    let flags = ctx.args.required("flags")?;
    let mut bits = 0;
    for name in flags.split(',') {
        let hold = Hold::ALL.into_iter().find(|hold| hold.flag_name() == name).ok_or_else(|| {
            Answer::invalid(format!("unrecognized flag '{name}', must be one of {{noup,nodown,noin,noout}}"))
        })?;
        bits |= hold.state_bit();
    }
    let who = ctx.args.texts("who");
    flip(ctx, &who, bits, on)
}

fn single(ctx: &mut Ctx<'_>, hold: Hold, on: bool) -> Outcome {
    let who = ctx.args.texts("ids");
    flip(ctx, &who, hold.state_bit(), on)
}

/// Sets or clears `bits`. It fails if no name is known; names that are not are listed in any case.
fn flip(ctx: &mut Ctx<'_>, who: &[String], bits: u32, on: bool) -> Outcome {
    let map = ctx.state.osdmap();
    let mut step = step(ctx);
    let (mut said, mut is_any_known) = (String::new(), false);
    let all = who.first().is_some_and(|name| ["all", "any", "*"].contains(&name.as_str()));
    let everybody = || map.osd_ids().map(|osd| osd.to_string()).collect();
    let who: Vec<String> = if all { everybody() } else { who.to_vec() };
    for name in &who {
        match parse_osd(name) {
            Ok(osd) if map.exists(osd.0) => set_osd(map, &mut step, osd.0, bits, on),
            Ok(osd) => {
                let _ = write!(said, "osd.{} does not exist. ", osd.0);
            }
            Err(_) if set_named(map, &mut step, name, bits, on) => {}
            Err(_) => {
                let _ = write!(said, "unable to parse osd id or crush node or device class: \"{name}\". ");
                continue;
            }
        }
        is_any_known = true;
    }
    if !is_any_known && !who.is_empty() {
        return Err(Answer::invalid(said));
    }
    if step != super::step(ctx) {
        propose(ctx, step)?;
    }
    Ok(Answer::ok(said))
}

fn set_osd(map: &OsdMap, step: &mut OsdMapIncremental, osd: i32, bits: u32, on: bool) {
    let state = map.osds[osd as usize].state.0;
    let flip = if on { bits & !state } else { bits & state };
    if flip != 0 {
        step.new_state.insert(osd, flip);
    }
}

/// Flags of a bucket or of a device class; false if neither has this name.
fn set_named(map: &OsdMap, step: &mut OsdMapIncremental, name: &str, bits: u32, on: bool) -> bool {
    let after = |before: u32| if on { before | bits } else { before & !bits };
    if let Some(bucket) = item_id(&map.crush, name).filter(|id| *id < 0) {
        let before = map.crush_node_flags.get(&bucket).copied().unwrap_or(0);
        step.new_crush_node_flags.insert(bucket, after(before));
        return true;
    }
    if let Some(class) = class_id(&map.crush, name) {
        let before = map.device_class_flags.get(&class).copied().unwrap_or(0);
        step.new_device_class_flags.insert(class, after(before));
        return true;
    }
    false
}
