//! Reads of clients by the plan of the PG's [backend](crate::backend): from the store here, or from another member's, too.
//!
//! With the trial backend a read may need the bytes of another member. The primary asks the member and its own store at the same
//! time; the member reads when its log has everything that the primary's had then. An answer that is lost is asked for again when
//! a link was made anew. A member that cannot read its shard says so, and the bytes are decoded from the shard here.

use super::super::{Fx, Shard};
use crate::backend::ReadPlan;
use crate::pg::Pg;
use crate::slab::Key;
use store::{Answer, ReadError, ReadRequest};
use wire::types::HObject;

impl Shard {
    /// Reads for a request that has its turn.
    #[inline]
    pub(in crate::shard) fn read_object(&mut self, key: Key, pg: Key, request: ReadRequest, fx: &mut Fx) {
        let pg = &self.pgs[pg];
        match pg.backend.plan_read(&request, &pg.interval, |osd, object| pg.has_on(osd, object)) {
            ReadPlan::Here => {}
            #[cfg(feature = "erasure-trial")]
            plan => self.read_by_plan(key, plan, &request, fx),
        }
        self.read(key, request, fx);
    }

    /// The answers of the store here become those that the request gets. `None`: another member's are on their way.
    #[inline]
    pub(in crate::shard) fn complete_read(
        &mut self,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
    ) -> Option<Result<Vec<Answer>, ReadError>> {
        #[cfg(feature = "erasure-trial")]
        return self.take_own_answers(key, answers);
        #[cfg(not(feature = "erasure-trial"))]
        {
            let _ = key;
            Some(answers)
        }
    }
}

impl Pg {
    /// Of a primary: the member has the object as the log has it.
    fn has_on(&self, osd: i32, object: &HObject) -> bool {
        let peer = self.role.primary().and_then(|primary| primary.peers.get(&osd));
        peer.is_some_and(|peer| {
            peer.is_activated && peer.has_reached(object) && !peer.missing.contains(object)
        })
    }
}

#[cfg(feature = "erasure-trial")]
pub(in crate::shard) use gather::{Gather, ShardReading};

#[cfg(feature = "erasure-trial")]
mod gather {
    use super::super::super::{Effect, Fx, Pending, Shard};
    use crate::backend::{ReadPlan, Tally, Trial};
    use crate::pg::role::{Replica, Role};
    use crate::planted::{self, PlantedBug};
    use crate::slab::Key;
    use codec::Rope;
    use machine::Time;
    use store::{Answer, Query, ReadError, ReadRequest};
    use wire::types::{Epoch, HObject, OsdId, PeerBody, ShardData, ShardRead};

    /// The parts of a read that a request waits for.
    #[derive(Debug)]
    pub(in crate::shard) struct Gather {
        /// The member that was asked; `None`: the shard here alone is read.
        from: Option<i32>,
        asked: ShardRead,
        own: Option<Vec<Answer>>,
        theirs: Theirs,
    }

    #[derive(Debug)]
    enum Theirs {
        Awaited,
        Bytes(Vec<Rope>),
        /// The shard here must do.
        Unreadable,
    }

    /// A member's read for its primary.
    #[derive(Debug)]
    pub(in crate::shard) struct ShardReading {
        pg: Key,
        interval: Epoch,
        to: i32,
        id: u64,
        object: HObject,
    }

    impl Shard {
        pub(super) fn read_by_plan(&mut self, key: Key, plan: ReadPlan, request: &ReadRequest, fx: &mut Fx) {
            self.next_transfer += 1;
            let id = self.next_transfer;
            let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return };
            let pg = &self.pgs[op.pg];
            let ranges = request.queries.iter().filter_map(|query| match query {
                Query::Data { offset, len } => Some((*offset, *len)),
                _ => None,
            });
            let asked = ShardRead {
                id,
                object: request.object.object.clone(),
                after: pg.progress.last_update,
                ranges: ranges.collect(),
            };
            let (from, theirs) = match plan {
                ReadPlan::Member(osd) => (Some(osd), Theirs::Awaited),
                ReadPlan::Here | ReadPlan::Decoded => (None, Theirs::Unreadable),
            };
            let body = PeerBody::ReadShard(asked.clone());
            op.gather = Some(Box::new(Gather { from, asked, own: None, theirs }));
            let pg = op.pg;
            if let Some(osd) = from {
                self.tell_peer(pg, osd, body, fx);
            }
        }

        pub(super) fn take_own_answers(
            &mut self,
            key: Key,
            answers: Result<Vec<Answer>, ReadError>,
        ) -> Option<Result<Vec<Answer>, ReadError>> {
            let Some(Pending::Op(op)) = self.pending.get_mut(key) else { return Some(answers) };
            let Some(mut gather) = op.gather.take() else { return Some(answers) };
            let mut answers = match answers {
                Ok(answers) => answers,
                error => return Some(error),
            };
            match gather.theirs {
                Theirs::Awaited => {
                    gather.own = Some(answers);
                    op.gather = Some(gather);
                    return None;
                }
                Theirs::Unreadable if planted::has(PlantedBug::ShardNotDecoded) => {}
                Theirs::Unreadable => {
                    let is_refused = gather.from.is_some();
                    Tally::note(|tally| {
                        tally.decoded_reads += 1;
                        tally.refused_reads += u64::from(is_refused);
                    });
                    Trial::decode(&mut answers);
                }
                Theirs::Bytes(bytes) => {
                    Tally::note(|tally| tally.member_reads += 1);
                    let data = answers.iter_mut().filter_map(|answer| match answer {
                        Answer::Data(data) => Some(data),
                        _ => None,
                    });
                    data.zip(bytes).for_each(|(data, bytes)| *data = bytes);
                }
            }
            Some(Ok(answers))
        }

