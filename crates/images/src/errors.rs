//! Errors in the words of Ceph's Python modules, which stock's manager shows (`rbd.pyx`, `rados.pyx`).

use crate::pool::Errno;
use command::{Answer, errno};

/// An error of librbd: `[errno 2] RBD image not found (WHAT)`.
pub(crate) fn rbd(errno: Errno, what: &str) -> String {
    let words = match errno {
        errno::EPERM => "RBD permission error",
        errno::ENOENT => "RBD image not found",
        errno::EIO => "RBD I/O error",
        errno::ENOSPC => "RBD insufficient space available",
        errno::EEXIST => "RBD image already exists",
        errno::EINVAL => "RBD invalid argument",
        30 => "RBD read-only image",
        errno::EBUSY => "RBD image is busy",
        errno::ENOTEMPTY => "RBD image has snapshots",
        errno::ENOSYS => "RBD function not supported",
        108 => "RBD connection was shutdown",
        errno::ETIMEDOUT => "RBD operation timeout",
        122 => "RBD disk quota exceeded",
        errno::EOPNOTSUPP => "RBD operation not supported",
        125 => "RBD operation canceled",
        // An errno without a class of its own.
        _ => return format!("[errno {errno}] {what}"),
    };
    format!("[errno {errno}] {words} ({what})")
}

/// The same without what failed, for the log.
pub(crate) fn text(errno: Errno) -> String {
    rbd(errno, "block image")
}

/// A command's answer.
pub(crate) fn answer(errno: Errno, what: &str) -> Answer {
    Answer::error(errno, rbd(errno, what))
}

/// A pool that is not there.
pub(crate) fn no_pool(name: &str) -> Answer {
    let status = format!("[errno 2] RADOS object not found (error opening pool '{name}')");
    Answer::error(errno::ENOENT, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_stocks_words() {
        let missing = answer(errno::ENOENT, "Image rbd/nope does not exist");
        assert_eq!(
            (missing.result, missing.status.as_str()),
            (-2, "[errno 2] RBD image not found (Image rbd/nope does not exist)")
        );
        assert_eq!(rbd(31, "error removing image"), "[errno 31] error removing image");
        assert_eq!(no_pool("x").status, "[errno 2] RADOS object not found (error opening pool 'x')");
    }
}
