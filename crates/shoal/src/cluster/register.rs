//! Registration of a directory's managers and OSDs: `shoal up` introduces each to the monitors, as an operator would with
//! `ceph auth import`, `ceph osd new` and `ceph osd crush add`, before it is started. Doing so twice changes nothing.

use super::host::join::short_hostname;
use super::layout::{Cluster, conf_path};
use crate::host::store_key::lockbox_name;
use anyhow::{Context, bail};
use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use client_host::{Access, ClientHost, Modes};
use conf::keyring::Keyring;
use runtime::system;
use serde_json::{Value, json};
use std::time::Duration;
use wire::messages::{Body, MMonCommand, PaxosHeader};
use zeroize::Zeroizing;

const PATIENCE: Duration = Duration::from_secs(30);
/// CRUSH weights count TiB.
const TIB: f64 = (1u64 << 40) as f64;

/// Makes every daemon of the directory known to the monitors: the managers' keys; of OSDs number, identity, key, place in the
/// CRUSH map.
pub fn register_daemons(cluster: &Cluster) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let access = Access::load(&conf_path(&cluster.dir), None, "client.admin", Modes::Default)?;
        let keyring = Keyring::load(&cluster.dir.join("keyring"))?;
        let mut host = ClientHost::new(&access)?;
        host.connect(PATIENCE).await?;
        for name in cluster.mon_names() {
            let name = format!("mgr.{name}");
            register_manager(&mut host, &keyring, &name)
                .await
                .with_context(|| format!("introducing {name}"))?;
        }
        for id in cluster.osd_ids() {
            register_osd(&mut host, cluster, &keyring, id)
                .await
                .with_context(|| format!("introducing osd.{id}"))?;
        }
        Ok(())
    })
}

/// The manager of a cluster's first monitor is known from the start; those of monitors that were added are not.
async fn register_manager(host: &mut ClientHost, keyring: &Keyring, name: &str) -> anyhow::Result<()> {
    let Some(entity) = keyring.0.get(name) else { return Ok(()) };
    if command(host, json!({ "prefix": "auth get", "entity": name }), String::new()).await.is_ok() {
        return Ok(());
    }
    let new = Keyring([(name.to_owned(), entity.clone())].into());
    command(host, json!({ "prefix": "auth import" }), new.to_string()).await
}

async fn register_osd(
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
    let secret = |name: &str| keyring.key_of(name).map(|key| key.to_base64());
    let mut input = json!({});
    if let Some(secret) = secret(&name) {
        input["cephx_secret"] = secret.into();
    }
    if let Some(lockbox) = secret(&lockbox_name(uuid)) {
        input["cephx_lockbox_secret"] = lockbox.into();
        input["dmcrypt_key"] = new_store_key()?.as_str().into();
    }
    let input = input.to_string();
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

/// Key of a store, as stock's tools make it: 128 random bytes as base64.
fn new_store_key() -> anyhow::Result<Zeroizing<String>> {
    let bytes: Zeroizing<[u8; 128]> = Zeroizing::new(system::os_random()?.bytes());
    Ok(Zeroizing::new(BASE64_STANDARD.encode(*bytes)))
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
