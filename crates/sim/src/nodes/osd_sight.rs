//! An OSD as the checkers of all copies see it: its roles, its acknowledgements, and the contents of its stores.
//!
//! Today's node core serves pools of size 1 and states only which PGs it serves since when. Its log is then the only one,
//! so no other copy is compared with its versions, and `durable_to` holds every acknowledgement.

use super::osd_store::OsdStore;
use crate::check::copies::sight::{Look, PgRole, PgSight, Service};
use crate::check::copies::{Ack, Contents, ObjectContents, PgContents};
use bytes::Bytes;
use machine::Time;
use osd::node::Core;
use std::collections::BTreeMap;
use store::{Answer, Collection, ObjectId, Query, ReadRequest};
use wire::messages::{Body, Message};
use wire::types::{Eversion, HObject, OsdFlags, OsdId, SpgId};

/// The PGs on one core. `_now` judges leases.
pub(super) fn pg_sights(osd: OsdId, core: &Core, _now: Time, look: Look) -> Vec<PgSight> {
    let sight = |pg: SpgId| {
        let since = core.served_since(pg);
        PgSight {
            osd,
            pg,
            role: since.map_or(PgRole::Idle, |_| PgRole::Primary(Service::ReadsAndWrites)),
            interval: since.unwrap_or(0),
            up: Vec::new(),
            acting: since.map(|_| osd).into_iter().collect(),
            last_update: Eversion::ZERO,
            durable_to: Eversion::MAX,
            committed_to: Eversion::ZERO,
            is_backfilled: true,
            missing: BTreeMap::new(),
            log: Vec::new(),
        }
    };
    core.pgs().filter(|pg| look.sees(*pg)).map(sight).collect()
}

/// The acknowledgement of a write, if a message is one.
pub(super) fn ack(osd: OsdId, message: &Message) -> Option<Ack> {
    let Body::MOSDOpReply(reply) = &message.body else { return None };
    // A listing names the newest version, too, which need not be durable.
    let is_write = reply.flags.contains(OsdFlags::ONDISK | OsdFlags::WRITE);
    let is_write = is_write && reply.versions.replay != Eversion::ZERO;
    (is_write && reply.result >= 0).then_some(Ack { osd, pg: reply.pg, version: reply.versions.replay })
}

/// Reads all objects of all PGs in a core's stores.
pub(super) fn contents(store: &mut OsdStore) -> Contents {
    let collections = store.collections();
    let pgs = collections.into_iter().filter_map(|collection| match collection {
        Collection::Pg(pg) => Some(pg),
        Collection::Meta => None,
    });
    pgs.map(|pg| (pg, pg_contents(store, pg))).collect()
}

fn pg_contents(store: &mut OsdStore, pg: SpgId) -> PgContents {
    let collection = Collection::Pg(pg);
    let end = ObjectId::from(HObject::max());
    let queries = vec![Query::List { end, max: usize::MAX }];
    let listing = store.read_now(ReadRequest { collection, object: HObject::min().into(), queries });
    let Ok([Answer::List { objects, .. }]) = listing.as_deref() else {
        panic!("the objects of PG {} cannot be listed: {listing:?}", pg.pg)
    };
    objects.iter().map(|object| (object.clone(), object_contents(store, collection, object))).collect()
}

fn object_contents(
    store: &mut OsdStore,
    collection: Collection,
    object: &ObjectId,
) -> Option<ObjectContents> {
    let queries =
        vec![Query::Data { offset: 0, len: u64::MAX }, Query::Attrs, Query::OmapHeader, Query::whole_omap()];
    let answers = store.read_now(ReadRequest { collection, object: object.clone(), queries }).ok()?;
    let [
        Answer::Data(data),
        Answer::Attrs(attrs),
        Answer::OmapHeader(omap_header),
        Answer::OmapList { entries, .. },
    ] = &answers[..]
    else {
        panic!("{object:?} gives other answers than asked for: {answers:?}")
    };
    let map = |entries: &[(Bytes, Bytes)]| entries.iter().cloned().collect();
    Some(ObjectContents {
        data: data.to_bytes(),
        attrs: map(attrs),
        omap_header: omap_header.clone(),
        omap: map(entries),
    })
}
