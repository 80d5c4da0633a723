//! Mail between the cores of one simulated OSD: in order from one core to another, after random delays.
//!
//! Between two cores there are three lanes: the machines' mail, effects on connections that live on the other core, and the
//! order to end. Production does not order the three against each other, so they are delayed independently here.

use machine::net::NetEffect;
use machine::{CoreId, Random, Time};
use osd::node::Mail;
use std::collections::VecDeque;
use std::time::Duration;

pub(super) enum Parcel {
    Mail(Mail),
    Net(NetEffect),
    End,
}

/// Number of lanes from one core to another.
const KINDS: usize = 3;
/// A core that is not busy reads its mail within this time.
const PROMPT_NS: u64 = 30_000;
/// Parcels in 256 that a busy core reads late, and their maximum delay.
const BUSY: [(u64, Duration); 2] = [(16, Duration::from_millis(1)), (1, Duration::from_millis(30))];

pub(super) struct Post {
    cores: u16,
    random: Random,
    /// Parcels by sender, receiver and kind.
    lanes: Vec<Lane>,
}

#[derive(Default)]
struct Lane {
    parcels: VecDeque<(Time, Parcel)>,
}

impl Post {
    pub(super) fn new(cores: u16, random: Random) -> Post {
        let lanes = KINDS * usize::from(cores) * usize::from(cores);
        Post { cores, random, lanes: (0..lanes).map(|_| Lane::default()).collect() }
    }

    pub(super) fn send(&mut self, now: Time, from: CoreId, to: CoreId, parcel: Parcel) {
        assert!(to.0 < self.cores, "core {} does not exist", to.0);
        let after = now + self.delay();
        let kind = match parcel {
            Parcel::Mail(_) => 0,
            Parcel::Net(_) => 1,
            Parcel::End => 2,
        };
        let pair = usize::from(from.0) * usize::from(self.cores) + usize::from(to.0);
        let lane = &mut self.lanes[KINDS * pair + kind].parcels;
        let at = lane.back().map_or(after, |(last, _)| after.max(*last));
        lane.push_back((at, parcel));
    }

    fn delay(&mut self) -> Duration {
        let mut chance = self.random.below(256);
        for (share, max) in BUSY {
            if chance < share {
                return Duration::from_nanos(self.random.below(max.as_nanos() as u64));
            }
            chance -= share;
        }
        Duration::from_nanos(self.random.below(PROMPT_NS))
    }

    /// The earliest parcel by time and lane. Mail for a core that hangs waits.
    fn earliest(&self, hung: Option<CoreId>) -> Option<(Time, usize)> {
        let first = |(lane, l): (usize, &Lane)| Some((l.parcels.front()?.0, lane));
        let runs = |(_, lane): &(Time, usize)| hung != Some(self.receiver(*lane));
        self.lanes.iter().enumerate().filter_map(first).filter(runs).min()
    }

    fn receiver(&self, lane: usize) -> CoreId {
        CoreId((lane / KINDS % usize::from(self.cores)) as u16)
    }

    pub(super) fn next_delivery(&self, hung: Option<CoreId>) -> Option<Time> {
        self.earliest(hung).map(|(at, _)| at)
    }

    /// The earliest parcel that is due, and the core it is for.
    pub(super) fn deliver(&mut self, now: Time, hung: Option<CoreId>) -> Option<(CoreId, Parcel)> {
        let (_, lane) = self.earliest(hung).filter(|(at, _)| *at <= now)?;
        let (_, parcel) = self.lanes[lane].parcels.pop_front()?;
        Some((self.receiver(lane), parcel))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.parcels.is_empty())
    }

    pub(super) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.parcels.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::ConnId;

    #[test]
    fn parcels_of_one_lane_arrive_in_order() {
        let mut post = Post::new(2, Random::from_number(3));
        for n in 0..200 {
            let (from, to) = (CoreId((n % 2) as u16), CoreId((n / 2 % 2) as u16));
            post.send(Time(n), from, to, Parcel::Net(NetEffect::Close { conn: ConnId(n) }));
        }
        let mut arrived: [Vec<u64>; 4] = Default::default();
        let mut mail_waits_for_a_core_that_hangs = false;
        let mut hung = Some(CoreId(1));
        loop {
            let Some(now) = post.next_delivery(hung) else {
                match hung.take() {
                    Some(_) => mail_waits_for_a_core_that_hangs = !post.is_empty(),
                    None => break,
                }
                continue;
            };
            let Some((to, Parcel::Net(NetEffect::Close { conn }))) = post.deliver(now, hung) else {
                panic!()
            };
            assert_ne!(Some(to), hung);
            assert_eq!(u64::from(to.0), conn.0 / 2 % 2);
            arrived[(conn.0 % 4) as usize].push(conn.0);
        }
        assert!(mail_waits_for_a_core_that_hangs);
        for lane in arrived {
            assert_eq!(lane.len(), 50);
            assert!(lane.is_sorted());
        }
    }
}
