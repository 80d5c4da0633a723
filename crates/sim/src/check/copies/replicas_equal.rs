//! In the quiet time all copies of a PG are equal: the same objects with the same bytes, attributes and omap.
//!
//! The copies are read from the simulated stores, past the OSDs. The PG's own record (its meta object) is left out: each
//! copy trims its log at its own pace.

use super::damage::Lost;
use super::sight::Sights;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectId;
use wire::types::{Eversion, OsdId, SpgId};

/// The PGs in one OSD's stores.
pub type Contents = BTreeMap<SpgId, PgContents>;

/// The objects of one copy of a PG. `Err`: a broken block makes the object unreadable; the version that its info names, if
/// that can be read.
pub type PgContents = BTreeMap<ObjectId, Result<ObjectContents, Option<Eversion>>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectContents {
    pub data: Bytes,
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub omap_header: Bytes,
    pub omap: BTreeMap<Bytes, Bytes>,
}

/// Compares the copies of the members of each PG that is served, but for objects that are lost. Returns the number of objects
/// compared.
pub fn check(sights: &Sights, contents: &BTreeMap<OsdId, Contents>, lost: &Lost) -> Result<u64, String> {
    let mut compared = 0;
    let none = BTreeSet::new();
    for (pg, copies) in sights.pgs() {
        let Some(primary) = copies.serving().first().copied() else { continue };
        let on = |osd: &OsdId| contents.get(osd).and_then(|stores| stores.get(&pg));
        let Some(mine) = on(&primary.osd) else {
            return Err(format!("PG {}: {} serves it, and its stores lack it", pg.pg, primary.osd));
        };
        compared += mine.len() as u64;
        for member in copies.members(primary).filter(|member| member.osd != primary.osd) {
            let Some(other) = on(&member.osd) else {
                return Err(format!("PG {}: the stores of {} lack it", pg.pg, member.osd));
            };
            if let Some(words) = difference(mine, other, lost.get(&pg).unwrap_or(&none)) {
                return Err(format!("PG {}: {} and {}: {words}", pg.pg, primary.osd, member.osd));
            }
        }
    }
    Ok(compared)
}

/// The first object in which two copies differ, and the difference.
fn difference(one: &PgContents, other: &PgContents, lost: &BTreeSet<ObjectId>) -> Option<String> {
    for object in one.keys().chain(other.keys()).filter(|object| !lost.contains(object)) {
        let (mine, others) = (one.get(object), other.get(object));
        let words = match (mine, others) {
            (Some(_), None) => "is missing on the second".to_owned(),
            (None, Some(_)) => "is missing on the first".to_owned(),
            (Some(Ok(mine)), Some(Ok(others))) if mine != others => first_field(mine, others),
            _ => continue,
        };
        return Some(format!("{object:?} {words}"));
    }
    None
}

fn first_field(one: &ObjectContents, other: &ObjectContents) -> String {
    if one.data != other.data {
        let at = one.data.iter().zip(&other.data).position(|(a, b)| a != b);
        let at = at.unwrap_or(one.data.len().min(other.data.len()));
        return format!("has {} and {} bytes, different from byte {at} on", one.data.len(), other.data.len());
    }
    if one.omap_header != other.omap_header {
        return format!("has omap headers {:?} and {:?}", one.omap_header, other.omap_header);
    }
    for (kind, one, other) in [("attribute", &one.attrs, &other.attrs), ("omap key", &one.omap, &other.omap)]
    {
        if let Some(key) = one.keys().chain(other.keys()).find(|key| one.get(*key) != other.get(*key)) {
            return format!("has {kind} {key:?} with {:?} and {:?}", one.get(key), other.get(key));
        }
    }
    "differs".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::tests::{PG, primary, replica};
    use wire::types::HObject;

    const MEMBERS: [i32; 2] = [0, 1];

    fn object() -> ObjectContents {
        let map = |key: &'static str| [(Bytes::from_static(key.as_bytes()), Bytes::from_static(b"v"))].into();
        ObjectContents {
            data: Bytes::from_static(b"data"),
            attrs: map("a"),
            omap_header: Bytes::from_static(b"h"),
            omap: map("k"),
        }
    }

    /// Compares a copy with one object with the same copy after a change.
    fn check_after(change: impl FnOnce(&mut PgContents)) -> Result<u64, String> {
        let id = ObjectId::from(HObject { name: "x".into(), ..HObject::min() });
        let one: PgContents = [(id, Ok(object()))].into();
        let mut other = one.clone();
        change(&mut other);
        let stores = [(OsdId(0), [(PG.into(), one)].into()), (OsdId(1), [(PG.into(), other)].into())];
        check(
            &[primary(0, &MEMBERS), replica(1, &MEMBERS)].into_iter().collect(),
            &stores.into(),
            &Lost::new(),
        )
    }

    fn edit(contents: &mut PgContents) -> &mut ObjectContents {
        contents.values_mut().next().and_then(|copy| copy.as_mut().ok()).expect("one object")
    }

    #[test]
    fn equal_copies_and_unreadable_objects_hold() {
        assert_eq!(check_after(|_| ()), Ok(1));
        assert_eq!(check_after(|other| *other.values_mut().next().expect("one") = Err(None)), Ok(1));
    }

    #[test]
    fn each_kind_of_difference_is_reported() {
        let value = Bytes::from_static(b"w");
        type Case<'a> = (&'a str, Box<dyn FnOnce(&mut PgContents)>);
        let cases: [Case<'_>; 6] = [
            ("missing on the second", Box::new(PgContents::clear)),
            ("different from byte 3", Box::new(|other| edit(other).data = Bytes::from_static(b"dat"))),
            ("omap headers", Box::new(|other| edit(other).omap_header = Bytes::new())),
            (
                "attribute b\"b\"",
                Box::new({
                    let value = value.clone();
                    move |other| drop(edit(other).attrs.insert(Bytes::from_static(b"b"), value))
                }),
            ),
            (
                "omap key b\"k\"",
                Box::new(move |other| {
                    drop(edit(other).omap.insert(Bytes::from_static(b"k"), value));
                }),
            ),
            (
                "missing on the first",
                Box::new(|other| {
                    let more = ObjectId::from(HObject { name: "y".into(), ..HObject::min() });
                    other.insert(more, Ok(object()));
                }),
            ),
        ];
        for (words, change) in cases {
            let found = check_after(change).unwrap_err();
            assert!(found.contains(words), "{words}: {found}");
        }
    }

    #[test]
    fn member_without_the_collection_is_reported() {
        let sights: Sights = [primary(0, &MEMBERS), replica(1, &MEMBERS)].into_iter().collect();
        let stores = [(OsdId(0), Contents::from([(PG.into(), PgContents::new())]))];
        assert!(check(&sights, &stores.into(), &Lost::new()).unwrap_err().contains("osd.1 lack it"));
    }
}
