//! The grants of each profile. The list is stock's.

use super::{Allow, Constraint, Scope, whole};
use regex::Regex;
use std::collections::BTreeMap;
use std::sync::LazyLock;

fn service(name: &str, allow: Allow) -> Scope {
    Scope::Service { service: name.into(), allow }
}

fn everywhere(allow: Allow) -> Scope {
    Scope::All { allow, fs_name: String::new() }
}

fn command<const N: usize>(name: &str, args: [(&str, Constraint); N]) -> Scope {
    let args = args.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<BTreeMap<_, _>>();
    Scope::Command { command: name.into(), args }
}

fn equal(value: &str) -> Constraint {
    Constraint::Equal(value.into())
}

fn prefix(value: impl Into<String>) -> Constraint {
    Constraint::Prefix(value.into())
}

static CAPACITY: LazyLock<Regex> = LazyLock::new(|| constant("osd_mclock_max_capacity_iops_(hdd|ssd)"));
static PACE: LazyLock<Regex> =
    LazyLock::new(|| constant("(osd_max_backfills|osd_recovery_max_active(.*)|osd_mclock_scheduler_(.*))"));
static MIRROR_KEY: LazyLock<Regex> = LazyLock::new(|| constant("rbd/mirror/[^/]+"));
/// An address with a nonce: one client instance, not a whole host.
static ONE_INSTANCE: LazyLock<Regex> = LazyLock::new(|| constant("[^/]+/[0-9]+"));
static RBD_POOLS: LazyLock<Regex> = LazyLock::new(|| {
    constant(r#"([ ,]*profile(=|[ ]+)['"]?rbd[^ ,'"]*['"]?([ ]+pool(=|[ ]+)['"]?[^,'"]+['"]?)?)+"#)
});

fn constant(pattern: &str) -> Regex {
    whole(pattern).expect("a constant that compiles")
}

/// The grants of a profile; none for a name that is no profile.
pub(super) fn expand(profile: &str) -> Vec<Scope> {
    const R: Allow = Allow::R;
    const RW: Allow = Allow::RW;
    let read = |names: &[&str]| names.iter().map(|n| service(n, R)).collect::<Vec<_>>();
    let mut out = match profile {
        "read-only" => return vec![everywhere(R)],
        "read-write" => return vec![everywhere(RW)],
        "mon" => vec![service("mon", Allow::RWX), service("log", Allow::RWX)],
        "osd" => vec![
            service("osd", Allow::RWX),
            service("mon", R),
            service("pg", RW),
            service("log", Allow::W),
            command("config set", [("name", Constraint::Known(&CAPACITY))]),
            command("config rm", [("name", Constraint::Known(&PACE))]),
        ],
        "mds" => vec![
            service("mds", Allow::RWX),
            service("mon", R),
            service("osd", R),
            command("osd pool rmsnap", []),
            command("osd blocklist", []),
            command("osd blacklist", []),
            service("log", Allow::W),
        ],
        "mgr" => {
            let mut out = vec![service("mgr", Allow::RWX), service("auth", Allow::RWX)];
            out.extend(
                ["log", "mon", "mds", "fs", "osd", "config-key", "config"].map(|name| service(name, RW)),
            );
            out.extend(
                ["auth get-or-create", "auth caps", "auth rm", "smart", "heap", "dump_mempools"]
                    .map(|name| command(name, [])),
            );
            out
        }
        "bootstrap-osd" => {
            let mut out = read(&["mon", "osd"]);
            out.extend(["mon getmap", "osd new", "osd purge-new"].map(|name| command(name, [])));
            out
        }
        "bootstrap-mds" => bootstrap(&[
            ("entity", prefix("mds.")),
            ("caps_mon", equal("allow profile mds")),
            ("caps_osd", equal("allow rwx")),
            ("caps_mds", equal("allow")),
        ]),
        "bootstrap-mgr" => bootstrap(&[("entity", prefix("mgr.")), ("caps_mon", equal("allow profile mgr"))]),
        "bootstrap-rgw" => bootstrap(&[
            ("entity", prefix("client.rgw.")),
            ("caps_mon", equal("allow rw")),
            ("caps_osd", equal("allow rwx")),
        ]),
        "bootstrap-rbd" | "bootstrap-rbd-mirror" => {
            let mon = if profile == "bootstrap-rbd" { "profile rbd" } else { "profile rbd-mirror" };
            let args = [
                ("entity", prefix("client.")),
                ("caps_mon", equal(mon)),
                ("caps_osd", Constraint::Known(&RBD_POOLS)),
            ];
            vec![service("mon", R), command("auth get-or-create", args)]
        }
        // Shoal's own: the holder of a join token, and a host that joined.
        "shoal-join" => vec![command("shoal join", [])],
        "shoal-host" => {
            let mut out = read(&["mon", "mgr", "osd", "pg", "log"]);
            for name in ["shoal host out", "shoal host rm", "mon rm"] {
                out.push(command(name, [("name", Constraint::OwnHost)]));
            }
            out
        }
        "fs-client" => read(&["mon", "mds", "osd", "pg"]),
        "simple-rados-client" => read(&["mon", "osd", "pg"]),
        "simple-rados-client-with-blocklist" => {
            let mut out = read(&["mon", "osd", "pg"]);
            out.push(blocklist("osd blocklist", "blocklistop"));
            out
        }
        "crash" => read(&["mon"]),
        "cephfs-mirror" => {
            let mut out = read(&["mon", "mds", "osd", "pg"]);
            out.push(command("config-key get", [("key", prefix("cephfs/mirror/peer/"))]));
            out
        }
        "role-definer" => vec![service("mon", R), service("auth", Allow::RWX)],
        _ if profile.starts_with("rbd") => {
            let mut out = read(&["mon", "osd", "pg"]);
            out.push(blocklist("osd blocklist", "blocklistop"));
            out.push(blocklist("osd blacklist", "blacklistop"));
            out
        }
        _ => Vec::new(),
    };
    match profile {
        "rbd-mirror" => out.push(command("config-key get", [("key", prefix("rbd/mirror/"))])),
        "rbd-mirror-peer" => {
            out.push(command("config-key get", [("key", Constraint::Known(&MIRROR_KEY))]));
            out.push(command("config-key set", [("key", prefix("rbd/mirror/peer/"))]));
        }
        "osd" | "mds" | "mon" | "mgr" => {
            for verb in ["get", "put", "set", "exists", "delete"] {
                out.push(command(&format!("config-key {verb}"), [("key", Constraint::OwnKey)]));
            }
        }
        _ => {}
    }
    out
}

/// May read the maps and make one kind of key with exactly these capabilities.
fn bootstrap(args: &[(&str, Constraint)]) -> Vec<Scope> {
    let args = args.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
    vec![
        service("mon", Allow::R),
        service("osd", Allow::R),
        command("mon getmap", []),
        Scope::Command { command: "auth get-or-create".into(), args },
    ]
}

/// May block one dead client, as a holder of an exclusive lock must.
fn blocklist(name: &str, operation: &str) -> Scope {
    command(name, [(operation, equal("add")), ("addr", Constraint::Known(&ONE_INSTANCE))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_patterns_compile() {
        for pattern in [&CAPACITY, &PACE, &MIRROR_KEY, &ONE_INSTANCE, &RBD_POOLS] {
            LazyLock::force(pattern);
        }
    }
}
