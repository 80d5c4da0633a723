//! A copy of the OSDMap, moved on by the maps that monitors and OSDs send.
//!
//! Every map is verified before it counts. A whole map and an increment each carry a checksum of their own bytes. An
//! increment also names the checksum of the map that it leads to; a daemon compares that too ([`Verify::Result`]). A map
//! that fails is treated as missing.

use codec::{Decode, Reader};
use std::sync::Arc;
use wire::messages::MOSDMap;
use wire::types::{Epoch, OsdMap, OsdMapIncremental};

/// The relation of a new map to the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The next epoch, from the one before.
    Next,
    /// A whole map after a gap: the changes in between are not known.
    Jump,
}

/// The checksums of an increment that are verified. Its own is compared in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// The resulting map must have the checksum that the increment names. Daemons hold the same bytes everywhere.
    Result,
    /// The result is not compared: monitors write increments anew for clients of older features, and the checksum that
    /// they name is not of those.
    Increment,
}

/// The outcome of a message of maps.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Ask the monitor for maps from this epoch on; 0: for the newest one, whole. `None` when the message has led to the
    /// newest map that it promised.
    pub ask_from: Option<Epoch>,
    /// The first map of the message that could not be read or did not match its checksum.
    pub damaged: Option<Damaged>,
}

/// A map that was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Damaged {
    pub epoch: Epoch,
    pub why: String,
}

/// Applies the maps of a message that lead on from `map`, one after another, and hands each to `on_step`.
pub fn advance(
    map: &mut Option<Arc<OsdMap>>,
    message: &MOSDMap,
    verify: Verify,
    mut on_step: impl FnMut(&Arc<OsdMap>, Step),
) -> Progress {
    let last = message.last().unwrap_or(0);
    let mut damaged = None;
    while map.as_ref().is_none_or(|m| m.epoch < last) {
        let known = map.as_deref();
        let next = match increment(known, message, verify, &mut damaged) {
            Some(next) => Some((next, Step::Next)),
            None => whole(known, message, &mut damaged),
        };
        let Some((next, step)) = next else {
            // A damaged map may be damaged at its source, so do not ask for the same bytes again.
            let following = map.as_ref().map_or(0, |m| m.epoch + 1);
            let ask_from = Some(if damaged.is_some() { 0 } else { following });
            return Progress { ask_from, damaged };
        };
        let next = Arc::new(next);
        on_step(&next, step);
        *map = Some(next);
    }
    Progress { ask_from: None, damaged }
}

/// The next epoch, by the message's increment to it.
fn increment(
    known: Option<&OsdMap>,
    message: &MOSDMap,
    verify: Verify,
    damaged: &mut Option<Damaged>,
) -> Option<OsdMap> {
    let known = known?;
    let epoch = known.epoch + 1;
    let bytes = message.incremental_maps.get(&epoch)?;
    let applied =
        codec::decode_exact::<OsdMapIncremental>(bytes).map_err(|e| e.to_string()).and_then(|change| {
            let next = match verify {
                Verify::Result => known.apply_verified(&change),
                Verify::Increment => known.apply(&change),
            };
            next.map_err(|e| e.to_string())
        });
    applied.map_err(|why| damaged.get_or_insert(Damaged { epoch, why })).ok()
}

