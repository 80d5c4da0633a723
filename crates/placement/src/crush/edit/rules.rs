//! Rules from a few words: where to start, over what to spread.

use super::classes::rebuild_shadow_trees;
use super::names::{class_id, item_id, rule_id, type_id};
use super::{EditError, Refusal};
use wire::types::CrushMap;
use wire::types::crush::{Rule, RuleStep, step};

/// The treatment of holes: later items fill them (replicated), or they stay (erasure-coded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Firstn,
    Indep,
}

impl std::str::FromStr for Mode {
    type Err = EditError;
    fn from_str(s: &str) -> Result<Mode, EditError> {
        match s {
            "firstn" => Ok(Mode::Firstn),
            "indep" => Ok(Mode::Indep),
            _ => Err(EditError::new(Refusal::Invalid, format!("unknown mode {s}"))),
        }
    }
}

/// The purpose of a new rule.
#[derive(Clone, Copy, Debug)]
pub struct NewRule<'a> {
    pub name: &'a str,
    /// The bucket to start from.
    pub root: &'a str,
    /// The type over which to spread; empty for devices.
    pub failure_domain: &'a str,
    /// Number of failure domains; 0 for as many as the pool's size.
    pub failure_domains: u32,
    /// Only devices of this class; empty for all.
    pub device_class: &'a str,
}

/// Add a rule that chooses a device in each of several failure domains, at a free number. Returns the number.
///
/// `kind` is [`Rule::REPLICATED`] or [`Rule::ERASURE`].
pub fn add_rule(map: &mut CrushMap, new: NewRule<'_>, mode: Mode, kind: u8) -> Result<u32, EditError> {
    let (id, root, domain) = look_up(map, &new)?;
    let (choose, chooseleaf) = match mode {
        Mode::Firstn => (step::CHOOSE_FIRSTN, step::CHOOSELEAF_FIRSTN),
        Mode::Indep => (step::CHOOSE_INDEP, step::CHOOSELEAF_INDEP),
    };
    let mut steps = Vec::new();
    if mode == Mode::Indep {
        steps.push(RuleStep::new(step::SET_CHOOSELEAF_TRIES, 5, 0));
        steps.push(RuleStep::new(step::SET_CHOOSE_TRIES, 100, 0));
    }
    steps.push(RuleStep::new(step::TAKE, root, 0));
    let op = if domain > 0 { chooseleaf } else { choose };
    steps.push(RuleStep::new(op, new.failure_domains as i32, domain));
    steps.push(RuleStep::new(step::EMIT, 0, 0));
    put_rule(map, id, new.name, kind, steps)
}

/// Add a multi-step-retry rule: some devices in each of several failure domains. Returns its number.
pub fn add_msr_rule(
    map: &mut CrushMap,
    new: NewRule<'_>,
    osds_per_domain: u32,
    mode: Mode,
) -> Result<u32, EditError> {
    let (id, root, domain) = look_up(map, &new)?;
    let steps = vec![
        RuleStep::new(step::TAKE, root, 0),
        RuleStep::new(step::CHOOSE_MSR, new.failure_domains as i32, domain),
        RuleStep::new(step::CHOOSE_MSR, osds_per_domain as i32, 0),
        RuleStep::new(step::EMIT, 0, 0),
    ];
    let kind = match mode {
        Mode::Firstn => Rule::MSR_FIRSTN,
        Mode::Indep => Rule::MSR_INDEP,
    };
    put_rule(map, id, new.name, kind, steps)
}

/// A free number, the item to start from and the failure domain's type.
fn look_up(map: &CrushMap, new: &NewRule<'_>) -> Result<(usize, i32, i32), EditError> {
    let invalid = |message: String| EditError::new(Refusal::Invalid, message);
    if rule_id(map, new.name).is_some() {
        return Err(EditError::new(Refusal::Exists, format!("rule {} exists", new.name)));
    }
    let id = map.rules.iter().position(Option::is_none).unwrap_or(map.rules.len());
    let mut root = item_id(map, new.root)
        .ok_or_else(|| EditError::new(Refusal::NotFound, format!("root item {} does not exist", new.root)))?;
    let domain = match new.failure_domain {
        "" => 0,
        name => type_id(map, name).ok_or_else(|| invalid(format!("unknown type {name}")))?,
    };
    if !new.device_class.is_empty() {
        let class = class_id(map, new.device_class)
            .ok_or_else(|| invalid(format!("device class {} does not exist", new.device_class)))?;
        root = *map.shadow_buckets.get(&root).and_then(|s| s.get(&class)).ok_or_else(|| {
            invalid(format!("root {} has no devices with class {}", new.root, new.device_class))
        })?;
    }
    Ok((id, root, domain))
}

fn put_rule(
    map: &mut CrushMap,
    id: usize,
    name: &str,
    kind: u8,
    steps: Vec<RuleStep>,
) -> Result<u32, EditError> {
    const RULES_MAX: usize = 256;
    if id >= RULES_MAX {
        return Err(EditError::new(Refusal::NoSpace, "failed to add rule: there are 256 already"));
    }
    if id == map.rules.len() {
        map.rules.push(None);
    }
    map.rules[id] = Some(Rule { kind, min_size: 1, max_size: 100, steps });
    map.rule_names.insert(id as i32, name.to_owned());
    Ok(id as u32)
}

pub fn remove_rule(map: &mut CrushMap, id: u32) -> Result<(), EditError> {
    match map.rules.get_mut(id as usize) {
        Some(slot @ Some(_)) => *slot = None,
        _ => return Err(EditError::new(Refusal::NotFound, format!("no rule {id}"))),
    }
    map.rule_names.remove(&(id as i32));
    rebuild_shadow_trees(map)
}

pub fn rename_rule(map: &mut CrushMap, source: &str, target: &str) -> Result<(), EditError> {
    let id = rule_id(map, source).ok_or_else(|| {
        EditError::new(Refusal::NotFound, format!("source rule name '{source}' does not exist"))
    })?;
    if rule_id(map, target).is_some() {
        let message = format!("destination rule name '{target}' already exists");
        return Err(EditError::new(Refusal::Exists, message));
    }
    map.rule_names.insert(id as i32, target.to_owned());
    Ok(())
}
