//! Objects that damage took: some copy has the version that counts and cannot be read, and no other OSD has that version.
//!
//! Two copies and one fault of a disk are enough for that: the damaged copy is written to without being read (an attribute,
//! say) while the other one is away, and that one comes back without the write. Stock Ceph loses the object then, too, and
//! the PG stays `recovery_unfound` until an operator gives the object up.

use super::replicas_equal::Contents;
use super::sight::{PgCopies, Sights};
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectId;
use wire::types::{Eversion, OsdId, SpgId};

pub type Lost = BTreeMap<SpgId, BTreeSet<ObjectId>>;

/// The unfound objects of each PG that is served, of which the checked stores explain the loss.
pub fn lost(sights: &Sights, contents: &BTreeMap<OsdId, Contents>) -> Lost {
    let mut out = Lost::new();
    for (pg, copies) in sights.pgs() {
        let Some(primary) = copies.serving().first().copied() else { continue };
        for (object, need) in &primary.missing {
            let object = ObjectId::from(object.clone());
            if is_lost(pg, copies, &object, *need, contents) {
                out.entry(pg).or_default().insert(object);
            }
        }
    }
    out
}

fn is_lost(
    pg: SpgId,
    copies: PgCopies<'_>,
    object: &ObjectId,
    need: Eversion,
    contents: &BTreeMap<OsdId, Contents>,
) -> bool {
    let on = |osd: OsdId| contents.get(&osd)?.get(&pg)?.get(object);
    let is_damaged = copies.iter().any(|copy| on(copy.osd) == Some(&Err(Some(need))));
    let is_whole = copies.iter().any(|copy| {
        let has_it = copy.is_backfilled && !copy.missing.contains_key(&object.object);
        has_it && matches!(on(copy.osd), Some(Ok(_)))
    });
    is_damaged && !is_whole
}

#[cfg(test)]
mod tests {
    use super::super::replicas_equal::{ObjectContents, PgContents};
    use super::super::sight::tests::{PG, at, primary, replica};
    use super::*;
    use wire::types::HObject;

    const MEMBERS: [i32; 2] = [0, 1];

    fn object() -> HObject {
        HObject { name: "x".into(), ..HObject::min() }
    }

    /// Both members lack version 5 of the object; these are their stores.
    fn is_lost_with(
        stores: [Option<Result<ObjectContents, Option<Eversion>>>; 2],
        other_lacks: bool,
    ) -> bool {
        let (mut one, mut other) = (primary(0, &MEMBERS), replica(1, &MEMBERS));
        one.missing.insert(object(), at(10, 5));
        if other_lacks {
            other.missing.insert(object(), at(10, 5));
        }
        let sights: Sights = [one, other].into_iter().collect();
        let contents =
            |store: Option<_>| -> PgContents { store.into_iter().map(|c| (object().into(), c)).collect() };
        let stores = stores.into_iter().zip([OsdId(0), OsdId(1)]);
        let stores = stores.map(|(store, osd)| (osd, [(PG.into(), contents(store))].into())).collect();
        lost(&sights, &stores).contains_key(&PG.into())
    }

    #[test]
    fn unfound_object_is_lost_to_damage_of_the_newest_copy_alone() {
        let whole = || Some(Ok(ObjectContents::default()));
        let newest = Some(Err(Some(at(10, 5))));
        assert!(is_lost_with([newest.clone(), whole()], true));
        assert!(is_lost_with([newest.clone(), None], true));
        assert!(!is_lost_with([newest.clone(), whole()], false), "the member has it");
        assert!(
            !is_lost_with([Some(Err(Some(at(10, 4)))), whole()], true),
            "damage of an old copy explains nothing"
        );
        assert!(!is_lost_with([Some(Err(None)), whole()], true));
        assert!(!is_lost_with([whole(), whole()], true), "nothing is damaged");
    }
}
