//! The exclusive lock of an image, as librbd takes it (`librbd/ManagedLock.cc`, `managed_lock/`).
//!
//! The lock `rbd_lock` on the header names its owner and the owner's watch of the header. An owner whose watch is gone is dead: it
//! is put on the blocklist, so that none of its writes comes later, and its lock is broken. A live owner keeps the lock; it is asked
//! to do the work. The owner here gives way at the next step when another client asks for the lock.
//!
//! A lock of this client's own address is the rest of a procedure that ended without giving it back. It is broken without the
//! blocklist, which would end this client's own work.

use crate::cx::{Cx, Request, Ticket};
use crate::image::header_object;
use crate::notices::{ClientId, Notice, response};
use crate::pool::{Errno, Pool, may_be_gone};
use bytes::Bytes;
use command::{errno, object};
use std::time::Duration;
use wire::messages::{Body, MMonCommand, MMonGetVersion, PaxosHeader};
use wire::types::cls::lock::{BreakOp, GetInfoOp, LockInfo, LockOp, LockType, UnlockOp};
use wire::types::{EntityAddr, Name, WatchItem};

const LOCK: &str = "rbd_lock";
/// librbd's own locks have it; a person's lock has another.
const TAG: &str = "internal";
const COOKIE_PREFIX: &str = "auto ";
const ENOTCONN: Errno = 107;
/// An OSD drops the watch of a manager that died after so long. Stock's clients have 30 s.
const WATCH_TIMEOUT: Duration = Duration::from_secs(15);
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A watch of an image's header. Other clients see that the image is in use.
pub(crate) struct HeaderWatch {
    pool: Pool,
    header: Name,
    watch: Ticket,
    cookie: u64,
}

impl HeaderWatch {
    pub(crate) async fn start(pool: &Pool, id: &Name) -> Result<HeaderWatch, Errno> {
        let header = header_object(id);
        let cx = &pool.cx;
        let watch = cx.watch(pool.object(header.clone()), WATCH_TIMEOUT);
        let mut started = HeaderWatch { pool: pool.clone(), header, watch, cookie: 0 };
        let until = cx.now() + SETTLE_TIMEOUT;
        let state = || {
            cx.with_watch(watch, |watch| match (watch.is_registered, watch.lost) {
                (_, Some(error)) => Some(Err(error.saturating_neg())),
                (true, None) => Some(Ok(watch.cookie)),
                (false, None) => None,
            })
            .flatten()
        };
        started.cookie = cx.until_found(until, state).await.unwrap_or(Err(errno::ETIMEDOUT))?;
        Ok(started)
    }

    fn cx(&self) -> &Cx {
        &self.pool.cx
    }

    pub(crate) fn client_id(&self) -> ClientId {
        ClientId { gid: self.cx().global_id(), handle: self.cookie }
    }

    /// `ENOTCONN` once the watch is lost: another client may have the image.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        match self.cx().with_watch(self.watch, |watch| watch.lost) {
            Some(None) => Ok(()),
            _ => Err(ENOTCONN),
        }
    }

    /// Takes notifications that have come, and acknowledges each with `reply`'s bytes.
    pub(crate) fn take(&self, mut reply: impl FnMut(Notice) -> Bytes) {
        let come = self.cx().with_watch(self.watch, |watch| std::mem::take(&mut watch.inbox));
        for notification in come.into_iter().flatten() {
            let notice = Notice::decode(&notification.payload).unwrap_or(Notice::Other);
            let (watch, notify_id) = (self.watch, notification.notify_id);
            self.cx().send(Request::Acknowledge { watch, notify_id, reply: reply(notice) });
        }
    }

    fn tell(&self, notice: Notice) {
        tell(&self.pool, self.header.clone(), notice);
    }

    /// Tells the clients of the image that the header has changed.
    pub(crate) fn tell_update(&self) {
        self.tell(Notice::HeaderUpdate);
    }

    /// Sends a request to the owner of the lock. Its answer, or `None` where no owner has answered.
    pub(crate) async fn ask_owner(&self, payload: Bytes) -> Result<Option<i32>, Errno> {
        let object = self.pool.object(self.header.clone());
        let (result, outcome) = self.cx().notify(object, payload, Duration::from_secs(10)).await;
        if result < 0 && result != -errno::ETIMEDOUT {
            return Err(result.saturating_neg());
        }
        let outcome: wire::types::NotifyOutcome = codec::decode_exact(&outcome).unwrap_or_default();
        let replies = outcome.replies.iter().filter(|(_, reply)| !reply.is_empty());
        Ok(replies.filter_map(|(_, reply)| crate::notices::decode_response(reply).ok()).next())
    }

    fn is_own(&self, watcher: &WatchItem) -> bool {
        let own = self.client_id();
        (watcher.name.num, watcher.cookie) == (own.gid as i64, own.handle)
    }

    /// Watchers of the header but this one.
    pub(crate) async fn others(&self) -> Result<Vec<WatchItem>, Errno> {
        Ok(self.others_and_own().await?.0)
    }

    /// Watchers of the header but this one, and this one as the OSD knows it, unless it is lost.
    async fn others_and_own(&self) -> Result<(Vec<WatchItem>, Option<WatchItem>), Errno> {
        let all = self.pool.watchers(self.header.clone()).await?.entries;
        let (mut own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|watcher| self.is_own(watcher));
        Ok((others, own.pop()))
    }
}

