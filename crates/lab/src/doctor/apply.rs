//! Host settings that the doctor changes on request, and their undo file, which holds the old values.

use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};

/// The settings that can be changed.
pub const ITEMS: &[&str] = &["governor", "idle-states", "socket-buffers"];

/// Files of the kernel, with the values to write.
fn changes(root: &Path, item: &str) -> Vec<(PathBuf, String)> {
    let cpus = root.join("sys/devices/system/cpu");
    let is_cpu = |p: &Path| {
        p.file_name().is_some_and(|n| n.to_string_lossy().trim_start_matches("cpu").parse::<u32>().is_ok())
    };
    let folders = |at: &Path| {
        std::fs::read_dir(at).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>()
    };
    let cpus: Vec<PathBuf> = folders(&cpus).into_iter().filter(|p| is_cpu(p)).collect();
    match item {
        "governor" => {
            cpus.iter().map(|c| (c.join("cpufreq/scaling_governor"), "performance".into())).collect()
        }
        "idle-states" => cpus
            .iter()
            .flat_map(|c| folders(&c.join("cpuidle")))
            .filter(|s| {
                std::fs::read_to_string(s.join("latency"))
                    .is_ok_and(|l| l.trim().parse::<u64>().is_ok_and(|l| l > 10))
            })
            .map(|s| (s.join("disable"), "1".into()))
            .collect(),
        "socket-buffers" => ["rmem_max", "wmem_max"]
            .map(|name| (root.join("proc/sys/net/core").join(name), "67108864".to_owned()))
            .into(),
        _ => Vec::new(),
    }
}

/// Applies one item and writes the old values to `undo`. Returns the changed files.
pub fn apply(root: &Path, item: &str, undo: &Path) -> anyhow::Result<Vec<PathBuf>> {
    ensure!(ITEMS.contains(&item), "{item} cannot be applied; these can: {}", ITEMS.join(", "));
    let changes: Vec<(PathBuf, String)> =
        changes(root, item).into_iter().filter(|(path, _)| path.exists()).collect();
    ensure!(!changes.is_empty(), "{item}: this host has nothing to change");
    let mut before: Vec<(PathBuf, String)> = match std::fs::read_to_string(undo) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is not ours", undo.display()))?,
        Err(_) => Vec::new(),
    };
    let mut changed = Vec::new();
    for (path, wanted) in changes {
        let held = std::fs::read_to_string(&path)?.trim().to_owned();
        if held == wanted {
            continue;
        }
        // The way back is written down before the step: and the first value known is the one to return to.
        if !before.iter().any(|(known, _)| *known == path) {
            before.push((path.clone(), held));
            std::fs::write(undo, serde_json::to_string_pretty(&before)?)?;
        }
        std::fs::write(&path, wanted).with_context(|| format!("writing {} (root?)", path.display()))?;
        changed.push(path);
    }
    Ok(changed)
}

/// Puts everything back.
pub fn revert(undo: &Path) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(undo).context("nothing was applied, or its record is gone")?;
    let before: Vec<(PathBuf, String)> = serde_json::from_str(&text)?;
    for (path, held) in &before {
        std::fs::write(path, held).with_context(|| format!("writing {}", path.display()))?;
    }
    std::fs::remove_file(undo)?;
    Ok(before.len())
}
