//! How a device says that something has completed: an eventfd, which a reactor's epoll or a blocked thread sees.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Becomes readable with each completion; clones are the same one.
#[derive(Clone, Debug)]
pub struct Wake(Arc<OwnedFd>);

impl Wake {
    pub(super) fn new() -> io::Result<Wake> {
        Ok(Wake(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(super) fn signal(&self) {
        // It fails only when 2^64 signals wait already, and then it is readable.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// For who is not a reactor: returns when something has completed since the last call, or after `patience`.
    pub fn wait(&self, patience: Duration) -> io::Result<()> {
        let patience = Timespec {
            tv_sec: patience.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&*self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            other => other?,
        };
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
        Ok(())
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
