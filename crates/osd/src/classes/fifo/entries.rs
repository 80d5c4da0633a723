//! Reading the entries of a part.

use super::ENTRY_START_LEN;
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{DecodeError, Reader};
use wire::types::cls::fifo::{EntryHeader, PartEntry, PartHeader};

/// Bytes that Ceph reads ahead once for each piece of an entry: the piece may be no longer.
pub const READ_AHEAD: u64 = 128 << 10;

/// Lengths and number of an entry, in front of its header.
pub struct EntryStart {
    magic: u64,
    len: u64,
    header_len: u64,
    data_len: u64,
    pub index: u64,
}

impl EntryStart {
    fn parse(bytes: &[u8]) -> Result<EntryStart, DecodeError> {
        let mut r = Reader::new(bytes);
        let (magic, len) = (r.u64()?, r.u64()?);
        Ok(EntryStart { magic, len, header_len: r.u64()?, data_len: r.u64()?, index: r.u64()? })
    }
}

/// Reads a part's entries in their order.
///
/// Ceph reads ahead once for each piece of an entry, and answers `ERANGE` where the piece is longer than that and the
/// rest of what it read before. `fetched` follows it, so that both answer alike; the windows that are read here are
/// larger, because the method runs again for each.
pub struct EntryReader {
    magic: u64,
    /// End of the entries.
    end: u64,
    /// Offset of the next byte.
    pub at: u64,
    /// End of what Ceph would have read.
    fetched: u64,
    window: u64,
    /// Bytes of the object from `from` on.
    read: Vec<u8>,
    from: u64,
    read_all: bool,
}

impl EntryReader {
    pub fn new(part: &PartHeader, offset: u64, window: u64) -> EntryReader {
        let at = offset.max(part.min_offset);
        EntryReader {
            magic: part.magic,
            end: part.next_offset,
            at,
            fetched: at,
            window,
            read: Vec::new(),
            from: at,
            read_all: false,
        }
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    fn read_end(&self) -> u64 {
        self.from.saturating_add(self.read.len() as u64)
    }

    /// The next `len` bytes, which stay unread. `ERANGE` where Ceph would not have them.
    fn peek(&mut self, call: &mut MethodCall<'_>, len: u64) -> Result<&[u8], MethodStop> {
        if self.fetched - self.at < len {
            let wanted = self.fetched.saturating_add(READ_AHEAD);
            self.fill(call, wanted)?;
            self.fetched = self.read_end().clamp(self.fetched, wanted);
        }
        if self.fetched - self.at < len {
            return Err(Errno::RANGE.into());
        }
        let start = (self.at - self.from) as usize;
        Ok(&self.read[start..start + len as usize])
    }

    /// Reads windows up to an offset or the object's end.
    fn fill(&mut self, call: &mut MethodCall<'_>, to: u64) -> Result<(), MethodStop> {
        while self.read_end() < to && !self.read_all {
            self.read.drain(..(self.at - self.from) as usize);
            self.from = self.at;
            let piece = call.data(self.read_end(), self.window)?;
            self.read_all = (piece.len() as u64) < self.window;
            piece.pieces().iter().for_each(|piece| self.read.extend_from_slice(piece));
        }
        Ok(())
    }

    pub fn start(&mut self, call: &mut MethodCall<'_>) -> Result<EntryStart, MethodStop> {
        let magic = self.magic;
        let start = EntryStart::parse(self.peek(call, ENTRY_START_LEN)?).ok();
        start.filter(|start| start.magic == magic).ok_or(MethodStop::Failed(Errno::RANGE))
    }

    pub fn next(&mut self, call: &mut MethodCall<'_>) -> Result<PartEntry, MethodStop> {
        let start = self.start(call)?;
        let offset = self.at;
        self.peek(call, start.len)?;
        self.at += start.len;
        let header = Reader::new(self.peek(call, start.header_len)?).get::<EntryHeader>();
        let header = header.map_err(|_| MethodStop::Failed(Errno::IO))?;
        self.at += start.header_len;
        let data = Bytes::copy_from_slice(self.peek(call, start.data_len)?);
        self.at += start.data_len;
        Ok(PartEntry { data, offset, time: header.time })
    }
}
