//! Keys and capabilities as text: the keyring format that `ceph-authtool` reads and writes.

use crate::auth_entity::AuthEntity;
use command::Json;
use command::object;
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::cephx::Key;
use wire::types::AuthName;

/// Sections of `[entity]`, with `key = …` and `caps SERVICE = "…"` lines.
#[derive(Clone, Debug, Default)]
pub struct Keyring(pub BTreeMap<AuthName, AuthEntity>);

impl Keyring {
    pub fn parse(text: &str) -> Result<Keyring, String> {
        let mut keyring = BTreeMap::new();
        let mut section: Option<AuthName> = None;
        let blank = || {
            AuthEntity::new(
                Key { kind: 0, created: Default::default(), secret: Default::default() },
                BTreeMap::new(),
            )
        };
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                let name: AuthName = name.trim().parse().map_err(|()| format!("bad entity name {name}"))?;
                keyring.insert(name.clone(), blank());
                section = Some(name);
                continue;
            }
            let (field, value) = line.split_once('=').ok_or_else(|| format!("bad line {line:?}"))?;
            let entity = section.as_ref().and_then(|name| keyring.get_mut(name));
            let entity = entity.ok_or("a line before the first entity")?;
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            let value = bare.replace("\\\"", "\"");
            match field.split_whitespace().collect::<Vec<_>>()[..] {
                ["key"] => entity.key = Key::from_base64(&value).map_err(|e| e.to_string())?,
                ["pending", "key"] => {
                    entity.pending_key = Some(Key::from_base64(&value).map_err(|e| e.to_string())?);
                }
                ["caps", service] => {
                    entity.caps.insert(service.to_owned(), value);
                }
                _ => {}
            }
        }
        Ok(Keyring(keyring))
    }
}

/// One section.
pub fn section(name: &AuthName, entity: &AuthEntity) -> String {
    let mut out = format!("[{name}]\n\tkey = {}\n", entity.key.to_base64());
    if let Some(pending) = &entity.pending_key {
        let _ = writeln!(out, "\tpending key = {}", pending.to_base64());
    }
    for (service, caps) in &entity.caps {
        let _ = writeln!(out, "\tcaps {service} = \"{}\"", caps.replace('"', "\\\""));
    }
    out
}

/// The same as JSON.
pub fn section_json(name: &AuthName, entity: &AuthEntity) -> Json {
    let mut out = object! { "entity" => name.to_string(), "key" => entity.key.to_base64() };
    if let Some(pending) = &entity.pending_key {
        out.push("pending_key", pending.to_base64());
    }
    out.push("caps", Json::strings(&entity.caps));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let key = Key { kind: 1, created: Default::default(), secret: vec![7; 16].into() };
        let caps = [("mon".to_owned(), "allow *".to_owned()), ("osd".into(), "allow command \"x\"".into())];
        let entity = AuthEntity::new(key, caps.into());
        let name: AuthName = "client.admin".parse().unwrap();
        let text = section(&name, &entity);
        assert!(text.starts_with("[client.admin]\n\tkey = "));
        assert_eq!(Keyring::parse(&text).unwrap().0[&name], entity);
        assert!(Keyring::parse("key = x").is_err());
        assert!(Keyring::parse("[client.a]\nkey = nonsense").is_err());
    }
}
