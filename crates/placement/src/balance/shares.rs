//! Shares: how many PGs of a pool each OSD is to have.

use super::layout::Layout;
use std::collections::BTreeMap;

/// One PG, as deviations count it.
pub const PG: i64 = 1 << 16;

/// The copies of a pool's PGs in each group of its rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InGroup {
    pub copies: u64,
    /// PGs with at least one copy there.
    pub pgs: u64,
}

/// Each OSD's share of the copies of its group, in units of [`PG`], in proportion to its weight. A failure domain has at most one
/// copy of a PG, so a domain that weighs too much for that is full, and the others share what is left.
pub fn shares(layout: &Layout, counts: &[InGroup]) -> BTreeMap<i32, i64> {
    // Weight of each group's domains.
    let mut weights: Vec<BTreeMap<i32, u64>> = vec![BTreeMap::new(); layout.groups];
    for place in layout.places.values() {
        *weights[place.group].entry(place.domain).or_default() += place.weight;
    }
    let of_domains: Vec<BTreeMap<i32, f64>> =
        weights.iter().zip(counts).map(|(weights, count)| fill(weights, *count)).collect();
    let share = |place: &super::Place| {
        let (of_domain, weight) =
            (of_domains[place.group][&place.domain], weights[place.group][&place.domain]);
        if weight == 0 { 0.0 } else { of_domain * place.weight as f64 / weight as f64 }
    };
    layout.places.iter().map(|(osd, place)| (*osd, (share(place) * PG as f64).round() as i64)).collect()
}

fn fill(weights: &BTreeMap<i32, u64>, count: InGroup) -> BTreeMap<i32, f64> {
    let most = count.pgs as f64;
    let mut shares: BTreeMap<i32, f64> = BTreeMap::new();
    let mut open: BTreeMap<i32, u64> = weights.clone();
    let mut left = count.copies as f64;
    loop {
        let all: u64 = open.values().sum();
        let share = |weight: u64| if all == 0 { 0.0 } else { left * weight as f64 / all as f64 };
        let full: Vec<i32> =
            open.iter().filter(|(_, weight)| share(**weight) > most).map(|(domain, _)| *domain).collect();
        if full.is_empty() {
            shares.extend(open.iter().map(|(domain, weight)| (*domain, share(*weight))));
            return shares;
        }
        for domain in full {
            open.remove(&domain);
            shares.insert(domain, most);
            left -= most;
        }
    }
}
