//! The missing set of one copy of a PG: objects that its log has and its store lacks.

use std::collections::BTreeMap;
use wire::types::{Eversion, HObject, MissingObject};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// By object: the version that the log has.
    objects: BTreeMap<HObject, Eversion>,
}

impl Missing {
    pub fn add(&mut self, object: HObject, need: Eversion) {
        self.objects.insert(object, need);
    }

    pub fn remove(&mut self, object: &HObject) -> Option<Eversion> {
        self.objects.remove(object)
    }

    pub fn need(&self, object: &HObject) -> Option<Eversion> {
        self.objects.get(object).copied()
    }

    pub fn contains(&self, object: &HObject) -> bool {
        !self.objects.is_empty() && self.objects.contains_key(object)
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn clear(&mut self) {
        self.objects.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = (&HObject, &Eversion)> {
        self.objects.iter()
    }

    /// The part whose objects now belong to another PG.
    pub fn split_off(&mut self, belongs: impl Fn(&HObject) -> bool) -> Missing {
        Missing { objects: self.objects.extract_if(.., |object, _| belongs(object)).collect() }
    }

    pub fn to_wire(&self) -> Vec<MissingObject> {
        self.iter().map(|(object, need)| MissingObject { object: object.clone(), need: *need }).collect()
    }

    pub fn from_wire(missing: &[MissingObject]) -> Missing {
        Missing { objects: missing.iter().map(|m| (m.object.clone(), m.need)).collect() }
    }
}
