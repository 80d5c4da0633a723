//! The surroundings of a descent through the hierarchy: the map, the seed, and the devices that are out.

use super::bucket::{self, Shuffle};
use super::hash::hash2;
use std::collections::BTreeMap;
use wire::types::crush::{Bucket, ChooseArg, CrushMap};

/// A device weight of 1.0: fully in.
const WEIGHT_IN: u32 = 0x1_0000;

/// The fraction of each device that is in, in 16.16 fixed point.
pub trait DeviceWeights {
    /// `None` for a number that there is not: out.
    fn weight(&self, device: usize) -> Option<u32>;
}

impl DeviceWeights for Vec<u32> {
    fn weight(&self, device: usize) -> Option<u32> {
        self.get(device).copied()
    }
}

/// One mapping's surroundings.
pub(super) struct Walk<'a> {
    pub map: &'a CrushMap,
    pub weights: &'a dyn DeviceWeights,
    pub x: u32,
    pub args: Option<&'a BTreeMap<u32, ChooseArg>>,
    pub shuffle: &'a mut Shuffle,
}

/// An item as a search for a given type sees it.
pub(super) enum Sight<'a> {
    /// Of the type.
    Found,
    /// A bucket of another type: look inside.
    Deeper(&'a Bucket),
    /// A device where a bucket was wanted, or a number that the map does not know.
    Bad,
}

impl<'a> Walk<'a> {
    pub(super) fn pick(&mut self, bucket: &Bucket, r: i32, position: usize) -> Option<i32> {
        let arg = self.args.and_then(|args| args.get(&(CrushMap::bucket_index(bucket.id)? as u32)));
        bucket::pick(bucket, self.x, r as u32, arg, position, self.shuffle)
    }

    pub(super) fn pick_shuffled(&mut self, bucket: &Bucket, r: i32) -> Option<i32> {
        (!bucket.items.is_empty()).then(|| self.shuffle.pick(bucket, self.x, r as u32))
    }

    pub(super) fn look(&self, item: i32, kind: i32) -> Sight<'a> {
        if item >= 0 {
            return if kind == 0 && item < self.map.max_devices { Sight::Found } else { Sight::Bad };
        }
        match self.map.bucket(item) {
            Some(bucket) if i32::from(bucket.kind) == kind => Sight::Found,
            Some(bucket) => Sight::Deeper(bucket),
            None => Sight::Bad,
        }
    }

    /// True if a device is out for this input. A device that is partly out is out for that share of inputs.
    pub(super) fn is_out(&self, device: i32) -> bool {
        match self.weights.weight(device as usize) {
            None | Some(0) => true,
            Some(WEIGHT_IN..) => false,
            Some(weight) => hash2(self.x, device as u32) & 0xffff >= weight,
        }
    }

    /// More descents than this in a row means that a bucket contains itself.
    pub(super) fn depth_max(&self) -> usize {
        self.map.buckets.len()
    }
}
