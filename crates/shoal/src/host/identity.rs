//! A daemon's identity to its peers: names, addresses, keys and session settings, from its configuration.

use crate::cluster::layout::parse_addr;
use crate::config::{MonitorOptions, SessionOptions};
use anyhow::{Context, ensure};
use command::options::{Layers, value};
use conf::keyring::Keyring;
use conf::mon_host::parse_mon_host;
use messenger::ModeLists;
use std::net::{SocketAddr, TcpListener};
use wire::cephx::{Key, METHOD_CEPHX, METHOD_NONE};
use wire::types::{EntityAddrVec, EntityName};

/// True with cephx, false with `auth none`. shoal has one setting for all peers and refuses mixed `auth_*_required`.
pub fn uses_cephx(options: &SessionOptions) -> anyhow::Result<bool> {
    let values =
        [&options.auth_cluster_required, &options.auth_service_required, &options.auth_client_required];
    let all = |wanted: &str| values.iter().all(|value| value.trim() == wanted);
    ensure!(
        all("cephx") || all("none"),
        "auth_cluster_required, auth_service_required and auth_client_required must be all cephx or all none, not {values:?}"
    );
    Ok(all("cephx"))
}

/// Settings of a daemon's sessions: its name, the authentication method, the connection modes.
pub fn session(
    options: &SessionOptions,
    name: EntityName,
    addrs: EntityAddrVec,
    cephx: bool,
) -> anyhow::Result<messenger::Config> {
    let mut session = messenger::Config::new(name, addrs);
    session.methods = vec![if cephx { METHOD_CEPHX } else { METHOD_NONE }];
    session.modes = modes(options)?;
    Ok(session)
}

/// Allowed connection modes (`ms_*_mode`).
fn modes(options: &SessionOptions) -> anyhow::Result<ModeLists> {
    let list = |name: &str, text: &str| {
        let modes = value::connection_modes(text);
        modes.with_context(|| format!("{name} is a list of crc and secure, not '{text}'"))
    };
    Ok(ModeLists {
        mon_cluster: list("ms_mon_cluster_mode", &options.ms_mon_cluster_mode)?,
        mon_service: list("ms_mon_service_mode", &options.ms_mon_service_mode)?,
        mon_client: list("ms_mon_client_mode", &options.ms_mon_client_mode)?,
        cluster: list("ms_cluster_mode", &options.ms_cluster_mode)?,
        service: list("ms_service_mode", &options.ms_service_mode)?,
        client: list("ms_client_mode", &options.ms_client_mode)?,
    })
}

/// The daemon's own key, from its keyring. `None` with `auth none`.
pub fn own_key(options: &SessionOptions, name: &str) -> anyhow::Result<Option<Key>> {
    if !uses_cephx(options)? {
        return Ok(None);
    }
    let path = &options.keyring;
    let keyring = Keyring::load(path)?;
    let key = keyring.key_of(name).with_context(|| format!("{} has no key of {name}", path.display()))?;
    Ok(Some(key.clone()))
}

/// The monitors that `mon_host` names.
pub fn monitors(layers: &Layers) -> anyhow::Result<Vec<EntityAddrVec>> {
    parse_mon_host(&MonitorOptions::read(layers).mon_host)
}

/// An address option of the daemon `who`.
pub fn address(who: &str, name: &str, value: Option<&str>) -> anyhow::Result<SocketAddr> {
    let text = value.with_context(|| format!("{name} is not set for {who}"))?;
    parse_addr(text).with_context(|| name.to_owned())
}

/// Listens on `addr`. Peers are told the public address, which may differ.
pub fn listen(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).with_context(|| format!("cannot listen on {addr}: is something else there?"))
}
