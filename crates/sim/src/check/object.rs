//! An object as a value, and what each step of an operation list does to it: the specification that answers are checked
//! against, written independently of the OSD.
//!
//! As in Ceph, an operation list is atomic. Its reads and guards see the object as it was before the list; only existence
//! and size follow the list's own changes.

use super::Token;
use super::data::{Data, Fill};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One step of an operation list. Names and keys are short constants of the workload.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// `len` 0 reads everything.
    Read {
        offset: u64,
        len: u64,
    },
    SparseRead {
        offset: u64,
        len: u64,
    },
    /// The size. In a list that writes: the guard that the object exists.
    Stat,
    GetXattr(&'static str),
    GetXattrs,
    OmapKeys {
        after: &'static str,
        max: u64,
    },
    OmapEntries {
        after: &'static str,
        max: u64,
    },
    OmapGet(Vec<&'static str>),
    OmapHeader,
    /// A listing of the pool named the object.
    IsListed,

    CompareXattr {
        name: &'static str,
        value: Bytes,
    },
    CompareExtent {
        offset: u64,
        fill: Fill,
    },
    CompareOmap {
        key: &'static str,
        value: Bytes,
    },

    Create {
        exclusive: bool,
    },
    Write {
        offset: u64,
        fill: Fill,
    },
    WriteFull(Fill),
    Append(Fill),
    Zero {
        offset: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    Remove,
    SetXattr {
        name: &'static str,
        value: Bytes,
    },
    RemoveXattr(&'static str),
    OmapSet(BTreeMap<&'static str, Bytes>),
    OmapSetHeader(Bytes),
    OmapRemove(Vec<&'static str>),
    OmapRemoveRange {
        from: &'static str,
        to: &'static str,
    },
    OmapClear,

    /// `numops.add`: adds to the decimal number in an omap value.
    Add {
        key: &'static str,
        by: u64,
    },
    /// `version.inc` and `version.read`.
    VersionIncrement,
    VersionRead,
    /// `lock.lock`, exclusive, by the client with this global id; `lock.unlock`; `lock.get_info`.
    Lock {
        owner: i64,
    },
    Unlock {
        owner: i64,
    },
    LockInfo,
}

impl Step {
    pub fn writes(&self) -> bool {
        match self {
            Step::Read { .. }
            | Step::SparseRead { .. }
            | Step::Stat
            | Step::GetXattr(_)
            | Step::GetXattrs
            | Step::OmapKeys { .. }
            | Step::OmapEntries { .. }
            | Step::OmapGet(_)
            | Step::OmapHeader
            | Step::IsListed
            | Step::CompareXattr { .. }
            | Step::CompareExtent { .. }
            | Step::CompareOmap { .. }
            | Step::VersionRead
            | Step::LockInfo => false,
            Step::Create { .. }
            | Step::Write { .. }
            | Step::WriteFull(_)
            | Step::Append(_)
            | Step::Zero { .. }
            | Step::Truncate { .. }
            | Step::Remove
            | Step::SetXattr { .. }
            | Step::RemoveXattr(_)
            | Step::OmapSet(_)
            | Step::OmapSetHeader(_)
            | Step::OmapRemove(_)
            | Step::OmapRemoveRange { .. }
            | Step::OmapClear
            | Step::Add { .. }
            | Step::VersionIncrement
            | Step::Lock { .. }
            | Step::Unlock { .. } => true,
        }
    }

    /// True for steps that read the object's bytes. They fail with EIO on a damaged disk.
    pub fn reads_data(&self) -> bool {
        matches!(self, Step::Read { .. } | Step::SparseRead { .. } | Step::CompareExtent { .. })
    }
}

/// The answer to an operation list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Zero for any success. Positive results are not compared.
    pub errno: i32,
    /// One output per step. Empty if the list writes or failed.
    pub outputs: Vec<Output>,
}

impl Answer {
    pub fn failed(errno: i32) -> Answer {
        Answer { errno, outputs: Vec::new() }
    }

    /// The answer to a list that writes and succeeded.
    pub fn done() -> Answer {
        Answer::failed(0)
    }

    pub fn with(outputs: Vec<Output>) -> Answer {
        Answer { errno: 0, outputs }
    }
}

/// The output of one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    None,
    Data(Bytes),
    /// Extents of the range by offset. The rest is zeros.
    Extents(Vec<(u64, Bytes)>),
    Size(u64),
    Value(Bytes),
    Map(BTreeMap<Bytes, Bytes>),
    /// The flag says that more keys follow.
    Entries(BTreeMap<Bytes, Bytes>, bool),
    Keys(BTreeSet<Bytes>, bool),
    Number(u64),
    Owner(Option<i64>),
    Listed(bool),
}

pub const ENOENT: i32 = -2;
pub const EIO: i32 = -5;
const EBUSY: i32 = -16;
const EEXIST: i32 = -17;
const ENODATA: i32 = -61;
const ECANCELED: i32 = -125;
/// Result of a byte comparison that fails at byte 0. At byte n the result is n less.
const COMPARE_FAILED: i32 = -4095;

const VERSION_XATTR: &[u8] = b"ceph.objclass.version";
pub const LOCK_NAME: &str = "lock";
const LOCK_XATTR: &[u8] = b"lock.lock";

/// The contents of an existing object.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Object {
    pub data: Data,
    xattrs: BTreeMap<&'static str, Bytes>,
    omap: BTreeMap<&'static str, Bytes>,
    omap_header: Bytes,
    version: Option<u64>,
    lock: Option<Lock>,
}

/// The attribute of the lock class. It remains after the lock is released.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Lock {
    owner: Option<i64>,
}

/// An object's value. `None` if the object does not exist.
pub type Value = Option<Rc<Object>>;

/// True if a list that only reads gives `answer` on this value.
pub fn reads(value: &Value, steps: &[Step], answer: &Answer) -> bool {
    if let [Step::IsListed] = steps {
        return answer.outputs == [Output::Listed(value.is_some())];
    }
    let Some(object) = value else { return answer.errno == ENOENT };
    let failure = steps.iter().map(|step| object.errno_of(step)).find(|errno| *errno != 0);
    if failure.is_some() || answer.errno != 0 {
        return failure.unwrap_or(0) == answer.errno;
    }
    steps.len() == answer.outputs.len() && steps.iter().zip(&answer.outputs).all(|(s, o)| object.gives(s, o))
}

/// The object after a list that writes, or the error that the list fails with.
pub fn write(before: &Value, steps: &[Step]) -> Result<Value, i32> {
    let mut after =
        Scratch { is_there: before.is_some(), object: before.as_deref().cloned().unwrap_or_default() };
    for step in steps {
        after.step(before, step)?;
    }
    Ok(after.is_there.then(|| Rc::new(after.object)))
}

/// The object during a list: the value before it, and the value after the steps so far.
struct Scratch {
    is_there: bool,
    object: Object,
}

impl Scratch {
    fn must_exist(&self) -> Result<(), i32> {
        if self.is_there { Ok(()) } else { Err(ENOENT) }
    }

    fn create(&mut self) -> &mut Object {
        self.is_there = true;
        &mut self.object
    }

    fn step(&mut self, before: &Value, step: &Step) -> Result<(), i32> {
        let stored = before.as_deref();
        match step {
            Step::Stat => self.must_exist()?,
            Step::CompareXattr { name, value } => {
                let have = stored.ok_or(ENOENT)?.xattrs.get(name).cloned().unwrap_or_default();
                if have != *value {
                    return Err(ECANCELED);
                }
            }
            Step::CompareExtent { offset, fill } => {
                let nothing = Data::default();
                let data = stored.map_or(&nothing, |o| &o.data);
                // The comparison does not see bytes that the list has truncated or removed before it.
                debug_assert!(stored.is_none_or(|o| o.data == self.object.data), "guards come first");
                if let Some(at) = data.first_difference(*offset, &fill.bytes()) {
                    return Err(COMPARE_FAILED - at as i32);
                }
            }
            Step::CompareOmap { key, value } => {
                self.must_exist()?;
                let have = stored.and_then(|o| o.omap.get(key)).cloned().unwrap_or_default();
                if have != *value {
                    return Err(ECANCELED);
                }
            }
            Step::Create { exclusive } => {
                if self.is_there && *exclusive {
                    return Err(EEXIST);
                }
                self.create();
            }
            Step::Write { offset, fill } => self.create().data.write(*offset, *fill),
            Step::WriteFull(fill) => {
                let data = &mut self.create().data;
                data.truncate(0);
                data.write(0, *fill);
            }
            Step::Append(fill) => {
                let data = &mut self.create().data;
                data.write(data.len(), *fill);
            }
            // Zeros up to the end shorten the object. Zeros beyond the end change nothing.
            Step::Zero { offset, len } => {
                let data = &mut self.object.data;
                if self.is_there && offset + len >= data.len() {
                    data.truncate((*offset).min(data.len()));
                } else if self.is_there {
                    data.zero(*offset, *len);
                }
            }
            Step::Truncate { size } if self.is_there => self.object.data.truncate(*size),
            Step::Truncate { .. } => {}
            Step::Remove => {
                self.must_exist()?;
                (self.is_there, self.object) = (false, Object::default());
            }
            Step::SetXattr { name, value } => drop(self.create().xattrs.insert(name, value.clone())),
            Step::RemoveXattr(name) => {
                self.must_exist()?;
                self.object.xattrs.remove(name);
            }
            Step::OmapSet(entries) => {
                self.create().omap.extend(entries.iter().map(|(key, value)| (*key, value.clone())));
            }
            Step::OmapSetHeader(header) => self.create().omap_header = header.clone(),
            Step::OmapRemove(keys) => {
                self.must_exist()?;
                keys.iter().for_each(|key| drop(self.object.omap.remove(key)));
            }
            Step::OmapRemoveRange { from, to } => {
                self.must_exist()?;
                self.object.omap.retain(|key, _| !(*from..*to).contains(key));
            }
            Step::OmapClear => {
                self.must_exist()?;
                self.object.omap.clear();
                self.object.omap_header = Bytes::new();
            }
            Step::Add { key, by } => {
                let have = stored.and_then(|o| o.omap.get(key)).map_or(0, number);
                self.create().omap.insert(key, Bytes::from((have + by).to_string()));
            }
            Step::VersionIncrement => {
                let have = stored.and_then(|o| o.version).unwrap_or(1);
                self.create().version = Some(have + 1);
            }
            Step::Lock { owner } => match stored.and_then(|o| o.lock).and_then(|lock| lock.owner) {
                Some(holder) if holder == *owner => return Err(EEXIST),
                Some(_) => return Err(EBUSY),
                None => self.create().lock = Some(Lock { owner: Some(*owner) }),
            },
            Step::Unlock { owner } => {
                let lock = stored.ok_or(ENOENT)?.lock;
                match lock.and_then(|lock| lock.owner) {
                    Some(holder) if holder == *owner => self.create().lock = Some(Lock { owner: None }),
                    _ => return Err(ENOENT),
                }
            }
            Step::Read { .. }
            | Step::SparseRead { .. }
            | Step::GetXattr(_)
            | Step::GetXattrs
            | Step::OmapKeys { .. }
            | Step::OmapEntries { .. }
            | Step::OmapGet(_)
            | Step::OmapHeader
            | Step::IsListed
            | Step::VersionRead
            | Step::LockInfo => unreachable!("the workload writes no list with {step:?} in it"),
        }
        Ok(())
    }
}

/// A decimal number in an omap value.
fn number(value: &Bytes) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).expect("only numbers are added to")
}

