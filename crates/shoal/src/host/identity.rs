//! Who is this daemon to its peers? Names, addresses, keys and session settings, from its configuration.

use crate::cluster::layout::parse_addr;
use crate::config::layers::Config;
use anyhow::{Context, ensure};
use conf::keyring::Keyring;
use messenger::ModeLists;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use wire::cephx::{Key, METHOD_CEPHX, METHOD_NONE};
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::types::{EntityAddr, EntityAddrVec, EntityName};

/// `auth_*_required` as one answer. shoal has one setting for everyone; a mixed one is refused.
pub fn uses_cephx(config: &Config) -> anyhow::Result<bool> {
    let values = ["auth_cluster_required", "auth_service_required", "auth_client_required"]
        .map(|name| config.text(name));
    let all = |wanted: &str| values.iter().all(|value| value.trim() == wanted);
    ensure!(
        all("cephx") || all("none"),
        "auth_cluster_required, auth_service_required and auth_client_required must be all cephx or all none, not {values:?}"
    );
    Ok(all("cephx"))
}

/// A daemon's sessions: who it is, how callers prove who they are, how connections are protected.
pub fn session(
    config: &Config,
    name: EntityName,
    addrs: EntityAddrVec,
    cephx: bool,
) -> anyhow::Result<messenger::Config> {
    let mut session = messenger::Config::new(name, addrs);
    session.methods = vec![if cephx { METHOD_CEPHX } else { METHOD_NONE }];
    session.modes = modes(config)?;
    Ok(session)
}

/// How connections may be protected (`ms_*_mode`).
fn modes(config: &Config) -> anyhow::Result<ModeLists> {
    let list = |name: &'static str| {
        let text = config.text(name);
        let modes: Option<Vec<u32>> = text
            .split([' ', ','])
            .filter(|word| !word.is_empty())
            .map(|word| match word {
                "crc" => Some(MODE_CRC),
                "secure" => Some(MODE_SECURE),
                _ => None,
            })
            .collect();
        let modes = modes.filter(|modes| !modes.is_empty());
        modes.with_context(|| format!("{name} is a list of crc and secure, not '{text}'"))
    };
    Ok(ModeLists {
        mon_cluster: list("ms_mon_cluster_mode")?,
        mon_service: list("ms_mon_service_mode")?,
        mon_client: list("ms_mon_client_mode")?,
        cluster: list("ms_cluster_mode")?,
        service: list("ms_service_mode")?,
        client: list("ms_client_mode")?,
    })
}

/// The daemon's own long-lived key, from its keyring; `None` with `auth none`.
pub fn own_key(config: &Config, name: &str) -> anyhow::Result<Option<Key>> {
    if !uses_cephx(config)? {
        return Ok(None);
    }
    let path = config.text("keyring");
    let keyring = Keyring::load(Path::new(&path))?;
    let key = keyring.key_of(name).with_context(|| format!("{path} has no key of {name}"))?;
    Ok(Some(key.clone()))
}

/// The monitors that `mon_host` names.
pub fn monitors(config: &Config) -> anyhow::Result<Vec<EntityAddrVec>> {
    let text = config.text("mon_host");
    let parts = split_addrs(&text);
    ensure!(!parts.is_empty(), "mon_host is not set: where is the monitor?");
    parts.iter().map(|part| Ok(EntityAddrVec::one(EntityAddr::msgr2(parse_addr(part)?, 0)))).collect()
}

/// `[v2:a:1],[v2:b:1]`, `a:1,b:1` or with blanks between; v1 addresses inside brackets are left out.
fn split_addrs(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut depth = 0;
    let mut current = String::new();
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 && (c == ',' || c == ';' || c.is_whitespace()) {
            parts.push(std::mem::take(&mut current));
        } else {
            current.push(c);
        }
    }
    parts.push(current);
    let only_v2 = |part: &String| {
        let inner =
            part.trim().strip_prefix("[v2:").or(part.trim().strip_prefix("[v1:")).and(Some(part.trim()));
        match inner.and_then(|p| p.strip_prefix('[')).and_then(|p| p.strip_suffix(']')) {
            Some(list) => list.split(',').find(|a| a.starts_with("v2:")).unwrap_or_default().to_owned(),
            None => part.trim().to_owned(),
        }
    };
    parts.iter().map(only_v2).filter(|part| !part.is_empty() && !part.starts_with("v1:")).collect()
}

/// An address option of this daemon.
pub fn address(config: &Config, name: &'static str) -> anyhow::Result<SocketAddr> {
    let text =
        config.text_if_set(name).with_context(|| format!("{name} is not set for {}", config.who().name))?;
    parse_addr(&text).with_context(|| name.to_owned())
}

/// Listens; what peers are told stays `public`.
pub fn listen(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).with_context(|| format!("cannot listen on {addr}: is something else there?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mon_host_is_read_in_the_forms_that_people_write() {
        assert_eq!(split_addrs("[v2:1.2.3.4:3300,v1:1.2.3.4:6789]"), ["v2:1.2.3.4:3300"]);
        assert_eq!(split_addrs("[v2:1.1.1.1:1], [v2:[::1]:2]"), ["v2:1.1.1.1:1", "v2:[::1]:2"]);
        assert_eq!(split_addrs("1.2.3.4:3300 v2:1.2.3.5:3300"), ["1.2.3.4:3300", "v2:1.2.3.5:3300"]);
        assert_eq!(split_addrs("v1:1.2.3.4:6789"), Vec::<String>::new());
    }
}
