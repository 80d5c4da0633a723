//! Steps on an object's ordered map.

use super::execution::{Execution, StepResult};
use super::step::OmapAssertion;
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Features, Rope, Writer};
use store::{Answer, Change};
use wire::types::{ObjectFlags, op_value};

impl Execution<'_> {
    /// `count, entries, bool more`: keys, or keys with values.
    pub(super) fn omap_list(&mut self, values: bool) -> StepResult {
        let (entries, mut more) = match self.answer() {
            Some(Answer::OmapList { entries, more }) => (entries, more),
            Some(_) => unreachable!("the plan asked for omap entries"),
            None => (Vec::new(), false),
        };
        let mut w = Writer::new(Features::NONE);
        let mut count = 0u32;
        w.u32(0);
        for (key, value) in &entries {
            if w.len() >= self.limits.max_omap_bytes_per_request {
                more = true;
                break;
            }
            w.blob(key);
            if values {
                w.blob(value);
            }
            count += 1;
        }
        w.patch_u32(0, count);
        w.bool(more);
        self.count_read(w.len());
        Ok(w.into_vec().into())
    }

    pub(super) fn omap_header(&mut self) -> StepResult {
        let header = match self.answer() {
            Some(Answer::OmapHeader(header)) => header,
            Some(_) => unreachable!("the plan asked for the header"),
            None => Bytes::new(),
        };
        self.count_read(header.len());
        Ok(header.into())
    }

    fn omap_entries(&mut self) -> Vec<(Bytes, Bytes)> {
        match self.answer() {
            Some(Answer::OmapGet(entries)) => entries,
            Some(_) => unreachable!("the plan asked for omap entries"),
            None => Vec::new(),
        }
    }

    /// `map<string, blob>` of the asked entries that exist.
    pub(super) fn omap_by_keys(&mut self) -> StepResult {
        let entries = self.omap_entries();
        let mut w = Writer::new(Features::NONE);
        w.put(&entries);
        self.count_read(w.len());
        Ok(w.into_vec().into())
    }

    /// A missing key compares as an empty value. Only equal, less and greater exist.
    pub(super) fn omap_compare(&mut self, assertions: &[OmapAssertion]) -> StepResult {
        let entries = self.omap_entries();
        self.must_exist()?;
        self.stats.reads += 1;
        for OmapAssertion { key, value: want, op } in assertions {
            let have = entries.iter().find(|(k, _)| k == key).map_or(&[][..], |(_, v)| &v[..]);
            let ordering = have.cmp(&want[..]);
            let holds = match u8::try_from(*op).unwrap_or(0) {
                op_value::CMP_EQ => ordering.is_eq(),
                op_value::CMP_LT => ordering.is_lt(),
                op_value::CMP_GT => ordering.is_gt(),
                _ => return Err(Errno::INVAL.into()),
            };
            if !holds {
                return Err(Errno::CANCELED.into());
            }
        }
        Ok(Rope::new())
    }

    pub(super) fn omap_set(&mut self, entries: &[(Bytes, Bytes)]) -> StepResult {
        self.ensure_exists();
        self.changes.push(Change::OmapSet { object: self.id.clone(), entries: entries.to_vec() });
        self.mark_omap();
        self.stats.writes += 1;
        self.stats.write_kib +=
            super::execution::kib(entries.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum());
        Ok(Rope::new())
    }

    fn mark_omap(&mut self) {
        if !self.info.flags.contains(ObjectFlags::OMAP) {
            self.info.to_mut().flags.set(ObjectFlags::OMAP);
        }
    }

    pub(super) fn omap_set_header(&mut self, header: &Bytes) -> StepResult {
        self.ensure_exists();
        self.changes.push(Change::OmapSetHeader { object: self.id.clone(), header: header.clone() });
        self.mark_omap();
        self.stats.writes += 1;
        Ok(Rope::new())
    }

    pub(super) fn omap_clear(&mut self) -> StepResult {
        self.must_exist()?;
        if self.info.flags.contains(ObjectFlags::OMAP) {
            self.changes.push(Change::OmapClear { object: self.id.clone() });
            self.info.to_mut().flags.clear(ObjectFlags::OMAP);
            self.stats.writes += 1;
        } else {
            self.touched = true;
        }
        Ok(Rope::new())
    }

    pub(super) fn omap_remove(&mut self, keys: &[Bytes]) -> StepResult {
        self.must_exist()?;
        self.changes.push(Change::OmapRemove { object: self.id.clone(), keys: keys.to_vec() });
        self.stats.writes += 1;
        Ok(Rope::new())
    }

    pub(super) fn omap_remove_range(&mut self, from: &Bytes, to: &Bytes) -> StepResult {
        self.must_exist()?;
        let (object, from, to) = (self.id.clone(), from.clone(), to.clone());
        self.changes.push(Change::OmapRemoveRange { object, from, to });
        self.stats.writes += 1;
        Ok(Rope::new())
    }
}
