//! A request for the kernel: its memory, and its remainder after a short read or write.

use super::aligned::Aligned;
use super::arena::{Arena, Lease};
use bytes::{Buf, Bytes};
use codec::Rope;
use device::{BLOCK, DeviceError, Durability, Request};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// Shortest aligned piece that is written in place. Copying a shorter one is cheaper than describing it.
const UNCOPIED_LEN_MIN: usize = 2 * BLOCK;
/// Pieces that the kernel takes in one call (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;

pub(super) struct Transfer {
    pub token: u64,
    /// Offset of the remainder.
    pub offset: u64,
    pub work: Work,
}

pub(super) enum Work {
    Read {
        into: Aligned,
    },
    /// The remainder, in pieces with the alignment of the device.
    Write {
        pieces: VecDeque<Bytes>,
        durability: Durability,
    },
    Flush,
    Discard {
        len: u64,
    },
}

/// A transfer that has ended.
pub(super) struct Completed {
    pub token: u64,
    pub result: Result<Bytes, Fault>,
}

/// A failed transfer, for the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub operation: &'static str,
    pub offset: u64,
    pub errno: Errno,
}

/// State of a transfer after a system call.
pub(super) enum Progress {
    /// A remainder is to be submitted again.
    Again,
    Ended(Result<Bytes, Fault>),
}

impl Transfer {
    /// `alignment` is that of memory. The length of a piece is always a multiple of [`BLOCK`]. Copies are made in the arena, if
    /// there is one and it has room.
    pub fn new(token: u64, request: Request, alignment: usize, arena: Option<&Arc<Arena>>) -> Transfer {
        let (offset, work) = match request {
            Request::Read { offset, len } => (offset, Work::Read { into: Aligned::with_capacity(len) }),
            Request::Write { offset, data, durability } => {
                (offset, Work::Write { pieces: aligned_pieces(data, alignment, arena), durability })
            }
            Request::Flush => (0, Work::Flush),
            Request::Discard { offset, len } => (offset, Work::Discard { len }),
        };
        Transfer { token, offset, work }
    }

    /// Takes the result of a system call.
    ///
    /// # Safety
    /// For a read that succeeded with `Ok(n)`, the kernel has filled the first `n` bytes of the buffer's spare room.
    #[allow(unsafe_code, reason = "only the kernel knows what it filled")]
    pub unsafe fn on_result(&mut self, result: Result<usize, Errno>) -> Progress {
        let count = match result {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Progress::Again,
            Err(errno) => return Progress::Ended(Err(self.fault(errno))),
        };
        let is_whole = match &mut self.work {
            Work::Read { into } => {
                // SAFETY: the caller guarantees it.
                unsafe { into.advance(count) };
                into.is_full()
            }
            Work::Write { pieces, .. } => {
                skip(pieces, count);
                pieces.is_empty()
            }
            Work::Flush | Work::Discard { .. } => return Progress::Ended(Ok(Bytes::new())),
        };
        self.offset += count as u64;
        match &mut self.work {
            Work::Read { into } if is_whole => Progress::Ended(Ok(into.take().freeze())),
            _ if is_whole => Progress::Ended(Ok(Bytes::new())),
            // The file was truncated since it was opened.
            _ if count == 0 => Progress::Ended(Err(self.fault(Errno::IO))),
            _ => Progress::Again,
        }
    }

    /// True for a flushed write.
    pub fn needs_sync(&self) -> bool {
        matches!(self.work, Work::Write { durability: Durability::Flushed, .. })
    }

    pub fn fault(&self, errno: Errno) -> Fault {
        let operation = match self.work {
            Work::Read { .. } => "read",
            Work::Write { .. } => "write",
            Work::Flush => "flush",
            Work::Discard { .. } => "discard",
        };
        Fault { operation, offset: self.offset, errno }
    }
}

impl From<Fault> for DeviceError {
    fn from(fault: Fault) -> DeviceError {
        match fault.errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => DeviceError::NoSpace,
            Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::SHUTDOWN => DeviceError::Gone,
            _ => DeviceError::Io,
        }
    }
}

fn skip(pieces: &mut VecDeque<Bytes>, mut count: usize) {
    while count > 0 {
        let front = pieces.front_mut().expect("the kernel writes no more than it was given");
        let here = count.min(front.len());
        front.advance(here);
        count -= here;
        if front.is_empty() {
            pieces.pop_front();
        }
    }
}

/// The same bytes in pieces of whole blocks at aligned addresses. Long aligned pieces are used in place; the bytes between
/// them are copied into one buffer.
fn aligned_pieces(data: Rope, alignment: usize, arena: Option<&Arc<Arena>>) -> VecDeque<Bytes> {
    let sections = split(&data, alignment);
    let copied_len: usize = sections.iter().map(|section| if section.copied { section.len } else { 0 }).sum();
    if copied_len == 0 {
        return data.into_pieces().collect();
    }
    let mut buffer = CopyBuffer::with_capacity(copied_len, arena);
    let mut pieces = VecDeque::with_capacity(sections.len());
    let mut at = 0;
    for section in &sections {
        let slice = data.slice(at, section.len).expect("the sections are the whole");
        at += section.len;
        if section.copied {
            slice.pieces().iter().for_each(|piece| buffer.extend_from_slice(piece));
            // A placeholder, filled below.
            pieces.push_back(Bytes::new());
        } else {
            pieces.extend(slice.into_pieces());
        }
    }
    let buffer = buffer.freeze();
    let mut at = 0;
    for (piece, section) in pieces.iter_mut().zip(&sections).filter(|(_, section)| section.copied) {
        *piece = buffer.slice(at..at + section.len);
        at += section.len;
    }
    pieces
}

