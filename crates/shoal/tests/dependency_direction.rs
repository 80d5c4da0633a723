//! May this crate use that one? The table below is the answer; `cargo metadata` is the fact.
//!
//! Crates stand in layers. A crate uses only crates of layers above its own in this list, never a sibling, so that
//! every role stays pure and can be simulated, and only `runtime` and the binary know the operating system.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const LAYERS: &[&[&str]] = &[
    // For tests of every crate.
    &["skip"],
    &["codec-derive"],
    &["codec"],
    &["wire"],
    &["placement", "command", "device"],
    &["store"],
    &["block-store"],
    &["machine"],
    &["messenger", "mon-client", "conf"],
    &["mon", "mgr", "osd", "client"],
    // Built on the client, without I/O.
    &["images"],
    &["runtime", "sim"],
    &["client-host"],
    // Built on the client.
    &["lab"],
    &["shoal", "instructions", "soak"],
];

/// Crates that must stay free of the operating system: none of these may come in, directly.
const PURE: &[&str] = &[
    "codec",
    "wire",
    "command",
    "placement",
    "store",
    "device",
    "block-store",
    "machine",
    "messenger",
    "mon-client",
    "mon",
    "mgr",
    "osd",
    "client",
    "images",
];
const IMPURE: &[&str] =
    &["tokio", "libc", "socket2", "redb", "io-uring", "mio", "rand", "getrandom", "nix", "rustix"];

/// Layers that may use only some of those above, with the reason.
const NARROWER: &[(&str, &[&str])] = &[
    // The host of machines knows the contract, not the roles.
    ("runtime", &["codec", "wire", "device", "machine", "messenger"]),
];

/// Each workspace crate with what it depends on: `(name, is a development dependency)`.
fn workspace() -> BTreeMap<String, Vec<(String, bool)>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let name = package["name"].as_str().expect("a package has a name").to_owned();
            let dependencies = package["dependencies"].as_array().expect("dependencies").iter().map(|d| {
                (d["name"].as_str().expect("a dependency has a name").to_owned(), d["kind"] == "dev")
            });
            (name, dependencies.collect())
        })
        .collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[test]
fn each_crate_uses_only_those_above_it() {
    let workspace = workspace();
    assert!(workspace.len() >= 10, "the workspace was not found");
    let mut wrong = Vec::new();
    for (name, dependencies) in &workspace {
        let Some(own) = layer(name) else {
            wrong.push(format!("{name} has no layer: add it to the table"));
            continue;
        };
        for (dependency, is_dev) in dependencies {
            let Some(other) = layer(dependency) else { continue };
            // A test may drive a crate with anything.
            if other >= own && !is_dev {
                wrong.push(format!("{name} uses {dependency}, which is not above it"));
            }
            let narrower = NARROWER.iter().find(|(n, _)| n == name);
            if let Some((_, allowed)) = narrower
                && !is_dev
                && !allowed.contains(&dependency.as_str())
            {
                wrong.push(format!("{name} uses {dependency}, and may use only {allowed:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn pure_crates_do_not_know_the_operating_system() {
    let wrong: Vec<String> = workspace()
        .into_iter()
        .filter(|(name, _)| PURE.contains(&name.as_str()))
        .flat_map(|(name, dependencies)| {
            dependencies
                .into_iter()
                .filter(|(dependency, is_dev)| !is_dev && IMPURE.contains(&dependency.as_str()))
                .map(move |(dependency, _)| format!("{name} uses {dependency}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
