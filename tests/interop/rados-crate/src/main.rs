//! Does a client that nobody here wrote get along with our cluster? The basics of the `rados` crate:
//! `rados-crate CEPH_CONF POOL`. Prints `N passed, N failed`.

use bytes::Bytes;
use rados::osdclient::OSDOp;
use rados::{Client, IoCtx, OSDClient, OpBuilder};
use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

type Outcome = Result<(), Box<dyn Error>>;

fn same<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("got {got:?}, expected {want:?}").into()) }
}

async fn put_and_get(io: IoCtx) -> Outcome {
    for len in [0usize, 1, 4096, 100_000, 4 << 20] {
        let data: Bytes = (0..len).map(|i| (i * 31 % 251) as u8).collect::<Vec<_>>().into();
        io.write_full("body", data.clone()).await?;
        same(io.stat("body").await?.size, len as u64)?;
        same(io.read("body", 0, len as u64 + 10).await?.data == data, true)?;
    }
    Ok(())
}

async fn write_append_and_partial_read(io: IoCtx) -> Outcome {
    io.write_full("grow", Bytes::from_static(b"0123456789")).await?;
    io.append("grow", Bytes::from_static(b"abc")).await?;
    io.write("grow", 2, Bytes::from_static(b"XY")).await?;
    same(io.read("grow", 1, 5).await?.data, Bytes::from_static(b"1XY45"))?;
    same(io.stat("grow").await?.size, 13)
}

async fn create_exclusive_and_remove(io: IoCtx) -> Outcome {
    io.create("once", true).await?;
    same(io.create("once", true).await.is_err(), true)?;
    io.remove("once").await?;
    same(io.stat("once").await.is_err(), true)
}

/// Operations past the crate's helpers, on one pool.
struct Raw {
    osds: Arc<OSDClient>,
    pool: u64,
}

impl Raw {
    async fn execute(&self, oid: &str, ops: Vec<OSDOp>) -> Result<Bytes, Box<dyn Error>> {
        let builder = ops.into_iter().fold(OpBuilder::new(), OpBuilder::op);
        let result = self.osds.execute_built_op(self.pool, oid, builder.build()).await?;
        if result.result < 0 {
            return Err(format!("result {}", result.result).into());
        }
        Ok(result.ops.last().map(|reply| reply.outdata.clone()).unwrap_or_default())
    }

    /// The crate's 0.1.4 puts a length before the name of an attribute, where the protocol has none. (Its codes for
    /// removing and listing attributes and for object classes, and with them its locks, are not Ceph's either, and it
    /// looks for an object in a namespace where one without would be: no OSD answers these, so they have no case.)
    async fn attr(&self, oid: &str, mut op: OSDOp) -> Result<Bytes, Box<dyn Error>> {
        op.indata = op.indata.slice(4..);
        self.execute(oid, vec![op]).await
    }
}

async fn attributes(raw: &Raw, io: IoCtx) -> Outcome {
    io.write_full("attrs", Bytes::from_static(b"x")).await?;
    raw.attr("attrs", OSDOp::set_xattr("colour", Bytes::from_static(b"blue"))?).await?;
    same(raw.attr("attrs", OSDOp::get_xattr("colour")?).await?, Bytes::from_static(b"blue"))?;
    same(raw.attr("attrs", OSDOp::get_xattr("shape")?).await.is_err(), true)
}

async fn operation_lists(raw: &Raw, io: IoCtx) -> Outcome {
    let version = io.write_full("versioned", Bytes::from_static(b"one")).await?.version;
    let read = |version| vec![OSDOp::assert_version(version), OSDOp::read(0, 10)];
    same(raw.execute("versioned", read(version)).await?, Bytes::from_static(b"one"))?;
    io.write_full("versioned", Bytes::from_static(b"two")).await?;
    same(raw.execute("versioned", read(version)).await.is_err(), true)
}

async fn sparse_read(io: IoCtx) -> Outcome {
    io.write_full("holes", Bytes::from_static(b"near")).await?;
    io.write("holes", 1 << 20, Bytes::from_static(b"far")).await?;
    let sparse = io.sparse_read("holes", 0, 2 << 20).await?;
    same(sparse.data.len() < 1 << 20, true)?;
    same(sparse.data.ends_with(b"far"), true)
}

async fn listing(io: IoCtx) -> Outcome {
    for index in 0..300 {
        io.write_full(&format!("list-{index:03}"), Bytes::from_static(b"x")).await?;
    }
    let mut names: Vec<String> = io.ls().await?.into_iter().filter(|n| n.starts_with("list-")).collect();
    names.sort();
    same(names, (0..300).map(|index| format!("list-{index:03}")).collect())
}

async fn case<F: Future<Output = Outcome>>(name: &str, counts: &mut (u32, u32), run: F) {
    match tokio::time::timeout(Duration::from_secs(60), run).await {
        Ok(Ok(())) => {
            counts.0 += 1;
            println!("ok     {name}");
        }
        Ok(Err(error)) => {
            counts.1 += 1;
            println!("FAILED {name}: {error}");
        }
        Err(_) => {
            counts.1 += 1;
            println!("FAILED {name}: no answer for a minute");
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(conf), Some(pool)) = (args.next(), args.next()) else { return Err("CEPH_CONF POOL".into()) };
    let client = Client::builder().entity_name("client.admin").config_file(conf).build().await?;
    let io = client.open_pool(&pool).await?;
    let raw = Raw { osds: Arc::clone(client.osd_client()), pool: io.pool_id() };
    let mut counts = (0, 0);
    case("put and get", &mut counts, put_and_get(io.clone())).await;
    case("write, append, partial read", &mut counts, write_append_and_partial_read(io.clone())).await;
    case("create exclusive, remove", &mut counts, create_exclusive_and_remove(io.clone())).await;
    case("attributes", &mut counts, attributes(&raw, io.clone())).await;
    case("operation lists", &mut counts, operation_lists(&raw, io.clone())).await;
    case("sparse read", &mut counts, sparse_read(io.clone())).await;
    case("listing", &mut counts, listing(io.clone())).await;
    println!("{} passed, {} failed", counts.0, counts.1);
    std::process::exit(i32::from(counts.1 > 0));
}
