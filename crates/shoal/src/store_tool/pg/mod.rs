//! The PGs of a stopped OSD in an operator's hands (`shoal store pg`): shown, copied out and in, completed, removed.
//!
//! - [`access`]: the store, on disk or as images of a memory store, one request at a time.
//! - [`file`]: the format of an exported PG; [`export`] and [`import`] write and read it.
//! - [`show`]: list, info and log.
//! - [`change`]: completion and removal.

pub mod access;
pub mod change;
pub mod example;
pub mod export;
pub mod file;
pub mod import;
pub mod show;

use access::Access;
use anyhow::{Context, anyhow, bail};
use osd::stopped::{Daemon, MetaRecords, PgCopy};
use store::{Answer, Collection, ObjectId, Query, ReadRequest};
use wire::types::{HObject, SpgId};

/// Objects of one listing.
const LIST_MAX: usize = 1000;

/// Receives the bytes of data that were copied since the last call.
pub type OnProgress<'a> = &'a mut dyn FnMut(u64);

/// The daemon's records. A store that an OSD has never used has none.
pub fn daemon(store: &mut Access) -> anyhow::Result<Daemon> {
    let request = Daemon::request();
    if !store.collections().iter().any(|(collection, _)| *collection == request.collection) {
        return Daemon::from_answers(Vec::new()).map_err(|why| anyhow!(why));
    }
    let answers = store.ask(request)?.context("the daemon's records")?;
    Daemon::from_answers(answers).map_err(|why| anyhow!(why))
}

/// Low bits of the hash that all objects of the PG share. `None`: the store has no copy.
pub fn split_bits(store: &Access, pg: SpgId) -> Option<u8> {
    let of_pg = |(collection, split_bits)| (collection == Collection::Pg(pg)).then_some(split_bits);
    store.collections().into_iter().find_map(of_pg)
}

/// The PGs of the store with their split bits.
pub fn held(store: &Access) -> Vec<(SpgId, u8)> {
    let pg_of = |(collection, split_bits)| match collection {
        Collection::Pg(pg) => Some((pg, split_bits)),
        Collection::Meta => None,
    };
    store.collections().into_iter().filter_map(pg_of).collect()
}

/// A copy of a PG, which must be there and be readable, with its records as they are.
pub fn copy(store: &mut Access, pg: SpgId) -> anyhow::Result<(PgCopy, MetaRecords)> {
    let split_bits = split_bits(store, pg).with_context(|| {
        format!("PG {pg} is not in this store: `shoal store pg list` shows those that are")
    })?;
    let answers = store.ask(PgCopy::request(pg))?;
    let answers = answers.with_context(|| format!("the records of PG {pg} cannot be read"))?;
    let (mut records, mut more) = MetaRecords::from_answers(answers).map_err(|why| anyhow!(why))?;
    while more {
        let answers = store.ask(records.log_request(pg))?;
        let answers = answers.with_context(|| format!("the log of PG {pg} cannot be read"))?;
        more = records.add_log(answers).map_err(|why| anyhow!(why))?;
    }
    let copy = records.to_copy(pg, split_bits).with_context(|| {
        format!("the records of PG {pg} are damaged: the OSD does not serve this copy, either")
    })?;
    Ok((copy, records))
}

/// Visits the PG's objects in order, without a list of all.
pub(super) fn for_each_object(
    store: &mut Access,
    pg: SpgId,
    visit: &mut dyn FnMut(&mut Access, ObjectId) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut from = Some(ObjectId::from(HObject::min()));
    while let Some(object) = from.take() {
        let queries = vec![Query::List { end: HObject::max().into(), max: LIST_MAX }];
        let answers = store.ask(ReadRequest { collection: Collection::Pg(pg), object, queries })?;
        let answers = answers.with_context(|| format!("the objects of PG {pg} cannot be listed"))?;
        let Some(Answer::List { objects, next }) = answers.into_iter().next() else {
            bail!("a listing was answered with something else");
        };
        objects.into_iter().try_for_each(|object| visit(store, object))?;
        from = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
