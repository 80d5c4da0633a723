//! Which load tells how much the client can do at all? That of a point, as fast as it can and for a moment, on a target that
//! takes no time; half of what comes out is safe to measure, and near it the client is what is measured.

use crate::matrix::Spec;

/// A moment; longer where so few operations come about in it that their number says nothing.
pub const SECONDS: [f64; 3] = [0.15, 0.6, 2.4];
pub const OPERATIONS_MIN: f64 = 32.0;
const RAMP_SECONDS: f64 = 0.05;
/// An open loop is as deep as it needs to be.
const DEPTH_OF_OPEN_LOOP: u32 = 64;
/// What the target keeps in memory at most, all clients together.
const OBJECT_BYTES_MAX: u64 = 64 << 20;

pub fn of(spec: &Spec) -> Spec {
    let room = OBJECT_BYTES_MAX / spec.op_bytes_max().max(1) / u64::from(spec.clients.max(1));
    Spec {
        seconds: SECONDS[0],
        ramp_s: RAMP_SECONDS,
        rate: None,
        rate_to: None,
        think_us: 0,
        depth: if spec.rate.is_some() { DEPTH_OF_OPEN_LOOP } else { spec.depth },
        objects: spec.objects.min(room.max(1)),
        faults: Vec::new(),
        ..spec.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_points_load_but_for_what_slows_it_down() {
        let spec = Spec { rate: Some(10.0), think_us: 500, objects: 1 << 20, clients: 4, ..Spec::default() };
        let alone = of(&spec);
        assert_eq!((alone.rate, alone.think_us, alone.depth), (None, 0, DEPTH_OF_OPEN_LOOP));
        assert_eq!((alone.op, alone.op_bytes, alone.clients), (spec.op, spec.op_bytes, 4));
        assert_eq!(alone.objects * alone.op_bytes * 4, OBJECT_BYTES_MAX);
    }
}
