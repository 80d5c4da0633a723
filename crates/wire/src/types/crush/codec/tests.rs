use super::*;
use codec::{Features, decode_exact};
use proptest::prelude::*;

/// Relevant features of a 16.2 peer, and those that a newer one adds.
const PACIFIC: Features = Features(CRUSH_TUNABLES5 | SERVER_LUMINOUS);
const QUINCY: Features = Features(PACIFIC.0 | SERVER_QUINCY);
const TENTACLE: Features = Features(QUINCY.0 | CRUSH_MSR);

/// A host with two devices for each algorithm, with classes, names and weight sets.
fn sample() -> CrushMap {
    let weights = || vec![0x10000, 0x20000];
    let choices = [
        Choice::Uniform { item_weight: 0x10000 },
        Choice::List { item_weights: weights(), sum_weights: vec![0x10000, 0x30000] },
        Choice::Tree { node_weights: vec![0, 0x10000, 0x30000, 0x20000] },
        Choice::Straw { item_weights: weights(), straws: vec![0x10000, 0x18000] },
        Choice::Straw2 { item_weights: weights() },
    ];
    let mut map = CrushMap { max_devices: 10, ..CrushMap::default() };
    map.type_names = [(0, "osd".into()), (1, "host".into())].into();
    map.rule_names.insert(1, "data".into());
    for (i, choice) in choices.into_iter().enumerate() {
        let i = i as i32;
        map.item_names.insert(-1 - i, format!("host{i}"));
        map.buckets.push(Some(Bucket {
            id: -1 - i,
            kind: 1,
            hash: 0,
            weight: 0x30000,
            items: vec![2 * i, 2 * i + 1],
            choice,
        }));
    }
    map.buckets.insert(2, None);
    for (i, b) in map.buckets.iter_mut().enumerate() {
        if let Some(b) = b {
            b.id = -1 - i as i32;
        }
    }
    map.rules = vec![
        None,
        Some(Rule {
            kind: 1,
            min_size: 2,
            max_size: 7,
            steps: vec![RuleStep::new(1, -1, 0), RuleStep::new(4, 0, 0)],
        }),
    ];
    map.class_names.insert(0, "ssd".into());
    map.item_classes.insert(3, 0);
    map.shadow_buckets.entry(-1).or_default().insert(0, -2);
    let arg = ChooseArg { weight_sets: vec![vec![1, 2], vec![3, 4]], ids: vec![7, 8] };
    map.choose_args.entry(-1).or_default().insert(5, arg);
    map.tunables.msr_descents = 77;
    map
}

#[test]
fn a_map_comes_back_as_it_was() {
    let map = sample();
    let bytes = map.to_vec(TENTACLE);
    let mut back: CrushMap = decode_exact(&bytes).unwrap();
    // Since Quincy a rule's sizes are always written as 1 and 100.
    let rule = back.rules[1].as_mut().unwrap();
    assert_eq!((rule.min_size, rule.max_size), (1, 100));
    (rule.min_size, rule.max_size) = (2, 7);
    assert_eq!(back, map);
}

#[test]
fn older_peers_get_what_they_know() {
    let map = sample();
    let pacific: CrushMap = decode_exact(&map.to_vec(PACIFIC)).unwrap();
    assert_eq!(pacific.rules, map.rules);
    assert_eq!(pacific.tunables.msr_descents, 100, "the default, for no MSR tail was written");
    assert_eq!(pacific.choose_args, map.choose_args);

    // Before weight sets, the first one stands in for the straw2 weights.
    let kraken: CrushMap = decode_exact(&map.to_vec(Features(CRUSH_TUNABLES5))).unwrap();
    assert!(kraken.choose_args.is_empty() && kraken.item_classes.is_empty());
    assert_eq!(kraken.buckets[5].as_ref().unwrap().choice, Choice::Straw2 { item_weights: vec![1, 2] });
    assert_eq!(kraken.tunables.chooseleaf_stable, 1);

    let hammer: CrushMap = decode_exact(&map.to_vec(Features::NONE)).unwrap();
    assert_eq!(hammer.tunables.chooseleaf_stable, 0);
}

#[test]
fn names_with_64_bit_numbers_are_read() {
    let mut w = Writer::new(Features::NONE);
    w.u32(1);
    w.u64(5);
    w.string("rack");
    let names = decode_names(&mut Reader::new(w.as_slice())).unwrap();
    assert_eq!(names, BTreeMap::from([(5, "rack".to_owned())]));
}

#[test]
fn what_breaks_an_invariant_is_refused() {
    let with = |edit: fn(&mut CrushMap)| {
        let mut map = sample();
        edit(&mut map);
        decode_exact::<CrushMap>(&map.to_vec(TENTACLE))
    };
    assert!(with(|_| ()).is_ok());
    assert!(with(|m| m.buckets[0].as_mut().unwrap().id = -2).is_err());
    assert!(with(|m| m.choose_args.get_mut(&-1).unwrap().get_mut(&5).unwrap().ids = vec![1]).is_err());
    assert!(
        with(|m| {
            m.buckets[3].as_mut().unwrap().choice = Choice::Tree { node_weights: vec![0, 1] };
        })
        .is_err()
    );
    let raised = with(|m| m.max_devices = 0).unwrap();
    assert_eq!(raised.max_devices, 10);
}

/// Every map that Ceph's own corpus holds, written again as the release that wrote it would.
#[test]
fn the_corpus_comes_back_byte_for_byte() {
    // The 19.2 archive is from after its branch: it has the MSR tail.
    let releases = [("16.2", PACIFIC), ("18.2", QUINCY), ("19.2", TENTACLE), ("20.3", TENTACLE)];
    for (release, features) in releases {
        let Some(values) = crate::corpus::values(release, "CrushWrapper") else {
            skip::skip_part!("SHOAL_CORPUS names no folder with an archive of {release}");
            continue;
        };
        assert!(!values.is_empty());
        for (name, bytes) in values {
            let map: CrushMap = decode_exact(&bytes).unwrap_or_else(|e| panic!("{release} {name}: {e}"));
            assert!(map.to_vec(features) == bytes, "{release} {name} differs");
        }
    }
}

proptest! {
    #[test]
    fn damaged_bytes_never_panic(at in 0usize..600, byte: u8, cut in 0usize..600) {
        let mut bytes = sample().to_vec(TENTACLE);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode_exact::<CrushMap>(&bytes).map(|m| m.to_vec(TENTACLE));
        bytes.truncate(cut);
        let _ = decode_exact::<CrushMap>(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [&MAGIC.to_le_bytes()[..], &tail].concat();
        let _ = decode_exact::<CrushMap>(&bytes);
    }
}
