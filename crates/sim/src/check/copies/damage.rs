//! Objects that damage took: some copy has the version that counts and cannot be read, and no other OSD has that version.
//!
//! Two copies and one fault of a disk are enough for that: the damaged copy is written to without being read (an attribute,
//! say) while the other one is away, and that one comes back without the write. Stock Ceph loses the object then, too, and
//! the PG stays `recovery_unfound` until an operator gives the object up.

use super::replicas_equal::{Contents, ObjectContents};
use super::sight::{PgCopies, Sights};
use osd::ops::INFO_ATTR;
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectId;
use wire::types::{Eversion, HObject, ObjectInfo, OsdId, SpgId};

pub type Lost = BTreeMap<SpgId, BTreeSet<ObjectId>>;

/// The unfound objects of each PG that is served, of which the checked stores explain the loss.
pub fn lost(sights: &Sights, contents: &BTreeMap<OsdId, Contents>) -> Lost {
    let mut out = Lost::new();
    for (pg, copies) in sights.pgs() {
        for (object, need) in missing(copies) {
            let object = ObjectId::from(object.clone());
            if is_lost(pg, copies, &object, need, contents) {
                out.entry(pg).or_default().insert(object);
            }
        }
    }
    out
}

/// The objects that a member of the serving interval lacks, with the needed versions. The primary itself may have the damaged copy.
fn missing(copies: PgCopies<'_>) -> BTreeMap<&HObject, Eversion> {
    let members = copies.serving().first().copied().into_iter().flat_map(|primary| copies.members(primary));
    members.flat_map(|member| &member.missing).map(|(object, need)| (object, *need)).collect()
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
    // A copy whose log ends before this version has an older one, and does not know that it misses this one.
    let is_whole = copies.iter().any(|copy| {
        let has_it = copy.is_backfilled && !copy.missing.contains_key(&object.object);
        has_it && matches!(on(copy.osd), Some(Ok(contents)) if version_of(contents) == Some(need))
    });
    is_damaged && !is_whole
}

fn version_of(contents: &ObjectContents) -> Option<Eversion> {
    let info = contents.attrs.get(&INFO_ATTR)?;
    codec::decode_exact::<ObjectInfo>(info).ok().map(|info| info.version)
}

#[cfg(test)]
mod tests {
    use super::super::replicas_equal::PgContents;
    use super::super::sight::tests::{PG, at, primary, replica, stray};
    use super::*;
    use codec::{Encode, Features};

    const MEMBERS: [i32; 2] = [0, 1];

    fn object() -> HObject {
        HObject { name: "x".into(), ..HObject::min() }
    }

    type Copy = Option<Result<ObjectContents, Option<Eversion>>>;

    /// A readable copy of this version.
    fn whole(version: u64) -> Copy {
        let info = ObjectInfo { version: at(10, version), ..ObjectInfo::new(object()) };
        let attrs = [(INFO_ATTR, info.to_vec(Features::ALL).into())].into();
        Some(Ok(ObjectContents { attrs, ..ObjectContents::default() }))
    }

    fn damaged(version: u64) -> Copy {
        Some(Err(Some(at(10, version))))
    }

    /// The members of `lacking` lack version 5 of the object; these are the stores of both members and of a stray.
    fn is_lost_with(stores: [Copy; 3], lacking: &[usize]) -> bool {
        let mut copies = [primary(0, &MEMBERS), replica(1, &MEMBERS), stray(2)];
        for member in lacking {
            copies[*member].missing.insert(object(), at(10, 5));
        }
        let sights: Sights = copies.into_iter().collect();
        let contents =
            |store: Copy| -> PgContents { store.into_iter().map(|c| (object().into(), c)).collect() };
        let stores = stores.into_iter().zip([OsdId(0), OsdId(1), OsdId(2)]);
        let stores = stores.map(|(store, osd)| (osd, [(PG.into(), contents(store))].into())).collect();
        lost(&sights, &stores).contains_key(&PG.into())
    }

    #[test]
    fn unfound_object_is_lost_to_damage_of_the_newest_copy_alone() {
        let both = [0, 1];
        assert!(is_lost_with([damaged(5), whole(4), None], &both));
        assert!(is_lost_with([damaged(5), None, None], &both));
        assert!(!is_lost_with([damaged(5), whole(5), None], &[0]), "the member has it");
        assert!(!is_lost_with([damaged(4), whole(4), None], &both), "damage of an old copy explains nothing");
        assert!(!is_lost_with([Some(Err(None)), whole(4), None], &both));
        assert!(!is_lost_with([whole(4), whole(4), None], &both), "nothing is damaged");
    }

    /// The primary has the newest version and cannot read it: it does not miss the object, and the other members do.
    #[test]
    fn damaged_copy_of_the_primary_explains_a_loss() {
        assert!(is_lost_with([damaged(5), whole(4), None], &[1]));
        assert!(!is_lost_with([whole(5), whole(4), None], &[1]), "recovery can read it");
    }

    #[test]
    fn older_copy_of_a_stray_is_no_copy() {
        assert!(is_lost_with([damaged(5), None, whole(4)], &[0, 1]));
        assert!(!is_lost_with([damaged(5), None, whole(5)], &[0, 1]), "the stray has it");
    }
}
