//! The load generator's own ceiling: its rate on a cluster that takes no time, on this host and now.
//!
//! The client does all of its work: generator, recorder, contents, objecter, messages, frames, checksums or sealing,
//! sockets. The cluster of a run adds the rest. The target needs processors too, as the OSDs of a run on this host do;
//! on a host with one processor they share it. A point at more than half of its ceiling measures the client, too.

use super::connections::Load;
use super::null_cluster::{NullCluster, POOL};
use crate::matrix::Spec;
use anyhow::{Context, ensure};
use client_host::Modes;

/// A short load; longer ones follow while too few operations complete.
const SECONDS: [f64; 3] = [0.15, 0.6, 2.4];
const OPERATIONS_MIN: f64 = 32.0;
const RAMP_SECONDS: f64 = 0.05;
/// An open loop has no depth of its own.
const DEPTH_OF_OPEN_LOOP: u32 = 64;
/// Memory of the target's objects, all clients together.
const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// The point's load without its think time, rate and faults.
pub fn spec_of(spec: &Spec) -> Spec {
    let room = OBJECT_BYTES_MAX / spec.op_bytes_max().max(1) / u64::from(spec.clients.max(1));
    Spec {
        seconds: SECONDS[0],
        ramp_s: RAMP_SECONDS,
        rate: None,
        rate_to: None,
        think_us: 0,
        depth: if spec.rate.is_some() { DEPTH_OF_OPEN_LOOP } else { spec.depth },
        objects: spec.objects.min(room.max(1)),
        object_bytes: None,
        faults: Vec::new(),
        ..spec.clone()
    }
}

/// Operations a second, above 0.
pub fn measure(spec: &Spec) -> anyhow::Result<f64> {
    let modes = Modes::of_name(&spec.mode);
    let mut ops_per_s = 0.0;
    for seconds in SECONDS {
        ops_per_s = measure_for(&Spec { seconds, ..spec_of(spec) }, modes)
            .context("measuring the load generator's own ceiling")?;
        if ops_per_s * seconds >= OPERATIONS_MIN {
            break;
        }
    }
    ensure!(
        ops_per_s > 0.0,
        "no operation completed on a target in memory: this host is too busy to measure"
    );
    Ok(ops_per_s)
}

fn measure_for(spec: &Spec, modes: Modes) -> anyhow::Result<f64> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    // One is the client's.
    let cores = spec.clients.min(processors.saturating_sub(1)).max(1);
    let target = NullCluster::start(cores as u16, modes)?;
    let measured = Load::new(target.access(), POOL, spec).run(&mut || Ok(()))?;
    ensure!(
        measured.errors == 0 && measured.verified.is_none_or(|(_, wrong)| wrong == 0),
        "{} operations failed on a target in memory",
        measured.errors
    );
    Ok(measured.ops_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Op;

    #[test]
    fn spec_drops_rate_think_time_and_faults() {
        let spec = Spec { rate: Some(10.0), think_us: 500, objects: 1 << 20, clients: 4, ..Spec::default() };
        let alone = spec_of(&spec);
        assert_eq!((alone.rate, alone.think_us, alone.depth), (None, 0, DEPTH_OF_OPEN_LOOP));
        assert_eq!((alone.op, alone.op_bytes, alone.clients), (spec.op, spec.op_bytes, 4));
        assert_eq!(alone.objects * alone.op_bytes * 4, OBJECT_BYTES_MAX);
    }

    fn ceiling_of(op: Op, op_bytes: u64, depth: u32, mode: &str) -> f64 {
        measure(&Spec { op, op_bytes, depth, mode: mode.into(), verify: true, ..Spec::default() }).unwrap()
    }

    #[test]
    fn each_operation_and_mode_has_a_ceiling() {
        for op in [Op::Write, Op::RandRead, Op::RandMixed] {
            for mode in ["default", "crc", "secure"] {
                assert!(ceiling_of(op, 4096, 4, mode) > 10.0, "{op:?} {mode}");
            }
        }
    }

    #[test]
    fn slow_operations_still_have_a_ceiling() {
        assert!(ceiling_of(Op::Write, 16 << 20, 4, "secure") > 0.0);
    }

    #[test]
    fn ceiling_falls_with_work_an_operation() {
        let small = ceiling_of(Op::RandMixed, 4096, 4, "crc");
        let large = ceiling_of(Op::RandMixed, 1 << 20, 4, "crc");
        assert!(small > 4.0 * large, "{small} {large}");
    }

    #[test]
    fn ceiling_of_open_loop_exceeds_its_rate() {
        let spec = Spec {
            op: Op::RandMixed,
            clients: 3,
            depth: 4,
            sizes: vec![(4096, 0.5), (65536, 0.5)],
            rate: Some(100.0),
            ..Spec::default()
        };
        assert!(measure(&spec).unwrap() > 200.0);
    }
}
