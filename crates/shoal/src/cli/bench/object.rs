//! One object through shoal's own client: stored, fetched, looked at; and the list of a pool's objects.

use super::{Args, TIMEOUT};
use anyhow::Context;
use bytes::Bytes;
use client::{Listing, ObjectRef, Operation, ReadOps, WriteOps};
use client_host::{Access, ClientHost};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use wire::types::PoolId;

pub(super) async fn run(args: &Args, access: &Access) -> anyhow::Result<ExitCode> {
    let mut host = ClientHost::new(access)?;
    host.connect(TIMEOUT).await?;
    let pool =
        host.client().pool_by_name(&args.pool).with_context(|| format!("there is no pool {}", args.pool))?;
    if let Some([object, file]) = args.put.as_deref() {
        put(&mut host, ObjectRef::new(pool, object.as_bytes()), file.as_ref()).await?;
    } else if let Some([object, file]) = args.get.as_deref() {
        get(&mut host, ObjectRef::new(pool, object.as_bytes()), file.as_ref()).await?;
    } else if let Some(object) = &args.stat {
        println!("{}", stat(&mut host, ObjectRef::new(pool, object.as_bytes())).await?);
    } else {
        list(&mut host, pool).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes of one read or write.
const PART: usize = 4 << 20;

async fn done(host: &mut ClientHost, operation: Operation) -> anyhow::Result<client::Reply> {
    let object = operation.object.name.clone();
    let reply = host.operate(operation.with_timeout(TIMEOUT)).await?;
    if reply.result < 0 {
        return Err(std::io::Error::from_raw_os_error(-reply.result)).with_context(|| object.to_string());
    }
    Ok(reply)
}

async fn put(host: &mut ClientHost, object: ObjectRef, file: &std::path::Path) -> anyhow::Result<()> {
    let contents = Bytes::from(std::fs::read(file).with_context(|| file.display().to_string())?);
    done(host, Operation::write(object.clone(), WriteOps::new().create(false).truncate(0))).await?;
    for start in (0..contents.len()).step_by(PART) {
        let part = contents.slice(start..contents.len().min(start + PART));
        done(host, Operation::write(object.clone(), WriteOps::new().write(start as u64, part))).await?;
    }
    Ok(())
}

async fn get(host: &mut ClientHost, object: ObjectRef, file: &std::path::Path) -> anyhow::Result<()> {
    let size = stat(host, object.clone()).await?;
    let mut out = std::fs::File::create(file).with_context(|| file.display().to_string())?;
    let mut at = 0;
    while at < size {
        let len = (size - at).min(PART as u64);
        let reply = done(host, Operation::read(object.clone(), ReadOps::new().read(at, len))).await?;
        let part = reply.data(0);
        anyhow::ensure!(!part.is_empty(), "the object became shorter while it was read");
        out.write_all(&part)?;
        at += part.len() as u64;
    }
    Ok(())
}

async fn stat(host: &mut ClientHost, object: ObjectRef) -> anyhow::Result<u64> {
    let reply = done(host, Operation::read(object, ReadOps::new().stat())).await?;
    Ok(reply.stat(0)?.0)
}

async fn list(host: &mut ClientHost, pool: PoolId) -> anyhow::Result<()> {
    const PAGE: u64 = 1000;
    let map = host.client().map().context("the client has no OSDMap")?.clone();
    let mut listing = Listing::new(&map, pool, "", PAGE).context("the pool was deleted")?;
    let mut out = std::io::stdout().lock();
    while !listing.is_complete() {
        let page = listing.next_page(host.client().map().unwrap_or(&map));
        let reply = done(host, page).await?;
        for object in listing.take(host.client().map().unwrap_or(&map), &reply)?.objects {
            out.write_all(&[&object.name[..], b"\n"].concat())?;
        }
    }
    Ok(())
}
