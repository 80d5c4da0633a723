//! One TCP socket: reads into uninitialised memory, and one vectored write for all queued frames.

use bytes::BytesMut;
use mio::net::TcpStream;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use wire::frames::WriteQueue;

/// Pieces of one write. Linux takes up to 1024; the next call writes the rest.
const SLICES_MAX: usize = 128;

pub(crate) struct Socket {
    pub stream: TcpStream,
    /// Accepted, or `connect` has succeeded.
    pub connected: bool,
    /// The kernel may have unread bytes. Edge-triggered: it does not signal them again.
    pub readable: bool,
    /// The last write was short; the kernel signals when there is room again.
    pub full: bool,
}

pub(crate) enum ReadOutcome {
    /// The room was filled: there may be more.
    Full(usize),
    /// All bytes that the socket had.
    Drained(usize),
    Closed,
}

impl Socket {
    pub fn new(stream: TcpStream, connected: bool) -> Socket {
        Socket { stream, connected, readable: false, full: false }
    }

    /// Appends at most `max` bytes to `buffer`, and grows it first if needed.
    pub fn read(&mut self, buffer: &mut BytesMut, max: usize) -> io::Result<ReadOutcome> {
        if buffer.capacity() - buffer.len() < max {
            buffer.reserve(max);
        }
        let room = &mut buffer.spare_capacity_mut()[..max];
        loop {
            match recv(&self.stream, room) {
                Ok(0) => return Ok(ReadOutcome::Closed),
                Ok(n) => {
                    // SAFETY: `recv` has initialised the first `n` bytes of the spare capacity.
                    #[allow(unsafe_code, reason = "reading into room that is not zeroed first")]
                    unsafe {
                        buffer.set_len(buffer.len() + n);
                    }
                    return Ok(if n == max { ReadOutcome::Full(n) } else { ReadOutcome::Drained(n) });
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(ReadOutcome::Drained(0)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes as much as the socket takes. Returns the number of bytes and of calls.
    pub fn write(&mut self, queue: &mut WriteQueue) -> io::Result<(usize, usize)> {
        let (mut written, mut calls) = (0, 0);
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.io_slices(&mut slices);
            let offered: usize = slices[..count].iter().map(|s| s.len()).sum();
            match self.stream.write_vectored(&slices[..count]) {
                Ok(n) => {
                    calls += 1;
                    written += n;
                    queue.advance(n);
                    if n < offered {
                        self.full = true;
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.full = true;
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok((written, calls))
    }
}

fn recv(stream: &TcpStream, room: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    socket2::SockRef::from(stream).recv(room)
}
