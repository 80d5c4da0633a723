//! Do our mappings equal `crushtool --test`'s?
//!
//! A sample runs always; `cargo test -p placement --test crushtool_mappings -- --ignored` runs 100,000 mappings over
//! 50 maps, and `SHOAL_CEPH_ROOT=FOLDER` with a release that knows them (20.2) also the multi-step-retry rules.

mod support;

use codec::{Encode, Features};
use machine::Random;
use placement::crush::{Workspace, map_rule};
use support::random_map::{Ingredients, Sample, random_map};
use support::{Scratch, text, tool};

/// Compare `inputs` inputs for each rule of a map and a random size; returns how many were compared.
fn compare(seed: u64, inputs: u32, with: Ingredients) -> Option<usize> {
    let mut random = Random::from_number(seed);
    let Sample { map, weights } = random_map(&mut random, with);
    let root = std::env::var("SHOAL_CEPH_ROOT").unwrap_or_default();
    let scratch = Scratch::under(&root, &format!("mappings-{}-{seed}", with.msr_rules));
    let file = scratch.write("map", &map.to_vec(Features::ALL));
    let file = file.strip_prefix(&root).expect("the scratch folder is under the root");

    let is_in = |device: &i32| weights.get(*device as usize).is_some_and(|w| *w > 0);
    if !map.buckets.iter().flatten().any(|b| b.items.iter().any(is_in)) {
        return Some(0); // then crushtool prints nothing
    }
    let size = 1 + random.below(8) as usize;
    let (size_text, inputs_text) = (size.to_string(), (inputs - 1).to_string());
    let mut args: Vec<String> =
        ["-i", file, "--test", "--show-mappings", "--num-rep", &size_text, "--min-x", "0"]
            .map(str::to_owned)
            .into();
    args.extend(["--max-x".to_owned(), inputs_text]);
    for (device, weight) in weights.iter().enumerate() {
        let weight = f64::from(*weight) / 65536.0;
        args.extend(["--weight".to_owned(), device.to_string(), format!("{weight:.10}")]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let theirs = text("crushtool --test", &tool("crushtool", &args)?);

    let mut compared = 0;
    let mut workspace = Workspace::default();
    let mut theirs = theirs.lines().filter(|l| l.starts_with("CRUSH rule"));
    let choose_args = map.choose_args_for(0);
    for rule in 0..map.rules.len() as u32 {
        for x in 0..inputs {
            let ours = map_rule(&map, rule, x, size, &weights, choose_args, &mut workspace);
            let list: Vec<String> = ours.iter().map(i32::to_string).collect();
            let line = format!("CRUSH rule {rule} x {x} [{}]", list.join(","));
            assert_eq!(theirs.next(), Some(&*line), "seed {seed}, size {size}, rule {:?}", map.rule(rule));
            compared += 1;
        }
    }
    assert_eq!(theirs.next(), None);
    Some(compared)
}

fn compare_all(maps: std::ops::Range<u64>, inputs: u32, msr_rules: bool) {
    let mut compared = 0;
    for seed in maps {
        match compare(seed, inputs, Ingredients { choose_args: seed % 2 == 0, msr_rules }) {
            Some(n) => compared += n,
            None => return,
        }
    }
    println!("{compared} mappings are equal");
}

#[test]
fn a_sample_of_mappings_is_equal() {
    compare_all(1000..1008, 200, false);
}

#[test]
#[ignore = "long: 100,000 mappings"]
fn all_mappings_are_equal() {
    compare_all(0..50, 700, false);
}

#[test]
#[ignore = "needs a 20.2 crushtool in SHOAL_CEPH_ROOT"]
fn mappings_of_multi_step_retry_rules_are_equal() {
    assert!(std::env::var_os("SHOAL_CEPH_ROOT").is_some(), "set SHOAL_CEPH_ROOT");
    compare_all(0..50, 700, true);
}
