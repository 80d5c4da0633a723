//! `assert` and `abort`: a daemon ends as a defect would end it, so that operators can try crash reports and supervision.
//!
//! Both are refused unless the option `debug_asok_assert_abort` allows them, as in stock (`src/common/ceph_context.cc`).

use crate::options::Layers;
use crate::{Answer, errno, option_set};

/// Signature, help, permissions.
pub const COMMANDS: &[(&str, &str, &str)] = &[("abort", "", "rw"), ("assert", "", "rw")];

option_set! {
    /// The permission for the commands of this module.
    pub struct PanicOptions for Osd | Mon | Mgr, Live {
        is_allowed: bool = "debug_asok_assert_abort",
    }
}

/// True for the name of a command of [`COMMANDS`].
pub fn has(prefix: &str) -> bool {
    COMMANDS.iter().any(|(name, ..)| *name == prefix)
}

/// Carries out a command of [`COMMANDS`]; `None` for any other.
///
/// # Panics
/// If the option allows the command: that is its effect.
pub fn obey(layers: &Layers, prefix: &str) -> Option<Answer> {
    if !has(prefix) {
        return None;
    }
    if !PanicOptions::read(layers).is_allowed {
        return Some(Answer::error(errno::EPERM, "debug_asok_assert_abort is not set"));
    }
    panic!("{prefix}: an operator asked for it (debug_asok_assert_abort)");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Identity;

    #[test]
    fn assert_is_refused_unless_allowed() {
        let mut layers = Layers::new(Identity::named("osd.3"));
        assert!(obey(&layers, "status").is_none());
        for command in ["assert", "abort"] {
            assert_eq!(obey(&layers, command).unwrap().result, -errno::EPERM);
        }
        layers.set_override("debug_asok_assert_abort", "true").unwrap();
        let ended = std::panic::catch_unwind(|| obey(&layers, "assert")).unwrap_err();
        assert!(ended.downcast::<String>().unwrap().starts_with("assert: an operator asked"));
    }
}