/// Aligned memory for the copied bytes of a write.
enum CopyBuffer {
    Registered(Lease),
    Own(Aligned),
}

impl CopyBuffer {
    fn with_capacity(capacity: usize, arena: Option<&Arc<Arena>>) -> CopyBuffer {
        match arena.and_then(|arena| arena.lease(capacity)) {
            Some(lease) => CopyBuffer::Registered(lease),
            None => CopyBuffer::Own(Aligned::with_capacity(capacity)),
        }
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self {
            CopyBuffer::Registered(lease) => lease.extend_from_slice(bytes),
            CopyBuffer::Own(buffer) => buffer.extend_from_slice(bytes),
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            CopyBuffer::Registered(lease) => Bytes::from_owner(lease),
            CopyBuffer::Own(buffer) => buffer.freeze(),
        }
    }
}

/// Whole blocks of a write that are copied together, or are one piece in place.
#[derive(Debug, PartialEq)]
struct Section {
    len: usize,
    copied: bool,
}

/// Divides `data` into sections of whole blocks.
fn split(data: &Rope, alignment: usize) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut copied = 0;
    for piece in data.pieces() {
        let direct = piece.len() - piece.len() % BLOCK;
        let is_aligned = copied % BLOCK == 0 && piece.as_ptr().addr().is_multiple_of(alignment);
        if is_aligned && direct >= UNCOPIED_LEN_MIN && sections.len() + 2 < PIECES_MAX {
            if copied > 0 {
                sections.push(Section { len: copied, copied: true });
            }
            sections.push(Section { len: direct, copied: false });
            copied = piece.len() - direct;
        } else {
            copied += piece.len();
        }
    }
    if copied > 0 {
        sections.push(Section { len: copied, copied: true });
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_aligned(len: usize, fill: u8) -> Bytes {
        let mut buffer = Aligned::with_capacity(len);
        buffer.extend_from_slice(&vec![fill; len]);
        buffer.freeze()
    }

    #[test]
    fn only_short_or_unaligned_pieces_are_copied() {
        let large = block_aligned(4 * BLOCK + 100, 1);
        let data: Rope = [
            Bytes::from(vec![2; 1000]),
            Bytes::from(vec![3; 2 * BLOCK - 1000]),
            large.clone(),
            block_aligned(BLOCK, 4),
            Bytes::from(vec![5; BLOCK - 100]),
        ]
        .into_iter()
        .collect();
        let whole = data.to_bytes();
        let pieces = aligned_pieces(data, 512, None);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [2 * BLOCK, 4 * BLOCK, 2 * BLOCK]);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr(), "the same bytes in the same place");
        assert!(pieces.iter().all(|piece| piece.as_ptr().addr().is_multiple_of(512)));
        assert_eq!(pieces.into_iter().collect::<Rope>().to_bytes(), whole);
    }

    #[test]
    fn copies_lie_in_the_arena_while_it_has_room() {
        let arena = Arena::new();
        let data = || Rope::from_iter([Bytes::from(vec![7; BLOCK - 100]), Bytes::from(vec![8; 100])]);
        let whole = data().to_bytes();
        let mut kept = Vec::new();
        for n in 0..300 {
            let pieces = aligned_pieces(data(), 512, Some(&arena));
            assert_eq!(arena.contains(&pieces[0]), n < 256);
            assert_eq!((pieces.len(), &pieces[0]), (1, &whole));
            kept.push(pieces);
        }
        drop(kept);
        assert!(arena.contains(&aligned_pieces(data(), 512, Some(&arena))[0]));
    }

    #[test]
    fn pieces_never_exceed_the_kernel_limit() {
        let data: Rope = (0..4000).map(|n| block_aligned(2 * BLOCK, n as u8)).collect();
        let whole = data.to_bytes();
        let pieces = aligned_pieces(data, 512, None);
        assert!(pieces.len() <= PIECES_MAX, "{}", pieces.len());
        assert_eq!(pieces.into_iter().collect::<Rope>().to_bytes(), whole);
    }

    #[test]
    #[allow(unsafe_code, reason = "the test stands in for the kernel")]
    fn transfer_resumes_after_short_results() {
        let data: Rope = [block_aligned(2 * BLOCK, 1), block_aligned(2 * BLOCK, 2)].into_iter().collect();
        let request = Request::Write { offset: 8192, data, durability: Durability::Later };
        let mut write = Transfer::new(1, request, 512, None);
        // SAFETY: none of these is a successful read.
        unsafe {
            assert!(matches!(write.on_result(Err(Errno::INTR)), Progress::Again));
            assert!(matches!(write.on_result(Ok(BLOCK + 512)), Progress::Again));
            assert_eq!(write.offset, 8192 + 4096 + 512);
            assert!(matches!(write.on_result(Ok(BLOCK)), Progress::Again));
            let Work::Write { pieces, .. } = &write.work else { panic!() };
            assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [2 * BLOCK - 512]);
            assert!(matches!(write.on_result(Ok(2 * BLOCK - 512)), Progress::Ended(Ok(_))));

            let mut read = Transfer::new(2, Request::Read { offset: 0, len: BLOCK }, 512, None);
            let Progress::Ended(Err(fault)) = read.on_result(Ok(0)) else { panic!("the end of the file") };
            assert_eq!(DeviceError::from(fault), DeviceError::Io);
            let Progress::Ended(Err(fault)) = read.on_result(Err(Errno::NODEV)) else { panic!() };
            assert_eq!(DeviceError::from(fault), DeviceError::Gone);
        }
    }
}
