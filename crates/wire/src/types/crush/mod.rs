//! The CRUSH map: the cluster's hierarchy of buckets, the rules that pick devices from it, and their names.
//!
//! Ceph's `CrushWrapper` and `crush_map` (`src/crush/crush.h`) as one value. Weights are 16.16 fixed point
//! everywhere: `0x10000` is 1.0. Item numbers are devices when `>= 0` and buckets when negative. The algorithms
//! that walk the map are in the crate `placement`.

mod codec;

use std::collections::BTreeMap;

/// The whole map. Invariants that [`codec::Decode`] establishes and every edit keeps: bucket `-1 - i` is at
/// `buckets[i]`, a bucket's weights are as many as its items, and `max_devices` exceeds every device in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CrushMap {
    /// Bucket `id` is at index `-1 - id`; a hole is a bucket that was removed, or room that was never used.
    pub buckets: Vec<Option<Bucket>>,
    /// A rule's number is its index.
    pub rules: Vec<Option<Rule>>,
    /// One more than the highest device that the map has named.
    pub max_devices: i32,
    /// Names of bucket types: 0 is the device itself.
    pub type_names: BTreeMap<i32, String>,
    /// Names of devices and buckets. Shadow buckets are named `BUCKET~CLASS`.
    pub item_names: BTreeMap<i32, String>,
    pub rule_names: BTreeMap<i32, String>,
    pub tunables: Tunables,
    /// Device class of a device (`class_map`); for a shadow bucket the class it stands for.
    pub item_classes: BTreeMap<i32, i32>,
    pub class_names: BTreeMap<i32, String>,
    /// Bucket to class to the shadow bucket that holds only that class (`class_bucket`).
    pub shadow_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Weight sets: for a pool (its number) or for all pools ([`CrushMap::DEFAULT_CHOOSE_ARGS`]), by bucket index.
    pub choose_args: BTreeMap<i64, BTreeMap<u32, ChooseArg>>,
}

impl CrushMap {
    /// The key in `choose_args` that serves pools without a set of their own (the "compat" weight set).
    pub const DEFAULT_CHOOSE_ARGS: i64 = -1;

    /// The bucket with this (negative) number.
    #[inline]
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(Self::bucket_index(id)?)?.as_ref()
    }

    #[inline]
    pub fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(Self::bucket_index(id)?)?.as_mut()
    }

    /// Where bucket `id` is kept; `None` for a device.
    #[inline]
    pub fn bucket_index(id: i32) -> Option<usize> {
        usize::try_from(-1 - i64::from(id)).ok()
    }

    pub fn rule(&self, id: u32) -> Option<&Rule> {
        self.rules.get(id as usize)?.as_ref()
    }

    /// The weight set for a pool: its own, else the default one.
    pub fn choose_args_for(&self, pool: i64) -> Option<&BTreeMap<u32, ChooseArg>> {
        self.choose_args.get(&pool).or_else(|| self.choose_args.get(&Self::DEFAULT_CHOOSE_ARGS))
    }
}

/// An inner node of the hierarchy (`crush_bucket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Negative.
    pub id: i32,
    /// Its type's number in [`CrushMap::type_names`]; never 0.
    pub kind: u16,
    /// Hash function; 0, rjenkins1, is the only one.
    pub hash: u8,
    /// The sum of its items' weights.
    pub weight: u32,
    pub items: Vec<i32>,
    pub choice: Choice,
}

impl Bucket {
    /// The weight that the bucket gives to the item at `position`; 0 beyond its end.
    pub fn item_weight(&self, position: usize) -> u32 {
        let weight = match &self.choice {
            Choice::Uniform { item_weight } => (position < self.items.len()).then_some(item_weight),
            Choice::Tree { node_weights } => node_weights.get(tree_node(position)),
            Choice::List { item_weights, .. }
            | Choice::Straw { item_weights, .. }
            | Choice::Straw2 { item_weights } => item_weights.get(position),
        };
        weight.copied().unwrap_or(0)
    }

    pub fn algorithm(&self) -> Algorithm {
        match self.choice {
            Choice::Uniform { .. } => Algorithm::Uniform,
            Choice::List { .. } => Algorithm::List,
            Choice::Tree { .. } => Algorithm::Tree,
            Choice::Straw { .. } => Algorithm::Straw,
            Choice::Straw2 { .. } => Algorithm::Straw2,
        }
    }
}

/// The node of a tree bucket that is the leaf at `position`: leaves are the odd numbers.
#[inline]
pub const fn tree_node(position: usize) -> usize {
    2 * position + 1
}

/// Algorithm by which a bucket picks an item, with its parameters. Each list has one entry per item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Uniform {
        /// One weight for all.
        item_weight: u32,
    },
    List {
        item_weights: Vec<u32>,
        /// `sum_weights[i]` is the sum of weights `0..=i`.
        sum_weights: Vec<u32>,
    },
    Tree {
        /// A binary tree in order: odd nodes are leaves ([`tree_node`]), an inner node is the sum of its two.
        node_weights: Vec<u32>,
    },
    Straw {
        item_weights: Vec<u32>,
        /// The scale of each item's straw.
        straws: Vec<u32>,
    },
    Straw2 {
        item_weights: Vec<u32>,
    },
}

/// The numbers of the bucket algorithms (`CRUSH_BUCKET_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    Uniform = 1,
    List = 2,
    Tree = 3,
    Straw = 4,
    Straw2 = 5,
}