        /// A member reads its shard for the primary. A member that lacks a write of the primary's gets it before the repetition.
        pub(in crate::shard) fn on_read_shard(&mut self, key: Key, from: i32, read: ShardRead, fx: &mut Fx) {
            let pg = &self.pgs[key];
            let is_behind = pg.progress.last_update < read.after;
            if is_behind || !matches!(pg.role, Role::Replica(Replica::Active)) {
                return;
            }
            let ShardRead { id, object, ranges, .. } = read;
            if pg.missing.contains(&object) || !pg.progress.has_reached(&object) {
                return self.tell_peer(
                    key,
                    from,
                    PeerBody::ShardData(ShardData { id, object, lengths: None }),
                    fx,
                );
            }
            let queries = ranges.into_iter().map(|(offset, len)| Query::Data { offset, len }).collect();
            let request = ReadRequest { collection: pg.collection, object: object.clone().into(), queries };
            let reading = ShardReading { pg: key, interval: pg.interval.since, to: from, id, object };
            let tag = self.pending.insert(Pending::ShardRead(Box::new(reading)));
            self.read(tag, request, fx);
        }

        pub(in crate::shard) fn on_shard_read(
            &mut self,
            tag: Key,
            answers: Result<Vec<Answer>, ReadError>,
            fx: &mut Fx,
        ) {
            let Some(Pending::ShardRead(reading)) = self.pending.remove(tag) else { return };
            let ShardReading { pg: key, interval, to, id, object } = *reading;
            let Some(pg) = self.pgs.get(key).filter(|pg| pg.interval.since == interval) else { return };
            let mut data = Rope::new();
            let lengths = answers.ok().map(|answers| {
                let mut lengths = Vec::new();
                for answer in answers {
                    let Answer::Data(bytes) = answer else { unreachable!("bytes were asked for") };
                    lengths.push(bytes.len() as u64);
                    data.append(bytes);
                }
                lengths
            });
            let body = PeerBody::ShardData(ShardData { id, object, lengths });
            let message = self.statement(pg, to, body, data);
            fx.push(Effect::SendPeer { to: OsdId(to), message });
        }

        pub(in crate::shard) fn on_shard_data(
            &mut self,
            now: Time,
            key: Key,
            from: i32,
            answer: ShardData,
            data: &Rope,
            fx: &mut Fx,
        ) {
            let ShardData { id, lengths, .. } = answer;
            let waits = |pending: &Pending| match pending {
                Pending::Op(op) => op.pg == key && op.gather.as_ref().is_some_and(|g| g.awaits(from, id)),
                _ => false,
            };
            let Some(op_key) = self.pending.iter().find(|(_, pending)| waits(pending)).map(|(key, _)| key)
            else {
                return;
            };
            let Some(Pending::Op(op)) = self.pending.get_mut(op_key) else { return };
            let Some(gather) = &mut op.gather else { return };
            gather.theirs = match lengths.and_then(|lengths| split(data, &lengths)) {
                Some(bytes) if bytes.len() == gather.asked.ranges.len() => Theirs::Bytes(bytes),
                _ => Theirs::Unreadable,
            };
            if let Some(own) = gather.own.take() {
                self.on_object_read(now, op_key, Ok(own), fx);
            }
        }

        /// Asks again for shards that were not answered.
        pub(in crate::shard) fn repeat_reads(&mut self, key: Key, only: Option<i32>, fx: &mut Fx) {
            let mut asked = Vec::new();
            for (_, pending) in self.pending.iter() {
                if let Pending::Op(op) = pending
                    && op.pg == key
                    && let Some(gather) = &op.gather
                    && let (Some(from), Theirs::Awaited) = (gather.from, &gather.theirs)
                    && only.is_none_or(|only| only == from)
                {
                    asked.push((from, gather.asked.clone()));
                }
            }
            for (from, read) in asked {
                self.tell_peer(key, from, PeerBody::ReadShard(read), fx);
            }
        }
    }

    impl Gather {
        fn awaits(&self, from: i32, id: u64) -> bool {
            self.from == Some(from) && self.asked.id == id && matches!(self.theirs, Theirs::Awaited)
        }
    }

    fn split(data: &Rope, lengths: &[u64]) -> Option<Vec<Rope>> {
        let mut at = 0;
        let mut out = Vec::new();
        for length in lengths {
            let length = usize::try_from(*length).ok()?;
            out.push(data.slice(at, length)?);
            at += length;
        }
        Some(out)
    }
}
