//! Multi-step-retry rules: several devices from each of several hosts, where an "out" device may move its place to
//! another host. (`doc/dev/crush-msr.rst` tells why.)
//!
//! A rule is a prefix of settings and then blocks, each `take`, some `choosemsr`, `emit`. A block's places are cut
//! into strides by its first choose, those again by its second, and so on: `choosemsr 4 host, choosemsr 2 osd`
//! gives four strides of two. Each pass walks depth first and fills what it can; a place that hit an out device
//! stays open for the next pass, which draws differently. Strides never share a bucket, but one stride may, after
//! passes that failed in part, use more than one.

use super::walk::Walk;
use super::{ITEM_NONE, ITEM_UNDEF};
use wire::types::crush::{Bucket, CrushMap, Rule, RuleStep, step};

/// Memory that mappings reuse.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// For each choose step of the block, for each place: the bucket or device that its stride uses.
    used: Vec<i32>,
    /// Buckets that a pass entered and that gave nothing, by the end of their stride; a stack, by recursion.
    fruitless: Vec<(usize, usize, i32)>,
}

/// Map into `result`: as many places as were filled when the rule's type is firstn, else `size` with holes.
/// A rule of the wrong shape gives nothing.
pub(super) fn map(
    walk: &mut Walk<'_>,
    rule: &Rule,
    size: usize,
    scratch: &mut Scratch,
    result: &mut Vec<i32>,
) {
    result.clear();
    let tunables = &walk.map.tunables;
    let (mut passes, mut collision_tries) = (tunables.msr_descents, tunables.msr_collision_tries);
    let mut steps = rule.steps.as_slice();
    while let Some((first, rest)) = steps.split_first() {
        match first.op {
            step::SET_MSR_DESCENTS => passes = first.arg1 as u32,
            step::SET_MSR_COLLISION_TRIES => collision_tries = first.arg1 as u32,
            _ => break,
        }
        steps = rest;
    }

    result.resize(size, ITEM_NONE);
    let mut emitter = Emitter { out: result, filled: 0, in_order: rule.kind == Rule::MSR_FIRSTN };
    let mut start = 0;
    while !steps.is_empty() {
        let Some((block, rest)) = Block::parse(steps, size) else {
            result.clear();
            return;
        };
        steps = rest;
        if start >= size {
            continue;
        }
        let end = size.min(start.saturating_add(block.places));
        match walk.map.bucket(block.take) {
            None if block.take >= 0 && block.chooses.is_empty() => emitter.emit(start, block.take),
            Some(root) if !block.chooses.is_empty() => {
                scratch.used.clear();
                scratch.used.resize(block.chooses.len() * size, ITEM_UNDEF);
                let wanted = emitter.filled + (end - start);
                for pass in 0..passes {
                    if emitter.filled >= wanted {
                        break;
                    }
                    let mut pass = Pass {
                        walk,
                        chooses: block.chooses,
                        size,
                        collision_tries,
                        number: pass,
                        scratch,
                        emitter,
                    };
                    pass.choose(root, 0, block.places, (start, end));
                    emitter = pass.emitter;
                }
                start = end;
            }
            // Shapes on which Ceph's own code asserts.
            _ => {
                result.clear();
                return;
            }
        }
    }
    let filled = emitter.filled;
    if rule.kind == Rule::MSR_FIRSTN {
        result.truncate(filled);
    }
}

/// `take`, `choosemsr`…, `emit`.
struct Block<'r> {
    take: i32,
    chooses: &'r [RuleStep],
    /// The product of the chooses' counts.
    places: usize,
}

impl<'r> Block<'r> {
    fn parse(steps: &'r [RuleStep], size: usize) -> Option<(Block<'r>, &'r [RuleStep])> {
        let (take, rest) = steps.split_first()?;
        if take.op != step::TAKE {
            return None;
        }
        let emit = rest.iter().position(|s| s.op == step::EMIT)?;
        let chooses = &rest[..emit];
        let mut places = 1usize;
        for choose in chooses {
            if choose.op != step::CHOOSE_MSR {
                return None;
            }
            places = places.checked_mul(strides(choose, size)?)?;
        }
        Some((Block { take: take.arg1, chooses, places }, &rest[emit + 1..]))
    }
}

/// Into how many strides a step cuts its places: 0 in the rule means the size of the pool.
fn strides(choose: &RuleStep, size: usize) -> Option<usize> {
    match choose.arg1 {
        0 => (size > 0).then_some(size),
        n => usize::try_from(n).ok(),
    }
}

struct Emitter<'o> {
    out: &'o mut Vec<i32>,
    filled: usize,
    /// Firstn: results in the order found; else each at its place.
    in_order: bool,
}

