//! Operations on an object's ordered map.

use super::Limits;
use super::execution::{Execution, kib};
use super::handler::{Handler, OpOutcome, done};
use super::reads::{OmapHeaderRead, OmapKeysRead, OmapPage, OmapPageRead};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Decode, DecodeError, Features, Reader, Rope, Writer};
use store::Change;
use wire::types::{ObjectFlags, OsdOp, op_value};

/// `count, keys, bool more`, from the first key greater than `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListKeys {
    after: Bytes,
    max: u64,
}

impl Handler for ListKeys {
    type Reads = OmapPageRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let mut r = Reader::new(&op.input);
        Ok(ListKeys { after: r.get()?, max: r.u64()? })
    }

    fn reads(&self, limits: &Limits) -> OmapPageRead {
        let (after, max) = (self.after.clone(), limits.omap_entries(self.max));
        OmapPageRead { after, prefix: Bytes::new(), max, values: false }
    }

    fn execute(&self, list: &mut Execution<'_>, page: OmapPage) -> OpOutcome {
        list.encode_page(page, false)
    }
}

/// `count, keys with values, bool more`, of the keys with the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListValues {
    after: Bytes,
    max: u64,
    prefix: Bytes,
}

impl Handler for ListValues {
    type Reads = OmapPageRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let mut r = Reader::new(&op.input);
        Ok(ListValues { after: r.get()?, max: r.u64()?, prefix: r.get()? })
    }

    fn reads(&self, limits: &Limits) -> OmapPageRead {
        let (after, prefix) = (self.after.clone(), self.prefix.clone());
        OmapPageRead { after, prefix, max: limits.omap_entries(self.max), values: true }
    }

    fn execute(&self, list: &mut Execution<'_>, page: OmapPage) -> OpOutcome {
        list.encode_page(page, true)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetHeader;

impl Handler for GetHeader {
    type Reads = OmapHeaderRead;

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(GetHeader)
    }

    fn reads(&self, _: &Limits) -> OmapHeaderRead {
        OmapHeaderRead
    }

    fn execute(&self, list: &mut Execution<'_>, header: Bytes) -> OpOutcome {
        list.count_read(header.len());
        Ok(Rope::from(header).into())
    }
}

/// `map<string, blob>` of the asked entries that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetByKeys(Vec<Bytes>);

impl Handler for GetByKeys {
    type Reads = OmapKeysRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(GetByKeys(Reader::new(&op.input).get()?))
    }

    fn reads(&self, _: &Limits) -> OmapKeysRead {
        OmapKeysRead(self.0.clone())
    }

    fn execute(&self, list: &mut Execution<'_>, entries: Vec<(Bytes, Bytes)>) -> OpOutcome {
        let mut w = Writer::new(Features::NONE);
        w.put(&entries);
        list.count_read(w.len());
        Ok(Rope::from(w.into_vec()).into())
    }
}

/// A missing key compares as an empty value. Only equal, less and greater exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare(Vec<Assertion>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Assertion {
    key: Bytes,
    value: Bytes,
    /// `op_value::CMP_*`.
    op: u32,
}

impl Decode for Assertion {
    const MIN_LEN: usize = 12;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Assertion { key: r.get()?, value: r.get()?, op: r.u32()? })
    }
}

impl Handler for Compare {
    type Reads = OmapKeysRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Compare(Reader::new(&op.input).get()?))
    }

    fn reads(&self, _: &Limits) -> OmapKeysRead {
        OmapKeysRead(self.0.iter().map(|assertion| assertion.key.clone()).collect())
    }

    fn execute(&self, list: &mut Execution<'_>, entries: Vec<(Bytes, Bytes)>) -> OpOutcome {
        list.must_exist()?;
        list.stats.reads += 1;
        for Assertion { key, value: want, op } in &self.0 {
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
        done()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set(Vec<(Bytes, Bytes)>);

impl Handler for Set {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Set(Reader::new(&op.input).get()?))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.ensure_exists();
        list.changes.push(Change::OmapSet { object: list.id.clone(), entries: self.0.clone() });
        list.mark_omap();
        list.stats.writes += 1;
        list.stats.write_kib += kib(self.0.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum());
        done()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetHeader(Bytes);

impl Handler for SetHeader {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(SetHeader(Bytes::copy_from_slice(&op.input)))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.ensure_exists();
        list.changes.push(Change::OmapSetHeader { object: list.id.clone(), header: self.0.clone() });
        list.mark_omap();
        list.stats.writes += 1;
        done()
    }
}

/// Removes all keys and the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clear;

impl Handler for Clear {
    type Reads = ();

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(Clear)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.must_exist()?;
        if list.info.flags.contains(ObjectFlags::OMAP) {
            list.changes.push(Change::OmapClear { object: list.id.clone() });
            list.unmark_omap();
            list.stats.writes += 1;
        } else {
            list.touched = true;
        }
        done()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remove(Vec<Bytes>);

impl Handler for Remove {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Remove(Reader::new(&op.input).get()?))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.must_exist()?;
        list.changes.push(Change::OmapRemove { object: list.id.clone(), keys: self.0.clone() });
        list.stats.writes += 1;
        done()
    }
}

/// Removes the keys in `from..to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveRange {
    from: Bytes,
    to: Bytes,
}

impl Handler for RemoveRange {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let mut r = Reader::new(&op.input);
        Ok(RemoveRange { from: r.get()?, to: r.get()? })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.must_exist()?;
        let (from, to) = (self.from.clone(), self.to.clone());
        list.changes.push(Change::OmapRemoveRange { object: list.id.clone(), from, to });
        list.stats.writes += 1;
        done()
    }
}

impl Execution<'_> {
    pub(super) fn mark_omap(&mut self) {
        if !self.info.flags.contains(ObjectFlags::OMAP) {
            self.info.to_mut().flags.set(ObjectFlags::OMAP);
            self.stats.omap_objects += 1;
        }
    }

    pub(super) fn unmark_omap(&mut self) {
        if self.info.flags.contains(ObjectFlags::OMAP) {
            self.info.to_mut().flags.clear(ObjectFlags::OMAP);
            self.stats.omap_objects -= 1;
        }
    }

    fn encode_page(&mut self, page: OmapPage, values: bool) -> OpOutcome {
        let OmapPage { entries, mut more } = page;
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
        Ok(Rope::from(w.into_vec()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Operation;
    use super::*;
    use wire::types::OpCode;

    #[test]
    fn comparison_decodes_key_value_and_operator() {
        let mut w = Writer::new(Features::ALL);
        w.count(1);
        w.string("key");
        w.blob(b"value");
        w.i32(1);
        let mut op = OsdOp::bare(OpCode::OMAP_CMP);
        op.input = w.into_bytes();
        let want = Assertion { key: "key".into(), value: "value".into(), op: 1 };
        assert_eq!(Operation::decode(&op), Operation::OmapCompare(Compare(vec![want])));
    }
}
