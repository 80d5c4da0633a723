//! Edits of CRUSH maps compared with `crushtool`, number by number.
//!
//! Random sequences of edits; after each, crushtool's map and ours are compared as values (a rule's sizes aside,
//! which older tools still fill in). `--ignored` runs 3,600 edits.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the maps go to stock's tools as files"
)]

mod support;

use codec::{Encode, Features, decode_exact};
use machine::Random;
use placement::crush::edit::{self, Location, Mode, NewRule};
use support::{Scratch, Stock, text};
use wire::types::CrushMap;
use wire::types::crush::{Algorithm, ChooseArg, Rule};

const CLASSES: [&str; 3] = ["hdd", "ssd", "nvme"];

/// A change, as both sides understand it.
#[derive(Debug)]
enum Edit {
    Add { osd: i32, weight: f32, at: Vec<(&'static str, String)> },
    Update { osd: i32, weight: f32, at: Vec<(&'static str, String)> },
    Remove { name: String },
    Reweight { name: String, weight: f32 },
    AddBucket { name: String, kind: &'static str },
    Move { name: String, at: Vec<(&'static str, String)> },
    ReweightAll,
    SetSubtreeClass { bucket: String, class: &'static str },
    AddRule { name: String, root: String, kind: &'static str, class: String, mode: &'static str },
    RemoveRule { name: String },
}

impl Edit {
    fn random(random: &mut Random, map: &CrushMap) -> Edit {
        let osd = random.below(12) as i32;
        let weight = random.below(400) as f32 / 16.0;
        let buckets: Vec<String> = map
            .item_names
            .iter()
            .filter(|(id, n)| **id < 0 && !n.contains('~'))
            .map(|(_, n)| n.clone())
            .collect();
        let any = buckets[random.below(buckets.len() as u64) as usize].clone();
        let at = location(random);
        match random.below(14) {
            0..3 => Edit::Add { osd, weight, at },
            3 => Edit::Update { osd, weight, at },
            4 => Edit::Remove { name: format!("osd.{osd}") },
            5 => Edit::Remove { name: any },
            6 => Edit::Reweight { name: format!("osd.{osd}"), weight },
            7 => Edit::AddBucket { name: format!("host{}", random.below(5)), kind: "host" },
            8 => Edit::Move { name: format!("host{}", random.below(5)), at },
            9 => Edit::ReweightAll,
            10 | 11 => Edit::SetSubtreeClass { bucket: any, class: CLASSES[random.below(3) as usize] },
            12 => Edit::AddRule {
                name: format!("rule{}", random.below(3)),
                root: any,
                kind: ["osd", "host", "rack"][random.below(3) as usize],
                class: [&[""], &CLASSES[..]].concat()[random.below(4) as usize].to_owned(),
                mode: ["firstn", "indep"][random.below(2) as usize],
            },
            _ => Edit::RemoveRule { name: format!("rule{}", random.below(3)) },
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut add = |parts: &[&str]| args.extend(parts.iter().map(|p| (*p).to_owned()));
        let at = match self {
            Edit::Add { osd, weight, at } => {
                add(&["--add-item", &osd.to_string(), &weight.to_string(), &format!("osd.{osd}")]);
                at.as_slice()
            }
            Edit::Update { osd, weight, at } => {
                add(&["--update-item", &osd.to_string(), &weight.to_string(), &format!("osd.{osd}")]);
                at
            }
            Edit::Remove { name } => {
                add(&["--remove-item", name]);
                &[]
            }
            Edit::Reweight { name, weight } => {
                add(&["--reweight-item", name, &weight.to_string()]);
                &[]
            }
            Edit::AddBucket { name, kind } => {
                add(&["--add-bucket", name, kind]);
                &[]
            }
            Edit::Move { name, at } => {
                add(&["--move", name]);
                at
            }
            Edit::ReweightAll => {
                add(&["--reweight"]);
                &[]
            }
            Edit::SetSubtreeClass { bucket, class } => {
                add(&["--rebuild-class-roots", "--set-subtree-class", bucket, class]);
                &[]
            }
            Edit::AddRule { name, root, kind, class, mode } => {
                add(&["--create-simple-rule", name, root, kind, mode]);
                if !class.is_empty() {
                    add(&["--device-class", class]);
                }
                &[]
            }
            Edit::RemoveRule { name } => {
                add(&["--remove-rule", name]);
                &[]
            }
        };
        for (kind, name) in at {
            args.extend(["--loc".to_owned(), (*kind).to_owned(), name.clone()]);
        }
        args
    }

    /// Ours; an error leaves the map as it was.
    fn apply(&self, map: &mut CrushMap) -> Result<(), edit::EditError> {
        let before = map.clone();
        let done = self.try_apply(map);
        if done.is_err() {
            *map = before;
        }
        done
    }

    fn try_apply(&self, map: &mut CrushMap) -> Result<(), edit::EditError> {
        let missing = || edit::EditError { kind: edit::Refusal::NotFound, message: String::new() };
        let id = |map: &CrushMap, name: &str| edit::item_id(map, name).ok_or_else(missing);
        match self {
            Edit::Add { osd, weight, at } => {
                edit::insert(map, *osd, edit::fixed_point(*weight)?, &format!("osd.{osd}"), &loc(at), true)
            }
            Edit::Update { osd, weight, at } => {
                edit::update(map, *osd, edit::fixed_point(*weight)?, &format!("osd.{osd}"), &loc(at))
                    .map(drop)
            }
            Edit::Remove { name } => {
                let item = id(map, name)?;
                edit::remove(map, item, false)
            }
            Edit::Reweight { name, weight } => {
                let item = id(map, name)?;
                edit::reweight(map, item, edit::fixed_point(*weight)?, true).map(drop)
            }
            Edit::AddBucket { name, kind } => match edit::item_id(map, name) {
                Some(_) => Err(missing()),
                None => {
                    edit::add_bucket(map, name, edit::type_id(map, kind).expect("a type") as u16).map(drop)
                }
            },
            Edit::Move { name, at } => {
                let bucket = id(map, name)?;
                match edit::is_at(map, bucket, &loc(at)) {
                    Some(_) => Err(missing()), // the tool says that there is nothing to do
                    None => edit::move_bucket(map, bucket, &loc(at)),
                }
            }
            Edit::ReweightAll => edit::reweight_all(map),
            Edit::SetSubtreeClass { bucket, class } => {
                edit::rebuild_shadow_trees(map)?;
                edit::set_subtree_class(map, bucket, class)
            }
            Edit::AddRule { name, root, kind, class, mode } => {
                let rule =
                    NewRule { name, root, failure_domain: kind, failure_domains: 0, device_class: class };
                edit::add_rule(map, rule, mode.parse::<Mode>()?, Rule::REPLICATED).map(drop)
            }
            Edit::RemoveRule { name } => {
                let rule = edit::rule_id(map, name).ok_or_else(missing)?;
                edit::remove_rule(map, rule)
            }
        }
    }
}

fn location(random: &mut Random) -> Vec<(&'static str, String)> {
    let mut at = Vec::new();
    if random.below(5) > 0 {
        at.push(("host", format!("host{}", random.below(5))));
    }
    if random.below(2) > 0 {
        at.push(("rack", format!("rack{}", random.below(3))));
    }
    if random.below(5) > 0 || at.is_empty() {
        at.push(("root", "default".to_owned()));
    }
    at
}

fn loc(at: &[(&'static str, String)]) -> Location {
    at.iter().map(|(kind, name)| ((*kind).to_owned(), name.clone())).collect()
}

/// Without two differences: older tools write the sizes that a rule is for; and the tool, unlike a monitor, counts devices
/// anew.
fn comparable(mut map: CrushMap) -> CrushMap {
    let devices = map.buckets.iter().flatten().flat_map(|b| &b.items).max().map_or(0, |d| d + 1);
    map.max_devices = devices.max(0);
    for rule in map.rules.iter_mut().flatten() {
        (rule.min_size, rule.max_size) = (1, 100);
    }
    map
}

/// Of one position: with two, stock writes past the end of its memory.
fn with_weight_set(mut map: CrushMap) -> CrushMap {
    let args = map.buckets.iter().enumerate().filter_map(|(index, b)| {
        let b = b.as_ref().filter(|b| b.algorithm() == Algorithm::Straw2)?;
        let set = vec![b.items.iter().map(|_| 0x8000).collect()];
        Some((index as u32, ChooseArg { weight_sets: set, ids: Vec::new() }))
    });
    map.choose_args.insert(CrushMap::DEFAULT_CHOOSE_ARGS, args.collect());
    map
}

fn run(seed: u64, steps: usize) -> (usize, usize) {
    let mut random = Random::from_number(seed);
    let scratch = Scratch::new(&format!("edits-{seed}"));
    let (input, output) = (scratch.path("in"), scratch.path("out"));
    let mut map = edit::new_map("host");
    let (mut done, mut refused) = (0, 0);
    for step in 0..steps {
        if seed.is_multiple_of(3) && step == steps / 3 {
            map = with_weight_set(map);
        }
        let edit = Edit::random(&mut random, &map);
        scratch.write("in", &map.to_vec(Features::ALL));
        let _ = std::fs::remove_file(&output);
        let mut args = vec!["-i".to_owned(), input.clone(), "-o".to_owned(), output.clone()];
        args.extend(edit.arguments());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let theirs = Stock::Path.tool("crushtool", &args);
        let accepted = theirs.status.success() && std::fs::exists(&output).unwrap();
        let before = map.clone();
        let ours = edit.apply(&mut map);
        let said = String::from_utf8_lossy(&theirs.stderr);
        let context = || format!("seed {seed} step {step}: {edit:?}: {ours:?}, theirs: {said:.300}");
        assert_eq!(ours.is_ok(), accepted, "{}\nbefore {before:#?}", context());
        if accepted {
            let their_map: CrushMap = decode_exact(&std::fs::read(&output).unwrap()).unwrap();
            assert!(
                comparable(their_map.clone()) == comparable(map.clone()),
                "{}\nbefore {before:#?}\ntheirs {their_map:#?}\nours {map:#?}",
                context()
            );
            done += 1;
        } else {
            refused += 1;
        }
    }
    compare_tree(&map, &scratch);
    (done, refused)
}

/// The listing that `--tree` prints, shadow trees included.
fn compare_tree(map: &CrushMap, scratch: &Scratch) {
    let file = scratch.write("in", &map.to_vec(Features::ALL));
    let printed = text("crushtool --tree", &Stock::Path.tool("crushtool", &["-i", &file, "--tree"]));
    let theirs: Vec<(i32, String)> = printed
        .lines()
        .skip(1)
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words.iter().skip(2).find(|w| w.parse::<f64>().is_err()).copied();
            (words[0].parse().expect("a number"), name.unwrap_or_default().to_owned())
        })
        .collect();
    let ours: Vec<i32> = edit::tree(map, true, |_| true).iter().map(|item| item.id).collect();
    assert_eq!(theirs.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ours, "{printed}");
}

fn run_all(seeds: std::ops::Range<u64>, steps: usize) {
    let (mut done, mut refused) = (0, 0);
    for seed in seeds {
        let (done_of_seed, refused_of_seed) = run(seed, steps);
        (done, refused) = (done + done_of_seed, refused + refused_of_seed);
    }
    println!("{done} edits are equal, {refused} refused by both");
    assert!(done > refused / 2, "too few edits did anything");
}

#[test]
fn sample_of_edits_equals_crushtools() {
    needs!(Stock::Path, "crushtool");
    run_all(0..6, 30);
}

#[test]
#[ignore = "long: 3,600 edits"]
fn all_edits_equal_crushtools() {
    needs!(Stock::Path, "crushtool");
    run_all(100..160, 60);
}

/// A new cluster's map is the one that `osdmaptool --createsimple` makes, but for its devices.
#[test]
fn new_map_equals_stock() {
    needs!(Stock::Path, "osdmaptool");
    let scratch = Scratch::new("new-map");
    let (osd_map, crush) = (scratch.path("osdmap"), scratch.path("crush"));
    let osdmaptool = |args: &[&str]| text("osdmaptool", &Stock::Path.tool("osdmaptool", args));
    osdmaptool(&["--createsimple", "3", &osd_map, "--clobber"]);
    osdmaptool(&[&osd_map, "--export-crush", &crush]);
    let theirs: CrushMap = decode_exact(&std::fs::read(&crush).unwrap()).unwrap();

    let mut ours = edit::new_map("host");
    let at = [("host", "localhost"), ("rack", "localrack"), ("root", "default")];
    let at: Location = at.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    for osd in 0..3 {
        edit::insert(&mut ours, osd, 0x10000, &format!("osd.{osd}"), &at, true).unwrap();
    }
    assert_eq!(comparable(theirs), comparable(ours));
}
