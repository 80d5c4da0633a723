//! A set of numbers as ranges (`interval_set<uint64_t>`, `interval_set<snapid_t>`): bytes of an object, snapshots.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// Ranges in ascending order that neither overlap nor, once changed here, touch.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct IntervalSet {
    /// Start and length, never 0; the end of each fits in 64 bits.
    ranges: Vec<(u64, u64)>,
}

impl IntervalSet {
    pub const fn new() -> IntervalSet {
        IntervalSet { ranges: Vec::new() }
    }

    /// One range. A range past the end of the numbers is cut there.
    pub fn of(start: u64, len: u64) -> IntervalSet {
        let mut out = IntervalSet::new();
        out.insert(start, len);
        out
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Number of members.
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|r| r.1).sum()
    }

    /// Start and length of each range, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    pub fn contains(&self, n: u64) -> bool {
        let i = self.first_ending_after(n);
        self.ranges.get(i).is_some_and(|r| r.0 <= n)
    }

    /// Every number of the range is in.
    pub fn contains_range(&self, start: u64, len: u64) -> bool {
        let i = self.first_ending_after(start);
        len == 0 || self.ranges.get(i).is_some_and(|r| r.0 <= start && end(*r) >= start.saturating_add(len))
    }

    /// Some number of the range is in.
    pub fn intersects(&self, start: u64, len: u64) -> bool {
        let i = self.first_ending_after(start);
        len > 0 && self.ranges.get(i).is_some_and(|r| r.0 < start.saturating_add(len))
    }

    /// Add a range, whether or not parts of it are in.
    pub fn insert(&mut self, start: u64, len: u64) {
        let stop = start.saturating_add(len);
        if stop == start {
            return;
        }
        // Everything that overlaps or touches becomes one range.
        let first = self.ranges.partition_point(|r| end(*r) < start);
        let last = self.ranges.partition_point(|r| r.0 <= stop);
        let merged =
            self.ranges[first..last].iter().fold((start, stop), |m, r| (m.0.min(r.0), m.1.max(end(*r))));
        self.ranges.splice(first..last, [(merged.0, merged.1 - merged.0)]);
    }

    /// Take a range out, whether or not all of it is in.
    pub fn remove(&mut self, start: u64, len: u64) {
        let stop = start.saturating_add(len);
        if stop == start {
            return;
        }
        let first = self.first_ending_after(start);
        let last = self.ranges.partition_point(|r| r.0 < stop);
        if first >= last {
            return;
        }
        let (low, high) = (self.ranges[first].0, end(self.ranges[last - 1]));
        let left = (low < start).then(|| (low, start - low));
        let right = (high > stop).then(|| (stop, high - stop));
        self.ranges.splice(first..last, left.into_iter().chain(right));
    }

    /// The intersection.
    pub fn intersection(&self, other: &IntervalSet) -> IntervalSet {
        let (mut a, mut b) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut out = IntervalSet::new();
        while let (Some(&&x), Some(&&y)) = (a.peek(), b.peek()) {
            let (start, stop) = (x.0.max(y.0), end(x).min(end(y)));
            if start < stop {
                out.ranges.push((start, stop - start));
            }
            if end(x) < end(y) {
                a.next()
            } else {
                b.next()
            };
        }
        out
    }

    fn first_ending_after(&self, n: u64) -> usize {
        self.ranges.partition_point(|r| end(*r) <= n)
    }
}

fn end((start, len): (u64, u64)) -> u64 {
    start + len
}

impl fmt::Debug for IntervalSet {
    /// `[start~len,…]` in hexadecimal, as Ceph prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, (start, len)) in self.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{start:x}~{len:x}")?;
        }
        f.write_str("]")
    }
}

impl FromIterator<(u64, u64)> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(iter: I) -> IntervalSet {
        let mut out = IntervalSet::new();
        iter.into_iter().for_each(|(start, len)| out.insert(start, len));
        out
    }
}

/// A map from start to length.
impl Encode for IntervalSet {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.ranges);
    }
}

impl Decode for IntervalSet {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ranges: Vec<(u64, u64)> = r.get()?;
        let mut from = 0;
        for &(start, len) in &ranges {
            if start < from || len == 0 {
                return Err(r.invalid("interval_set range", start));
            }
            from = start.checked_add(len).ok_or_else(|| r.invalid("interval_set range length", len))?;
        }
        Ok(IntervalSet { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_whole_range_can_be_dented() {
        let mut s = IntervalSet::of(0, u64::MAX);
        s.remove(10, 5);
        assert_eq!(s.iter().collect::<Vec<_>>(), [(0, 10), (15, u64::MAX - 15)]);
        assert!(s.contains(9) && !s.contains(10) && s.contains(15));
    }

    #[test]
    fn a_range_that_wraps_or_goes_back_is_refused() {
        for ranges in [vec![(1u64, u64::MAX)], vec![(5, 1), (3, 1)], vec![(5, 2), (6, 1)], vec![(5, 0)]] {
            let bytes = ranges.to_vec(codec::Features::NONE);
            assert!(codec::decode_exact::<IntervalSet>(&bytes).is_err(), "{ranges:?}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(steps: Vec<(bool, u8, u8)>, probe: (u8, u8)) {
            let (mut ranges, mut numbers) = (IntervalSet::new(), BTreeSet::new());
            for (add, start, len) in steps {
                let (start, len) = (start as u64, len as u64 % 20);
                if add {
                    ranges.insert(start, len);
                    numbers.extend(start..start + len);
                } else {
                    ranges.remove(start, len);
                    numbers.retain(|n| !(start..start + len).contains(n));
                }
            }
            let listed: BTreeSet<u64> = ranges.iter().flat_map(|(s, l)| s..s + l).collect();
            prop_assert_eq!(&listed, &numbers);
            prop_assert_eq!(ranges.total() as usize, numbers.len());
            prop_assert!(ranges.ranges.windows(2).all(|w| end(w[0]) < w[1].0));
            let (start, len) = (probe.0 as u64, probe.1 as u64 % 20);
            let wanted = start..start + len;
            prop_assert_eq!(ranges.contains(start), numbers.contains(&start));
            prop_assert_eq!(ranges.contains_range(start, len), wanted.clone().all(|n| numbers.contains(&n)));
            prop_assert_eq!(ranges.intersects(start, len), wanted.clone().any(|n| numbers.contains(&n)));
            let both: BTreeSet<u64> =
                ranges.intersection(&IntervalSet::of(start, len)).iter().flat_map(|(s, l)| s..s + l).collect();
            prop_assert_eq!(both, numbers.iter().copied().filter(|n| wanted.contains(n)).collect());
        }
    }
}
