//! Degraded, misplaced and unfound objects of a pool, or of all pools (`recovery_summary`).

use command::Json;
use wire::types::ObjectStatSum;

/// One kind of trouble: how many objects (or copies), of how many.
struct Share {
    name: &'static str,
    part: i64,
    whole: i64,
}

fn shares(sum: &ObjectStatSum) -> impl Iterator<Item = Share> {
    let copies = sum.num_object_copies;
    [
        Share { name: "degraded", part: sum.num_objects_degraded, whole: copies },
        Share { name: "misplaced", part: sum.num_objects_misplaced, whole: copies },
        Share { name: "unfound", part: sum.num_objects_unfound, whole: sum.num_objects },
    ]
    .into_iter()
    .filter(|s| s.part != 0 && s.whole > 0)
}

/// `5/14 objects degraded (35.714%)`, for each trouble that there is.
pub(super) fn texts(sum: &ObjectStatSum) -> Vec<String> {
    let text = |s: Share| {
        let percent = s.part as f64 / s.whole as f64 * 100.0;
        format!("{}/{} objects {} ({percent:.3}%)", s.part, s.whole, s.name)
    };
    shares(sum).map(text).collect()
}

/// The same as pairs of a JSON object.
pub(super) fn push_json(object: &mut Json, sum: &ObjectStatSum) {
    for s in shares(sum) {
        object.push(format!("{}_objects", s.name), s.part);
        object.push(format!("{}_total", s.name), s.whole);
        object.push(format!("{}_ratio", s.name), s.part as f64 / s.whole as f64);
    }
}
