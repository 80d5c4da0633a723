//! Does shoal walk the maps of two stock clusters as their own daemons did?
//!
//! Every change is applied in turn from nothing. Each result must have the crc that stock wrote beside the change,
//! and equal each whole map that stock stored; every recorded value must be written again byte for byte.

use codec::{Encode, Features, Reader, decode_exact};
use std::fmt::Write;
use wire::features;
use wire::types::{MonMap, OsdMap, OsdMapIncremental, Release};

const PACIFIC: &[u8] = include_bytes!("recorded/osdmaps-16.2.15");
const TENTACLE: &[u8] = include_bytes!("recorded/osdmaps-20.2.4");

enum Item {
    Incremental(Vec<u8>),
    Full(Vec<u8>),
}

fn items(recorded: &[u8]) -> Vec<(u32, Item)> {
    let mut r = Reader::new(recorded);
    let count = r.u32().unwrap();
    let mut item = || {
        let (epoch, kind) = (r.u32().unwrap(), r.u8().unwrap());
        let bytes = r.blob().unwrap().to_vec();
        (epoch, if kind == 0 { Item::Incremental(bytes) } else { Item::Full(bytes) })
    };
    let out = (0..count).map(|_| item()).collect();
    r.expect_end().unwrap();
    out
}

/// Applies all changes; returns the last map.
fn walk(recorded: &[u8]) -> OsdMap {
    let mut map = OsdMap::default();
    let mut written_for = Features::NONE;
    for (epoch, item) in items(recorded) {
        match item {
            Item::Incremental(bytes) => {
                let inc: OsdMapIncremental = decode_exact(&bytes).unwrap();
                written_for = Features(inc.encode_features);
                assert_eq!(inc.epoch, epoch);
                assert!(inc.to_vec(written_for) == bytes, "the change to epoch {epoch} is written otherwise");
                map = map.apply_verified(&inc).unwrap_or_else(|e| panic!("epoch {epoch}: {e}"));
            }
            Item::Full(bytes) => {
                assert_eq!(decode_exact::<OsdMap>(&bytes).unwrap(), map, "epoch {epoch}");
                assert!(map.to_vec(written_for) == bytes, "the map of epoch {epoch} is written otherwise");
            }
        }
    }
    map
}

#[test]
fn a_pacific_clusters_maps_are_walked_alike() {
    let map = walk(PACIFIC);
    assert_eq!(map.require_osd_release, Release::PACIFIC);
    assert_eq!((map.epoch, map.osd_counts()), (45, (2, 1, 2)));
}

#[test]
fn a_tentacle_clusters_maps_are_walked_alike() {
    let map = walk(TENTACLE);
    assert_eq!(map.require_osd_release, Release::TENTACLE);
    assert_eq!(map.range_blocklist.len(), 1);
}

#[test]
fn the_features_of_an_epoch_are_those_that_stock_chose() {
    for recorded in [PACIFIC, TENTACLE] {
        let mut map = OsdMap::default();
        for (_, item) in items(recorded) {
            let Item::Incremental(bytes) = item else { continue };
            let inc: OsdMapIncremental = decode_exact(&bytes).unwrap();
            map = map.apply(&inc).unwrap();
            // What 16.2 calls significant lacks what Reef and Tentacle made so; its maps have neither.
            let ours = map.encoding_features();
            assert_eq!(ours, Features(inc.encode_features), "epoch {}", inc.epoch);
            assert_eq!(map.to_canonical().1, inc.full_crc, "epoch {}", inc.epoch);
        }
    }
}

/// A Pacific client of a Tentacle cluster: what it gets means the same, save what it cannot know.
#[test]
fn an_older_peer_walks_its_own_bytes() {
    let (mut ours, mut theirs) = (OsdMap::default(), OsdMap::default());
    for (epoch, item) in items(TENTACLE) {
        match item {
            Item::Incremental(bytes) => {
                let inc: OsdMapIncremental = decode_exact(&bytes).unwrap();
                let for_them = inc.to_vec_for(features::QUINCY).unwrap();
                ours = ours.apply(&inc).unwrap();
                theirs = theirs.apply(&decode_exact(&for_them).unwrap()).unwrap();
            }
            Item::Full(_) => {
                let whole = ours.to_vec(ours.features_for(features::QUINCY));
                assert_eq!(decode_exact::<OsdMap>(&whole).unwrap(), theirs, "epoch {epoch}");
            }
        }
    }
}

#[test]
fn a_map_with_a_flipped_bit_is_refused() {
    let (_, last) = items(TENTACLE).pop().unwrap();
    let (Item::Full(mut bytes) | Item::Incremental(mut bytes)) = last;
    let end = bytes.len() - 60;
    bytes[end] ^= 1;
    assert!(decode_exact::<OsdMap>(&bytes).is_err());
}

#[test]
fn a_change_that_does_not_fit_leaves_the_map_alone() {
    let map = walk(PACIFIC);
    let mut inc = OsdMapIncremental::after(&map, map.modified);
    inc.new_up_thru.insert(99, 1);
    let mut why = String::new();
    write!(why, "{}", map.apply(&inc).unwrap_err()).unwrap();
    assert_eq!(why, "osd.99 is beyond max_osd");
    inc.new_up_thru.clear();
    inc.epoch += 1;
    assert!(map.apply(&inc).is_err());
}

#[test]
fn the_change_that_a_monitor_makes_verifies() {
    let map = walk(TENTACLE);
    let mut inc = OsdMapIncremental::after(&map, map.modified);
    inc.new_weight.insert(0, 0);
    let next = inc.seal(&map).unwrap();
    let sent: OsdMapIncremental = decode_exact(&inc.to_vec(Features(inc.encode_features))).unwrap();
    assert_eq!(sent, inc);
    assert_eq!(map.apply_verified(&sent).unwrap(), next);
    let mut wrong = sent;
    wrong.full_crc ^= 1;
    assert!(map.apply_verified(&wrong).is_err());
}

#[test]
fn monitor_maps_are_read_and_the_newest_written_alike() {
    let newest = include_bytes!("recorded/monmap-20.2.4");
    let map: MonMap = decode_exact(newest).unwrap();
    assert_eq!(map.to_vec(features::TENTACLE), newest);
    assert_eq!(map.by_rank().map(|(rank, mon)| (rank, mon.name.as_str())).collect::<Vec<_>>(), [(0, "a")]);
    let older: MonMap = decode_exact(include_bytes!("recorded/monmap-16.2.15")).unwrap();
    assert_eq!(older.min_mon_release, Release::PACIFIC);
    assert_eq!(decode_exact::<MonMap>(&older.to_vec(features::PACIFIC)).unwrap(), older);
}
