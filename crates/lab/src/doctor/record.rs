//! The inventory of another host. A few lines of shell, which any host runs, print the files that the checks
//! read; the output is unpacked into a tree and read like this host's own. A record in a file has the same form.

use super::inventory::HostInventory;
use anyhow::{Context, bail, ensure};
use std::path::{Component, Path};
use std::process::Command;

/// Each file is announced by its path and its number of lines. Nothing is written, and nothing is needed but a shell.
pub const SCRIPT: &str = r#"
show() { for f; do [ -f "$f" ] && [ -r "$f" ] || continue; text=$(cat "$f" 2>/dev/null) || continue
  printf '== %s %s\n%s\n' "$f" "$(printf '%s\n' "$text" | wc -l | tr -d ' ')" "$text"; done; }
cd /; cpu=sys/devices/system/cpu
show proc/cmdline proc/loadavg proc/sys/net/core/rmem_max proc/sys/net/core/wmem_max proc/sys/kernel/osrelease
show $cpu/cpu[0-9]*/cpufreq/scaling_governor $cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq
for s in $cpu/cpu[0-9]*/cpuidle/state*; do show "$s/name" "$s/latency" "$s/disable"; done
show $cpu/vulnerabilities/* $cpu/smt/control sys/kernel/iommu_groups/*/type sys/module/apparmor/parameters/enabled
for n in sys/devices/system/node/node[0-9]*; do show "$n/meminfo"; done
for d in sys/block/*/device sys/block/*/device/device; do
  show "$d/uevent" "$d/model" "$d/numa_node" "$d/current_link_speed" "$d/max_link_speed" "$d/current_link_width" "$d/max_link_width"; done
for c in sys/class/net/*; do show "$c/operstate" "$c/mtu" "$c/speed"; d=$c/device
  show "$d/numa_node" "$d/current_link_speed" "$d/max_link_speed" "$d/current_link_width" "$d/max_link_width"; done
printf '== proc/cpuinfo %s\n' "$(grep -c 'cpu MHz' proc/cpuinfo)"; grep 'cpu MHz' proc/cpuinfo
if [ -f usr/bin/ceph-osd ]; then
  if grep -q libtcmalloc usr/bin/ceph-osd; then echo '== usr/bin/ceph-osd 1'; echo libtcmalloc
  else echo '== usr/bin/ceph-osd 1'; echo 'another allocator'; fi; fi
echo '== end 0'
"#;

/// A host's record is some hundred lines for each processor.
const BYTES_MAX: usize = 16 << 20;

/// By ssh, or what the caller has in its place, without asking for a password: a host that needs one is told as it is.
pub fn by_ssh(ssh: &str, host: &str) -> anyhow::Result<String> {
    ensure!(!host.starts_with('-'), "{host} is no host");
    let mut words = ssh.split_whitespace();
    let program = words.next().context("--ssh is empty: name the program that reaches other hosts")?;
    let output = Command::new(program)
        .args(words)
        .args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host, "sh", "-c"])
        // ssh gives its words to a shell there once more.
        .arg(format!("'{}'", SCRIPT.replace('\'', r"'\''")))
        .output()
        .with_context(|| format!("{program} cannot be started: is it installed?"))?;
    if !output.status.success() && output.stdout.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("ssh {host}: {}", errors.trim().lines().last().unwrap_or("no output"));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{host} sent bytes that are no UTF-8 text"))
}

/// Of this host.
pub fn here() -> anyhow::Result<String> {
    let output = Command::new("sh").args(["-c", SCRIPT]).output().context("sh cannot be started")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The inventory in a record. `scratch` is a temporary folder, which must not exist.
pub fn read(record: &str, scratch: &Path) -> anyhow::Result<HostInventory> {
    std::fs::create_dir(scratch).with_context(|| scratch.display().to_string())?;
    let found = unpack(record, scratch).map(|()| HostInventory::read(scratch));
    drop(std::fs::remove_dir_all(scratch));
    found
}

fn unpack(record: &str, root: &Path) -> anyhow::Result<()> {
    ensure!(record.len() <= BYTES_MAX, "a record of {} bytes is too large for a host's", record.len());
    let mut lines = record.lines();
    while let Some(line) = lines.next() {
        let head = line.strip_prefix("== ").and_then(|l| l.rsplit_once(' '));
        let (path, count) = head.with_context(|| format!("{line:?} is not the head of a file"))?;
        let count: usize = count.parse().with_context(|| format!("{line:?} tells no number of lines"))?;
        if path == "end" {
            return Ok(());
        }
        // What another host says is no reason to write elsewhere.
        let is_plain = Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
        ensure!(is_plain, "{path} leads out of the record");
        let content: Vec<&str> = lines.by_ref().take(count).collect();
        ensure!(content.len() == count, "{path} is cut off");
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().expect("below the root"))?;
        std::fs::write(file, content.join("\n") + "\n")?;
    }
    bail!("the record has no end: it was cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("shoal-record-{name}-{}", std::process::id()))
    }

    #[test]
    fn host_is_judged_the_same_from_its_record() {
        let direct = HostInventory::read(Path::new("/"));
        let found = read(&here().unwrap(), &folder("here")).unwrap();
        assert_eq!(found.governors, direct.governors);
        assert_eq!(found.vulnerabilities, direct.vulnerabilities);
        assert_eq!((found.numa_nodes, found.mhz_now.len()), (direct.numa_nodes, direct.mhz_now.len()));
        assert_eq!(found.disks.len(), direct.disks.len());
        assert_eq!(found.cards.len(), direct.cards.len());
        assert_eq!(found.receive_buffer_max, direct.receive_buffer_max);
        assert!(!folder("here").exists());
    }

    #[test]
    fn truncated_or_escaping_record_is_refused() {
        let told = |record: &str, name: &str| read(record, &folder(name)).unwrap_err().to_string();
        assert!(told("== proc/cmdline 1\na\n", "cut").contains("cut off"));
        assert!(told("== proc/cmdline 5\na\n", "short").contains("cut off"));
        assert!(told("== ../../etc/x 1\na\n== end 0\n", "out").contains("leads out"));
        assert!(told("== /etc/x 1\na\n== end 0\n", "root").contains("leads out"));
        assert!(told("Welcome!\n", "banner").contains("not the head"));
    }
}
