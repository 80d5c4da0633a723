//! The draw of an item from one bucket, for each bucket algorithm.
//!
//! The input `x` is the placement seed and `r` the number of the attempt: another `r` gives another draw. Arithmetic
//! wraps as it does in Ceph's `src/crush/mapper.c`.

use super::hash::{RJENKINS1, hash3, hash4};
use super::logarithm::log2_fixed;
use wire::types::crush::{Bucket, Choice, ChooseArg, tree_node};

/// The item that `bucket` picks; `None` when it is empty (or a tree that does not hold together).
///
/// `position` selects among the weight sets of `arg`, which only straw2 buckets heed.
#[inline]
pub(super) fn pick(
    bucket: &Bucket,
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
    shuffle: &mut Shuffle,
) -> Option<i32> {
    if bucket.items.is_empty() {
        return None;
    }
    match &bucket.choice {
        Choice::Straw2 { item_weights } => Some(straw2(bucket, item_weights, x, r, arg, position)),
        Choice::Straw { straws, .. } => Some(straw(bucket, straws, x, r)),
        Choice::List { item_weights, sum_weights } => Some(list(bucket, item_weights, sum_weights, x, r)),
        Choice::Tree { node_weights } => tree(bucket, node_weights, x, r),
        Choice::Uniform { .. } => Some(shuffle.pick(bucket, x, r)),
    }
}

/// Each item draws a straw whose length is exponentially distributed with the item's weight as its rate; the
/// longest wins. One item's weight changes only its own straw, so data moves only to or from it.
fn straw2(bucket: &Bucket, weights: &[u32], x: u32, r: u32, arg: Option<&ChooseArg>, position: usize) -> i32 {
    let count = bucket.items.len();
    let (mut weights, mut ids) = (weights, bucket.items.as_slice());
    if let Some(arg) = arg {
        // A weight set or ids that do not fit the bucket are left-overs of an old mistake.
        let set = arg.weight_sets.get(position).or(arg.weight_sets.last());
        weights = set.filter(|w| w.len() == count).map_or(weights, Vec::as_slice);
        ids = if arg.ids.len() == count { &arg.ids } else { ids };
    }
    let hashes = bucket.hash == RJENKINS1;
    let (mut best, mut best_draw) = (0, i64::MIN);
    for (i, (&weight, &id)) in weights.iter().zip(ids).enumerate() {
        if weight == 0 {
            continue;
        }
        let random = if hashes { hash3(x, id as u32, r) as u16 } else { 0 };
        // The logarithm of a number in 0..1 is negative: a larger weight brings it nearer to 0.
        let draw = (log2_fixed(random) as i64 - (1 << 48)) / i64::from(weight as i32);
        if draw > best_draw {
            (best, best_draw) = (i, draw);
        }
    }
    bucket.items[best]
}

/// As straw2, but a straw's length is a uniform number scaled by a factor that depends on all the weights.
fn straw(bucket: &Bucket, straws: &[u32], x: u32, r: u32) -> i32 {
    let (mut best, mut best_draw) = (0, 0);
    for (i, (&straw, &item)) in straws.iter().zip(&bucket.items).enumerate() {
        let random = hash_of(bucket, || hash3(x, item as u32, r)) & 0xffff;
        let draw = u64::from(random) * u64::from(straw);
        if i == 0 || draw > best_draw {
            (best, best_draw) = (i, draw);
        }
    }
    bucket.items[best]
}

/// From the newest item down: take it with the probability of its share of the remaining weight.
fn list(bucket: &Bucket, weights: &[u32], sums: &[u32], x: u32, r: u32) -> i32 {
    for (i, &item) in bucket.items.iter().enumerate().rev() {
        let random = hash_of(bucket, || hash4(x, item as u32, r, bucket.id as u32)) & 0xffff;
        if (u64::from(random) * u64::from(sums[i])) >> 16 < u64::from(weights[i]) {
            return item;
        }
    }
    bucket.items[0]
}

/// From the root of the binary tree down, left or right by weight.
fn tree(bucket: &Bucket, nodes: &[u32], x: u32, r: u32) -> Option<i32> {
    let mut node = nodes.len() / 2;
    if node == 0 {
        return None;
    }
    while node.is_multiple_of(2) {
        let random = hash_of(bucket, || hash4(x, node as u32, r, bucket.id as u32));
        let point = (u64::from(random) * u64::from(*nodes.get(node)?)) >> 32;
        // An inner node's children are half its lowest set bit away on either side.
        let half = 1 << (node.trailing_zeros() - 1);
        let left = node - half;
        node = if point < u64::from(*nodes.get(left)?) { left } else { node + half };
    }
    debug_assert_eq!(tree_node(node / 2), node);
    bucket.items.get(node / 2).copied()
}

fn hash_of(bucket: &Bucket, hash: impl FnOnce() -> u32) -> u32 {
    if bucket.hash == RJENKINS1 { hash() } else { 0 }
}

/// Picks by position in a pseudo-random permutation of a bucket's items. Remembers the last permutation and how
/// much of it has been worked out, because the attempts of one mapping walk along it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shuffle {
    /// The bucket and the input for which `order` holds.
    owner: Option<(i32, u32)>,
    /// Number of places of `order` that are final.
    settled: usize,
    order: Vec<u32>,
}

impl Shuffle {
    /// Forget, because the map may be another one.
    pub(super) fn clear(&mut self) {
        self.owner = None;
    }

    /// The item at `r`, modulo the size, of the bucket's permutation for `x`.
    pub(super) fn pick(&mut self, bucket: &Bucket, x: u32, r: u32) -> i32 {
        let size = bucket.items.len();
        let place = r as usize % size;
        let swap_with = |place: usize| {
            let random = hash_of(bucket, || hash3(x, bucket.id as u32, place as u32));
            place + random as usize % (size - place)
        };
        if place == 0 {
            // By far the most frequent case needs no permutation.
            return bucket.items[swap_with(0)];
        }
        if self.owner != Some((bucket.id, x)) {
            self.owner = Some((bucket.id, x));
            self.settled = 0;
            self.order.clear();
            self.order.extend(0..size as u32);
        }
        while self.settled <= place {
            let other = swap_with(self.settled);
            self.order.swap(self.settled, other);
            self.settled += 1;
        }
        bucket.items[self.order[place] as usize]
    }
}
