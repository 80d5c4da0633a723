//! The missing set of one copy of a PG: objects that its log has and its store lacks.

use std::collections::BTreeMap;
use wire::types::{Eversion, HObject, MissingObject};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// By object: the version that the log has.
    objects: BTreeMap<HObject, Eversion>,
    /// Those that the copy had until the device damaged them, with the versions that it had and may have served.
    damaged: BTreeMap<HObject, Eversion>,
}

impl Missing {
    pub fn add(&mut self, object: HObject, need: Eversion) {
        self.objects.insert(object, need);
    }

    pub fn add_damaged(&mut self, object: HObject, version: Eversion) {
        self.add(object.clone(), version);
        self.damaged.insert(object, version);
    }

    /// As the records of damage have it. `None`: no version was recorded.
    pub fn note_damaged(&mut self, object: HObject, version: Option<Eversion>) {
        if let Some(need) = self.need(&object) {
            self.damaged.insert(object, version.unwrap_or(need));
        }
    }

    pub fn remove(&mut self, object: &HObject) -> Option<Eversion> {
        if !self.damaged.is_empty() {
            self.damaged.remove(object);
        }
        self.objects.remove(object)
    }

    pub fn need(&self, object: &HObject) -> Option<Eversion> {
        self.objects.get(object).copied()
    }

    pub fn contains(&self, object: &HObject) -> bool {
        !self.objects.is_empty() && self.objects.contains_key(object)
    }

    /// The object or one of its clones is missing.
    pub fn contains_any_of(&self, object: &HObject) -> bool {
        !self.objects.is_empty() && self.objects.range(object.with_clones()).next().is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn clear(&mut self) {
        self.objects.clear();
        self.damaged.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = (&HObject, &Eversion)> {
        self.objects.iter()
    }

    /// The part whose objects now belong to another PG.
    pub fn split_off(&mut self, belongs: impl Fn(&HObject) -> bool) -> Missing {
        Missing {
            objects: self.objects.extract_if(.., |object, _| belongs(object)).collect(),
            damaged: self.damaged.extract_if(.., |object, _| belongs(object)).collect(),
        }
    }

    pub fn to_wire(&self) -> Vec<MissingObject> {
        wire(&self.objects)
    }

    pub fn damaged_to_wire(&self) -> Vec<MissingObject> {
        wire(&self.damaged)
    }

    pub fn from_wire(missing: &[MissingObject]) -> Missing {
        let objects = missing.iter().map(|m| (m.object.clone(), m.need)).collect();
        Missing { objects, damaged: BTreeMap::new() }
    }
}

fn wire(objects: &BTreeMap<HObject, Eversion>) -> Vec<MissingObject> {
    objects.iter().map(|(object, need)| MissingObject { object: object.clone(), need: *need }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> HObject {
        HObject { name: name.into(), ..HObject::min() }
    }

    fn v(version: u64) -> Eversion {
        Eversion { epoch: 1, version }
    }

    #[test]
    fn version_that_damage_took_stays_until_the_object_is_back() {
        let mut missing = Missing::default();
        for name in ["a", "b", "c"] {
            missing.add_damaged(object(name), v(1));
        }
        missing.add(object("a"), v(2));
        missing.remove(&object("b"));
        let had = |missing: &Missing| -> Vec<_> {
            missing.damaged_to_wire().into_iter().map(|m| (m.object.name.to_string(), m.need)).collect()
        };
        assert_eq!(had(&missing), [("a".into(), v(1)), ("c".into(), v(1))]);
        assert_eq!(had(&missing.split_off(|o| *o == object("c"))), [("c".into(), v(1))]);
        assert_eq!((missing.need(&object("a")), had(&missing)), (Some(v(2)), vec![("a".into(), v(1))]));
    }

    #[test]
    fn record_without_a_version_stands_for_the_version_that_is_needed() {
        let mut missing = Missing::default();
        missing.add(object("a"), v(2));
        missing.note_damaged(object("a"), None);
        missing.note_damaged(object("b"), Some(v(1)));
        assert_eq!(missing.damaged_to_wire(), missing.to_wire());
    }
}
