//! Sets of snapshot numbers as ranges (`interval_set<snapid_t>`).

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Ranges by start, with their lengths. Those that shoal makes neither touch nor overlap; those that arrive stay
/// as they came until a change of the set joins them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapIntervals {
    ranges: BTreeMap<u64, u64>,
}

impl SnapIntervals {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Start and length of each range, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(&start, &len)| (start, len))
    }

    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    pub fn contains(&self, snap: u64) -> bool {
        let before = self.ranges.range(..=snap).next_back();
        before.is_some_and(|(&start, &len)| snap - start < len)
    }

    /// Add `len` numbers from `start`; what is there already stays.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut low, mut high) = (start, start.saturating_add(len));
        // The one range that starts before and reaches in, then all that start within or right behind.
        if let Some((&s, &l)) = self.ranges.range(..start).next_back()
            && s.saturating_add(l) >= start
        {
            (low, high) = (s, high.max(s.saturating_add(l)));
        }
        while let Some((&s, &l)) = self.ranges.range(low..=high).next() {
            high = high.max(s.saturating_add(l));
            self.ranges.remove(&s);
        }
        self.ranges.insert(low, high - low);
    }

    /// Take out `len` numbers from `start`, as far as they are there.
    pub fn remove(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let first = self.ranges.range(..=start).next_back().map_or(start, |(&s, _)| s);
        let touched: Vec<(u64, u64)> =
            self.ranges.range(first..end.max(first)).map(|(&s, &l)| (s, l)).collect();
        for (s, l) in touched {
            let e = s.saturating_add(l);
            if e <= start {
                continue;
            }
            self.ranges.remove(&s);
            if s < start {
                self.ranges.insert(s, start - s);
            }
            if e > end {
                self.ranges.insert(end, e - end);
            }
        }
    }

    pub fn insert_all(&mut self, other: &SnapIntervals) {
        other.ranges().for_each(|(start, len)| self.insert(start, len));
    }

    pub fn remove_all(&mut self, other: &SnapIntervals) {
        other.ranges().for_each(|(start, len)| self.remove(start, len));
    }
}

impl Encode for SnapIntervals {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.ranges);
    }
}

impl Decode for SnapIntervals {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(SnapIntervals { ranges: r.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(s: &SnapIntervals) -> Vec<u64> {
        s.ranges().flat_map(|(start, len)| start..start + len).collect()
    }

    #[test]
    fn every_small_change_agrees_with_a_plain_set() {
        for bits in 0u32..256 {
            let before: Vec<u64> = (0..8).filter(|n| bits & (1 << n) != 0).collect();
            for start in 0..9 {
                for len in 0..9 {
                    let mut set = SnapIntervals::default();
                    before.iter().for_each(|&n| set.insert(n, 1));
                    let mut gone = set.clone();
                    set.insert(start, len);
                    gone.remove(start, len);
                    let inside = |n: &u64| (start..start + len).contains(n);
                    let mut want: Vec<u64> = before.iter().copied().chain(start..start + len).collect();
                    want.sort();
                    want.dedup();
                    assert_eq!(numbers(&set), want);
                    let kept: Vec<u64> = before.iter().copied().filter(|n| !inside(n)).collect();
                    assert_eq!(numbers(&gone), kept);
                    let starts: Vec<(u64, u64)> = set.ranges().collect();
                    assert!(starts.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "joined: {starts:?}");
                }
            }
        }
    }
}
