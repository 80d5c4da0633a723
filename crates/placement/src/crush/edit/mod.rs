//! Changes to a CRUSH map: what the monitor's `osd crush …` commands need.
//!
//! Everything here does to a map what Ceph's `CrushWrapper` does, so that a cluster's map evolves as it would there,
//! number by number. A function that fails may have made a part of its change: work on a copy.
//!
//! - `create`: a new cluster's map. `items`: places of items. `weights`: their weights. `weight_sets`: other
//!   weights for some pools. `classes`: device classes and their shadow trees. `rules`: rules from a few words. `tree`: the listing that `osd tree` prints.
//! - `names`: numbers by name. `bucket`: the numbers a bucket picks by. `tunables`: the named profiles.

pub mod bucket;
mod classes;
mod create;
mod error;
mod items;
mod names;
mod rules;
mod tree;
mod tunables;
mod weight_sets;
mod weights;

pub use classes::{
    class_is_used, class_or_new, rebuild_shadow_trees, remove_device_class, rename_class, set_device_class,
    set_subtree_class,
};
pub use create::{new_map, new_map_type};
pub use error::{EditError, Refusal};
pub use items::{
    Location, add_bucket, create_or_move, insert, is_at, link_bucket, move_bucket, osds_below, parent_of,
    remove, remove_under, rename_bucket, swap_buckets, update,
};
pub use names::{class_id, is_shadow, is_valid_name, item_id, rule_id, type_id};
pub use rules::{Mode, NewRule, add_msr_rule, add_rule, remove_rule, rename_rule};
pub use tree::{TreeItem, tree};
pub use tunables::{profile, profile_name};
pub use weight_sets::{create_weight_set, reweight_in_weight_set, straw_to_straw2};
pub use weights::{fixed_point, positions_of, reweight, reweight_all, reweight_subtree, weight_of};
