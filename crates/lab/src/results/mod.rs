//! Where do measurements live? In one SQLite file, `lab.sqlite`, in a folder of their own.
//!
//! - [`store`]: runs, points, samples, artifacts. What is finished is never changed: the database itself refuses.
//! - [`record`]: one run and one point.

pub mod record;
pub mod store;

pub use record::{Latency, Measured, PointRecord, RunRecord, Sample};
pub use store::Results;
