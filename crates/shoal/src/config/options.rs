//! Which options does shoal act on?
//!
//! The table below, and nothing else: an option that stock Ceph has and shoal does not act on is kept in the
//! monitor's database if someone sets it, and changes nothing.

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Bool,
    /// A whole number of at least zero.
    Count,
    /// Bytes; `K`, `M`, `G`, `T` (and `Ki`, `KiB` …) are powers of 1024.
    Size,
    /// Seconds, may be a fraction.
    Secs,
    Float,
    Uuid,
}

impl Kind {
    /// Ceph's name for it, as `config help` prints it.
    pub fn ceph_name(self) -> &'static str {
        match self {
            Kind::Text => "str",
            Kind::Bool => "bool",
            Kind::Count => "uint",
            Kind::Size => "size",
            Kind::Secs | Kind::Float => "float",
            Kind::Uuid => "uuid",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Opt {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub description: &'static str,
    /// Which kinds of daemon or client act on it; empty is all.
    pub services: &'static [&'static str],
    /// False: read when the daemon starts.
    pub live: bool,
}

const fn opt(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    services: &'static [&'static str],
    live: bool,
    description: &'static str,
) -> Opt {
    Opt { name, kind, default, description, services, live }
}

const ALL: &[&str] = &[];
const MON: &[&str] = &["mon"];
const OSD: &[&str] = &["osd"];

/// Sorted by name.
#[rustfmt::skip]
pub const OPTIONS: &[Opt] = &[
    opt("admin_socket", Kind::Text, "$run_dir/$name.asok", ALL, false, "path of the admin socket"),
    opt("auth_client_required", Kind::Text, "cephx", ALL, false, "how clients prove who they are: cephx or none"),
    opt("auth_cluster_required", Kind::Text, "cephx", ALL, false, "how daemons prove who they are to one another: cephx or none"),
    opt("auth_service_required", Kind::Text, "cephx", ALL, false, "what daemons ask of clients: cephx or none"),
    opt("bdev_enable_discard", Kind::Bool, "false", OSD, false, "tell the disk which space is free: always in the background, in pieces of 64 KiB and more, and all of it at --mkfs; of a file it makes holes"),
    opt("bind_addr", Kind::Text, "", OSD, false, "listen here, where public_addr is not an address of this host"),
    opt("bluestore_block_path", Kind::Text, "$osd_data/block", OSD, false, "file or block device of a store on disk, or a link to it"),
    opt("bluestore_block_size", Kind::Size, "10G", OSD, false, "size of that file, when `shoal osd --mkfs` makes it"),
    opt("fsid", Kind::Uuid, "00000000-0000-0000-0000-000000000000", ALL, false, "the cluster's id"),
    opt("keyring", Kind::Text, "$run_dir/keyring", ALL, false, "file with the key of this daemon or client"),
    opt("log_file", Kind::Text, "", ALL, false, "log to this file; empty is standard error"),
    opt("log_level", Kind::Text, "info", ALL, true, "error, warn, info, debug or trace, or a tracing filter"),
    opt("memstore_device_bytes", Kind::Size, "4G", OSD, false, "what the memory store says its size is"),
    opt("metrics_addr", Kind::Text, "", ALL, false, "address and port of the Prometheus page; empty is none"),
    opt("mgr_addr", Kind::Text, "", MON, false, "address and port of the manager that the monitor's process hosts"),
    opt("mon_data", Kind::Text, "$run_dir/$name", MON, false, "directory of the monitor's log"),
    opt("mon_host", Kind::Text, "", ALL, false, "the monitors' addresses"),
    opt("mon_memory_target", Kind::Size, "2G", MON, true, "a monitor larger than this gives free memory back to the system"),
    opt("mon_osd_backfillfull_ratio", Kind::Float, "0.9", MON, false, "a new cluster's OSDs that are so full take no backfill"),
    opt("mon_osd_full_ratio", Kind::Float, "0.95", MON, false, "a new cluster's OSDs that are so full take no writes"),
    opt("mon_osd_nearfull_ratio", Kind::Float, "0.85", MON, false, "a new cluster's OSDs that are so full are warned about"),
    opt("ms_client_mode", Kind::Text, "crc secure", ALL, false, "modes of a client's connections with daemons, best first: crc, secure"),
    opt("ms_cluster_mode", Kind::Text, "crc secure", ALL, false, "modes between daemons, best first"),
    opt("ms_mon_client_mode", Kind::Text, "secure crc", ALL, false, "modes of a client's connections with monitors and managers, best first"),
    opt("ms_mon_cluster_mode", Kind::Text, "secure crc", ALL, false, "modes between monitors, managers and the daemons that call them, best first"),
    opt("ms_mon_service_mode", Kind::Text, "secure crc", ALL, false, "modes of a monitor's and manager's connections with clients, best first"),
    opt("ms_service_mode", Kind::Text, "crc secure", ALL, false, "modes of a daemon's connections with clients, best first"),
    opt("osd_client_message_size_cap", Kind::Size, "500M", OSD, true, "bytes of requests that clients may have under way here, but never more than an eighth of osd_memory_target; then their sockets wait"),
    opt("osd_data", Kind::Text, "$run_dir/$name", OSD, false, "directory of the OSD's store"),
    opt("osd_failsafe_full_ratio", Kind::Float, "0.97", OSD, true, "an OSD that is so full takes no writes, whatever the map says"),
    opt("osd_memory_target", Kind::Size, "4G", OSD, true, "an OSD's memory, a memory store's contents not counted: caches are sized by it, and above it free memory goes back to the system"),
    opt("osd_objectstore", Kind::Text, "memstore", OSD, false, "kind of store: memstore, or disk; what was made with --mkfs is on disk"),
    opt("osd_uuid", Kind::Text, "", OSD, false, "the OSD's own id, made with it"),
    opt("pid_file", Kind::Text, "", ALL, false, "write the process id to this file"),
    opt("public_addr", Kind::Text, "", ALL, false, "address, and port if any, that the daemon is reached at"),
    opt("run_dir", Kind::Text, "/var/run/ceph", ALL, false, "directory of sockets"),
    opt("shoal_balance_pgs", Kind::Bool, "true", OSD, false, "PGs move by themselves from the core with the most to the one with the fewest"),
    opt("shoal_cores", Kind::Count, "1", OSD, false, "reactor cores of an OSD"),
    opt("shoal_idle_poll_us", Kind::Count, "300", OSD, false, "microseconds that a core polls before it sleeps, while it serves one caller at a time; 0 is never"),
];