impl Algorithm {
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Uniform, Algorithm::List, Algorithm::Tree, Algorithm::Straw, Algorithm::Straw2];

    pub fn from_number(n: u32) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| *a as u32 == n)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Uniform => "uniform",
            Algorithm::List => "list",
            Algorithm::Tree => "tree",
            Algorithm::Straw => "straw",
            Algorithm::Straw2 => "straw2",
        }
    }

    /// Its bit in [`Tunables::allowed_bucket_algs`].
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Steps that turn an input number into a list of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// [`Rule::REPLICATED`] and its siblings; unknown numbers survive.
    pub kind: u8,
    /// Pool sizes for which old clusters used the rule. Ignored since Quincy, which writes 1 and 100.
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<RuleStep>,
}

impl Rule {
    pub const REPLICATED: u8 = 1;
    pub const ERASURE: u8 = 3;
    pub const MSR_FIRSTN: u8 = 4;
    pub const MSR_INDEP: u8 = 5;

    /// Multi-step-retry rules are walked in another way altogether.
    pub fn is_msr(&self) -> bool {
        matches!(self.kind, Rule::MSR_FIRSTN | Rule::MSR_INDEP)
    }
}

/// One step: an operation of [`step`] and its two arguments. Unknown operations survive a decode, and do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleStep {
    pub op: u32,
    pub arg1: i32,
    pub arg2: i32,
}

impl RuleStep {
    pub const fn new(op: u32, arg1: i32, arg2: i32) -> RuleStep {
        RuleStep { op, arg1, arg2 }
    }
}

/// Operations of a rule's steps (`crush_opcodes`).
pub mod step {
    pub const NOOP: u32 = 0;
    /// `arg1`: the item to start from.
    pub const TAKE: u32 = 1;
    /// `arg1`: how many, 0 for as many as asked, negative for that many fewer; `arg2`: of which type.
    pub const CHOOSE_FIRSTN: u32 = 2;
    pub const CHOOSE_INDEP: u32 = 3;
    pub const EMIT: u32 = 4;
    pub const CHOOSELEAF_FIRSTN: u32 = 6;
    pub const CHOOSELEAF_INDEP: u32 = 7;
    pub const SET_CHOOSE_TRIES: u32 = 8;
    pub const SET_CHOOSELEAF_TRIES: u32 = 9;
    pub const SET_CHOOSE_LOCAL_TRIES: u32 = 10;
    pub const SET_CHOOSE_LOCAL_FALLBACK_TRIES: u32 = 11;
    pub const SET_CHOOSELEAF_VARY_R: u32 = 12;
    pub const SET_CHOOSELEAF_STABLE: u32 = 13;
    pub const SET_MSR_DESCENTS: u32 = 14;
    pub const SET_MSR_COLLISION_TRIES: u32 = 15;
    pub const CHOOSE_MSR: u32 = 16;
}

/// Knobs of the walk that a rule's steps may override. Named profiles are releases that changed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    pub choose_local_tries: u32,
    pub choose_local_fallback_tries: u32,
    pub choose_total_tries: u32,
    pub chooseleaf_descend_once: u32,
    pub chooseleaf_vary_r: u8,
    pub chooseleaf_stable: u8,
    /// Version of the computation of straw lengths; see `placement::crush::edit`.
    pub straw_calc_version: u8,
    /// Bits of [`Algorithm::bit`] that a monitor lets users create.
    pub allowed_bucket_algs: u32,
    pub msr_descents: u32,
    pub msr_collision_tries: u32,
}

impl Tunables {
    const LEGACY_ALGORITHMS: u32 = Algorithm::Uniform.bit() | Algorithm::List.bit() | Algorithm::Straw.bit();

    pub const ARGONAUT: Tunables = Tunables {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        chooseleaf_stable: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: Tunables::LEGACY_ALGORITHMS,
        msr_descents: 100,
        msr_collision_tries: 100,
    };

    pub const BOBTAIL: Tunables = Tunables {
        choose_local_tries: 0,
        choose_local_fallback_tries: 0,
        choose_total_tries: 50,
        chooseleaf_descend_once: 1,
        ..Tunables::ARGONAUT
    };

    pub const FIREFLY: Tunables = Tunables { chooseleaf_vary_r: 1, ..Tunables::BOBTAIL };

    pub const HAMMER: Tunables = Tunables {
        allowed_bucket_algs: Tunables::LEGACY_ALGORITHMS | Algorithm::Straw2.bit(),
        ..Tunables::FIREFLY
    };

    pub const JEWEL: Tunables = Tunables { chooseleaf_stable: 1, ..Tunables::HAMMER };

    /// Tunables of a new cluster.
    pub const DEFAULT: Tunables = Tunables { straw_calc_version: 1, ..Tunables::JEWEL };
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables::DEFAULT
    }
}

/// Replacements for one bucket's weights and for the numbers it hashes (`crush_choose_arg`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ChooseArg {
    /// By position in the result; positions beyond the last use the last. Each list has one entry an item.
    pub weight_sets: Vec<Vec<u32>>,
    /// Numbers that stand for the items in the hash; empty for the items' own.
    pub ids: Vec<i32>,
}

impl ChooseArg {
    /// An empty one changes nothing, and is not written.
    pub fn is_empty(&self) -> bool {
        self.weight_sets.is_empty() && self.ids.is_empty()
    }
}
