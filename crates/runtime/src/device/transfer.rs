//! A request as the system sees it: what memory it uses, and what is left of it after a part was done.

use super::aligned::Aligned;
use bytes::{Buf, Bytes};
use codec::Rope;
use device::{BLOCK, DeviceError, Durability, Request};
use rustix::io::Errno;
use std::collections::VecDeque;

/// A piece that is at least so long goes to the device from where it lies, if it lies right. A shorter one is cheaper
/// to copy than to describe.
const UNCOPIED_LEN_MIN: usize = 2 * BLOCK;
/// What the system takes in one call (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;

pub(super) struct Transfer {
    pub token: u64,
    /// Of what is left.
    pub offset: u64,
    pub work: Work,
}

pub(super) enum Work {
    Read {
        into: Aligned,
    },
    /// What is left, in pieces that the device can take.
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
pub(super) struct Finished {
    pub token: u64,
    pub result: Result<Bytes, Fault>,
}

/// What went wrong, for the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub what: &'static str,
    pub offset: u64,
    pub errno: Errno,
}

pub(super) enum Step {
    /// Hand it to the system again.
    Again,
    Finished(Result<Bytes, Fault>),
}

impl Transfer {
    /// `alignment`: what the device asks of an address. The length of a piece is a multiple of [`BLOCK`] in any case.
    pub fn new(token: u64, request: Request, alignment: usize) -> Transfer {
        let (offset, work) = match request {
            Request::Read { offset, len } => (offset, Work::Read { into: Aligned::with_capacity(len) }),
            Request::Write { offset, data, durability } => {
                (offset, Work::Write { pieces: aligned_pieces(data, alignment), durability })
            }
            Request::Flush => (0, Work::Flush),
            Request::Discard { offset, len } => (offset, Work::Discard { len }),
        };
        Transfer { token, offset, work }
    }

    /// What the system has said to it.
    ///
    /// # Safety
    /// For a read that succeeded with `Ok(n)`, the system has filled the first `n` bytes of the buffer's spare room.
    #[allow(unsafe_code, reason = "only the system knows what it filled")]
    pub unsafe fn on_result(&mut self, result: Result<usize, Errno>) -> Step {
        let count = match result {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return Step::Again,
            Err(errno) => return Step::Finished(Err(self.fault(errno))),
        };
        let is_whole = match &mut self.work {
            Work::Read { into } => {
                // SAFETY: the caller's promise.
                unsafe { into.advance(count) };
                into.is_full()
            }
            Work::Write { pieces, .. } => {
                skip(pieces, count);
                pieces.is_empty()
            }
            Work::Flush | Work::Discard { .. } => return Step::Finished(Ok(Bytes::new())),
        };
        self.offset += count as u64;
        match &mut self.work {
            Work::Read { into } if is_whole => Step::Finished(Ok(into.take().freeze())),
            _ if is_whole => Step::Finished(Ok(Bytes::new())),
            // The end of the file, which was longer when it was opened.
            _ if count == 0 => Step::Finished(Err(self.fault(Errno::IO))),
            _ => Step::Again,
        }
    }

    /// Whether it is a write that is to be on stable storage.
    pub fn needs_sync(&self) -> bool {
        matches!(self.work, Work::Write { durability: Durability::Flushed, .. })
    }

    pub fn fault(&self, errno: Errno) -> Fault {
        let what = match self.work {
            Work::Read { .. } => "read",
            Work::Write { .. } => "write",
            Work::Flush => "flush",
            Work::Discard { .. } => "discard",
        };
        Fault { what, offset: self.offset, errno }
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
        let front = pieces.front_mut().expect("the system does not write more than it was given");
        let here = count.min(front.len());
        front.advance(here);
        count -= here;
        if front.is_empty() {
            pieces.pop_front();
        }
    }
}

