//! Random CRUSH maps: every bucket algorithm, uneven weights down to 0, weight sets, all tunables profiles, rules
//! with every kind of step.

use machine::Random;
use placement::crush::edit::bucket;
use wire::types::CrushMap;
use wire::types::crush::{Algorithm, ChooseArg, Rule, RuleStep, Tunables, step};

pub const TYPES: [&str; 5] = ["osd", "host", "rack", "row", "root"];

/// The features that a random map may contain.
#[derive(Clone, Copy)]
pub struct Ingredients {
    pub choose_args: bool,
    /// Multi-step-retry rules, on which Ceph's code asserts that no bucket is empty and no type is skipped.
    pub msr_rules: bool,
}

/// A map and how much of each device is in.
pub struct Sample {
    pub map: CrushMap,
    pub weights: Vec<u32>,
}

pub fn random_map(random: &mut Random, with: Ingredients) -> Sample {
    let mut map = CrushMap { tunables: random_tunables(random), ..CrushMap::default() };
    for (number, name) in TYPES.iter().enumerate() {
        map.type_names.insert(number as i32, (*name).to_owned());
    }
    // Bucket numbers may have holes.
    for _ in 0..random.below(3) {
        map.buckets.push(None);
    }
    let root_kind = 2 + random.below(3) as u16;
    let root = random_subtree(random, &mut map, root_kind, with.msr_rules);
    map.item_names.insert(root, "root".into());
    if with.choose_args {
        random_choose_args(random, &mut map);
    }
    for id in 0..3 {
        let rule = if with.msr_rules {
            msr_rule(random, root, root_kind)
        } else {
            random_rule(random, root, root_kind)
        };
        map.rules.push(Some(rule));
        map.rule_names.insert(id, format!("rule{id}"));
    }
    let weights = (0..map.max_devices)
        .map(|_| match random.below(8) {
            0 => 0,
            1 => random.below(0x10000) as u32,
            _ => 0x10000,
        })
        .collect();
    Sample { map, weights }
}

fn random_tunables(random: &mut Random) -> Tunables {
    let profiles =
        [Tunables::ARGONAUT, Tunables::BOBTAIL, Tunables::FIREFLY, Tunables::HAMMER, Tunables::JEWEL];
    let mut tunables = profiles[random.below(5) as usize];
    tunables.straw_calc_version = random.below(2) as u8;
    if random.below(4) == 0 {
        tunables.chooseleaf_vary_r = random.below(5) as u8;
        tunables.choose_total_tries = 1 + random.below(60) as u32;
        tunables.choose_local_tries = random.below(4) as u32;
    }
    tunables
}

fn random_weight(random: &mut Random) -> u32 {
    match random.below(10) {
        0 => 0,
        1..4 => 0x10000,
        _ => 1 + random.below(0x80000) as u32,
    }
}

/// A bucket of type `kind` and all below it; unless `regular`, types may be skipped on the way down and buckets may
/// be empty.
fn random_subtree(random: &mut Random, map: &mut CrushMap, kind: u16, regular: bool) -> i32 {
    let count = 1 + random.below(if kind == 1 { 6 } else { 5 }) as usize;
    let algorithm = Algorithm::ALL[random.below(5) as usize];
    let (mut items, mut weights) = (Vec::new(), Vec::new());
    for _ in 0..count {
        if kind == 1 {
            // Device numbers may have holes.
            map.max_devices += 1 + i32::from(random.below(10) == 0);
            items.push(map.max_devices - 1);
            weights.push(random_weight(random));
        } else {
            let below = if regular { kind - 1 } else { 1 + random.below(u64::from(kind) - 1) as u16 };
            let child = random_subtree(random, map, below, regular);
            items.push(child);
            weights.push(map.bucket(child).expect("just made").weight);
        }
    }
    if !regular && random.below(25) == 0 {
        items.clear();
        weights.clear();
    }
    let id = -1 - map.buckets.len() as i32;
    let made = bucket::make(id, kind, algorithm, items, weights, map.tunables.straw_calc_version);
    map.buckets.push(Some(made.expect("few and small weights")));
    map.item_names.insert(id, format!("{}{}", TYPES[usize::from(kind)], -id));
    id
}

