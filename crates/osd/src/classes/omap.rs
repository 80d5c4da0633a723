//! Access of a class method to the object's omap.
//!
//! Every listing is paged. A page holds at most [`PAGE`] entries, and [`MethodCall::omap_scan`] gives up after
//! [`SCAN_MAX`] entries, so that the work of one call does not grow with the omap.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Decode, Encode, Features, Reader, Writer};
use store::{Answer, Query};
use wire::types::{OpCode, OsdOp};

/// Maximum entries of one page of a scan.
const PAGE: usize = 4096;
/// Maximum entries that a call may visit.
pub(super) const SCAN_MAX: usize = 1 << 16;
/// Maximum entries of a reply, whatever the client asks for. Ceph's own clients ask for 1,024 at most.
const REPLY_MAX: u64 = 1 << 14;

pub(super) type Entry = (Bytes, Bytes);

/// A key made of a prefix and a name.
pub(super) fn key(prefix: &str, name: impl AsRef<[u8]>) -> Bytes {
    [prefix.as_bytes(), name.as_ref()].concat().into()
}

/// The part of a key behind its prefix.
pub(super) fn name_of<'a>(prefix: &str, key: &'a [u8]) -> &'a [u8] {
    key.strip_prefix(prefix.as_bytes()).unwrap_or(key)
}

/// Entries that a reply may hold when a client asks for `max`.
pub(super) fn reply_max(max: u64) -> usize {
    max.min(REPLY_MAX) as usize
}

/// The stored value; `EIO` when it is damaged. Bytes behind it are ignored, as Ceph's methods do.
pub(super) fn stored<T: Decode>(value: &[u8]) -> Result<T, MethodStop> {
    Reader::new(value).get().map_err(|_| MethodStop::Failed(Errno::IO))
}

