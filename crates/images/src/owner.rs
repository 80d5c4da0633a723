//! Work on an image by the live owner of its exclusive lock, who is asked for it as librbd asks.

use crate::lock::HeaderWatch;
use crate::notices::{AsyncRequest, Notice, OwnerRequest};
use crate::pool::{Errno, Pool};
use crate::progress::Progress;
use bytes::Bytes;
use command::errno;
use std::cell::Cell;
use std::time::Duration;

/// An owner that reports no progress for longer is asked again (`rbd_request_timed_out_seconds`).
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Between two looks for the owner.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The owner of the lock does the work. False if there was no owner, or it says nothing more: it may have done it.
pub(crate) async fn ask(
    pool: &Pool,
    watch: &HeaderWatch,
    asked: &OwnerRequest<'_>,
    progress: &Progress,
) -> Result<bool, Errno> {
    let request = new_request(pool, watch);
    match watch.ask_owner(asked.payload(request)).await? {
        None => return Ok(false),
        Some(0) => {}
        Some(error) if error == -errno::ETIMEDOUT => return Ok(false),
        Some(error) => return Err(error.saturating_neg()),
    }
    let last_heard = Cell::new(pool.cx.now());
    loop {
        progress.check()?;
        watch.check()?;
        let mut result = None;
        let listen = || {
            watch.take(|notice| {
                match notice {
                    Notice::AsyncProgress { request: of, offset, total } if of == request => {
                        last_heard.set(pool.cx.now());
                        progress.set(offset, total);
                    }
                    Notice::AsyncComplete { request: of, result: told } if of == request => {
                        result = Some(told)
                    }
                    _ => {}
                }
                Bytes::new()
            });
            result
        };
        let look_again = pool.cx.now() + Duration::from_secs(1);
        match pool.cx.until_found(look_again, listen).await {
            Some(0) => return Ok(true),
            Some(error) => return Err(error.saturating_neg()),
            None if pool.cx.now() >= last_heard.get() + SILENCE_MAX => return Ok(false),
            None => {}
        }
    }
}

/// Sends a request and takes the first answer alone; `None` without an owner.
pub(crate) async fn tell(
    pool: &Pool,
    watch: &HeaderWatch,
    asked: &OwnerRequest<'_>,
) -> Result<Option<i32>, Errno> {
    watch.ask_owner(asked.payload(new_request(pool, watch))).await
}

fn new_request(pool: &Pool, watch: &HeaderWatch) -> AsyncRequest {
    AsyncRequest { client: watch.client_id(), number: u64::from_le_bytes(pool.cx.random_bytes()) }
}
