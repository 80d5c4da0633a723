//! Encoded OSDMaps, each once for all peers that read it alike.

use crate::state::OsdHistory;
use bytes::Bytes;
use codec::{Encode, Features};
use std::collections::BTreeMap;
use wire::messages::MOSDMap;
use wire::types::Epoch;

/// Encodings that are kept, and their bytes; the oldest epochs go first. A whole map of a large cluster has half a megabyte.
const ENCODINGS_MAX: usize = 512;
const BYTES_MAX: usize = 64 << 20;
/// Maps in one message (stock's `osd_map_message_max`).
const MESSAGE_MAPS_MAX: u32 = 40;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Form {
    Whole,
    Step,
}

#[derive(Debug)]
pub(super) struct MapCache {
    encoded: BTreeMap<(Epoch, Form, Features), Bytes>,
    bytes: usize,
    bytes_max: usize,
}

impl Default for MapCache {
    fn default() -> MapCache {
        MapCache { encoded: BTreeMap::new(), bytes: 0, bytes_max: BYTES_MAX }
    }
}

impl MapCache {
    /// An epoch whole, as a peer with `features` reads it.
    pub fn whole(&mut self, history: &OsdHistory, epoch: Epoch, features: Features) -> Option<Bytes> {
        let features = wire::features::osdmap_significant(features);
        self.get_or(epoch, Form::Whole, features, || {
            let map = history.at(epoch)?;
            Some(map.to_vec(map.features_for(features)))
        })
    }

    fn step(&mut self, history: &OsdHistory, epoch: Epoch, features: Features) -> Option<Bytes> {
        let features = wire::features::osdmap_significant(features);
        self.get_or(epoch, Form::Step, features, || history.step_to(epoch)?.to_vec_for(features).ok())
    }

    fn get_or(
        &mut self,
        epoch: Epoch,
        form: Form,
        features: Features,
        encode: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Bytes> {
        let key = (epoch, form, features);
        if let Some(bytes) = self.encoded.get(&key) {
            return Some(bytes.clone());
        }
        let bytes = Bytes::from(encode()?);
        self.encoded.insert(key, bytes.clone());
        self.bytes += bytes.len();
        while (self.encoded.len() > ENCODINGS_MAX || self.bytes > self.bytes_max)
            && let Some((_, oldest)) = self.encoded.pop_first()
        {
            self.bytes -= oldest.len();
        }
        Some(bytes)
    }

    /// The newest epoch, whole.
    pub fn newest(&mut self, history: &OsdHistory, features: Features) -> MOSDMap {
        let epoch = history.map().epoch;
        let mut message = empty(history);
        message.maps.extend(self.whole(history, epoch, features).map(|bytes| (epoch, bytes)));
        message
    }

    /// The way from `first` to the newest epoch, in as many messages as it takes: steps, and before them a whole
    /// map where the past does not reach back so far.
    pub fn since(&mut self, history: &OsdHistory, first: Epoch, features: Features) -> Vec<MOSDMap> {
        let (oldest, newest) = (history.oldest(), history.map().epoch);
        let mut messages = Vec::new();
        let mut next = first;
        // The oldest epoch has no step to it: it was made whole, or the step was trimmed.
        if next <= oldest {
            let mut message = empty(history);
            message.maps.extend(self.whole(history, oldest, features).map(|bytes| (oldest, bytes)));
            messages.push(message);
            next = oldest + 1;
        }
        while next <= newest {
            let last = newest.min(next + MESSAGE_MAPS_MAX - 1);
            let mut message = empty(history);
            for epoch in next..=last {
                let step = self.step(history, epoch, features);
                message.incremental_maps.extend(step.map(|bytes| (epoch, bytes)));
            }
            messages.push(message);
            next = last + 1;
        }
        messages
    }
}

fn empty(history: &OsdHistory) -> MOSDMap {
    MOSDMap {
        fsid: history.map().fsid,
        trim_lower_bound: history.oldest(),
        newest_map: history.map().epoch,
        ..MOSDMap::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::new_state;
    use crate::osd_step::{sealed, step_after};
    use crate::proposal::Proposal;
    use wire::types::UTime;

    #[test]
    fn encodings_beyond_the_bytes_go_oldest_first() {
        let mut state = new_state();
        for _ in 0..5 {
            let step = sealed(step_after(state.osdmap(), UTime::default()), state.osdmap()).unwrap();
            state.apply(&Proposal { at: UTime::default(), base: None, changes: vec![step] });
        }
        let newest = state.osdmap().epoch;
        let one = MapCache::default().whole(&state.osd, newest, Features::ALL).unwrap().len();
        let mut cache = MapCache { bytes_max: 2 * one + one / 2, ..MapCache::default() };
        for epoch in newest - 4..=newest {
            assert!(cache.whole(&state.osd, epoch, Features::ALL).is_some());
        }
        let kept: Vec<Epoch> = cache.encoded.keys().map(|(epoch, ..)| *epoch).collect();
        assert_eq!(kept, [newest - 1, newest]);
        assert_eq!(cache.bytes, cache.encoded.values().map(Bytes::len).sum::<usize>());
    }
}