impl MethodCall<'_> {
    /// The value of one key.
    pub fn omap_value(&mut self, key: &Bytes) -> Result<Option<Bytes>, MethodStop> {
        Ok(self.omap_values(vec![key.clone()])?.into_iter().next().map(|e| e.1))
    }

    /// Entries of those of the keys that exist, ascending.
    pub fn omap_values(&mut self, keys: Vec<Bytes>) -> Result<Vec<Entry>, MethodStop> {
        if !self.may_read()? || keys.is_empty() {
            return Ok(Vec::new());
        }
        match self.ask(Query::OmapGet { keys })? {
            Answer::OmapGet(entries) => Ok(entries),
            _ => Err(Errno::IO.into()),
        }
    }

    /// The value of one key, decoded; `EIO` when it is damaged.
    pub fn omap_as<T: Decode>(&mut self, key: impl AsRef<[u8]>) -> Result<Option<T>, MethodStop> {
        let value = self.omap_value(&Bytes::copy_from_slice(key.as_ref()))?;
        value.map(|value| stored(&value)).transpose()
    }

    /// The same, and `ENOENT` without the key.
    pub fn omap_must<T: Decode>(&mut self, key: impl AsRef<[u8]>) -> Result<T, MethodStop> {
        self.omap_as(key)?.ok_or(MethodStop::Failed(Errno::NOENT))
    }

    /// Keys greater than `after` that start with `prefix`, ascending; at most `max`. The flag says that more follow.
    pub fn omap_page(
        &mut self,
        after: &[u8],
        prefix: impl AsRef<[u8]>,
        max: usize,
        values: bool,
    ) -> Result<(Vec<Entry>, bool), MethodStop> {
        if !self.may_read()? || max == 0 {
            return Ok((Vec::new(), false));
        }
        let after = Some(Bytes::copy_from_slice(after));
        let prefix = Bytes::copy_from_slice(prefix.as_ref());
        match self.ask(Query::OmapList { after, from: Bytes::new(), prefix, max, values })? {
            Answer::OmapList { entries, more } => Ok((entries, more)),
            _ => Err(Errno::IO.into()),
        }
    }

    /// At most `max` entries, in as many pages as that takes: a store may return short pages.
    pub fn omap_list(
        &mut self,
        after: &[u8],
        prefix: impl AsRef<[u8]>,
        max: usize,
        values: bool,
    ) -> Result<(Vec<Entry>, bool), MethodStop> {
        let mut all = Vec::new();
        let mut after = Bytes::copy_from_slice(after);
        loop {
            let (entries, more) = self.omap_page(&after, &prefix, PAGE.min(max - all.len()), values)?;
            let Some((last, _)) = entries.last() else { return Ok((all, false)) };
            after = last.clone();
            all.extend(entries);
            if !more || all.len() >= max {
                return Ok((all, more));
            }
        }
    }

    /// All entries whose keys are longer than the prefix and start with it; `EOVERFLOW` beyond [`SCAN_MAX`].
    pub fn omap_scan(&mut self, prefix: &str) -> Result<Vec<Entry>, MethodStop> {
        self.scan(prefix.as_bytes(), prefix, true)
    }

    /// The same, with the key that is the prefix alone.
    pub fn omap_scan_with_prefix(&mut self, prefix: &str) -> Result<Vec<Entry>, MethodStop> {
        self.scan(b"", prefix, true)
    }

    /// All keys with the prefix; `EOVERFLOW` beyond [`SCAN_MAX`].
    pub fn omap_scan_keys(&mut self, prefix: &str) -> Result<Vec<Bytes>, MethodStop> {
        Ok(self.scan(prefix.as_bytes(), prefix, false)?.into_iter().map(|e| e.0).collect())
    }

    fn scan(&mut self, after: &[u8], prefix: &str, values: bool) -> Result<Vec<Entry>, MethodStop> {
        match self.omap_list(after, prefix, SCAN_MAX, values)? {
            (entries, false) => Ok(entries),
            (_, true) => Err(Errno::OVERFLOW.into()),
        }
    }

    /// First entry of each prefix's pages in one wait: for each prefix at most `max` entries.
    pub fn omap_pages(&mut self, prefixes: &[Bytes], max: usize) -> Result<Vec<Vec<Entry>>, MethodStop> {
        if !self.may_read()? {
            return Ok(vec![Vec::new(); prefixes.len()]);
        }
        let query = |prefix: &Bytes| Query::OmapList {
            after: Some(prefix.clone()),
            from: Bytes::new(),
            prefix: prefix.clone(),
            max,
            values: true,
        };
        let answers = self.ask_all(prefixes.iter().map(query).collect())?;
        let entries = |answer| match answer {
            Answer::OmapList { entries, .. } => Ok(entries),
            _ => Err(Errno::IO.into()),
        };
        answers.into_iter().map(entries).collect()
    }

    /// Empty without an object.
    pub fn omap_header(&mut self) -> Result<Bytes, MethodStop> {
        if !self.may_read()? {
            return Ok(Bytes::new());
        }
        match self.ask(Query::OmapHeader)? {
            Answer::OmapHeader(header) => Ok(header),
            _ => Err(Errno::IO.into()),
        }
    }

    pub fn set_omap_value(&mut self, key: &Bytes, value: &[u8]) -> Result<(), MethodStop> {
        self.set_omap_values(&[(key.clone(), Bytes::copy_from_slice(value))])
    }

    pub fn set_omap_values(&mut self, entries: &[Entry]) -> Result<(), MethodStop> {
        self.perform_omap(OpCode::OMAPSETVALS, |w| w.put(entries))
    }

    /// One key with an encoded value, for any reader.
    pub fn set_omap<T: Encode>(&mut self, key: impl AsRef<[u8]>, value: &T) -> Result<(), MethodStop> {
        self.set_omap_value(&Bytes::copy_from_slice(key.as_ref()), &value.to_vec(Features::NONE))
    }

    /// `ENOENT` without an object; a key that is not there is no error.
    pub fn remove_omap_key(&mut self, key: impl AsRef<[u8]>) -> Result<(), MethodStop> {
        self.remove_omap_keys(&[Bytes::copy_from_slice(key.as_ref())])
    }

    pub fn remove_omap_keys(&mut self, keys: &[Bytes]) -> Result<(), MethodStop> {
        self.must_exist()?;
        self.perform_omap(OpCode::OMAPRMKEYS, |w| w.put(keys))
    }

    /// Removes the keys in `from..to`.
    pub fn remove_omap_range(&mut self, from: &[u8], to: &[u8]) -> Result<(), MethodStop> {
        self.must_exist()?;
        self.perform_omap(OpCode::OMAPRMKEYRANGE, |w| {
            w.blob(from);
            w.blob(to);
        })
    }

    /// Removes all keys and the header.
    pub fn clear_omap(&mut self) -> Result<(), MethodStop> {
        self.must_exist()?;
        self.perform(OsdOp::bare(OpCode::OMAPCLEAR))
    }

    pub fn set_omap_header(&mut self, header: &[u8]) -> Result<(), MethodStop> {
        self.perform_omap(OpCode::OMAPSETHEADER, |w| w.raw(header))
    }

    fn perform_omap(&mut self, code: OpCode, input: impl FnOnce(&mut Writer)) -> Result<(), MethodStop> {
        let mut w = Writer::new(Features::NONE);
        input(&mut w);
        self.perform(OsdOp { input: w.into_bytes(), ..OsdOp::bare(code) })
    }
}
