//! Registration of a directory's OSDs: `shoal up` introduces each to the monitor, as an operator would with `ceph osd
//! new` and `ceph osd crush add`, before it is started. Doing so twice changes nothing.

use super::host::join::short_hostname;
use super::layout::{Cluster, conf_path};
use anyhow::{Context, bail};
use bytes::Bytes;
use client_host::{Access, ClientHost, Modes};
use conf::keyring::Keyring;
use serde_json::{Value, json};
use std::time::Duration;
use wire::messages::{Body, MMonCommand, PaxosHeader};

const PATIENCE: Duration = Duration::from_secs(30);
/// CRUSH weights count TiB.
const TIB: f64 = (1u64 << 40) as f64;

/// Makes the keys of the managers known that came with monitors after the first.
pub fn register_managers(cluster: &Cluster) -> anyhow::Result<()> {
    let names = cluster.mon_names();
    if names.len() < 2 {
        return Ok(());
    }
    let keyring = Keyring::load(&cluster.dir.join("keyring"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let access = Access::load(&conf_path(&cluster.dir), None, "client.admin", Modes::Default)?;
        let mut host = ClientHost::new(&access)?;
        host.connect(PATIENCE).await?;
        for name in names {
            let manager = format!("mgr.{name}");
            let asked = json!({ "prefix": "auth get", "entity": manager });
            let (Some(entity), Err(_)) =
                (keyring.0.get(&manager), command(&mut host, asked, String::new()).await)
            else {
                continue;
            };
            let new = Keyring([(manager, entity.clone())].into());
            command(&mut host, json!({ "prefix": "auth import" }), new.to_string()).await?;
        }
        Ok(())
    })
}

/// Makes every OSD of the directory known to the monitor: number, identity, key, place in the CRUSH map.
pub fn register_osds(cluster: &Cluster) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let access = Access::load(&conf_path(&cluster.dir), None, "client.admin", Modes::Default)?;
        let keyring = Keyring::load(&cluster.dir.join("keyring"))?;
        let mut host = ClientHost::new(&access)?;
        host.connect(PATIENCE).await?;
        for id in cluster.osd_ids() {
            register(&mut host, cluster, &keyring, id)
                .await
                .with_context(|| format!("introducing osd.{id}"))?;
        }
        Ok(())
    })
}

async fn register(
    host: &mut ClientHost,
    cluster: &Cluster,
    keyring: &Keyring,
    id: u32,
) -> anyhow::Result<()> {
    let name = format!("osd.{id}");
    let uuid = cluster.conf.get(&name, "osd_uuid").context("ceph.conf gives it no osd uuid")?;
    let map = host.client().map().context("there is no map yet")?;
    let known =
        i32::try_from(id).ok().and_then(|id| map.osd(id)).is_some_and(|row| row.uuid.to_string() == uuid);
    if known {
        return Ok(());
    }
    let secret = keyring.key_of(&name).map(|key| key.to_base64());
    let input = secret.map(|secret| json!({ "cephx_secret": secret }).to_string()).unwrap_or_default();
    command(host, json!({ "prefix": "osd new", "uuid": uuid, "id": id }), input).await?;

    let weight = cluster.store_size(&name)? as f64 / TIB;
    let place = [format!("host={}", short_hostname()), "root=default".to_owned()];
    command(
        host,
        json!({ "prefix": "osd crush create-or-move", "id": id, "weight": weight, "args": place }),
        String::new(),
    )
    .await?;
    // Memory does not rotate, and what a laptop or a cloud has seldom does.
    command(
        host,
        json!({ "prefix": "osd crush set-device-class", "class": "ssd", "ids": [format!("osd.{id}")] }),
        String::new(),
    )
    .await
}

async fn command(host: &mut ClientHost, command: Value, input: String) -> anyhow::Result<()> {
    let fsid = host.client().map().map(|map| map.fsid).unwrap_or_default();
    let body = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid,
        command: vec![command.to_string()],
        input: Bytes::from(input),
    };
    match host.ask_monitor(body, PATIENCE).await? {
        Body::MMonCommandAck(ack) if ack.result == 0 => Ok(()),
        Body::MMonCommandAck(ack) => {
            bail!("the monitors refuse {}: {} ({})", command["prefix"], ack.status, ack.result)
        }
        other => bail!("the monitors answer {} with {other:?}", command["prefix"]),
    }
}