pub fn find(name: &str) -> Option<&'static Opt> {
    OPTIONS.binary_search_by(|opt| opt.name.cmp(name)).ok().map(|at| &OPTIONS[at])
}

/// `value` in the form that the daemon uses, or what is wrong with it.
pub fn check(kind: Kind, value: &str) -> Result<String, &'static str> {
    match kind {
        Kind::Text => Ok(value.to_owned()),
        Kind::Bool => match value.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok("true".to_owned()),
            "false" | "no" | "off" | "0" => Ok("false".to_owned()),
            _ => Err("expected true or false"),
        },
        Kind::Count => value.parse::<u64>().map(|n| n.to_string()).map_err(|_| "expected a whole number"),
        Kind::Size => parse_size(value).map(|n| n.to_string()).ok_or("expected bytes, as 4096, 64K or 4Gi"),
        Kind::Secs | Kind::Float => match value.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(value.to_owned()),
            _ => Err("expected a number"),
        },
        Kind::Uuid => {
            let shape = value.len() == 36
                && value.bytes().enumerate().all(|(at, b)| match at {
                    8 | 13 | 18 | 23 => b == b'-',
                    _ => b.is_ascii_hexdigit(),
                });
            if shape { Ok(value.to_ascii_lowercase()) } else { Err("expected a UUID") }
        }
    }
}

pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim();
    let shift = match unit.trim_end_matches('B').trim_end_matches('i') {
        "" if !unit.contains('i') => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_default_is_legal() {
        assert!(OPTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for opt in OPTIONS {
            assert!(check(opt.kind, opt.default).is_ok(), "{}", opt.name);
            assert_eq!(find(opt.name).unwrap().description, opt.description);
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        let size = |text| parse_size(text);
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("4K"), Some(4096));
        assert_eq!(size("4 KiB"), Some(4096));
        assert_eq!(size("2Gi"), Some(2 << 30));
        assert_eq!(size("7B"), Some(7));
        for bad in ["", "K", "4X", "-1", "4i", "99999999999P"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }
}
