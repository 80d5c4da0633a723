//! How much can the load generator do at all, on this host and now? Measured against a target that takes no time, so
//! that nobody measures the client unaware.
//!
//! The target is a thread of this process at the other end of a socket on loopback: it reads requests of the size of
//! the real ones and sends answers of their size, and looks at nothing. One thread makes the load, as in a run, with
//! as many operations in flight. So generator, recorder, content and the kernel's sockets are in the ceiling; the
//! messenger's own work (headers, checksums, encryption) is not, and a real run stays below it.

use super::{Generator, Recorder, Start, content};
use crate::matrix::Spec;
use anyhow::Context;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const FOR: Duration = Duration::from_millis(150);
/// What a request and its answer weigh besides their data: frames, headers, the operation.
const REQUEST_HEAD: usize = 256;
const ANSWER_HEAD: usize = 160;
/// A whole round of operations is not sent at once when it is larger than this.
const ROUND_BYTES_MAX: usize = 8 << 20;

/// Operations a second. Half as much is safe to measure; near it, the client is what is measured.
pub fn ceiling(spec: &Spec) -> anyhow::Result<f64> {
    let closed = Spec { rate: None, rate_to: None, think_us: 0, depth: depth(spec), ..spec.clone() };
    let listener = TcpListener::bind("127.0.0.1:0").context("a socket for the generator's own ceiling")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It ends when the near end is closed.
            while echo(&mut far).is_ok() {}
        });
        let rate = drive(&closed, &mut near);
        near.shutdown(std::net::Shutdown::Both)?;
        rate
    })
}

/// So many in flight as the run will have, within reason.
fn depth(spec: &Spec) -> u32 {
    let all = if spec.rate.is_some() { 64 } else { spec.depth.saturating_mul(spec.clients) };
    let fits = ROUND_BYTES_MAX / (spec.op_bytes_max() as usize + REQUEST_HEAD);
    all.clamp(1, (fits as u32).max(1))
}

/// Sizes travel first: how many bytes follow, and how many are wanted.
fn echo(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut sizes = [0; 16];
    socket.read_exact(&mut sizes)?;
    let number = |at: usize| u64::from_le_bytes(sizes[at..at + 8].try_into().expect("eight bytes"));
    let mut left = number(0);
    let mut room = vec![0; (256 << 10).min(left.max(1) as usize)];
    while left > 0 {
        let part = room.len().min(left as usize);
        socket.read_exact(&mut room[..part])?;
        left -= part as u64;
    }
    let mut left = number(8);
    room.resize((256 << 10).min(left.max(1) as usize), 0);
    while left > 0 {
        let part = room.len().min(left as usize);
        socket.write_all(&room[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// Rounds of as many operations as fit: sent together, answered together, as a busy connection does.
fn drive(spec: &Spec, socket: &mut TcpStream) -> anyhow::Result<f64> {
    let mut generator = Generator::new(spec, 1.0, 0);
    let mut recorder = Recorder::new(0, u64::MAX)?;
    let mut flight: VecDeque<(Start, u64)> = VecDeque::new();
    let payload = content::make(0, 0, spec.op_bytes_max() as usize);
    let mut request: Vec<u8> = Vec::new();
    let mut answer = vec![0; 256 << 10];
    let (began, mut ops) = (Instant::now(), 0u64);
    while began.elapsed() < FOR {
        let now = began.elapsed().as_nanos() as u64;
        request.clear();
        request.extend([0; 16]);
        let mut wanted = 0;
        while let Some(start) = generator.next(now) {
            request.extend([0; REQUEST_HEAD]);
            let bytes = start.bytes as usize;
            match (start.read, spec.verify) {
                (true, _) => {}
                (false, true) => request.extend(content::make(start.object, start.ticket, bytes)),
                (false, false) => request.extend_from_slice(&payload[..bytes]),
            }
            let size = ANSWER_HEAD + if start.read { bytes } else { 0 };
            wanted += size as u64;
            flight.push_back((start, size as u64));
        }
        let sent = request.len() as u64 - 16;
        request[..8].copy_from_slice(&sent.to_le_bytes());
        request[8..16].copy_from_slice(&wanted.to_le_bytes());
        socket.write_all(&request)?;
        let (mut got, mut whole) = (0u64, 0u64);
        while got < wanted {
            let n = socket.read(&mut answer)?;
            anyhow::ensure!(n > 0, "the generator's null target has ended");
            got += n as u64;
            let now = began.elapsed().as_nanos() as u64;
            while let Some((start, size)) = flight.front().filter(|(_, size)| whole + size <= got) {
                if start.read && spec.verify {
                    std::hint::black_box(content::check(start.object, 0, &payload[..start.bytes as usize]));
                }
                generator.done(now, start);
                recorder.done(now + 1, start, 0);
                whole += size;
                ops += 1;
                flight.pop_front();
            }
        }
    }
    Ok(ops as f64 / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Op;

    #[test]
    fn more_work_for_the_generator_is_a_lower_ceiling() {
        let of = |op_bytes, depth| {
            ceiling(&Spec { op: Op::RandMixed, op_bytes, depth, ..Spec::default() }).unwrap()
        };
        let (one, many, large) = (of(4096, 1), of(4096, 64), of(4 << 20, 4));
        assert!(one > 100.0 && many > one && large < many, "{one} {many} {large}");
        assert!(large > 10.0, "large operations in pieces: {large}");
    }
}
