//! Weight sets (`choose_args`): other weights for the items of buckets, for one pool or for all pools without a set of
//! their own.

use super::weights::reweight_in_set;
use super::{EditError, Refusal, bucket};
use wire::types::CrushMap;
use wire::types::crush::{Algorithm, ChooseArg};

/// Makes a weight set from the weights of all straw2 buckets. False if the pool has one.
pub fn create_weight_set(map: &mut CrushMap, set: i64, positions: usize) -> bool {
    if map.choose_args.contains_key(&set) {
        return false;
    }
    let straw2 = map.buckets.iter().enumerate().filter_map(|(index, b)| Some((index as u32, b.as_ref()?)));
    let straw2 = straw2.filter(|(_, b)| b.algorithm() == Algorithm::Straw2);
    let args = straw2.map(|(index, b)| {
        (index, ChooseArg { weight_sets: vec![bucket::weights(b); positions], ids: Vec::new() })
    });
    map.choose_args.insert(set, args.collect());
    true
}

/// Gives an item its weights in a weight set, one for each position, and passes the sums on to the buckets above.
pub fn reweight_in_weight_set(
    map: &mut CrushMap,
    set: i64,
    id: i32,
    weights: &[u32],
) -> Result<(), EditError> {
    let (changed, misfit) = reweight_in_set(map, set, id, weights);
    if changed > 0 {
        return Ok(());
    }
    let misfit =
        misfit.map(|bucket| format!("weight_set_positions != {} for bucket {bucket}", weights.len()));
    let text = format!("{}item {id} not found in crush map", misfit.unwrap_or_default());
    Err(EditError::new(Refusal::NotFound, text))
}

/// Turns straw buckets into straw2 buckets with the same items and weights. Returns whether there were any.
pub fn straw_to_straw2(map: &mut CrushMap) -> Result<bool, EditError> {
    let straw = map.buckets.iter().flatten().filter(|b| b.algorithm() == Algorithm::Straw);
    let straw: Vec<i32> = straw.map(|b| b.id).collect();
    let version = map.tunables.straw_calc_version;
    for &id in &straw {
        let old = map.bucket(id).expect("just listed").clone();
        let weights = bucket::weights(&old);
        let mut made = bucket::make(id, old.kind, Algorithm::Straw2, old.items, weights, version)?;
        made.hash = old.hash;
        *map.bucket_mut(id).expect("just listed") = made;
    }
    Ok(!straw.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::{Location, create_or_move, item_id, new_map};
    use super::*;

    const ONE: u32 = 0x10000;
    const SET: i64 = CrushMap::DEFAULT_CHOOSE_ARGS;

    /// Three devices of weight 1 on a host below the root.
    fn map() -> CrushMap {
        let mut map = new_map("osd");
        let location = Location::from([("root".into(), "default".into()), ("host".into(), "a".into())]);
        for osd in 0..3 {
            create_or_move(&mut map, osd, ONE, &format!("osd.{osd}"), &location, true).unwrap();
        }
        map
    }

    #[test]
    fn weight_of_an_item_is_summed_up_in_its_set_alone() {
        let mut map = map();
        let (root, host) = (item_id(&map, "default").unwrap(), item_id(&map, "a").unwrap());
        assert!(create_weight_set(&mut map, SET, 1));
        assert!(!create_weight_set(&mut map, SET, 1));
        reweight_in_weight_set(&mut map, SET, 1, &[ONE / 2]).unwrap();
        let sets = |id: i32| &map.choose_args[&SET][&((-1 - id) as u32)].weight_sets;
        assert_eq!(sets(host), &[vec![ONE, ONE / 2, ONE]]);
        assert_eq!(sets(root), &[vec![5 * ONE / 2]]);
        assert_eq!(map.bucket(host).unwrap().weight, 3 * ONE);
    }

    #[test]
    fn weights_for_other_positions_are_refused() {
        let mut map = map();
        create_weight_set(&mut map, SET, 1);
        let refusal = reweight_in_weight_set(&mut map, SET, 1, &[ONE, ONE]).unwrap_err();
        assert!(refusal.message.starts_with("weight_set_positions != 2"), "{refusal:?}");
    }
}
