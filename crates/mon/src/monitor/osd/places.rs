//! Failure domains: which OSDs are below the same bucket of the type `mon_osd_reporter_subtree_level`.
//!
//! Computed once a map, when a report is judged, so that a judgement costs no more than the reports that it looks at.

use crate::crush::{subtrees, type_name};
use std::collections::BTreeMap;
use wire::types::{Epoch, OsdMap, UTime};

/// A failure domain. An OSD that is below no bucket of the type is one by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Bucket(i32),
    Osd(i32),
}

#[derive(Debug, Default)]
pub(super) struct Places {
    /// Epoch and time of the map, and the type of bucket.
    made_of: Option<(Epoch, UTime, String)>,
    buckets: BTreeMap<i32, i32>,
    /// OSDs that are up, by place.
    up: BTreeMap<Place, usize>,
    up_count: usize,
}

impl Places {
    pub fn follow(&mut self, map: &OsdMap, level: &str) {
        let is_same = |(epoch, modified, made_for): &(Epoch, UTime, String)| {
            (*epoch, *modified, made_for.as_str()) == (map.epoch, map.modified, level)
        };
        if self.made_of.as_ref().is_some_and(is_same) {
            return;
        }
        *self = Places { made_of: Some((map.epoch, map.modified, level.to_owned())), ..Places::default() };
        for subtree in subtrees(&map.crush).iter().filter(|s| type_name(&map.crush, s.kind) == level) {
            for osd in subtree.osds.iter().filter(|osd| **osd >= 0) {
                self.buckets.entry(*osd).or_insert(subtree.id);
            }
        }
        for osd in map.osd_ids().filter(|osd| map.is_up(*osd)) {
            *self.up.entry(self.of(osd)).or_default() += 1;
            self.up_count += 1;
        }
    }

    pub fn of(&self, osd: i32) -> Place {
        self.buckets.get(&osd).map_or(Place::Osd(osd), |bucket| Place::Bucket(*bucket))
    }

    /// Places with an OSD that is up, beside this one.
    pub fn others_up(&self, place: Place) -> usize {
        self.up.len() - usize::from(self.up.contains_key(&place))
    }

    pub fn osds_up(&self) -> usize {
        self.up_count
    }
}
