//! Choosing for erasure-coded pools: every place in the result is on its own, and one that cannot be filled stays
//! a hole, so that the others keep their shard.

use super::walk::{Sight, Walk};
use super::{ITEM_NONE, ITEM_UNDEF};
use wire::types::crush::{Bucket, Choice};

/// Choose for the places `from..to` of `out`, all of which are written. `wanted` is how many the whole step wants:
/// the distance between the attempts of one place. `leaves` as in [`super::firstn::Output`].
pub(super) fn choose(
    walk: &mut Walk<'_>,
    (tries, leaf_tries): (u32, u32),
    root: &Bucket,
    (wanted, kind): (i32, i32),
    out: &mut [i32],
    mut leaves: Option<&mut [i32]>,
    (from, to): (usize, usize),
    parent_r: i32,
) {
    out[from..to].fill(ITEM_UNDEF);
    if let Some(leaves) = leaves.as_deref_mut() {
        leaves[from..to].fill(ITEM_UNDEF);
    }
    let mut left = to - from;
    for attempt in 0..tries {
        if left == 0 {
            break;
        }
        for place in from..to {
            if out[place] != ITEM_UNDEF {
                continue;
            }
            let first_r = (place as i32).wrapping_add(parent_r);
            let descent = descend(walk, root, (wanted, kind), first_r, attempt, from);
            let (item, r) = match descent {
                Descent::Empty => continue,
                Descent::Bad => {
                    out[place] = ITEM_NONE;
                    if let Some(leaves) = leaves.as_deref_mut() {
                        leaves[place] = ITEM_NONE;
                    }
                    left -= 1;
                    continue;
                }
                Descent::Item { item, r } => (item, r),
            };
            if out[from..to].contains(&item) {
                continue;
            }
            if let Some(leaves) = leaves.as_deref_mut() {
                match walk.map.bucket(item) {
                    Some(bucket) => {
                        let places = (place, place + 1);
                        choose(walk, (leaf_tries, 0), bucket, (wanted, 0), leaves, None, places, r);
                        if leaves[place] == ITEM_NONE {
                            continue;
                        }
                    }
                    // Stays there when the device turns out to be out and no attempt is left: so does Ceph.
                    None => leaves[place] = item,
                }
            }
            if item >= 0 && walk.is_out(item) {
                continue;
            }
            out[place] = item;
            left -= 1;
        }
    }
    let holes = |places: &mut [i32]| {
        places[from..to].iter_mut().filter(|p| **p == ITEM_UNDEF).for_each(|p| *p = ITEM_NONE);
    };
    holes(out);
    leaves.map(holes);
}

enum Descent {
    Item { item: i32, r: i32 },
    Empty,
    Bad,
}

fn descend(
    walk: &mut Walk<'_>,
    root: &Bucket,
    (wanted, kind): (i32, i32),
    first_r: i32,
    attempt: u32,
    position: usize,
) -> Descent {
    let mut bucket = root;
    for _ in 0..=walk.depth_max() {
        // In a uniform bucket whose size is a multiple of the stride, the attempts of one place would fall on the
        // same few items for ever.
        let uniform = matches!(bucket.choice, Choice::Uniform { .. });
        let aligned = uniform && (bucket.items.len() as u32).is_multiple_of(wanted as u32);
        let stride = if aligned { wanted.wrapping_add(1) } else { wanted };
        let r = first_r.wrapping_add(stride.wrapping_mul(attempt as i32));
        let Some(item) = walk.pick(bucket, r, position) else { return Descent::Empty };
        match walk.look(item, kind) {
            Sight::Found => return Descent::Item { item, r },
            Sight::Deeper(inner) => bucket = inner,
            Sight::Bad => return Descent::Bad,
        }
    }
    Descent::Bad
}
