//! Listings of a range of objects with their versions, for a backfill: on the primary and on the target.

use super::super::{Fx, Pending, Shard};
use super::lost::{info_in, is_one_object, taken_back};
use crate::ops::INFO_ATTR;
use crate::pg::role::{Hindrance, Scan};
use crate::slab::Key;
use store::{Answer, ObjectId, Query, ReadError, ReadRequest};
use wire::types::{Epoch, Eversion, HObject, MissingObject, ObjectInfo, PeerBody, ScanAnswer};

/// Objects of one listing, at most, unless a configuration says otherwise.
pub const BACKFILL_SCAN_MAX: usize = 128;

/// What a read of a scan belongs to.
pub(in crate::shard) struct ScanStep {
    pub pg: Key,
    pub interval: Epoch,
    pub scan: u64,
    /// The object whose version is read. `None`: the listing.
    pub at: Option<usize>,
}

impl Shard {
    /// `asker`: the OSD that gets the answer; `None`: this one's backfill.
    pub(super) fn begin_scan(
        &mut self,
        key: Key,
        begin: HObject,
        end: HObject,
        asker: Option<i32>,
        fx: &mut Fx,
    ) {
        self.next_transfer += 1;
        let scan = self.next_transfer;
        let pg = &mut self.pgs[key];
        let (collection, interval) = (pg.collection, pg.interval.since);
        let queries = vec![Query::List { end: ObjectId::from(end.clone()), max: self.config.scan_max }];
        let request = ReadRequest { collection, object: ObjectId::from(begin.clone()), queries };
        let state = Scan { begin, end, objects: Vec::new(), outstanding: 1, has_failed: false, asker };
        pg.scans.insert(scan, state);
        let tag = self.pending.insert(Pending::Scan(ScanStep { pg: key, interval, scan, at: None }));
        self.read(tag, request, fx);
    }

    pub(in crate::shard) fn on_scan_read(
        &mut self,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::Scan(step)) = self.pending.remove(tag) else { return };
        let ScanStep { pg: key, interval, scan: id, at } = step;
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        let collection = pg.collection;
        let Some(scan) = pg.scans.get_mut(&id) else { return };
        scan.outstanding -= 1;
        match at {
            Some(at) => {
                let (object, version) = &mut scan.objects[at];
                let info = info_in(answers);
                let is_one = is_one_object(&scan.begin, &scan.end);
                scan.has_failed |= is_one && info.is_err();
                let need = pg.missing.need(object).filter(|_| is_one);
                let of_log = |info: ObjectInfo| taken_back(info, need).version;
                *version = info.ok().flatten().map(of_log);
                // The primary copies it again.
                if version.is_none() {
                    pg.transfers.copied.remove(object);
                }
            }
            None => {
                let Ok(Some(Answer::List { objects, next })) = answers.map(|mut answers| answers.pop())
                else {
                    let (begin, end, asker) = (scan.begin.clone(), scan.end.clone(), scan.asker);
                    pg.scans.remove(&id);
                    match asker {
                        Some(to) => {
                            let answer = ScanAnswer { begin, end, objects: Vec::new(), has_failed: true };
                            self.tell_peer(key, to, PeerBody::Scanned(answer), fx);
                        }
                        None => self.give_up_window(key, fx),
                    }
                    return;
                };
                if let Some(next) = next {
                    scan.end = next.object;
                }
                scan.objects = objects.iter().map(|object| (object.object.clone(), None)).collect();
                scan.outstanding = objects.len();
                for (at, object) in objects.into_iter().enumerate() {
                    let queries = vec![Query::Attr { name: INFO_ATTR }];
                    let step = ScanStep { pg: key, interval, scan: id, at: Some(at) };
                    let tag = self.pending.insert(Pending::Scan(step));
                    self.read(tag, ReadRequest { collection, object, queries }, fx);
                }
            }
        }
        if let Some(scan) = self.pgs[key].scans.get(&id)
            && scan.outstanding == 0
            && let Some(scan) = self.pgs[key].scans.remove(&id)
        {
            self.finish_scan(key, scan, fx);
        }
    }

    fn finish_scan(&mut self, key: Key, scan: Scan, fx: &mut Fx) {
        let Scan { begin, end, objects, has_failed, asker, .. } = scan;
        // An object whose version cannot be read is copied, whatever the other side has.
        let objects =
            objects.into_iter().map(|(object, version)| (object, version.unwrap_or(Eversion::ZERO)));
        match asker {
            Some(to) => {
                let objects = objects.map(|(object, need)| MissingObject { object, need }).collect();
                self.tell_peer(
                    key,
                    to,
                    PeerBody::Scanned(ScanAnswer { begin, end, objects, has_failed }),
                    fx,
                );
            }
            None => self.on_own_scan(key, begin, end, objects.collect(), fx),
        }
    }

    /// The window cannot be listed, here or on the target. The backfill goes on later.
    pub(super) fn give_up_window(&mut self, key: Key, fx: &mut Fx) {
        self.abandon_window(key);
        self.hold_off(key, Hindrance::Unreadable, fx);
    }
}
