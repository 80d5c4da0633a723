//! The bytes of a CRUSH map (`CrushWrapper::encode`).
//!
//! There is no envelope: a magic number, the three sizes, buckets, rules and names, and then tails that grew over
//! the years, each there when the bytes have not ended. A map therefore only stands at the end of its own blob.

use super::{Algorithm, Bucket, Choice, ChooseArg, CrushMap, Rule, RuleStep, Tunables};
use crate::features::{CRUSH_CHOOSE_ARGS, CRUSH_MSR, CRUSH_TUNABLES5, SERVER_LUMINOUS, SERVER_QUINCY};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;

impl Encode for CrushMap {
    fn encode(&self, w: &mut Writer) {
        let features = w.features();
        w.u32(MAGIC);
        w.count(self.buckets.len());
        w.count(self.rules.len());
        w.i32(self.max_devices);

        // A peer that does not know weight sets gets the first one in place of the weights.
        let compat_weights =
            if features.has(CRUSH_CHOOSE_ARGS) { None } else { self.choose_args.values().next() };
        for (index, bucket) in self.buckets.iter().enumerate() {
            match bucket {
                None => w.u32(0),
                Some(bucket) => {
                    let args = compat_weights.and_then(|args| args.get(&(index as u32)));
                    encode_bucket(w, bucket, args.and_then(|a| a.weight_sets.first()));
                }
            }
        }
        for (id, rule) in self.rules.iter().enumerate() {
            w.u32(rule.is_some() as u32);
            if let Some(rule) = rule {
                encode_rule(w, id, rule);
            }
        }
        w.put(&self.type_names);
        w.put(&self.item_names);
        w.put(&self.rule_names);

        let t = &self.tunables;
        w.u32(t.choose_local_tries);
        w.u32(t.choose_local_fallback_tries);
        w.u32(t.choose_total_tries);
        w.u32(t.chooseleaf_descend_once);
        w.u8(t.chooseleaf_vary_r);
        w.u8(t.straw_calc_version);
        w.u32(t.allowed_bucket_algs);
        if features.has(CRUSH_TUNABLES5) {
            w.u8(t.chooseleaf_stable);
        }
        if features.has(SERVER_LUMINOUS) {
            w.put(&self.item_classes);
            w.put(&self.class_names);
            w.put(&self.shadow_buckets);
            w.count(self.choose_args.len());
            for (pool, args) in &self.choose_args {
                w.i64(*pool);
                encode_choose_args(w, args);
            }
        }
        if features.has(CRUSH_MSR) {
            w.u32(t.msr_descents);
            w.u32(t.msr_collision_tries);
        }
    }
}

fn encode_bucket(w: &mut Writer, b: &Bucket, compat_weights: Option<&Vec<u32>>) {
    let algorithm = b.algorithm() as u8;
    w.u32(algorithm.into());
    w.i32(b.id);
    w.u16(b.kind);
    w.u8(algorithm);
    w.u8(b.hash);
    w.u32(b.weight);
    w.count(b.items.len());
    b.items.iter().for_each(|item| w.i32(*item));
    match &b.choice {
        Choice::Uniform { item_weight } => w.u32(*item_weight),
        Choice::List { item_weights: a, sum_weights: b } | Choice::Straw { item_weights: a, straws: b } => {
            for (a, b) in a.iter().zip(b) {
                w.u32(*a);
                w.u32(*b);
            }
        }
        Choice::Tree { node_weights } => {
            w.u8(u8::try_from(node_weights.len()).expect("a tree bucket has at most 255 nodes"));
            node_weights.iter().for_each(|n| w.u32(*n));
        }
        Choice::Straw2 { item_weights } => {
            compat_weights.unwrap_or(item_weights).iter().for_each(|n| w.u32(*n));
        }
    }
}

fn encode_rule(w: &mut Writer, id: usize, rule: &Rule) {
    w.count(rule.steps.len());
    // Once the rule's "ruleset"; now always its number, and a reader refuses anything else.
    w.u8(id as u8);
    w.u8(rule.kind);
    let (min_size, max_size) =
        if w.features().has(SERVER_QUINCY) { (1, 100) } else { (rule.min_size, rule.max_size) };
    w.u8(min_size);
    w.u8(max_size);
    for step in &rule.steps {
        w.u32(step.op);
        w.i32(step.arg1);
        w.i32(step.arg2);
    }
}

