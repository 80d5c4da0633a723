//! How much can this client do at all, on this host and now? Its own load, for a moment, on a cluster that takes no time.
//!
//! It is the client of a run with all of its work: generator, recorder, content, objecter, messages, frames, checksums or
//! sealing, sockets. What comes on top in a run is what the cluster adds. The target needs processors too, as the OSDs
//! of a run do that are on this host; where there is no other, they share this one.

use super::instant::{Instant, POOL};
use client_host::Modes;
use lab::load::ceiling;
use lab::matrix::Spec;

/// Operations a second, above 0.
pub fn measure(spec: &Spec, modes: Modes) -> anyhow::Result<f64> {
    let mut ops_per_s = 0.0;
    for seconds in ceiling::SECONDS {
        ops_per_s = measure_for(&Spec { seconds, ..ceiling::of(spec) }, modes)?;
        if ops_per_s * seconds >= ceiling::OPERATIONS_MIN {
            break;
        }
    }
    anyhow::ensure!(
        ops_per_s > 0.0,
        "not one operation came about: this host is too busy to measure anything"
    );
    Ok(ops_per_s)
}

fn measure_for(spec: &Spec, modes: Modes) -> anyhow::Result<f64> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    // One is the client's.
    let cores = spec.clients.min(processors.saturating_sub(1)).max(1);
    let target = Instant::start(cores as u16, modes)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(super::load::run(target.access(), POOL, spec, &mut || Ok(())))?;
    anyhow::ensure!(
        measured.errors == 0 && measured.verified.is_none_or(|(_, wrong)| wrong == 0),
        "the client's own ceiling cannot be measured: {} operations failed on a target in memory",
        measured.errors
    );
    Ok(measured.ops_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::matrix::Op;

    fn of(op: Op, op_bytes: u64, depth: u32, modes: Modes) -> f64 {
        let spec = Spec { op, op_bytes, depth, verify: true, ..Spec::default() };
        measure(&spec, modes).unwrap()
    }

    #[test]
    fn every_operation_and_every_mode_has_one() {
        for op in [Op::Write, Op::RandRead, Op::RandMixed] {
            for modes in [Modes::Default, Modes::Crc, Modes::Secure] {
                assert!(of(op, 4096, 4, modes) > 10.0, "{op:?} {modes:?}");
            }
        }
    }

    #[test]
    fn it_is_never_nothing_however_slow_the_operations() {
        assert!(of(Op::Write, 16 << 20, 4, Modes::Secure) > 0.0);
    }

    #[test]
    fn more_work_is_a_lower_ceiling() {
        let (one, many) = (of(Op::RandMixed, 4096, 1, Modes::Crc), of(Op::RandMixed, 4096, 64, Modes::Crc));
        let large = of(Op::RandMixed, 1 << 20, 4, Modes::Crc);
        assert!(many > one && large < many, "{one} {many} {large}");
    }

    #[test]
    fn several_clients_and_mixed_sizes_are_loaded_as_in_a_run() {
        let spec = Spec {
            op: Op::RandMixed,
            clients: 3,
            depth: 4,
            sizes: vec![(4096, 0.5), (65536, 0.5)],
            rate: Some(100.0),
            ..Spec::default()
        };
        // Not the rate that is asked for: what it could be.
        assert!(measure(&spec, Modes::Default).unwrap() > 200.0);
    }
}