impl Object {
    /// The errno of a step that reads, or 0.
    fn errno_of(&self, step: &Step) -> i32 {
        match step {
            Step::GetXattr(name) if !self.xattrs.contains_key(name) => ENODATA,
            _ => 0,
        }
    }

    /// True if a step that reads gives `output`.
    fn gives(&self, step: &Step, output: &Output) -> bool {
        match (step, output) {
            (Step::Read { offset, len }, Output::Data(bytes)) => {
                let len = if *len == 0 { self.data.len() } else { *len };
                bytes.len() as u64 == self.data.readable(*offset, len) && self.data.is_at(*offset, bytes)
            }
            (Step::SparseRead { offset, len }, Output::Extents(extents)) => {
                let end = offset + self.data.readable(*offset, *len);
                let mut at = *offset;
                for (start, bytes) in extents {
                    let extent_end = start + bytes.len() as u64;
                    let is_right = *start >= at && extent_end <= end && self.data.is_at(*start, bytes);
                    if !is_right || !self.data.is_zero(at, start - at) {
                        return false;
                    }
                    at = extent_end;
                }
                self.data.is_zero(at, end - at.min(end))
            }
            (Step::Stat, Output::Size(size)) => *size == self.data.len(),
            (Step::GetXattr(name), Output::Value(value)) => self.xattrs.get(name) == Some(value),
            (Step::GetXattrs, Output::Map(map)) => self.has_xattrs(map),
            (Step::OmapKeys { after, max }, Output::Keys(keys, more)) => {
                let (page, has_more) = self.page(after, *max);
                page.keys().map(|key| key.as_bytes()).eq(keys.iter().map(|key| &key[..])) && *more == has_more
            }
            (Step::OmapEntries { after, max }, Output::Entries(entries, more)) => {
                let (page, has_more) = self.page(after, *max);
                is_same(&page, entries) && *more == has_more
            }
            (Step::OmapGet(keys), Output::Map(map)) => {
                let have = keys.iter().filter_map(|key| Some((*key, self.omap.get(key)?.clone()))).collect();
                is_same(&have, map)
            }
            (Step::OmapHeader, Output::Value(header)) => self.omap_header == *header,
            (Step::VersionRead, Output::Number(version)) => self.version.unwrap_or(0) == *version,
            (Step::LockInfo, Output::Owner(owner)) => self.lock.and_then(|lock| lock.owner) == *owner,
            _ => false,
        }
    }

