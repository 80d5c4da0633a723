//! The steps of a rule: take, choose, emit.

use super::bucket::Shuffle;
use super::firstn::{self, Effort, Output};
use super::walk::{DeviceWeights, Walk};
use super::{indep, msr};
use std::collections::BTreeMap;
use wire::types::crush::{ChooseArg, CrushMap, Rule, RuleStep, step};

/// Memory that mappings reuse: after the first few, none is taken.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    pub(super) shuffle: Shuffle,
    result: Vec<i32>,
    /// Buckets from which the next choose starts, the items that it makes, and the leaves below those.
    current: Vec<i32>,
    chosen: Vec<i32>,
    leaves: Vec<i32>,
    pub(super) msr: msr::Scratch,
}

/// The devices that rule `rule` gives for the input `x`, at most `size` of them, some perhaps [`super::ITEM_NONE`].
///
/// `weights` says how much of each device is in (an OSDMap's `osd_weight`). A rule that is not there gives nothing.
pub fn map_rule<'w>(
    map: &CrushMap,
    rule: u32,
    x: u32,
    size: usize,
    weights: &dyn DeviceWeights,
    choose_args: Option<&BTreeMap<u32, ChooseArg>>,
    workspace: &'w mut Workspace,
) -> &'w [i32] {
    let Workspace { shuffle, result, current, chosen, leaves, msr } = workspace;
    result.clear();
    let Some(rule) = map.rule(rule) else { return result };
    shuffle.clear();
    let mut walk = Walk { map, weights, x, args: choose_args, shuffle };
    if rule.is_msr() {
        msr::map(&mut walk, rule, size, msr, result);
    } else {
        let sets = Sets { current, chosen, leaves };
        steps(&mut walk, rule, size, sets, result);
    }
    result
}

struct Sets<'w> {
    current: &'w mut Vec<i32>,
    chosen: &'w mut Vec<i32>,
    leaves: &'w mut Vec<i32>,
}

/// Settings that `set_…` steps change.
struct Settings {
    choose_tries: u32,
    /// 0 until set: then each way of choosing has its own default.
    leaf_tries: u32,
    local_tries: u32,
    local_fallback_tries: u32,
    vary_r: u32,
    stable: bool,
}

impl Settings {
    fn new(map: &CrushMap) -> Settings {
        let t = &map.tunables;
        Settings {
            // The tunable counts retries.
            choose_tries: t.choose_total_tries.wrapping_add(1),
            leaf_tries: 0,
            local_tries: t.choose_local_tries,
            local_fallback_tries: t.choose_local_fallback_tries,
            vary_r: t.chooseleaf_vary_r.into(),
            stable: t.chooseleaf_stable != 0,
        }
    }

    fn set(&mut self, step: &RuleStep) {
        let Ok(value) = u32::try_from(step.arg1) else { return };
        match step.op {
            step::SET_CHOOSE_TRIES if value > 0 => self.choose_tries = value,
            step::SET_CHOOSELEAF_TRIES if value > 0 => self.leaf_tries = value,
            step::SET_CHOOSE_LOCAL_TRIES => self.local_tries = value,
            step::SET_CHOOSE_LOCAL_FALLBACK_TRIES => self.local_fallback_tries = value,
            step::SET_CHOOSELEAF_VARY_R => self.vary_r = value,
            step::SET_CHOOSELEAF_STABLE => self.stable = value != 0,
            _ => {}
        }
    }
}

fn steps(walk: &mut Walk<'_>, rule: &Rule, size: usize, sets: Sets<'_>, result: &mut Vec<i32>) {
    let Sets { current, chosen, leaves } = sets;
    current.clear();
    let mut settings = Settings::new(walk.map);
    for step in &rule.steps {
        match step.op {
            step::TAKE => {
                let is_device = (0..walk.map.max_devices).contains(&step.arg1);
                if is_device || walk.map.bucket(step.arg1).is_some() {
                    current.clear();
                    current.push(step.arg1);
                }
            }
            step::CHOOSE_FIRSTN | step::CHOOSELEAF_FIRSTN | step::CHOOSE_INDEP | step::CHOOSELEAF_INDEP => {
                if !current.is_empty() {
                    choose(walk, &settings, step, size, current, chosen, leaves);
                    std::mem::swap(current, chosen);
                }
            }
            step::EMIT => {
                let room = size - result.len();
                result.extend(current.iter().take(room));
                current.clear();
            }
            _ => settings.set(step),
        }
    }
}

/// One choose step: from each bucket in `current`, into `chosen`.
fn choose(
    walk: &mut Walk<'_>,
    settings: &Settings,
    step: &RuleStep,
    size: usize,
    current: &[i32],
    chosen: &mut Vec<i32>,
    leaves: &mut Vec<i32>,
) {
    let firstn = matches!(step.op, step::CHOOSE_FIRSTN | step::CHOOSELEAF_FIRSTN);
    let to_leaf = matches!(step.op, step::CHOOSELEAF_FIRSTN | step::CHOOSELEAF_INDEP);
    chosen.clear();
    chosen.resize(size, 0);
    leaves.clear();
    leaves.resize(if to_leaf { size } else { 0 }, 0);

    // 0 or less means that many fewer than are wanted altogether.
    let asked = i64::from(step.arg1);
    let wanted = if asked > 0 { asked } else { asked + size as i64 };
    let wanted = if wanted > 0 { wanted.min(i32::MAX.into()) as i32 } else { 0 };
    let mut filled = 0;
    for bucket in current.iter().filter_map(|item| walk.map.bucket(*item)) {
        if wanted == 0 {
            break;
        }
        let out = &mut chosen[filled..];
        let leaves = to_leaf.then(|| &mut leaves[filled..]);
        let room = out.len();
        if firstn {
            let leaf_tries = match settings.leaf_tries {
                0 if walk.map.tunables.chooseleaf_descend_once != 0 => 1,
                0 => settings.choose_tries,
                n => n,
            };
            let effort = Effort {
                tries: settings.choose_tries,
                leaf_tries,
                local_retries: settings.local_tries,
                local_fallback_retries: settings.local_fallback_tries,
                vary_r: settings.vary_r,
                stable: settings.stable,
            };
            let output = Output { out, leaves };
            filled += firstn::choose(walk, effort, bucket, (wanted, step.arg2), output, 0, room, 0);
        } else {
            let places = room.min(wanted as usize);
            let tries = (settings.choose_tries, settings.leaf_tries.max(1));
            indep::choose(walk, tries, bucket, (wanted, step.arg2), out, leaves, (0, places), 0);
            filled += places;
        }
    }
    chosen.truncate(filled);
    if to_leaf {
        chosen.copy_from_slice(&leaves[..filled]);
    }
}
