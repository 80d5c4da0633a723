//! The numbers a bucket needs to pick by: made from its items' weights, for each algorithm.

use wire::types::crush::{Algorithm, Bucket, Choice, tree_node};

/// Why a bucket cannot hold the weights it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketError {
    /// The sum does not fit 16.16 fixed point.
    Overflow,
    /// A tree bucket's nodes are counted in a byte.
    TooManyItems,
}

/// A bucket whose sums, nodes and straws follow from the weights. A uniform bucket takes the first for all.
pub fn make(
    id: i32,
    kind: u16,
    algorithm: Algorithm,
    items: Vec<i32>,
    weights: Vec<u32>,
    straw_calc_version: u8,
) -> Result<Bucket, BucketError> {
    debug_assert_eq!(items.len(), weights.len());
    let (choice, weight) = choice(algorithm, weights, straw_calc_version)?;
    Ok(Bucket { id, kind, hash: 0, weight, items, choice })
}

/// The weight of every item, in order.
pub fn weights(bucket: &Bucket) -> Vec<u32> {
    (0..bucket.items.len()).map(|i| bucket.item_weight(i)).collect()
}

fn choice(
    algorithm: Algorithm,
    mut weights: Vec<u32>,
    straw_calc_version: u8,
) -> Result<(Choice, u32), BucketError> {
    if algorithm == Algorithm::Uniform {
        let first = weights.first().copied().unwrap_or(0);
        weights.fill(first);
    }
    let total = weights.iter().try_fold(0u32, |sum, w| sum.checked_add(*w)).ok_or(BucketError::Overflow)?;
    let choice = match algorithm {
        Algorithm::Uniform => Choice::Uniform { item_weight: weights.first().copied().unwrap_or(0) },
        Algorithm::List => {
            let sums = weights.iter().scan(0, |sum, w| {
                *sum += w;
                Some(*sum)
            });
            Choice::List { sum_weights: sums.collect(), item_weights: weights }
        }
        Algorithm::Tree => Choice::Tree { node_weights: tree_nodes(&weights)? },
        Algorithm::Straw => {
            Choice::Straw { straws: straws(&weights, straw_calc_version), item_weights: weights }
        }
        Algorithm::Straw2 => Choice::Straw2 { item_weights: weights },
    };
    Ok((choice, total))
}

/// A binary tree in order with room for the leaves: odd nodes are leaves, and a node whose lowest set bit is `b`
/// sums the nodes at `b/2` on either side.
fn tree_nodes(weights: &[u32]) -> Result<Vec<u32>, BucketError> {
    if weights.is_empty() {
        return Ok(Vec::new());
    }
    let count = weights.len().next_power_of_two() * 2;
    if count > usize::from(u8::MAX) {
        return Err(BucketError::TooManyItems);
    }
    let mut nodes = vec![0; count];
    for (i, weight) in weights.iter().enumerate() {
        nodes[tree_node(i)] = *weight;
    }
    let mut step = 2;
    while step < count {
        for node in (step..count).step_by(2 * step) {
            nodes[node] = nodes[node - step / 2] + nodes[node + step / 2];
        }
        step *= 2;
    }
    Ok(nodes)
}

/// The longest straw of each item, in 16.16 fixed point: the lightest item's is 1.0, and each heavier one's is
/// longer by a factor that its lead over the next lighter gives (`crush_calc_straw`).
///
/// The idea is unsound, which is why straw2 exists, but existing maps depend on these numbers. Version 0 handles
/// equal and zero weights otherwise than later versions.
fn straws(weights: &[u32], version: u8) -> Vec<u32> {
    let mut straws = vec![0; weights.len()];
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|i| weights[*i]);

    let mut straw = 1.0f64;
    let (mut below, mut last) = (0.0f64, 0.0f64);
    let mut left = weights.len() as u32;
    for (rank, &i) in order.iter().enumerate() {
        let weight = weights[i];
        if weight == 0 {
            // No straw at all; version 0 forgot to count it off.
            left -= u32::from(version > 0);
            continue;
        }
        straws[i] = (straw * 65536.0) as i64 as u32;
        let Some(&next) = order.get(rank + 1) else { break };
        let next = weights[next];
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - last) * f64::from(left);
        left = match version {
            0 => left
                .wrapping_sub(order[rank + 1..].iter().take_while(|j| weights[**j] == next).count() as u32),
            _ => left - 1,
        };
        // Wraps in 32 bits, as the original does.
        let ahead = f64::from(left.wrapping_mul(next - weight));
        let share_below = below / (below + ahead);
        straw *= (1.0 / share_below).powf(1.0 / f64::from(left as i32));
        last = f64::from(weight);
    }
    straws
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_bucket_sums_its_halves() {
        assert_eq!(tree_nodes(&[5]).unwrap(), [0, 5]);
        assert_eq!(tree_nodes(&[1, 2, 4]).unwrap(), [0, 1, 3, 2, 7, 4, 4, 0]);
        assert_eq!(tree_nodes(&[0; 65]), Err(BucketError::TooManyItems));
    }

    #[test]
    fn overflowing_sums_are_refused() {
        let made = make(-1, 1, Algorithm::List, vec![0, 1], vec![u32::MAX, 1], 1);
        assert_eq!(made, Err(BucketError::Overflow));
    }

    #[test]
    fn equal_weights_have_equal_straws() {
        assert_eq!(straws(&[0x10000; 3], 1), [0x10000; 3]);
        assert_eq!(straws(&[0x10000; 3], 0), [0x10000; 3]);
        assert_eq!(straws(&[0, 0x10000], 1), [0, 0x10000]);
    }
}