impl Emitter<'_> {
    fn emit(&mut self, place: usize, device: i32) {
        let at = if self.in_order { self.filled } else { place };
        if let Some(slot) = self.out.get_mut(at) {
            *slot = device;
            self.filled += 1;
        }
    }
}

/// One pass over a block.
struct Pass<'p, 'm, 'o> {
    walk: &'p mut Walk<'m>,
    chooses: &'p [RuleStep],
    size: usize,
    collision_tries: u32,
    number: u32,
    scratch: &'p mut Scratch,
    emitter: Emitter<'o>,
}

impl<'m> Pass<'_, 'm, '_> {
    /// Fill the places `start..end` from below `bucket` with the chooses from `depth` on, which have room for
    /// `places`. Returns how many places this pass filled.
    fn choose(
        &mut self,
        bucket: &Bucket,
        depth: usize,
        places: usize,
        (start, end): (usize, usize),
    ) -> usize {
        let choose = self.chooses[depth];
        let is_last = depth + 1 == self.chooses.len();
        let stride_len = places / strides(&choose, self.size).expect("checked when the block was parsed");
        let fruitless_before = self.scratch.fruitless.len();
        let mut mapped = 0;

        for (index, from) in (start..end).step_by(stride_len).enumerate() {
            let to = end.min(from + stride_len);
            if self.used(self.chooses.len() - 1)[from..to].iter().all(|d| *d != ITEM_UNDEF) {
                continue;
            }
            let Some(item) = self.pick(bucket, depth, choose.arg2, index, (start, end), (from, to)) else {
                continue;
            };
            if choose.arg2 == 0 {
                if stride_len != 1 || !is_last || self.walk.is_out(item) {
                    continue;
                }
                self.push_used(depth, (from, to), item);
                self.emitter.emit(from, item);
                mapped += 1;
            } else {
                let child = self.walk.map.bucket(item).filter(|_| !is_last);
                let Some(child) = child else { continue };
                let below = self.choose(child, depth + 1, stride_len, (from, to));
                if self.push_used(depth, (from, to), item) && below == 0 {
                    self.scratch.fruitless.push((from, to, item));
                } else {
                    mapped += below;
                }
            }
        }
        // Only now: until the end of the pass even a fruitless bucket collides, so that one out device disturbs
        // the other strides as little as possible.
        while self.scratch.fruitless.len() > fruitless_before {
            let (from, to, item) = self.scratch.fruitless.pop().expect("longer than before");
            let last = self.used(depth)[from..to].iter_mut().rev().find(|u| **u != ITEM_UNDEF);
            let last = last.expect("it was pushed in this pass");
            debug_assert_eq!(*last, item);
            *last = ITEM_UNDEF;
        }
        mapped
    }

    /// An item of type `kind` that no other stride uses.
    fn pick(
        &mut self,
        bucket: &Bucket,
        depth: usize,
        kind: i32,
        index: usize,
        (start, end): (usize, usize),
        (from, to): (usize, usize),
    ) -> Option<i32> {
        for attempt in 0..self.collision_tries {
            let item = self.descend(bucket, kind, index, attempt)?;
            // The first place that uses it decides: its own stride may use it again.
            let user = self.used(depth)[start..end].iter().position(|u| *u == item).map(|i| start + i);
            if user.is_none_or(|place| (from..to).contains(&place)) {
                return Some(item);
            }
        }
        None
    }

    fn descend(&mut self, bucket: &Bucket, kind: i32, index: usize, attempt: u32) -> Option<i32> {
        let draw = self.number.wrapping_mul(self.size as u32).wrapping_add(index as u32);
        let r = (draw << 16).wrapping_add(attempt) as i32;
        let mut item = self.walk.pick(bucket, r, index)?;
        for _ in 0..=self.walk.depth_max() {
            if item >= 0 {
                return Some(item);
            }
            let map: &'m CrushMap = self.walk.map;
            let inner = map.bucket(item)?;
            if i32::from(inner.kind) == kind {
                return Some(item);
            }
            item = self.walk.pick(inner, r, index)?;
        }
        None
    }

    fn used(&mut self, depth: usize) -> &mut [i32] {
        &mut self.scratch.used[depth * self.size..][..self.size]
    }

    /// Note that a stride uses `item`. False when that was noted before.
    fn push_used(&mut self, depth: usize, (from, to): (usize, usize), item: i32) -> bool {
        for slot in &mut self.used(depth)[from..to] {
            if *slot == item {
                return false;
            }
            if *slot == ITEM_UNDEF {
                *slot = item;
                return true;
            }
        }
        false
    }
}