    /// Attributes, class attributes included. The values of class attributes are opaque to the model.
    fn has_xattrs(&self, map: &BTreeMap<Bytes, Bytes>) -> bool {
        let is_of_class = |name: &[u8]| name == VERSION_XATTR || name == LOCK_XATTR;
        let own = map.iter().filter(|(name, _)| !is_of_class(name));
        own.map(|(name, value)| (&name[..], value)).eq(self.xattrs.iter().map(|(n, v)| (n.as_bytes(), v)))
            && map.contains_key(VERSION_XATTR) == self.version.is_some()
            && map.contains_key(LOCK_XATTR) == self.lock.is_some()
    }

    fn page(&self, after: &str, max: u64) -> (BTreeMap<&'static str, Bytes>, bool) {
        let mut behind = self.omap.iter().filter(|(key, _)| **key > after);
        let page = behind.by_ref().take(max as usize).map(|(key, value)| (*key, value.clone())).collect();
        (page, behind.next().is_some())
    }

    /// The marks that a step can show, see [`Mark`].
    pub(super) fn facts(&self, step: &Step) -> BTreeSet<Fact> {
        let entry = |(key, value): (&&'static str, &Bytes)| Fact::Entry(key.as_bytes().into(), value.clone());
        let alone = |value: &Bytes| Fact::Entry(Bytes::new(), value.clone());
        match step {
            Step::Read { offset, len } | Step::SparseRead { offset, len } => {
                let len = if *len == 0 { self.data.len() } else { *len };
                self.data.tokens(*offset, len).into_iter().map(|(token, _)| Fact::Written(token)).collect()
            }
            Step::GetXattr(name) => self.xattrs.get(name).map(alone).into_iter().collect(),
            Step::GetXattrs => self.xattrs.iter().map(entry).collect(),
            Step::OmapEntries { after, max } => self.page(after, *max).0.iter().map(entry).collect(),
            Step::OmapKeys { after, max } => {
                self.page(after, *max).0.keys().map(|key| Fact::Key(key.as_bytes().into())).collect()
            }
            Step::OmapGet(keys) => {
                keys.iter().filter_map(|k| self.omap.get_key_value(k)).map(entry).collect()
            }
            Step::OmapHeader if self.omap_header.is_empty() => BTreeSet::new(),
            Step::OmapHeader => [alone(&self.omap_header)].into(),
            Step::IsListed | Step::Stat => [Fact::Exists].into(),
            Step::VersionRead => self.version.map(Fact::Version).into_iter().collect(),
            Step::LockInfo => self.lock.and_then(|l| l.owner).map(Fact::Owner).into_iter().collect(),
            _ => BTreeSet::new(),
        }
    }
}

fn is_same(have: &BTreeMap<&'static str, Bytes>, map: &BTreeMap<Bytes, Bytes>) -> bool {
    have.iter().map(|(k, v)| (k.as_bytes(), v)).eq(map.iter().map(|(k, v)| (&k[..], v)))
}

/// Evidence of one write that a read can show.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Fact {
    Exists,
    Written(Token),
    /// An attribute or an omap entry. Without a name: the omap header, or the requested attribute.
    Entry(Bytes, Bytes),
    Key(Bytes),
    Version(u64),
    Owner(i64),
}

/// The marks that an output shows.
pub(super) fn shown(output: &Output, newest: Token) -> BTreeSet<Fact> {
    let written =
        |bytes: &Bytes| super::data::tokens_of(bytes, newest).into_iter().map(|(t, _)| Fact::Written(t));
    let entries = |map: &BTreeMap<Bytes, Bytes>| {
        map.iter().map(|(key, value)| Fact::Entry(key.clone(), value.clone())).collect()
    };
    match output {
        Output::None => BTreeSet::new(),
        Output::Data(bytes) => written(bytes).collect(),
        Output::Extents(extents) => extents.iter().flat_map(|(_, bytes)| written(bytes)).collect(),
        Output::Size(_) | Output::Listed(true) => [Fact::Exists].into(),
        Output::Listed(false) => BTreeSet::new(),
        Output::Value(value) => [Fact::Entry(Bytes::new(), value.clone())].into(),
        Output::Map(map) | Output::Entries(map, _) => entries(map),
        Output::Keys(keys, _) => keys.iter().cloned().map(Fact::Key).collect(),
        Output::Number(version) => [Fact::Version(*version)].into(),
        Output::Owner(owner) => owner.map(Fact::Owner).into_iter().collect(),
    }
}
