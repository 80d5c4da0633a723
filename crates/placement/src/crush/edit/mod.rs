//! Changes to a CRUSH map, as pure functions: what the monitor's `osd crush …` commands need.

pub mod bucket;
