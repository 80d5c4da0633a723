//! Choosing for replicated pools: distinct items, in order. A place that cannot be filled is left out, and later ones move
//! up.

use super::walk::{Sight, Walk};
use wire::types::crush::Bucket;

/// Limits of retries, and the places where they begin.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Descents from the root for one replica.
    pub tries: u32,
    /// The same for the search of a leaf under a bucket that has been chosen.
    pub leaf_tries: u32,
    /// Retries in the same bucket after a collision.
    pub local_retries: u32,
    /// Retries in the same bucket, walking along its permutation, once those are used up.
    pub local_fallback_retries: u32,
    /// Non-zero: the leaf search starts from the attempt's number, shifted right by this less one.
    pub vary_r: u32,
    /// The leaf search does not depend on the replica's number.
    pub stable: bool,
}

/// Where results go.
pub(super) struct Output<'o> {
    pub out: &'o mut [i32],
    /// For "chooseleaf": the device under each item of `out`.
    pub leaves: Option<&'o mut [i32]>,
}

/// Choose up to `wanted` items of type `kind` below `root`, with `out[..filled]` there already and room for `room`
/// more. Returns how many `out` then holds.
pub(super) fn choose(
    walk: &mut Walk<'_>,
    effort: Effort,
    root: &Bucket,
    (wanted, kind): (i32, i32),
    mut output: Output<'_>,
    mut filled: usize,
    mut room: usize,
    parent_r: i32,
) -> usize {
    let mut replica = if effort.stable { 0 } else { filled as i32 };
    while replica < wanted && room > 0 {
        let first_r = replica.wrapping_add(parent_r);
        if let Some(item) = place_one(walk, effort, root, kind, &mut output, filled, room, first_r) {
            output.out[filled] = item;
            filled += 1;
            room -= 1;
        }
        replica += 1;
    }
    filled
}

/// Why an item that was picked is not taken.
enum Refusal {
    /// Chosen already.
    Collision,
    /// Out, or an empty bucket, or no leaf below it.
    Rejected,
}

/// One replica's item: descend until it is of the type, is new and is in; on a refusal try again nearby, then from
/// the root, then give up.
fn place_one(
    walk: &mut Walk<'_>,
    effort: Effort,
    root: &Bucket,
    kind: i32,
    output: &mut Output<'_>,
    filled: usize,
    room: usize,
    first_r: i32,
) -> Option<i32> {
    let mut failures = 0u32;
    loop {
        let mut bucket = root;
        let mut failures_here = 0u32;
        let mut depth = 0;
        loop {
            let r = first_r.wrapping_add(failures as i32);
            let size = bucket.items.len() as u32;
            let fall_back = effort.local_fallback_retries > 0
                && failures_here >= size >> 1
                && failures_here > effort.local_fallback_retries;
            let picked = if fall_back { walk.pick_shuffled(bucket, r) } else { walk.pick(bucket, r, filled) };
            let verdict = match picked {
                None => Err(Refusal::Rejected),
                Some(item) => match walk.look(item, kind) {
                    Sight::Bad => return None,
                    Sight::Deeper(_) if depth == walk.depth_max() => return None,
                    Sight::Deeper(inner) => {
                        bucket = inner;
                        depth += 1;
                        continue;
                    }
                    Sight::Found => consider(walk, effort, item, output, filled, room, r),
                },
            };
            let refusal = match verdict {
                Ok(item) => return Some(item),
                Err(refusal) => refusal,
            };
            failures += 1;
            failures_here += 1;
            let local = matches!(refusal, Refusal::Collision) && failures_here <= effort.local_retries;
            let exhaustive = effort.local_fallback_retries > 0
                && failures_here <= size.saturating_add(effort.local_fallback_retries);
            if !local && !exhaustive {
                break;
            }
        }
        if failures >= effort.tries {
            return None;
        }
    }
}

/// True if an item of the right type can be taken. For a "chooseleaf" its device must be found.
fn consider(
    walk: &mut Walk<'_>,
    effort: Effort,
    item: i32,
    output: &mut Output<'_>,
    filled: usize,
    room: usize,
    r: i32,
) -> Result<i32, Refusal> {
    if output.out[..filled].contains(&item) {
        return Err(Refusal::Collision);
    }
    if let Some(leaves) = output.leaves.as_deref_mut() {
        match walk.map.bucket(item) {
            Some(bucket) => {
                let leaf_r = if effort.vary_r > 0 { r >> (effort.vary_r - 1).min(31) } else { 0 };
                let leaf_effort = Effort { tries: effort.leaf_tries, leaf_tries: 0, ..effort };
                let wanted = if effort.stable { 1 } else { filled as i32 + 1 };
                let leaf_output = Output { out: leaves, leaves: None };
                let got = choose(walk, leaf_effort, bucket, (wanted, 0), leaf_output, filled, room, leaf_r);
                if got <= filled {
                    return Err(Refusal::Rejected);
                }
            }
            None => leaves[filled] = item,
        }
    }
    if item >= 0 && walk.is_out(item) {
        return Err(Refusal::Rejected);
    }
    Ok(item)
}
