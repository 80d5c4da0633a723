//! An OSD as the checkers of all copies see it: its roles, its acknowledgements, and the contents of its stores.

use super::osd_store::OsdStore;
use crate::check::copies::sight::{Look, PgRole, PgSight, Service};
use crate::check::copies::snap_index::gap;
use crate::check::copies::{Ack, Contents, ObjectContents, PgContents};
use bytes::Bytes;
use machine::Time;
use osd::backend::Backend;
use osd::node::Core;
use osd::ops::INFO_ATTR;
use osd::pg::log::LogLimits;
use osd::pg::role::{Replica, Role};
use osd::pg::{Pg, PgPhase, snap_index};
use osd::shard::Moving;
use placement::crush::ITEM_NONE;
use std::collections::BTreeSet;
use store::{Answer, Collection, ObjectId, Query, ReadRequest};
use wire::messages::{Body, Message};
use wire::types::{Eversion, HObject, InconsistentObject, ObjectInfo, OsdFlags, OsdId, SnapId, SpgId};

/// The PGs on one core. `now` judges leases.
pub(super) fn pg_sights(osd: OsdId, core: &Core, now: Time, limits: &LogLimits, look: Look) -> Vec<PgSight> {
    let copies = core.copies().filter(|pg| look.sees(pg.id));
    let copies =
        copies.filter(|pg| !matches!(pg.phase, PgPhase::Loading | PgPhase::Removing | PgPhase::Unreadable));
    copies.map(|pg| sight(osd, core, pg, now, limits, look)).collect()
}

fn sight(osd: OsdId, core: &Core, pg: &Pg, now: Time, limits: &LogLimits, look: Look) -> PgSight {
    let role = match &pg.role {
        Role::None => PgRole::Idle,
        Role::Replica(stage) => PgRole::Replica { is_activated: *stage == Replica::Active },
        // It holds its requests: see `osd::shard::moving`.
        Role::Primary(_) if matches!(pg.moving, Some(Moving::Arriving(_))) => PgRole::Primary(Service::None),
        Role::Primary(_) if pg.phase == PgPhase::Active => {
            PgRole::Primary(if core.may_read(pg, now) { Service::ReadsAndWrites } else { Service::Writes })
        }
        Role::Primary(_) => PgRole::Primary(Service::None),
    };
    let named = |osds: &[i32]| osds.iter().filter(|osd| **osd != ITEM_NONE).map(|osd| OsdId(*osd)).collect();
    let log = match look {
        Look::Logs if !pg.log.is_resident() => Vec::new(),
        Look::Logs => pg.log.entries().map(|entry| (entry.version, entry.object.clone())).collect(),
        Look::Roles | Look::Pg(_) => Vec::new(),
    };
    PgSight {
        osd,
        pg: pg.id.pg.into(),
        role,
        store_since: core.store_since(pg.id),
        interval: pg.interval.since,
        up: named(&pg.interval.up),
        acting: named(&pg.interval.acting),
        last_update: pg.progress.last_update,
        durable_to: pg.durable,
        committed_to: pg.committed,
        is_backfilled: pg.progress.is_complete(),
        objects: pg.progress.stats.objects.max(0) as u64,
        missing: pg.missing.iter().map(|(object, need)| (object.clone(), *need)).collect(),
        is_receiving: !pg.transfers.incoming.is_empty(),
        inconsistent: pg
            .scrub
            .objects
            .iter()
            .map(|(object, found)| (object.clone(), blamed(found)))
            .collect(),
        log_tail: pg.log.tail(),
        log_len: pg.log.counts().entries as usize,
        duplicates_len: pg.log.counts().duplicates as usize,
        log_limits: *limits,
        log,
    }
}

/// The OSDs whose copies a scrub found wrong.
fn blamed(found: &InconsistentObject) -> BTreeSet<OsdId> {
    let bad = found.copies.iter().filter(|copy| copy.is_bad || copy.errors != 0);
    bad.map(|copy| OsdId(copy.osd)).collect()
}

/// The acknowledgement of a write, if a message is one.
pub(super) fn ack(osd: OsdId, core: Option<&Core>, message: &Message) -> Option<Ack> {
    let Body::MOSDOpReply(reply) = &message.body else { return None };
    // A listing names the newest version, too, which need not be durable.
    let is_write = reply.flags.contains(OsdFlags::ONDISK | OsdFlags::WRITE);
    let is_write = is_write && reply.versions.replay != Eversion::ZERO;
    if !is_write || reply.result < 0 {
        return None;
    }
    let (pg, version) = (reply.pg, reply.versions.replay);
    let copy = core.and_then(|core| core.copies().find(|copy| copy.id.pg == pg));
    let by_primary = copy.is_some_and(|copy| matches!(copy.role, Role::Primary(_)));
    Some(Ack { osd, pg, version, by_primary })
}