impl Drop for HeaderWatch {
    fn drop(&mut self) {
        // Notifications that have come are answered first: their senders wait.
        self.take(|_| Bytes::new());
        self.cx().unwatch(self.watch);
    }
}

/// Tells the clients of an image, without a watch of it.
pub(crate) fn tell(pool: &Pool, header: Name, notice: Notice) {
    let (object, payload) = (pool.object(header), notice.payload());
    pool.cx.send(Request::Notify { object, payload, timeout: NOTIFY_TIMEOUT });
}

/// A hold on an image: other clients see that it is in use.
pub(crate) enum Hold {
    /// Of an image with an exclusive lock.
    Lock(Lock),
    Watch(HeaderWatch),
}

impl Hold {
    pub(crate) fn watch(&self) -> &HeaderWatch {
        match self {
            Hold::Lock(lock) => &lock.watch,
            Hold::Watch(watch) => watch,
        }
    }

    pub(crate) async fn release(self) -> Result<(), Errno> {
        match self {
            Hold::Lock(lock) => lock.release().await,
            Hold::Watch(_) => Ok(()),
        }
    }
}

/// The way in which an image may be worked on.
pub(crate) enum Access {
    Owner(Lock),
    /// A live client owns the lock.
    OwnedByOther(HeaderWatch),
}

/// The exclusive lock of an image, held by this client.
pub(crate) struct Lock {
    pub watch: HeaderWatch,
}

impl Lock {
    /// Takes the lock, unless a live client or a person has it. `EBUSY`: a person has.
    pub(crate) async fn acquire(pool: &Pool, id: &Name) -> Result<Access, Errno> {
        let watch = HeaderWatch::start(pool, id).await?;
        loop {
            let take = LockOp {
                name: LOCK.into(),
                kind: LockType::EXCLUSIVE,
                cookie: format!("{COOKIE_PREFIX}{}", watch.cookie).into(),
                tag: TAG.into(),
                ..LockOp::default()
            };
            match pool.call_of("lock", watch.header.clone(), "lock", &take).await {
                Ok(()) => break,
                Err(errno::EBUSY) => {}
                Err(error) => return Err(error),
            }
            let ask = GetInfoOp { name: LOCK.into() };
            let info: LockInfo = pool.get_of("lock", watch.header.clone(), "get_info", &ask).await?;
            // None: it was given back meanwhile.
            let Some((owner, held)) = info.lockers.into_iter().next() else { continue };
            let handle = owner
                .cookie
                .to_str()
                .and_then(|cookie| cookie.strip_prefix(COOKIE_PREFIX)?.parse::<u64>().ok());
            let Some(handle) = handle.filter(|_| info.tag == *TAG && info.kind.is_exclusive()) else {
                return Err(errno::EBUSY);
            };
            let (others, own) = watch.others_and_own().await?;
            let own = own.ok_or(ENOTCONN)?;
            match Owner::of(handle, &held.addr, &others, &own.addr) {
                Owner::Live => return Ok(Access::OwnedByOther(watch)),
                // Its watch may be lost, and a procedure of this client not have found out yet.
                Owner::Own if handle != watch.cookie && pool.cx.has_watch(handle) => {
                    return Err(errno::EBUSY);
                }
                Owner::Own => {}
                Owner::Dead => blocklist(&pool.cx, held.addr).await?,
            }
            let op = BreakOp { name: LOCK.into(), locker: owner.locker, cookie: owner.cookie };
            may_be_gone(pool.call_of("lock", watch.header.clone(), "break_lock", &op).await)?;
        }
        watch.tell(Notice::AcquiredLock(watch.client_id()));
        Ok(Access::Owner(Lock { watch }))
    }

    /// Answers other clients. True if one of them wants the lock.
    pub(crate) fn is_wanted(&self) -> bool {
        let mut is_wanted = false;
        self.watch.take(|notice| match notice {
            // As librbd's owner says: it will be given back.
            Notice::RequestLock => {
                is_wanted = true;
                response(0)
            }
            // A request to the owner has no answer, so that its sender asks again when it has the lock.
            Notice::Flatten(_) | Notice::Other => {
                is_wanted = true;
                Bytes::new()
            }
            _ => Bytes::new(),
        });
        is_wanted
    }

    pub(crate) async fn release(self) -> Result<(), Errno> {
        let watch = &self.watch;
        let op = UnlockOp { name: LOCK.into(), cookie: format!("{COOKIE_PREFIX}{}", watch.cookie).into() };
        let released = may_be_gone(watch.pool.call_of("lock", watch.header.clone(), "unlock", &op).await);
        watch.tell(Notice::ReleasedLock(watch.client_id()));
        released
    }
}

