//! Maps that shoal writes are read by Ceph's own tools, and the tools' maps by shoal.
//!
//! Needs `osdmaptool` and `monmaptool` on the `PATH`; a test without its tool is skipped.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the maps go to stock's tools as files"
)]

use codec::{Encode, Features, decode_exact};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use wire::features;
use wire::types::osd_map::{MapFlags, StretchMode};
use wire::types::{
    CrushMap, EntityAddr, EntityAddrVec, IntervalSet, MonFeatures, MonInfo, MonMap, OsdMap,
    OsdMapIncremental, OsdState, PgId, PgPool, PoolFlags, PoolKind, PoolOption, PoolOptionValue, Release,
    UTime,
};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("shoal-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Output of a tool on both streams.
fn run(tool: &str, args: &[&str]) -> String {
    let out = Command::new(tool).args(args).output().unwrap_or_else(|error| panic!("{tool}: {error}"));
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{tool} {args:?}: {text}");
    text
}

fn addr(port: u16) -> EntityAddrVec {
    let socket = format!("192.0.2.7:{port}").parse().unwrap();
    EntityAddrVec(vec![EntityAddr::msgr2(socket, 17), EntityAddr::msgr2(socket, 17).as_legacy()])
}

/// A map that `osdmaptool --createsimple` made.
fn simple_map(scratch: &Scratch) -> OsdMap {
    let file = scratch.file("simple");
    run("osdmaptool", &["--createsimple", "3", &file, "--with-default-pool", "--clobber"]);
    let bytes = fs::read(&file).unwrap();
    let map: OsdMap = decode_exact(&bytes).unwrap();
    assert_eq!((map.max_osd(), map.pools.len()), (3, 1));
    let again = map.to_vec(features::PACIFIC);
    let reread: OsdMap = decode_exact(&again).unwrap();
    assert_eq!(reread, map);
    map
}

#[test]
fn osdmaptool_prints_a_map_that_uses_everything() {
    skip::need_program!("osdmaptool");
    let scratch = Scratch::new("osdmaptool");
    let map = simple_map(&scratch);
    let mut inc = OsdMapIncremental::after(&map, UTime { sec: 1_700_000_000, nsec: 5 });
    for osd in 0..3 {
        inc.new_up_client.insert(osd, addr(6800 + 4 * osd as u16));
        inc.new_up_cluster.insert(osd, addr(6801 + 4 * osd as u16));
        inc.new_heartbeat_back_up.insert(osd, addr(6802 + 4 * osd as u16));
        inc.new_heartbeat_front_up.insert(osd, addr(6803 + 4 * osd as u16));
        inc.new_weight.insert(osd, OsdMap::WEIGHT_IN);
    }
    let mut pool = map.pools.values().next().unwrap().clone();
    pool.size = 2;
    pool.flags.set(PoolFlags::NODELETE, true);
    pool.quota_max_objects = 12345;
    pool.options.0.insert(PoolOption::COMPRESSION_MODE, PoolOptionValue::Text("aggressive".into()));
    pool.options.0.insert(PoolOption::TARGET_SIZE_RATIO, PoolOptionValue::Real(0.25));
    pool.applications.insert("rbd".into(), Default::default());
    inc.new_pools.insert(7, pool);
    inc.new_pool_names.insert(7, "shoal-pool".into());
    inc.new_pool_max = Some(7);
    let pg = |seed| PgId { pool: 7, seed };
    inc.new_pg_temp.insert(pg(0), vec![2, 1]);
    inc.new_primary_temp.insert(pg(0), 1);
    inc.new_pg_upmap.insert(pg(1), vec![1, 0]);
    inc.new_pg_upmap_items.insert(pg(2), vec![(0, 2)]);
    inc.new_primary_affinity.insert(1, 0x8000);
    inc.new_flags = Some(map.flags.0 | MapFlags::NOOUT | MapFlags::NOSCRUB);
    inc.new_blocklist.insert(addr(0).0[0], UTime { sec: 1_800_000_000, nsec: 0 });
    inc.new_removed_snaps.insert(7, IntervalSet::of(3, 4));
    inc.new_erasure_code_profiles.insert("p".into(), [("k".into(), "2".into())].into());
    inc.new_require_osd_release = Some(Release::PACIFIC);
    inc.new_require_min_compat_client = Some(Release::LUMINOUS);
    (inc.new_nearfull_ratio, inc.new_backfillfull_ratio, inc.new_full_ratio) =
        (Some(0.85), Some(0.9), Some(0.95));
    let map = inc.seal(&map).unwrap();

    let file = scratch.file("map");
    fs::write(&file, map.to_canonical().0).unwrap();
    let printed = run("osdmaptool", &[&file, "--print"]);
    for want in [
        "epoch 2",
        "flags noout,noscrub",
        "full_ratio 0.95",
        "backfillfull_ratio 0.9",
        "nearfull_ratio 0.85",
        "require_min_compat_client luminous",
        "require_osd_release pacific",
        "pool 7 'shoal-pool' replicated size 2",
        "flags hashpspool,nodelete",
        "max_objects 12345",
        "compression_mode aggressive",
        "target_size_ratio 0.25",
        "application rbd",
        "removed_snaps_queue [3~4]",
        "osd.1 up   in  weight 1 primary_affinity 0.5",
        "[v2:192.0.2.7:6804/17,v1:192.0.2.7:6804/17] [v2:192.0.2.7:6805/17,v1:192.0.2.7:6805/17] exists,up",
        "pg_upmap 7.1 [1,0]",
        "pg_upmap_items 7.2 [0,2]",
        "pg_temp 7.0 [2,1]",
        "primary_temp 7.0 1",
        "blocklist v2:192.0.2.7:0/17 expires 2027-01-15",
    ] {
        assert!(printed.contains(want), "no {want:?} in:\n{printed}");
    }
    let tree = run("osdmaptool", &[&file, "--tree=plain"]);
    assert!(tree.contains("osd.2") && tree.contains("localhost"), "{tree}");
    // What the tool itself makes of our CRUSH map is what we have.
    let crush_file = scratch.file("crush");
    run("osdmaptool", &[&file, "--export-crush", &crush_file]);
    assert_eq!(decode_exact::<CrushMap>(&fs::read(&crush_file).unwrap()).unwrap(), *map.crush);
}

/// Stretch mode, blocked ranges and Crimson raise the version of the daemons' part; 16.2 knows the first of them.
#[test]
fn osdmaptool_reads_a_stretched_map() {
    skip::need_program!("osdmaptool");
    let scratch = Scratch::new("stretched");
    let mut map = simple_map(&scratch);
    map.stretch = StretchMode { enabled: true, bucket_count: 2, degraded: 0, recovering: 0, bucket: 8 };
    let file = scratch.file("map");
    fs::write(&file, map.to_canonical().0).unwrap();
    let printed = run("osdmaptool", &[&file, "--print"]);
    assert!(printed.contains("stretch_mode_enabled true"), "{printed}");
}

/// The tool changes a map that we wrote, and writes it: the change is there and nothing else is.
#[test]
fn shoal_reads_what_osdmaptool_makes_of_its_map() {
    skip::need_program!("osdmaptool");
    let scratch = Scratch::new("change");
    let map = simple_map(&scratch);
    let file = scratch.file("map");
    fs::write(&file, map.to_canonical().0).unwrap();
    run("osdmaptool", &[&file, "--adjust-crush-weight", "1:2.5", "--save"]);
    let mut changed: OsdMap = decode_exact(&fs::read(&file).unwrap()).unwrap();
    let weight_of = |map: &OsdMap| {
        let hosts = map.crush.buckets.iter().flatten();
        let places =
            hosts.flat_map(|b| b.items.iter().enumerate().map(move |(at, item)| (*item, b.item_weight(at))));
        places.filter(|(item, _)| *item == 1).map(|(_, weight)| weight).next()
    };
    assert_eq!(weight_of(&changed), Some(0x28000));
    assert!(changed.epoch > map.epoch);
    changed.crush = map.crush.clone();
    (changed.epoch, changed.modified) = (map.epoch, map.modified);
    assert_eq!(changed, map);
}

#[test]
fn a_map_from_nothing_is_read() {
    skip::need_program!("osdmaptool");
    let scratch = Scratch::new("from-nothing");
    let mut map = OsdMap { epoch: 1, crush_version: 1, ..OsdMap::default() };
    map.crush = Arc::new(CrushMap::default());
    map.osds.resize_with(1, Default::default);
    map.osds[0].state = OsdState(OsdState::EXISTS | OsdState::NEW);
    map.require_osd_release = Release::PACIFIC;
    let pool = PgPool {
        kind: PoolKind::REPLICATED,
        size: 1,
        min_size: 1,
        pg_num: 8,
        pgp_num: 8,
        ..PgPool::default()
    };
    map.pools.insert(1, pool);
    map.pool_names.insert(1, "one".into());
    let file = scratch.file("map");
    fs::write(&file, map.to_canonical().0).unwrap();
    let printed = run("osdmaptool", &[&file, "--print"]);
    assert!(printed.contains("pool 1 'one' replicated size 1 min_size 1"), "{printed}");
    assert!(printed.contains("osd.0 down out weight 0"), "{printed}");
}

#[test]
fn monmaptool_prints_our_monitors_and_we_read_its() {
    skip::need_program!("monmaptool");
    let scratch = Scratch::new("monmaptool");
    let file = scratch.file("monmap");
    let fsid = "8d3cfa2b-4f0a-4a13-9d4b-1f2e3d4c5b6a";
    let created =
        ["--create", "--clobber", "--fsid", fsid, "--addv", "x", "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]"];
    run("monmaptool", &[created.as_slice(), &[&file]].concat());
    let theirs: MonMap = decode_exact(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(theirs.fsid.to_string(), fsid);
    assert_eq!(theirs.mons["x"].addrs.to_string(), "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]");

    let mut ours = MonMap {
        fsid: theirs.fsid,
        epoch: 3,
        persistent_features: MonFeatures::persistent_of(Release::PACIFIC),
        min_mon_release: Release::PACIFIC,
        strategy: 1,
        ..MonMap::default()
    };
    for (name, port) in [("a", 3300), ("b", 3301)] {
        let info = MonInfo { name: name.into(), addrs: addr(port), ..MonInfo::default() };
        ours.mons.insert(name.into(), info);
        ours.ranks.push(name.into());
    }
    write(&file, &ours, features::PACIFIC);
    let printed = run("monmaptool", &["--print", &file]);
    for want in [
        "epoch 3",
        fsid,
        "min_mon_release 16 (pacific)",
        "0: [v2:192.0.2.7:3300/17,v1:192.0.2.7:3300/17] mon.a",
        "1: [v2:192.0.2.7:3301/17,v1:192.0.2.7:3301/17] mon.b",
    ] {
        assert!(printed.contains(want), "no {want:?} in:\n{printed}");
    }
    let listed = run("monmaptool", &["--feature-list", "--print", &file]);
    assert!(listed.contains("elector-pinging") && listed.contains("pacific"), "{listed}");
}

fn write(file: impl AsRef<Path>, value: &impl Encode, features: Features) {
    fs::write(file, value.to_vec(features)).unwrap();
}
