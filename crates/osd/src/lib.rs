//! The OSD: placement groups, operations, object classes, watches.