fn encode_choose_args(w: &mut Writer, args: &BTreeMap<u32, ChooseArg>) {
    let written = || args.iter().filter(|(_, arg)| !arg.is_empty());
    w.count(written().count());
    for (index, arg) in written() {
        w.u32(*index);
        w.put(&arg.weight_sets);
        w.put(&arg.ids);
    }
}

impl Decode for CrushMap {
    const MIN_LEN: usize = 28;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.label("magic");
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(r.invalid("crush magic", magic));
        }
        r.label("max_buckets");
        let max_buckets = r.count("crush buckets", 4)?;
        r.label("max_rules");
        let max_rules = r.count("crush rules", 4)?;
        r.label("max_devices");
        let max_devices = r.i32()?;

        let mut map = CrushMap { max_devices, tunables: Tunables::ARGONAUT, ..CrushMap::default() };
        for index in 0..max_buckets {
            let bucket = decode_bucket(r)?;
            if let Some(b) = &bucket {
                if CrushMap::bucket_index(b.id) != Some(index) {
                    return Err(r.invalid("crush bucket id", b.id as u32));
                }
                // As Ceph does after a decode: every device in a bucket is within `max_devices`.
                let devices = b.items.iter().max().map_or(0, |d| d.saturating_add(1));
                map.max_devices = map.max_devices.max(devices);
            }
            map.buckets.push(bucket);
        }
        for id in 0..max_rules {
            r.label("rule present");
            let rule = if r.u32()? != 0 { Some(decode_rule(r, id)?) } else { None };
            map.rules.push(rule);
        }
        map.type_names = decode_names(r)?;
        map.item_names = decode_names(r)?;
        map.rule_names = decode_names(r)?;
        decode_tails(r, &mut map)?;
        Ok(map)
    }
}

fn decode_tails(r: &mut Reader<'_>, map: &mut CrushMap) -> Result<(), DecodeError> {
    let t = &mut map.tunables;
    if !r.is_empty() {
        r.label("choose_local_tries");
        t.choose_local_tries = r.u32()?;
        r.label("choose_local_fallback_tries");
        t.choose_local_fallback_tries = r.u32()?;
        r.label("choose_total_tries");
        t.choose_total_tries = r.u32()?;
    }
    if !r.is_empty() {
        r.label("chooseleaf_descend_once");
        t.chooseleaf_descend_once = r.u32()?;
    }
    if !r.is_empty() {
        r.label("chooseleaf_vary_r");
        t.chooseleaf_vary_r = r.u8()?;
    }
    if !r.is_empty() {
        r.label("straw_calc_version");
        t.straw_calc_version = r.u8()?;
    }
    if !r.is_empty() {
        r.label("allowed_bucket_algs");
        t.allowed_bucket_algs = r.u32()?;
    }
    if !r.is_empty() {
        r.label("chooseleaf_stable");
        t.chooseleaf_stable = r.u8()?;
    }
    if !r.is_empty() {
        map.item_classes = r.get()?;
        map.class_names = r.get()?;
        map.shadow_buckets = r.get()?;
    }
    if !r.is_empty() {
        for _ in 0..r.count("choose_args", 12)? {
            let pool = r.i64()?;
            let args = decode_choose_args(r, &map.buckets)?;
            map.choose_args.insert(pool, args);
        }
    }
    if !r.is_empty() {
        r.label("msr_descents");
        map.tunables.msr_descents = r.u32()?;
        r.label("msr_collision_tries");
        map.tunables.msr_collision_tries = r.u32()?;
    }
    Ok(())
}

