//! The `cluster` section of a file, the same in both forms: the clusters to measure.
//!
//! Each of `deploy`, `release`, `store`, `auth`, `osds`, `cores`, `conf` (of existing clusters) and `program` (of
//! shoal's own) may be a list. `tools` is the release of the stock programs that measure, where it is not the
//! cluster's own.

use super::spec::{ClusterSpec, Deploy};
use super::tree::{Problem, Tree, axis, text_of};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The keys of a cluster section that the lab reads.
pub(super) const KEYS: &[&str] =
    &["deploy", "release", "store", "auth", "osds", "cores", "tools", "conf", "program"];

pub(super) fn read(tree: &Tree, section: &Map<String, Value>) -> Result<Vec<ClusterSpec>, Problem> {
    let words = |key: &str, otherwise: &str| match section.get(key) {
        Some(value) => axis(value).iter().map(text_of).collect(),
        None => vec![otherwise.to_owned()],
    };
    let number = |key: &str| -> Result<Vec<u32>, Problem> {
        let parse = |word: &String| match word.parse() {
            Ok(0) | Err(_) => Err(tree.problem(&["cluster", key], format!("{key}: {word} is no count"))),
            Ok(n) => Ok(n),
        };
        words(key, "1").iter().map(parse).collect()
    };
    let (osds, cores) = (number("osds")?, number("cores")?);
    let known = |key: &str, words: &[String], allowed: &[&str]| {
        words.iter().find(|w| !allowed.contains(&w.as_str())).map_or(Ok(()), |w| {
            let what = format!("{key}: {w} is not known; use {}", allowed.join(", "));
            Err(tree.problem(&["cluster", key], what))
        })
    };
    let (deploys, auths) = (words("deploy", "existing"), words("auth", "cephx"));
    let paths = |key: &str| -> Vec<Option<PathBuf>> {
        let given = |value| axis(value).iter().map(|v| Some(text_of(v).into())).collect();
        section.get(key).map_or_else(|| vec![None], given)
    };
    let (confs, programs) = (paths("conf"), paths("program"));
    if section.contains_key("conf") && deploys.iter().any(|deploy| deploy != "existing") {
        return Err(tree.problem(&["cluster", "conf"], "conf names an existing cluster, not one to deploy"));
    }
    known("deploy", &deploys, &["existing", "shoal", "stock"])?;
    known("auth", &auths, &["cephx", "none"])?;
    let stores = words("store", "memstore");
    known("store", &stores, &["memstore", "bluestore", "mem", "disk"])?;
    let tools = section.get("tools").map(text_of);
    let mut out = Vec::new();
    for deploy in &deploys {
        let releases: Vec<Option<String>> = match (deploy.as_str(), section.get("release")) {
            ("existing", _) => {
                let of_conf = |conf: &Option<PathBuf>| ClusterSpec {
                    tools: tools.clone(),
                    conf: conf.clone(),
                    ..ClusterSpec::existing()
                };
                out.extend(confs.iter().map(of_conf));
                continue;
            }
            ("stock", Some(value)) => axis(value).iter().map(|v| Some(text_of(v))).collect(),
            _ => vec![None],
        };
        // Both have a store in memory and one on disk, by names of their own: either name means the same.
        let in_memory = |store: &String| store.starts_with("mem");
        let (memory, disk) = if deploy == "shoal" { ("mem", "disk") } else { ("memstore", "bluestore") };
        let mut stores: Vec<&str> = stores.iter().map(|s| if in_memory(s) { memory } else { disk }).collect();
        stores.dedup();
        for release in releases {
            let deploy = match deploy.as_str() {
                "shoal" => Deploy::Shoal,
                _ => Deploy::Stock { release },
            };
            for store in &stores {
                for auth in &auths {
                    for &osds in &osds {
                        let is_shoal = deploy == Deploy::Shoal;
                        for &cores in if is_shoal { &cores[..] } else { &[1] } {
                            for program in if is_shoal { &programs[..] } else { &[None] } {
                                out.push(ClusterSpec {
                                    deploy: deploy.clone(),
                                    osds,
                                    auth: auth.clone(),
                                    store: (*store).to_owned(),
                                    cores,
                                    tools: tools.clone(),
                                    conf: None,
                                    program: program.clone(),
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(out)
}