/// The newest whole map of the message that is newer than ours: the first one, or one beyond a gap.
fn whole(known: Option<&OsdMap>, message: &MOSDMap, damaged: &mut Option<Damaged>) -> Option<(OsdMap, Step)> {
    let own = known.map_or(0, |map| map.epoch);
    let newer = message.maps.iter().rev().filter(|(epoch, _)| known.is_none() || **epoch > own);
    for (&epoch, bytes) in newer {
        let why = match OsdMap::decode(&mut Reader::new(bytes)) {
            Ok(map) if map.epoch != epoch => format!("it is of epoch {}", map.epoch),
            Ok(map) if map.fsid != message.fsid => format!("it is of cluster {}", map.fsid),
            Ok(map) => {
                let step = if known.is_some() && own + 1 == epoch { Step::Next } else { Step::Jump };
                return Some((map, step));
            }
            Err(error) => error.to_string(),
        };
        damaged.get_or_insert(Damaged { epoch, why });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use codec::{Encode, Features};
    use std::collections::BTreeMap;
    use wire::types::{UTime, Uuid};

    const FSID: Uuid = Uuid([7; 16]);

    fn first() -> OsdMap {
        OsdMap { fsid: FSID, epoch: 1, ..OsdMap::default() }
    }

    /// The way from epoch 1 to `last`: the maps, and the increments that lead to them.
    fn history(last: Epoch) -> (Vec<OsdMap>, BTreeMap<Epoch, OsdMapIncremental>) {
        let (mut maps, mut steps) = (vec![first()], BTreeMap::new());
        for epoch in 2..=last {
            let map = maps.last().unwrap();
            let mut step = OsdMapIncremental::after(map, UTime { sec: epoch, nsec: 0 });
            step.new_max_osd = Some(epoch as i32);
            step.seal(map).unwrap();
            maps.push(map.apply_verified(&step).unwrap());
            steps.insert(epoch, step);
        }
        (maps, steps)
    }

    fn bytes(step: &OsdMapIncremental) -> Bytes {
        step.to_vec(Features(step.encode_features)).into()
    }

    fn message(steps: &BTreeMap<Epoch, OsdMapIncremental>) -> MOSDMap {
        let incremental_maps = steps.iter().map(|(epoch, step)| (*epoch, bytes(step))).collect();
        MOSDMap { fsid: FSID, incremental_maps, ..MOSDMap::default() }
    }

    fn run(message: &MOSDMap, verify: Verify) -> (Epoch, Progress) {
        let mut map = Some(Arc::new(first()));
        let progress = advance(&mut map, message, verify, |_, _| {});
        (map.unwrap().epoch, progress)
    }

    #[test]
    fn increments_lead_to_the_newest_map() {
        let (_, steps) = history(5);
        assert_eq!(run(&message(&steps), Verify::Result), (5, Progress::default()));
    }

    #[test]
    fn increment_with_wrong_result_is_treated_as_missing() {
        let (_, mut steps) = history(5);
        steps.get_mut(&4).unwrap().full_crc ^= 1;
        let (epoch, progress) = run(&message(&steps), Verify::Result);
        assert_eq!((epoch, progress.ask_from), (3, Some(0)));
        let damaged = progress.damaged.unwrap();
        assert_eq!(damaged.epoch, 4);
        assert!(damaged.why.contains("crc"), "{}", damaged.why);
        // A client cannot tell: its increments may have been written for it alone.
        assert_eq!(run(&message(&steps), Verify::Increment), (5, Progress::default()));
    }

    #[test]
    fn increment_with_flipped_bit_is_treated_as_missing_everywhere() {
        let (_, steps) = history(3);
        let whole = message(&steps);
        for at in 0..whole.incremental_maps[&2].len() {
            let mut torn = whole.clone();
            let mut flipped = Vec::from(&torn.incremental_maps[&2][..]);
            flipped[at] ^= 0x10;
            torn.incremental_maps.insert(2, flipped.into());
            for verify in [Verify::Result, Verify::Increment] {
                let (epoch, progress) = run(&torn, verify);
                assert_eq!((epoch, progress.ask_from), (1, Some(0)), "byte {at}");
                assert_eq!(progress.damaged.unwrap().epoch, 2);
            }
        }
    }

    #[test]
    fn whole_map_replaces_a_damaged_increment() {
        let (maps, mut steps) = history(5);
        steps.get_mut(&3).unwrap().full_crc ^= 1;
        let mut message = message(&steps);
        message.maps.insert(5, maps[4].to_canonical().0.into());
        let (epoch, progress) = run(&message, Verify::Result);
        assert_eq!((epoch, progress.ask_from), (5, None));
        assert_eq!(progress.damaged.map(|d| d.epoch), Some(3));
    }

    #[test]
    fn damaged_whole_map_falls_back_to_an_older_one() {
        let (maps, _) = history(5);
        let mut message = MOSDMap { fsid: FSID, ..MOSDMap::default() };
        message.maps.insert(4, maps[3].to_canonical().0.into());
        let mut torn = maps[4].to_canonical().0;
        let middle = torn.len() / 2;
        torn[middle] ^= 1;
        message.maps.insert(5, torn.into());
        let (epoch, progress) = run(&message, Verify::Result);
        assert_eq!((epoch, progress.ask_from), (4, Some(0)));
        assert_eq!(progress.damaged.map(|d| d.epoch), Some(5));
    }

    #[test]
    fn map_of_another_cluster_or_epoch_is_refused() {
        let (maps, _) = history(2);
        let mut message = MOSDMap { fsid: Uuid([9; 16]), ..MOSDMap::default() };
        message.maps.insert(2, maps[1].to_canonical().0.into());
        assert!(run(&message, Verify::Result).1.damaged.unwrap().why.contains("cluster"));
        let mut message = MOSDMap { fsid: FSID, ..MOSDMap::default() };
        message.maps.insert(3, maps[1].to_canonical().0.into());
        assert!(run(&message, Verify::Result).1.damaged.unwrap().why.contains("epoch 2"));
    }
}
