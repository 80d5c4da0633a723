//! Completion and removal of a copy.

use super::access::Access;
use super::{copy, daemon, for_each_object, split_bits};
use anyhow::{Context, anyhow};
use osd::ops::{INFO_ATTR, object_info};
use osd::pg::log::LogLimits;
use osd::stopped::{self, Completion, Held};
use store::moving::CollectionRemoval;
use store::{Answer, Collection, Query, ReadRequest, Transaction};
use wire::types::{ObjectFlags, ObjectInfo, SnapId, SpgId};

pub fn mark_complete(store: &mut Access, pg: SpgId) -> anyhow::Result<Completion> {
    let (copy, _) = copy(store, pg)?;
    let held = if copy.is_complete() { None } else { Some(count(store, pg)?) };
    let daemon = daemon(store)?;
    let duplicates_max = LogLimits::default().max_duplicates;
    let (completion, transaction) =
        stopped::complete(copy, &daemon, duplicates_max, held).map_err(|why| anyhow!(why))?;
    store.apply(transaction)?;
    Ok(completion)
}

fn count(store: &mut Access, pg: SpgId) -> anyhow::Result<Held> {
    let mut held = Held::default();
    for_each_object(store, pg, &mut |store, object| {
        let queries = vec![Query::Stat, Query::Attr { name: INFO_ATTR }];
        held.objects += 1;
        held.clones += i64::from(object.object.snap < SnapId::HEAD);
        let answers = store.ask(ReadRequest { collection: Collection::Pg(pg), object, queries })?;
        // The size of an object that cannot be read is not counted.
        if let Ok([Answer::Stat { size }, info]) = answers.as_deref() {
            held.bytes += i64::try_from(*size).unwrap_or(i64::MAX);
            let is_whiteout = |info: ObjectInfo| info.flags.contains(ObjectFlags::WHITEOUT);
            held.whiteouts += i64::from(object_info(info).is_some_and(is_whiteout));
        }
        Ok(())
    })?;
    Ok(held)
}

/// Removes the copy, also one whose records cannot be read. A removal that was interrupted is repeated.
pub fn remove(store: &mut Access, pg: SpgId) -> anyhow::Result<()> {
    let split_bits = split_bits(store, pg).with_context(|| {
        format!("PG {pg} is not in this store: `shoal store pg list` shows those that are")
    })?;
    let readable = copy(store, pg).ok().map(|(copy, _)| copy);
    let daemon = daemon(store)?;
    for transaction in stopped::removal(pg, split_bits, readable.as_ref(), &daemon) {
        store.apply(transaction)?;
    }
    let collection = Collection::Pg(pg);
    let mut removal = CollectionRemoval::default();
    while !removal.is_last() {
        let answers = store.ask(removal.request(collection))?;
        let answers = answers.with_context(|| format!("the objects of PG {pg} cannot be listed"))?;
        let changes = removal.changes(answers);
        store.apply(Transaction { collection, changes })?;
    }
    Ok(())
}
