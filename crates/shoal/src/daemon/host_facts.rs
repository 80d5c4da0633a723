//! Facts about the host that `ceph osd metadata` and `ceph mon metadata` show, under Ceph's names.

use std::collections::BTreeMap;
use std::path::Path;

/// Hostname, kernel, memory, processor, distribution. A fact that cannot be read is left out.
pub fn collect() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    facts.insert("os".into(), text(uname.sysname()));
    facts.insert("kernel_version".into(), text(uname.release()));
    facts.insert("kernel_description".into(), text(uname.version()));
    facts.insert("hostname".into(), text(uname.nodename()));
    facts.insert("arch".into(), text(uname.machine()));
    facts.extend(memory(&read("/proc/meminfo")));
    if let Some(cpu) = field(&read("/proc/cpuinfo"), "model name", ':') {
        facts.insert("cpu".into(), cpu);
    }
    facts.extend(distribution(&read("/etc/os-release")));
    facts
}

/// The fields of os-release: `NAME`, `ID`, `VERSION_ID`, `VERSION` and others.
pub fn os_release() -> BTreeMap<String, String> {
    let text = read("/etc/os-release");
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().trim_matches('"').to_owned())).collect()
}

pub fn memory_bytes() -> Option<u64> {
    let kib = memory(&read("/proc/meminfo")).find(|(name, _)| name == "mem_total_kb")?.1;
    Some(kib.parse::<u64>().ok()? * 1024)
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, key: &str, separator: char) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(separator));
    line.map(|value| value.trim().trim_matches('"').to_owned())
}

fn memory(meminfo: &str) -> impl Iterator<Item = (String, String)> {
    let names = [("MemTotal", "mem_total_kb"), ("SwapTotal", "mem_swap_kb")];
    names.into_iter().filter_map(|(theirs, ours)| {
        let value = field(meminfo, theirs, ':')?;
        Some((ours.to_owned(), value.split_whitespace().next()?.to_owned()))
    })
}

fn distribution(os_release: &str) -> impl Iterator<Item = (String, String)> {
    let names = [
        ("ID", "distro"),
        ("VERSION_ID", "distro_version"),
        ("PRETTY_NAME", "distro_description"),
        ("VERSION_CODENAME", "distro_codename"),
    ];
    names.into_iter().filter_map(|(theirs, ours)| Some((ours.to_owned(), field(os_release, theirs, '=')?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_this_form_become_facts() {
        let facts: BTreeMap<_, _> = memory("MemTotal:       24646744 kB\nSwapTotal:  0 kB\n").collect();
        assert_eq!(facts["mem_total_kb"], "24646744");
        assert_eq!(facts["mem_swap_kb"], "0");
        let facts: BTreeMap<_, _> =
            distribution("PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n")
                .collect();
        assert_eq!(facts["distro"], "debian");
        assert_eq!(facts["distro_version"], "12");
        assert_eq!(facts["distro_description"], "Debian GNU/Linux 12 (bookworm)");
        assert!(!facts.contains_key("distro_codename"));
    }

    #[test]
    fn this_host_has_a_name_and_a_kernel() {
        let facts = collect();
        assert!(!facts["hostname"].is_empty() && !facts["kernel_version"].is_empty());
    }
}