fn decode_bucket(r: &mut Reader<'_>) -> Result<Option<Bucket>, DecodeError> {
    r.label("bucket algorithm");
    let number = r.u32()?;
    if number == 0 {
        return Ok(None);
    }
    let algorithm =
        Algorithm::from_number(number).ok_or_else(|| r.invalid("crush bucket algorithm", number))?;
    r.label("id");
    let id = r.i32()?;
    r.label("type");
    let kind = r.u16()?;
    let again = r.u8()?;
    if u32::from(again) != number {
        return Err(r.invalid("crush bucket algorithm, again", again));
    }
    r.label("hash");
    let hash = r.u8()?;
    r.label("weight");
    let weight = r.u32()?;
    let n = r.count("crush bucket items", 4)?;
    let items = (0..n).map(|_| r.i32()).collect::<Result<_, _>>()?;
    let choice = match algorithm {
        Algorithm::Uniform => Choice::Uniform { item_weight: r.u32()? },
        Algorithm::List => {
            let (item_weights, sum_weights) = decode_pairs(r, n)?;
            Choice::List { item_weights, sum_weights }
        }
        Algorithm::Tree => {
            let nodes = usize::from(r.u8()?);
            if nodes < 2 * n {
                return Err(r.invalid("crush tree nodes", nodes));
            }
            Choice::Tree { node_weights: (0..nodes).map(|_| r.u32()).collect::<Result<_, _>>()? }
        }
        Algorithm::Straw => {
            let (item_weights, straws) = decode_pairs(r, n)?;
            Choice::Straw { item_weights, straws }
        }
        Algorithm::Straw2 => {
            Choice::Straw2 { item_weights: (0..n).map(|_| r.u32()).collect::<Result<_, _>>()? }
        }
    };
    Ok(Some(Bucket { id, kind, hash, weight, items, choice }))
}

/// `n` pairs, as two lists. `n` items have just been read, so `n` is bounded by the input already.
fn decode_pairs(r: &mut Reader<'_>, n: usize) -> Result<(Vec<u32>, Vec<u32>), DecodeError> {
    (0..n)
        .map(|_| Ok((r.u32()?, r.u32()?)))
        .collect::<Result<Vec<_>, _>>()
        .map(|pairs| pairs.into_iter().unzip())
}

fn decode_rule(r: &mut Reader<'_>, id: usize) -> Result<Rule, DecodeError> {
    let n = r.count("crush rule steps", 12 /* op and two arguments */).and_then(|n| {
        let ruleset = r.u8()?;
        if usize::from(ruleset) == id { Ok(n) } else { Err(r.invalid("crush ruleset", ruleset)) }
    })?;
    r.label("rule type");
    let kind = r.u8()?;
    let (min_size, max_size) = (r.u8()?, r.u8()?);
    let steps = (0..n)
        .map(|_| Ok(RuleStep { op: r.u32()?, arg1: r.i32()?, arg2: r.i32()? }))
        .collect::<Result<_, DecodeError>>()?;
    Ok(Rule { kind, min_size, max_size, steps })
}

/// A map from number to name. Some old writers wrote the number with 64 bits: its upper half then looks like an
/// empty name's length, and no name is empty.
fn decode_names(r: &mut Reader<'_>) -> Result<BTreeMap<i32, String>, DecodeError> {
    let mut out = BTreeMap::new();
    for _ in 0..r.count("crush names", 8)? {
        let key = r.i32()?;
        let name = r.string()?;
        let name = if name.is_empty() { r.string()? } else { name };
        // Written again it would look like the upper half of a number.
        if name.is_empty() {
            return Err(r.invalid("crush name of length", 0u8));
        }
        out.insert(key, name);
    }
    Ok(out)
}

fn decode_choose_args(
    r: &mut Reader<'_>,
    buckets: &[Option<Bucket>],
) -> Result<BTreeMap<u32, ChooseArg>, DecodeError> {
    let mut out = BTreeMap::new();
    for _ in 0..r.count("choose_args buckets", 12)? {
        let index = r.u32()?;
        let Some(slot) = buckets.get(index as usize) else {
            return Err(r.invalid("choose_args bucket", index));
        };
        let arg = ChooseArg { weight_sets: r.get()?, ids: r.get()? };
        // Sizes that do not fit the bucket were once written by mistake for buckets that are gone or changed;
        // the walk ignores a weight set that does not fit. Numbers to hash must fit, as in Ceph.
        if !arg.ids.is_empty() && slot.as_ref().map(|b| b.items.len()) != Some(arg.ids.len()) {
            return Err(r.invalid("choose_args ids", arg.ids.len()));
        }
        out.insert(index, arg);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
