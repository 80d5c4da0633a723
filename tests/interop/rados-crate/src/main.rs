//! Does a client that nobody here wrote get along with our cluster? The basics of the `rados` crate:
//! `rados-crate CEPH_CONF POOL`. Prints `N passed, N failed`.

use bytes::Bytes;
use rados::{Client, IoCtx};
use std::error::Error;
use std::future::Future;
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

async fn attributes(io: IoCtx) -> Outcome {
    io.write_full("attrs", Bytes::from_static(b"x")).await?;
    io.set_xattr("attrs", "colour", Bytes::from_static(b"blue")).await?;
    same(io.get_xattr("attrs", "colour").await?, Bytes::from_static(b"blue"))?;
    io.remove_xattr("attrs", "colour").await?;
    same(io.get_xattr("attrs", "colour").await.is_err(), true)
}

async fn locks(io: IoCtx) -> Outcome {
    io.write_full("locked", Bytes::from_static(b"x")).await?;
    io.lock_exclusive("locked", "latch", "cookie-a", "ours", Some(Duration::from_secs(60))).await?;
    same(io.lock_exclusive("locked", "latch", "cookie-b", "theirs", None).await.is_err(), true)?;
    io.unlock("locked", "latch", "cookie-a").await?;
    io.lock_shared("locked", "latch", "cookie-c", "tag", "shared", None).await?;
    io.unlock("locked", "latch", "cookie-c").await?;
    Ok(())
}

async fn listing(io: IoCtx) -> Outcome {
    for index in 0..300 {
        io.write_full(&format!("list-{index:03}"), Bytes::from_static(b"x")).await?;
    }
    let mut names: Vec<String> = io.ls().await?.into_iter().filter(|n| n.starts_with("list-")).collect();
    names.sort();
    same(names, (0..300).map(|index| format!("list-{index:03}")).collect())
}

async fn object_class(io: IoCtx) -> Outcome {
    io.write_full("hello", Bytes::from_static(b"x")).await?;
    same(io.exec("hello", "hello", "say_hello", Bytes::from_static(b"shoal")).await?, Bytes::from_static(b"Hello, shoal!"))
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
    let mut counts = (0, 0);
    case("put and get", &mut counts, put_and_get(io.clone())).await;
    case("write, append, partial read", &mut counts, write_append_and_partial_read(io.clone())).await;
    case("create exclusive, remove", &mut counts, create_exclusive_and_remove(io.clone())).await;
    case("attributes", &mut counts, attributes(io.clone())).await;
    case("locks", &mut counts, locks(io.clone())).await;
    case("listing", &mut counts, listing(io.clone())).await;
    case("object class", &mut counts, object_class(io.clone())).await;
    println!("{} passed, {} failed", counts.0, counts.1);
    std::process::exit(i32::from(counts.1 > 0));
}
