//! shoal's own load generator, without I/O: it says what to do when, and is told when it was done.
//!
//! - [`generator`]: arrivals, mixes, which object.
//! - [`recorder`]: latencies, seconds, errors.
//! - [`content`]: bytes that prove themselves when they are read back.

pub mod content;
pub mod generator;
pub mod recorder;
#[cfg(test)]
mod tests;

pub use generator::{Generator, Start};
pub use recorder::Recorder;

use crate::matrix::Spec;
use std::time::{Duration, Instant};

/// Operations a second that generator and recorder could do if every operation took no time: no run can show more.
/// The messenger and the kernel come on top; a client at its end shows as a thread at 100 %.
pub fn ceiling(spec: &Spec) -> anyhow::Result<f64> {
    let mut generator = Generator::new(&Spec { rate: None, think_us: 0, ..spec.clone() }, 1.0, 0);
    let mut recorder = Recorder::new(0, u64::MAX)?;
    let (began, mut ops) = (Instant::now(), 0u64);
    while began.elapsed() < Duration::from_millis(50) {
        for _ in 0..1000 {
            let now = began.elapsed().as_nanos() as u64;
            let Some(start) = generator.next(now) else { break };
            if spec.verify && !start.read {
                std::hint::black_box(content::make(start.object, start.ticket, spec.op_bytes as usize));
            }
            generator.done(now, &start);
            recorder.done(now + 1, &start, 0);
            ops += 1;
        }
    }
    Ok(ops as f64 / began.elapsed().as_secs_f64())
}