fn random_choose_args(random: &mut Random, map: &mut CrushMap) {
    let positions = 1 + random.below(3) as usize;
    let mut args = std::collections::BTreeMap::new();
    for (index, bucket) in map.buckets.iter().enumerate() {
        let Some(bucket) = bucket.as_ref().filter(|b| b.algorithm() == Algorithm::Straw2) else { continue };
        let mut arg = ChooseArg::default();
        if random.below(3) > 0 {
            let set = |random: &mut Random| bucket.items.iter().map(|_| random_weight(random)).collect();
            arg.weight_sets = (0..positions).map(|_| set(random)).collect();
        }
        if random.below(3) == 0 {
            arg.ids = bucket.items.iter().map(|_| random.below(1000) as i32 - 500).collect();
        }
        if !arg.is_empty() && !bucket.items.is_empty() {
            args.insert(index as u32, arg);
        }
    }
    map.choose_args.insert(CrushMap::DEFAULT_CHOOSE_ARGS, args);
}

fn random_rule(random: &mut Random, root: i32, root_kind: u16) -> Rule {
    let mut steps = Vec::new();
    for (op, below) in [
        (step::SET_CHOOSE_TRIES, 100),
        (step::SET_CHOOSELEAF_TRIES, 10),
        (step::SET_CHOOSE_LOCAL_TRIES, 4),
        (step::SET_CHOOSE_LOCAL_FALLBACK_TRIES, 6),
        (step::SET_CHOOSELEAF_VARY_R, 4),
        (step::SET_CHOOSELEAF_STABLE, 2),
    ] {
        if random.below(4) == 0 {
            steps.push(RuleStep::new(op, random.below(below) as i32, 0));
        }
    }
    let firstn = random.below(2) == 0;
    let (choose, chooseleaf) = match firstn {
        true => (step::CHOOSE_FIRSTN, step::CHOOSELEAF_FIRSTN),
        false => (step::CHOOSE_INDEP, step::CHOOSELEAF_INDEP),
    };
    for _ in 0..1 + random.below(2) {
        steps.push(RuleStep::new(step::TAKE, root, 0));
        let middle = 1 + random.below(u64::from(root_kind) - 1) as i32;
        let count = |random: &mut Random| random.below(5) as i32 - 1;
        match random.below(5) {
            0 => steps.push(RuleStep::new(choose, count(random), 0)),
            1 => {
                steps.push(RuleStep::new(choose, 1 + random.below(3) as i32, middle));
                steps.push(RuleStep::new(choose, 1 + random.below(2) as i32, 0));
            }
            2 if middle > 1 => {
                steps.push(RuleStep::new(choose, 1 + random.below(3) as i32, middle));
                steps.push(RuleStep::new(chooseleaf, count(random), 1));
            }
            3 => steps.push(RuleStep::new(chooseleaf, count(random), 0)),
            _ => steps.push(RuleStep::new(chooseleaf, count(random), middle)),
        }
        steps.push(RuleStep::new(step::EMIT, 0, 0));
    }
    let kind = if firstn { Rule::REPLICATED } else { Rule::ERASURE };
    Rule { kind, min_size: 1, max_size: 100, steps }
}

fn msr_rule(random: &mut Random, root: i32, root_kind: u16) -> Rule {
    let mut steps = Vec::new();
    if random.below(3) == 0 {
        steps.push(RuleStep::new(step::SET_MSR_DESCENTS, 1 + random.below(20) as i32, 0));
    }
    if random.below(3) == 0 {
        steps.push(RuleStep::new(step::SET_MSR_COLLISION_TRIES, 1 + random.below(20) as i32, 0));
    }
    for _ in 0..1 + random.below(2) {
        steps.push(RuleStep::new(step::TAKE, root, 0));
        let middle = 1 + random.below(u64::from(root_kind) - 1) as i32;
        if random.below(4) > 0 {
            steps.push(RuleStep::new(step::CHOOSE_MSR, random.below(5) as i32, middle));
        }
        steps.push(RuleStep::new(step::CHOOSE_MSR, 1 + random.below(3) as i32, 0));
        steps.push(RuleStep::new(step::EMIT, 0, 0));
    }
    let kind = if random.below(2) == 0 { Rule::MSR_FIRSTN } else { Rule::MSR_INDEP };
    Rule { kind, min_size: 1, max_size: 100, steps }
}
