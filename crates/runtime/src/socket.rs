//! One TCP socket: reading into room that is not yet initialised, one vectored write for all that waits.

use bytes::BytesMut;
use mio::net::TcpStream;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use wire::frames::WriteQueue;

/// Pieces of one write. Linux takes 1024; more than this are written by the next call.
const SLICES_MAX: usize = 128;

pub(crate) struct Socket {
    pub stream: TcpStream,
    /// `connect` has succeeded, or it was accepted.
    pub connected: bool,
    /// The kernel may have bytes that were not read: it will not say so again.
    pub readable: bool,
    /// It took only a part of the last write: it will say when it takes more.
    pub full: bool,
}

pub(crate) enum ReadOutcome {
    /// As much as there was room for: there may be more.
    Full(usize),
    /// Everything there was.
    Drained(usize),
    Closed,
}

impl Socket {
    pub fn new(stream: TcpStream, connected: bool) -> Socket {
        Socket { stream, connected, readable: false, full: false }
    }

    /// Append at most `max` bytes to `buffer`, which is given room for them first.
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

    /// Write what the socket takes. Says how many bytes, in how many calls.
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