/// A successful answer to a read that leaves its OSD without the leases of the acting set.
pub(super) fn read_without_lease(core: &Core, now: Time, message: &Message) -> Option<String> {
    let Body::MOSDOpReply(reply) = &message.body else { return None };
    let is_read = reply.flags.contains(OsdFlags::READ) && !reply.flags.intersects(OsdFlags::WRITE);
    if !is_read || reply.result < 0 {
        return None;
    }
    let pg = core.copies().find(|copy| copy.id.pg == reply.pg)?;
    let is_leased = match pg.role {
        Role::Primary(_) if pg.phase == PgPhase::Active => core.may_read(pg, now),
        Role::Replica(_) => core.may_read_copy(pg, now),
        Role::Primary(_) | Role::None => true,
    };
    (!is_leased).then(|| format!("answers a read of PG {} without its leases", reply.pg))
}

/// Reads all objects of the PGs in a core's stores whose copies there count.
pub(super) fn contents(store: &mut OsdStore, counts: impl Fn(Collection) -> bool) -> Contents {
    let collections = store.placed().into_iter().map(|(collection, _)| collection);
    let pgs =
        collections.filter(|collection| counts(*collection)).filter_map(|collection| match collection {
            Collection::Pg(pg) => Some(pg),
            Collection::Meta => None,
        });
    // The shards of a PG are compared by the client's bytes.
    pgs.map(|pg| (pg.pg.into(), pg_contents(store, pg))).collect()
}

fn pg_contents(store: &mut OsdStore, pg: SpgId) -> PgContents {
    let collection = Collection::Pg(pg);
    let end = ObjectId::from(HObject::max());
    let queries = vec![Query::List { end, max: usize::MAX }];
    let listing = store.read_now(ReadRequest { collection, object: HObject::min().into(), queries });
    let Ok([Answer::List { objects, .. }]) = listing.as_deref() else {
        panic!("the objects of PG {} cannot be listed: {listing:?}", pg.pg)
    };
    let backend = Backend::of(pg);
    let objects = objects.iter();
    objects.map(|id| (id.clone(), object_contents(store, collection, backend, id))).collect()
}

/// The first gap in the snapshot index of a copy, in words.
pub(super) fn index_gap(store: &mut OsdStore) -> Option<String> {
    let pgs = store.placed().into_iter().filter_map(|(collection, _)| match collection {
        Collection::Pg(pg) => Some(pg),
        Collection::Meta => None,
    });
    pgs.collect::<Vec<_>>().into_iter().find_map(|pg| {
        let queries = vec![Query::OmapHeader, snap_index::query(SnapId(0), None, usize::MAX)];
        let request = ReadRequest { collection: Collection::Pg(pg), object: ObjectId::pg_meta(pg), queries };
        let answers = store.read_now(request).ok()?;
        let [Answer::OmapHeader(header), Answer::OmapList { entries, .. }] = &answers[..] else {
            return None;
        };
        let keys: Vec<Bytes> = entries.iter().map(|(key, _)| key.clone()).collect();
        let words = gap(header, &keys, &pg_contents(store, pg))?;
        Some(format!("the index of PG {} {words}", pg.pg))
    })
}

fn object_contents(
    store: &mut OsdStore,
    collection: Collection,
    backend: Backend,
    object: &ObjectId,
) -> Result<ObjectContents, Option<Eversion>> {
    let queries =
        vec![Query::Data { offset: 0, len: u64::MAX }, Query::Attrs, Query::OmapHeader, Query::whole_omap()];
    let Ok(answers) = store.read_now(ReadRequest { collection, object: object.clone(), queries }) else {
        return Err(version_of(store, collection, object));
    };
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
    Ok(ObjectContents {
        data: backend.client_bytes(&object.object, data.clone()).to_bytes(),
        attrs: map(attrs),
        omap_header: omap_header.clone(),
        omap: map(entries),
    })
}

/// The version in an object's info. `None`: it cannot be read.
fn version_of(store: &mut OsdStore, collection: Collection, object: &ObjectId) -> Option<Eversion> {
    let queries = vec![Query::Attr { name: INFO_ATTR }];
    let answers = store.read_now(ReadRequest { collection, object: object.clone(), queries }).ok()?;
    let [Answer::Attr(Some(info))] = &answers[..] else { return None };
    codec::decode_exact::<ObjectInfo>(info).ok().map(|info| info.version)
}