/// The same bytes in pieces that begin at aligned addresses and are whole blocks long. What lies right and is long is
/// taken as it is; everything between is copied, into one buffer.
fn aligned_pieces(data: Rope, alignment: usize) -> VecDeque<Bytes> {
    let parts = split(&data, alignment);
    let copied_len: usize = parts.iter().map(|part| if part.copied { part.len } else { 0 }).sum();
    if copied_len == 0 {
        return data.into_pieces().collect();
    }
    let mut buffer = Aligned::with_capacity(copied_len);
    let mut pieces = VecDeque::with_capacity(parts.len());
    let mut at = 0;
    for part in &parts {
        let slice = data.slice(at, part.len).expect("the parts are the whole");
        at += part.len;
        if part.copied {
            slice.pieces().iter().for_each(|piece| buffer.extend_from_slice(piece));
            // Its place, for now.
            pieces.push_back(Bytes::new());
        } else {
            pieces.extend(slice.into_pieces());
        }
    }
    let buffer = buffer.freeze();
    let mut at = 0;
    for (piece, part) in pieces.iter_mut().zip(&parts).filter(|(_, part)| part.copied) {
        *piece = buffer.slice(at..at + part.len);
        at += part.len;
    }
    pieces
}

#[derive(Debug, PartialEq)]
struct Part {
    len: usize,
    copied: bool,
}

/// How `data` is cut: parts that are whole blocks, each of them copied or one piece as it is.
fn split(data: &Rope, alignment: usize) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut copied = 0;
    for piece in data.pieces() {
        let direct = piece.len() - piece.len() % BLOCK;
        let lies_right = copied % BLOCK == 0 && piece.as_ptr().addr().is_multiple_of(alignment);
        if lies_right && direct >= UNCOPIED_LEN_MIN && parts.len() + 2 < PIECES_MAX {
            if copied > 0 {
                parts.push(Part { len: copied, copied: true });
            }
            parts.push(Part { len: direct, copied: false });
            copied = piece.len() - direct;
        } else {
            copied += piece.len();
        }
    }
    if copied > 0 {
        parts.push(Part { len: copied, copied: true });
    }
    parts
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
    fn long_aligned_pieces_are_not_copied_and_the_rest_is_joined() {
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
        let pieces = aligned_pieces(data, 512);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [2 * BLOCK, 4 * BLOCK, 2 * BLOCK]);
        assert_eq!(pieces[1].as_ptr(), large.as_ptr(), "the same bytes in the same place");
        assert!(pieces.iter().all(|piece| piece.as_ptr().addr().is_multiple_of(512)));
        assert_eq!(pieces.into_iter().collect::<Rope>().to_bytes(), whole);
    }

    #[test]
    fn the_system_is_never_given_more_pieces_than_it_takes() {
        let data: Rope = (0..4000).map(|n| block_aligned(2 * BLOCK, n as u8)).collect();
        let whole = data.to_bytes();
        let pieces = aligned_pieces(data, 512);
        assert!(pieces.len() <= PIECES_MAX, "{}", pieces.len());
        assert_eq!(pieces.into_iter().collect::<Rope>().to_bytes(), whole);
    }

    #[test]
    #[allow(unsafe_code, reason = "the test plays the system")]
    fn a_transfer_goes_on_where_the_system_stopped() {
        let data: Rope = [block_aligned(2 * BLOCK, 1), block_aligned(2 * BLOCK, 2)].into_iter().collect();
        let request = Request::Write { offset: 8192, data, durability: Durability::Later };
        let mut write = Transfer::new(1, request, 512);
        // SAFETY: these are no reads that succeeded.
        unsafe {
            assert!(matches!(write.on_result(Err(Errno::INTR)), Step::Again));
            assert!(matches!(write.on_result(Ok(BLOCK + 512)), Step::Again));
            assert_eq!(write.offset, 8192 + 4096 + 512);
            assert!(matches!(write.on_result(Ok(BLOCK)), Step::Again));
            let Work::Write { pieces, .. } = &write.work else { panic!() };
            assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [2 * BLOCK - 512]);
            assert!(matches!(write.on_result(Ok(2 * BLOCK - 512)), Step::Finished(Ok(_))));

            let mut read = Transfer::new(2, Request::Read { offset: 0, len: BLOCK }, 512);
            let Step::Finished(Err(fault)) = read.on_result(Ok(0)) else { panic!("the end of the file") };
            assert_eq!(DeviceError::from(fault), DeviceError::Io);
            let Step::Finished(Err(fault)) = read.on_result(Err(Errno::NODEV)) else { panic!() };
            assert_eq!(DeviceError::from(fault), DeviceError::Gone);
        }
    }
}
