//! Bytes of an attacker as manager capabilities: called by the fuzz target and by the replay of its corpus.

use crate::caps::{Access, Caps, Request};
use std::collections::BTreeMap;

/// Parses the text and asks it for two commands from two networks.
///
/// # Panics
/// If a capability that allows to write does not allow to read the same.
pub fn caps(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(caps) = Caps::parse(text) else { return };
    let args = BTreeMap::from([("dumpcontents".to_owned(), "sum".to_owned())]);
    for (service, module, prefix) in [("pg", "", "pg dump"), ("", "balancer", "balancer status")] {
        for peer in [None, Some([10, 1, 2, 3].into()), Some([0u16, 0, 0, 0, 0, 0, 0, 1].into())] {
            let allows = |letters: &str| {
                let access = Access::parse(letters).expect("letters of access");
                caps.allow(&Request { service, module, prefix, args: &args, access, peer })
            };
            assert!(!allows("rwx") || (allows("r") && allows("w") && allows("x")), "{text}");
        }
    }
}
