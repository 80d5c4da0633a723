//! Encoded OSDMaps, each once for all peers that read it alike.

use crate::state::OsdHistory;
use bytes::Bytes;
use codec::{Encode, Features};
use std::collections::BTreeMap;
use wire::messages::MOSDMap;
use wire::types::Epoch;

/// Encodings that are kept; the oldest epochs go first.
const ENCODINGS_MAX: usize = 512;
/// Maps in one message (stock's `osd_map_message_max`).
const MESSAGE_MAPS_MAX: u32 = 40;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Form {
    Whole,
    Step,
}

#[derive(Debug, Default)]
pub(super) struct MapCache {
    encoded: BTreeMap<(Epoch, Form, Features), Bytes>,
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
        while self.encoded.len() > ENCODINGS_MAX {
            self.encoded.pop_first();
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
