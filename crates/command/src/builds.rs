//! Marks of abilities in a daemon's metadata, which daemons of older builds lack.
//!
//! An OSD sends its marks with its boot (`MOSDBoot`), and `ceph osd metadata` shows them.

/// The OSD merges PGs.
pub const MERGES_PGS: &str = "shoal_merges_pgs";