/// The owner of a lock, by the other watchers of the header.
#[derive(PartialEq, Debug)]
enum Owner {
    Live,
    /// This client, without a watch any more.
    Own,
    Dead,
}

impl Owner {
    fn of(handle: u64, addr: &EntityAddr, others: &[WatchItem], own: &EntityAddr) -> Owner {
        let is_owner = |watcher: &WatchItem| watcher.cookie == handle && is_same_client(&watcher.addr, addr);
        if others.iter().any(is_owner) {
            Owner::Live
        } else if is_same_client(addr, own) {
            Owner::Own
        } else {
            Owner::Dead
        }
    }
}

fn is_same_client(a: &EntityAddr, b: &EntityAddr) -> bool {
    a.socket == b.socket && a.nonce == b.nonce
}

/// Puts a dead client on the blocklist, and waits for the map that has it: operations that follow are carried out by OSDs which
/// know of it.
async fn blocklist(cx: &Cx, addr: EntityAddr) -> Result<(), Errno> {
    let text = addr.plain().to_string();
    let command = object! { "prefix" => "osd blocklist", "blocklistop" => "add", "addr" => text };
    ask_monitor(cx, command.compact()).await?;
    latest_map(cx).await
}

/// Waits until the client has the newest map.
pub(crate) async fn latest_map(cx: &Cx) -> Result<(), Errno> {
    let ask = MMonGetVersion { handle: 0, what: "osdmap".into() };
    let Ok(Body::MMonGetVersionReply(reply)) = cx.ask_monitor(ask.into()).await else {
        return Err(errno::ETIMEDOUT);
    };
    let epoch = u32::try_from(reply.version).unwrap_or(u32::MAX);
    wait_for_map(cx, epoch).await
}

/// Waits until the client has this map or a newer one.
pub(crate) async fn wait_for_map(cx: &Cx, epoch: u32) -> Result<(), Errno> {
    cx.send(Request::WantMap(epoch));
    let until = cx.now() + SETTLE_TIMEOUT;
    let has_map = || cx.map().filter(|map| map.epoch >= epoch).map(drop);
    cx.until_found(until, has_map).await.ok_or(errno::ETIMEDOUT)
}

/// A command to the monitors.
pub(crate) async fn ask_monitor(cx: &Cx, command: String) -> Result<(), Errno> {
    let fsid = cx.map().map(|map| map.fsid).unwrap_or_default();
    let ask =
        MMonCommand { paxos: PaxosHeader::default(), fsid, command: vec![command], input: Bytes::new() };
    match cx.ask_monitor(ask.into()).await {
        Ok(Body::MMonCommandAck(ack)) if ack.result == 0 => Ok(()),
        Ok(Body::MMonCommandAck(ack)) => Err(ack.result.saturating_neg()),
        _ => Err(errno::ETIMEDOUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Header, lock_without_watch};
    use wire::types::{EntityKind, EntityName};

    fn address(nonce: u32) -> EntityAddr {
        EntityAddr { nonce, ..EntityAddr::default() }
    }

    fn watcher(cookie: u64, nonce: u32) -> WatchItem {
        WatchItem {
            name: EntityName::new(EntityKind::CLIENT, 4),
            cookie,
            timeout_s: 15,
            addr: address(nonce),
        }
    }

    #[test]
    fn lock_of_own_address_is_never_a_dead_owners() {
        let own = address(1);
        let watchers = [watcher(7, 1), watcher(5, 2)];
        let owner = |handle, nonce| Owner::of(handle, &address(nonce), &watchers, &own);
        assert_eq!(owner(7, 1), Owner::Live, "another procedure of this client");
        assert_eq!(owner(6, 1), Owner::Own);
        assert_eq!(owner(5, 2), Owner::Live);
        assert_eq!(owner(7, 2), Owner::Dead, "another watch of a live client");
        assert_eq!(owner(5, 3), Owner::Dead);
    }

    /// The log of an attempt to take the lock that a client left.
    fn taking_after(client: u32) -> Vec<String> {
        let mut fake = Fake::new();
        let header = Header { locker: Some(lock_without_watch(client)), ..Header::default() };
        fake.headers.insert("i".into(), header);
        let pool = fake.pool();
        let taken = fake.run(async move {
            match Lock::acquire(&pool, &"i".into()).await {
                Ok(Access::Owner(lock)) => lock.release().await,
                Ok(Access::OwnedByOther(_)) => Err(errno::EBUSY),
                Err(error) => Err(error),
            }
        });
        assert_eq!(taken, Some(Ok(())));
        fake.take_log()
    }

    #[test]
    fn own_lock_is_broken_without_the_blocklist() {
        assert_eq!(taking_after(1), ["break lock of i", "lock i", "unlock i"]);
        let log = taking_after(7);
        assert!(log[0].contains("blocklist"), "{log:?}");
        assert_eq!(log[1..], ["break lock of i", "lock i", "unlock i"]);
    }
}
