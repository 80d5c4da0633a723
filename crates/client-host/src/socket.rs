//! One TCP connection of a client, from its opening on.

use bytes::{BufMut, BytesMut};
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use wire::frames::WriteQueue;

/// Bytes of one read while frames are small.
const READ_LEN: usize = 256 << 10;
/// Pieces in one vectored write.
const SLICES_MAX: usize = 64;

pub(super) struct Socket {
    state: State,
    pub(super) reading: bool,
    /// The kernel took less than was offered.
    blocked: bool,
    /// The last read found the socket empty, so that the next begins with waiting.
    drained: bool,
}

enum State {
    Opening(Pin<Box<dyn Future<Output = io::Result<TcpStream>>>>),
    /// Opened or failed; the result has not been taken yet.
    Opened(io::Result<TcpStream>),
    Open(TcpStream),
}

impl Socket {
    pub(super) fn open(to: SocketAddr) -> Socket {
        let opening = Box::pin(async move {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        Socket { state: State::Opening(opening), reading: true, blocked: false, drained: false }
    }

    /// True if this socket can be read, written, or has connected.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.state {
            State::Opening(opening) => match opening.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    self.state = State::Opened(result);
                    true
                }
                Poll::Pending => false,
            },
            State::Opened(_) => true,
            State::Open(stream) => {
                let readable = self.reading && stream.poll_read_ready(cx).is_ready();
                let writable = self.blocked && stream.poll_write_ready(cx).is_ready();
                readable || writable
            }
        }
    }

    /// True once, when the connection has been made.
    pub(super) fn take_connected(&mut self) -> io::Result<bool> {
        if !matches!(self.state, State::Opened(_)) {
            return Ok(false);
        }
        let failed = State::Opened(Err(io::ErrorKind::NotConnected.into()));
        if let State::Opened(result) = std::mem::replace(&mut self.state, failed) {
            self.state = State::Open(result?);
        }
        Ok(true)
    }

    pub(super) fn write(&mut self, queue: &mut WriteQueue) -> io::Result<()> {
        let State::Open(stream) = &self.state else { return Ok(()) };
        self.blocked = false;
        while !queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let n = queue.io_slices(&mut slices);
            match stream.try_write_vectored(&slices[..n]) {
                Ok(written) => queue.advance(written),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// At most `missing` bytes; 0 when there are none now.
    pub(super) fn read_into(&mut self, buffer: &mut BytesMut, missing: usize) -> io::Result<usize> {
        self.read(&mut buffer.limit(missing), missing)
    }

    /// Appends the bytes that are there to the buffer; 0 if there are none now or the peer has closed.
    pub(super) fn read_shared(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        buffer.reserve(READ_LEN);
        self.read(buffer, READ_LEN)
    }

    fn read(&mut self, buffer: &mut impl BufMut, room: usize) -> io::Result<usize> {
        let State::Open(stream) = &self.state else { return Ok(0) };
        if std::mem::take(&mut self.drained) {
            return Ok(0);
        }
        match stream.try_read_buf(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                // A short read has emptied the socket: asking again would only be told so.
                self.drained = n < room;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(e),
        }
    }
}
