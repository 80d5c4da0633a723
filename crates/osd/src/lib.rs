//! The OSD: placement groups, operations, object classes, watches.

pub mod classes;
pub mod errno;
