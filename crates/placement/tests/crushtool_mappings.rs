//! CRUSH mappings compared with `crushtool --test`: random maps, rules, weights and inputs.
//!
//! The gate compares a sample. `cargo test -p placement --test crushtool_mappings -- --ignored` compares 100,000 mappings
//! of 50 maps. Release 16.2 has no multi-step-retry rules: these are compared with the 20.2 in `SHOAL_CEPH20`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the maps go to stock's tools as files"
)]

mod support;

use codec::{Encode, Features};
use machine::Random;
use placement::crush::{Workspace, map_rule};
use support::random_map::{Ingredients, Sample, random_map};
use support::{Scratch, Stock, text};

/// Compare `inputs` inputs for each rule of a map and a random size; returns how many were compared.
fn compare(stock: Stock, seed: u64, inputs: u32, with: Ingredients) -> usize {
    let mut random = Random::from_number(seed);
    let Sample { map, weights } = random_map(&mut random, with);
    let root = stock.root();
    let scratch = Scratch::of(stock, &format!("mappings-{}-{inputs}-{seed}", with.msr_rules));
    let file = scratch.write("map", &map.to_vec(Features::ALL));
    let file = file.strip_prefix(&root).expect("the scratch folder is under the root");

    let is_in = |device: &i32| weights.get(*device as usize).is_some_and(|w| *w > 0);
    if !map.buckets.iter().flatten().any(|b| b.items.iter().any(is_in)) {
        return 0; // then crushtool prints nothing
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
    let theirs = text("crushtool --test", &stock.tool("crushtool", &args));

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
    compared
}

fn compare_all(stock: Stock, maps: std::ops::Range<u64>, inputs: u32) {
    let msr_rules = stock == Stock::Tentacle;
    let compared: usize = maps
        .map(|seed| compare(stock, seed, inputs, Ingredients { choose_args: seed % 2 == 0, msr_rules }))
        .sum();
    println!("{compared} mappings are equal");
    assert!(compared > 0);
}

#[test]
fn sample_of_mappings_equals_crushtools() {
    needs!(Stock::Path, "crushtool");
    compare_all(Stock::Path, 1000..1008, 200);
}

#[test]
fn sample_of_multi_step_retry_mappings_equals_crushtools() {
    needs!(Stock::Tentacle, "crushtool");
    compare_all(Stock::Tentacle, 1000..1008, 200);
}

#[test]
#[ignore = "long: 100,000 mappings"]
fn all_mappings_equal_crushtools() {
    needs!(Stock::Path, "crushtool");
    compare_all(Stock::Path, 0..50, 700);
}

#[test]
#[ignore = "long: 100,000 mappings"]
fn all_multi_step_retry_mappings_equal_crushtools() {
    needs!(Stock::Tentacle, "crushtool");
    compare_all(Stock::Tentacle, 0..50, 700);
}
