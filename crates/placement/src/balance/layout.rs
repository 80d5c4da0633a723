//! Layout: what a CRUSH rule allows to exchange.
//!
//! A copy may move from one OSD to another if the rule could have chosen the other one in its place. CRUSH itself is not asked: the
//! rule is read. Each `take` with its `choose` steps is a *segment*. The last step's type is the *failure domain*, of which a
//! PG has at most one copy each; the types before it stay as they are, so OSDs below one bucket of these types form a
//! *group*, and copies move within their group. With two racks of two hosts each, a copy stays in its rack.

use std::collections::BTreeMap;
use wire::types::OsdMap;
use wire::types::crush::{Rule, step};

/// One OSD that the rule can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub group: usize,
    /// The bucket of the failure domain's type that it is below, or the OSD itself.
    pub domain: i32,
    /// Its share within the group: CRUSH weight times the share that is in. Zero: it is to have none.
    pub weight: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub groups: usize,
    /// By OSD.
    pub places: BTreeMap<i32, Place>,
}

/// One `take`, and the types of the buckets that are chosen below it.
pub(super) struct Segment {
    pub take: i32,
    /// Type and how many are wanted; `0`: as many as the pool has copies.
    choices: Vec<(u16, i32)>,
}

impl Layout {
    pub fn of(map: &OsdMap, rule: &Rule) -> Layout {
        let mut layout = Layout::default();
        let mut groups = BTreeMap::new();
        for (number, segment) in segments(rule).into_iter().enumerate() {
            let mut kinds: Vec<u16> = segment.choices.iter().map(|(kind, _)| *kind).collect();
            // A single item of a finer type inside of each coarser one: the coarser one is the failure domain.
            let single = segment.choices.iter().skip(1).rev().take_while(|(_, count)| *count == 1).count();
            kinds.truncate(kinds.len() - single);
            let Some((domain, outer)) = kinds.split_last() else { continue };
            let mut walk = Walk { map, number, domain: *domain, outer, path: Vec::new() };
            walk.descend(segment.take, &mut groups, &mut layout.places);
        }
        layout.groups = groups.len();
        layout
    }
}

pub(super) fn segments(rule: &Rule) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut open: Option<Segment> = None;
    for of in &rule.steps {
        match of.op {
            step::TAKE => open = Some(Segment { take: of.arg1, choices: Vec::new() }),
            step::CHOOSE_FIRSTN
            | step::CHOOSE_INDEP
            | step::CHOOSELEAF_FIRSTN
            | step::CHOOSELEAF_INDEP
            | step::CHOOSE_MSR => {
                if let (Some(segment), Ok(kind)) = (&mut open, u16::try_from(of.arg2)) {
                    segment.choices.push((kind, of.arg1));
                }
            }
            step::EMIT => segments.extend(open.take()),
            _ => {}
        }
    }
    segments
}

/// Buckets nest no deeper; a map with a cycle ends here.
pub(super) const DEPTH_MAX: usize = 64;

/// A descent from a segment's `take`.
struct Walk<'a> {
    map: &'a OsdMap,
    number: usize,
    domain: u16,
    outer: &'a [u16],
    /// Types and numbers of the buckets above.
    path: Vec<(u16, i32)>,
}

impl Walk<'_> {
    fn descend(
        &mut self,
        from: i32,
        groups: &mut BTreeMap<(usize, Vec<i32>), usize>,
        places: &mut BTreeMap<i32, Place>,
    ) {
        let Some(bucket) = self.map.crush.bucket(from).filter(|_| self.path.len() < DEPTH_MAX) else {
            return;
        };
        self.path.push((bucket.kind, bucket.id));
        for (at, item) in bucket.items.iter().enumerate() {
            if *item < 0 {
                self.descend(*item, groups, places);
                continue;
            }
            let above = |kind: u16| match kind {
                0 => Some(*item),
                kind => self.path.iter().rev().find(|(of, _)| *of == kind).map(|(_, id)| *id),
            };
            let outer: Option<Vec<i32>> = self.outer.iter().map(|kind| above(*kind)).collect();
            let (Some(domain), Some(outer), Ok(row)) = (above(self.domain), outer, usize::try_from(*item))
            else {
                continue;
            };
            let Some(row) = self.map.osds.get(row).filter(|_| self.map.exists(*item)) else { continue };
            let next = groups.len();
            let group = *groups.entry((self.number, outer)).or_insert(next);
            let weight = u64::from(bucket.item_weight(at)) * u64::from(row.weight.min(OsdMap::WEIGHT_IN));
            places.entry(*item).or_insert(Place { group, domain, weight });
        }
        self.path.pop();
    }
}
