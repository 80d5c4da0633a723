//! A pool's namespace as procedures use it: object operations, class methods with typed arguments, omaps.

use crate::cx::Cx;
use bytes::Bytes;
use client::{Failure, ObjectRef, Operation, ReadOps, Reply, WriteOps};
use codec::{Decode, Encode, Features, Writer};
use command::errno;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{Name, PoolId, SnapId, WatcherList};

/// A positive errno.
pub(crate) type Errno = i32;

/// EBLOCKLISTED.
const ESHUTDOWN: Errno = 108;
const EBADMSG: Errno = 74;
/// Operations on behalf of a command give up after this long.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Entries of one listing.
const PAGE: u64 = 128;

/// The argument of a method without arguments.
pub(crate) struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _: &mut Writer) {}
}

/// Pools for images, by number.
pub(crate) fn image_pools(cx: &Cx) -> BTreeMap<PoolId, String> {
    let Some(map) = cx.map() else { return BTreeMap::new() };
    let is_for_images =
        |id: &PoolId| map.pools.get(id).is_some_and(|pool| pool.applications.contains_key("rbd"));
    map.pool_names
        .iter()
        .filter(|(id, _)| is_for_images(id))
        .map(|(id, name)| (*id, name.to_string()))
        .collect()
}

/// One namespace of a pool.
#[derive(Clone)]
pub(crate) struct Pool {
    pub cx: Cx,
    pub id: PoolId,
    pub namespace: Name,
    /// Operations give up after this long. Procedures that write images have none: a write that timed out may come later, when
    /// another client has the image.
    timeout: Option<Duration>,
}

impl Pool {
    pub(crate) fn new(cx: &Cx, id: PoolId, namespace: impl Into<Name>) -> Pool {
        Pool { cx: cx.clone(), id, namespace: namespace.into(), timeout: None }
    }

    pub(crate) fn with_timeout(self, timeout: Duration) -> Pool {
        Pool { timeout: Some(timeout), ..self }
    }

    pub(crate) fn in_pool(&self, id: PoolId) -> Pool {
        Pool { id, ..self.clone() }
    }

    pub(crate) fn in_namespace(&self, namespace: impl Into<Name>) -> Pool {
        Pool { namespace: namespace.into(), ..self.clone() }
    }

    pub(crate) fn object(&self, name: impl Into<Name>) -> ObjectRef {
        ObjectRef::new(self.id, name).in_namespace(self.namespace.clone())
    }

    pub(crate) async fn run(&self, operation: Operation) -> Result<Reply, Errno> {
        let operation = match self.timeout {
            Some(timeout) => operation.with_timeout(timeout),
            None => operation,
        };
        let reply = self.cx.operate(operation).await.map_err(|failure| match failure {
            // Not ENOENT: that says that an object has no data.
            Failure::NoPool => errno::ENODEV,
            other => other.errno().saturating_neg(),
        })?;
        if reply.result == -ESHUTDOWN {
            self.cx.note_fenced();
        }
        match reply.result {
            0.. => Ok(reply),
            error => Err(error.saturating_neg()),
        }
    }

    pub(crate) async fn read(&self, object: impl Into<Name>, steps: ReadOps) -> Result<Reply, Errno> {
        self.run(Operation::read(self.object(object), steps)).await
    }

    pub(crate) async fn read_at(
        &self,
        object: impl Into<Name>,
        snap: SnapId,
        steps: ReadOps,
    ) -> Result<Reply, Errno> {
        self.run(Operation::read(self.object(object), steps).at_snap(snap)).await
    }

    pub(crate) async fn write(&self, object: impl Into<Name>, steps: WriteOps) -> Result<(), Errno> {
        self.run(Operation::write(self.object(object), steps)).await.map(drop)
    }

    /// A reading method of the class `rbd`.
    pub(crate) async fn get<T: Decode>(
        &self,
        object: impl Into<Name>,
        method: &str,
        argument: &impl Encode,
    ) -> Result<T, Errno> {
        self.get_of("rbd", object, method, argument).await
    }

    pub(crate) async fn get_of<T: Decode>(
        &self,
        class: &str,
        object: impl Into<Name>,
        method: &str,
        argument: &impl Encode,
    ) -> Result<T, Errno> {
        let steps = ReadOps::new().exec(class, method, &argument.to_vec(Features::ALL));
        decoded(&self.read(object, steps).await?, 0)
    }

    /// A writing method of the class `rbd`.
    pub(crate) async fn call(
        &self,
        object: impl Into<Name>,
        method: &str,
        argument: &impl Encode,
    ) -> Result<(), Errno> {
        self.call_of("rbd", object, method, argument).await
    }

    pub(crate) async fn call_of(
        &self,
        class: &str,
        object: impl Into<Name>,
        method: &str,
        argument: &impl Encode,
    ) -> Result<(), Errno> {
        self.write(object, WriteOps::new().exec(class, method, &argument.to_vec(Features::ALL))).await
    }

    /// Removes an object that may be gone.
    pub(crate) async fn remove(&self, object: impl Into<Name>) -> Result<(), Errno> {
        may_be_gone(self.write(object, WriteOps::new().remove()).await)
    }

    /// All entries of an object's omap; none without the object.
    pub(crate) async fn omap(&self, object: &str) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
        let mut all = BTreeMap::new();
        loop {
            let after: Bytes =
                all.last_key_value().map(|(key, _): (&Bytes, &Bytes)| key.clone()).unwrap_or_default();
            let reply = match self.read(object, ReadOps::new().omap_entries(&after, b"", PAGE)).await {
                Err(errno::ENOENT) => return Ok(all),
                other => other?,
            };
            let (entries, has_more) = reply.entries(0).map_err(|_| EBADMSG)?;
            let is_last = entries.is_empty() || !has_more;
            all.extend(entries);
            if is_last {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn watchers(&self, object: impl Into<Name>) -> Result<WatcherList, Errno> {
        decoded(&self.read(object, ReadOps::new().list_watchers()).await?, 0)
    }

    /// Names of a listing method of the class `rbd` that takes the last name and a maximum.
    pub(crate) async fn names<T: Decode>(
        &self,
        object: &str,
        method: &str,
        name_of: impl Fn(&T) -> Name,
    ) -> Result<Vec<T>, Errno> {
        let mut all: Vec<T> = Vec::new();
        loop {
            let after = all.last().map(&name_of).unwrap_or_default();
            let page: Vec<T> = match self.get(object, method, &(after, PAGE)).await {
                Err(errno::ENOENT) => return Ok(all),
                other => other?,
            };
            let is_last = (page.len() as u64) < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Namespaces of the pool that hold images, without the nameless one.
    pub(crate) async fn namespaces(&self) -> Result<Vec<Name>, Errno> {
        self.in_namespace("").names("rbd_namespace", "namespace_list", Name::clone).await
    }

    /// All namespaces of the pool that hold images, the nameless one first.
    pub(crate) async fn with_namespaces(&self) -> Result<Vec<Pool>, Errno> {
        let named = self.namespaces().await?;
        Ok([Name::EMPTY].into_iter().chain(named).map(|namespace| self.in_namespace(namespace)).collect())
    }
}

pub(crate) fn decoded<T: Decode>(reply: &Reply, step: usize) -> Result<T, Errno> {
    reply.decode(step).map_err(|_| EBADMSG)
}

/// `ENOENT` means that it is done.
pub(crate) fn may_be_gone(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(errno::ENOENT) => Ok(()),
        other => other,
    }
}
