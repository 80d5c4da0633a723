//! Capabilities that one role grants and another enforces: the monitor checks their text, the OSD what they allow.

mod osd;
mod osd_grammar;
#[cfg(test)]
mod osd_tests;

pub use osd::{Access, ClassUse, Grant, Network, OsdAccess, OsdCap, PoolTag, Rule, Scope, Spec};
pub use osd_grammar::OsdCapError;
