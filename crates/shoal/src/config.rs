//! The configuration of shoal's processes: from `ceph.conf` and the command line to the options that the host itself
//! acts on. Options of the roles are in [`mon::options`], [`osd::options`] and [`mgr::options`].

use anyhow::{Context, ensure};
use command::option_set;
use command::options::{Consumed, Daemon, Identity, Layers, Problem, Source, Value, find, value};
use conf::conf_file::ConfFile;
use std::path::PathBuf;

option_set! {
    /// Files and sockets of a daemon's process.
    pub struct ProcessOptions for Mon | Osd, Start {
        admin_socket: Option<PathBuf> = "admin_socket",
        log_file: Option<PathBuf> = "log_file",
        metrics_addr: Option<String> = "metrics_addr",
        pid_file: Option<PathBuf> = "pid_file",
        public_addr: Option<String> = "public_addr",
    }
}

option_set! {
    /// Authentication and protection of connections.
    pub struct SessionOptions for Mon | Mgr | Osd, Start {
        auth_client_required: String = "auth_client_required",
        auth_cluster_required: String = "auth_cluster_required",
        auth_service_required: String = "auth_service_required",
        keyring: PathBuf = "keyring",
        ms_client_mode: String = "ms_client_mode",
        ms_cluster_mode: String = "ms_cluster_mode",
        ms_mon_client_mode: String = "ms_mon_client_mode",
        ms_mon_cluster_mode: String = "ms_mon_cluster_mode",
        ms_mon_service_mode: String = "ms_mon_service_mode",
        ms_service_mode: String = "ms_service_mode",
    }
}

option_set! {
    /// Where a daemon finds the monitors.
    pub struct MonitorOptions for Mgr | Osd, Start {
        mon_host: String = "mon_host",
    }
}

option_set! {
    pub struct MonStartOptions for Mon, Start {
        data: PathBuf = "mon_data",
        mgr_addr: Option<String> = "mgr_addr",
    }
}

option_set! {
    /// The options that the first start of a cluster's monitor writes into its maps.
    pub struct GenesisOptions for Mon, Creation {
        backfillfull_ratio: f64 = "mon_osd_backfillfull_ratio",
        chooseleaf_type: i64 = "osd_crush_chooseleaf_type",
        fsid: String = "fsid",
        full_ratio: f64 = "mon_osd_full_ratio",
        nearfull_ratio: f64 = "mon_osd_nearfull_ratio",
    }
}

option_set! {
    pub struct OsdStartOptions for Osd, Start {
        bind_addr: Option<String> = "bind_addr",
        block_path: PathBuf = "bluestore_block_path",
        cores: u16 = "shoal_cores",
        data: PathBuf = "osd_data",
        deferred_bytes_hdd: u64 = "bluestore_prefer_deferred_size_hdd",
        discard: bool = "bdev_enable_discard",
        flush: String = "shoal_device_flush",
        fsid: String = "fsid",
        idle_poll_us: u64 = "shoal_idle_poll_us",
        key_file: Option<PathBuf> = "shoal_key_file",
        memstore_bytes: u64 = "memstore_device_bytes",
        objectstore: String = "osd_objectstore",
        rotational: String = "shoal_device_rotational",
        uuid: String = "osd_uuid",
    }
}

option_set! {
    /// The networks of an OSD, and the ports of addresses that name none.
    pub struct NetworkOptions for Osd, Start {
        cluster: String = "cluster_network",
        cluster_addr: Option<String> = "cluster_addr",
        port_max: i64 = "ms_bind_port_max",
        port_min: i64 = "ms_bind_port_min",
        public: String = "public_network",
    }
}

option_set! {
    pub struct MkfsOptions for Osd, Creation {
        block_bytes: u64 = "bluestore_block_size",
        db_bytes: u64 = "bluestore_block_db_size",
        db_create: bool = "bluestore_block_db_create",
        db_path: Option<PathBuf> = "bluestore_block_db_path",
        wal_bytes: u64 = "bluestore_block_wal_size",
        wal_create: bool = "bluestore_block_wal_create",
        wal_path: Option<PathBuf> = "bluestore_block_wal_path",
    }
}

option_set! {
    /// The options that a monitor's process follows while it runs.
    struct MonProcessOptions for Mon, Live {
        log_level: String = "log_level",
        memory_target: u64 = "mon_memory_target",
    }
}

option_set! {
    /// The options that an OSD's process follows while it runs.
    struct OsdProcessOptions for Osd, Live {
        log_level: String = "log_level",
        memory_target: u64 = "osd_memory_target",
        message_cap: u64 = "osd_client_message_size_cap",
    }
}

/// Every option that this crate acts on, for the test that compares the table with its consumers.
pub const CONSUMED: &[Consumed] = &[
    ProcessOptions::CONSUMED,
    SessionOptions::CONSUMED,
    MonitorOptions::CONSUMED,
    MonStartOptions::CONSUMED,
    GenesisOptions::CONSUMED,
    OsdStartOptions::CONSUMED,
    NetworkOptions::CONSUMED,
    MkfsOptions::CONSUMED,
    MonProcessOptions::CONSUMED,
    OsdProcessOptions::CONSUMED,
];

/// The options that the host of a daemon follows while the daemon runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOptions {
    pub log_level: String,
    /// Bytes of the process, with the contents of a memory store.
    pub memory_target: u64,
    /// `osd_client_message_size_cap`; 0 on a daemon that has none.
    pub message_cap: u64,
}

impl LiveOptions {
    pub fn read(layers: &Layers) -> LiveOptions {
        if layers.identity().daemon() != Some(Daemon::Osd) {
            let own = MonProcessOptions::read(layers);
            return LiveOptions {
                log_level: own.log_level,
                memory_target: own.memory_target,
                message_cap: 0,
            };
        }
        let (own, start) = (OsdProcessOptions::read(layers), OsdStartOptions::read(layers));
        let store = if start.objectstore == "memstore" { start.memstore_bytes } else { 0 };
        LiveOptions {
            log_level: own.log_level,
            memory_target: own.memory_target.saturating_add(store),
            message_cap: own.message_cap,
        }
    }
}

/// The layers of a process as they are before it has spoken with a monitor: `file`, and `--set NAME=VALUE`.
///
/// # Errors
/// A value does not fit an option that this daemon acts on, or `--set` names an option that there is not. Other
/// values that do not fit are returned, to be logged: they change nothing here.
pub fn layers(
    identity: Identity,
    file: &ConfFile,
    set: &[(String, String)],
) -> anyhow::Result<(Layers, Vec<Problem>)> {
    let daemon = identity.daemon();
    let name = identity.name.clone();
    let mut layers = Layers::new(identity);
    let pairs = file.keys_for(&name).into_iter().filter_map(|key| Some((key, file.get(&name, key)?)));
    let problems = layers.fill(Source::File, pairs);
    if let Some(problem) = problems.iter().find(|problem| problem.concerns(daemon)) {
        anyhow::bail!("the configuration file: {problem}");
    }
    let wrong = layers.fill(Source::CommandLine, set.iter().map(|(key, value)| (key, value)));
    if let Some(problem) = wrong.first() {
        anyhow::bail!("--set: {problem}");
    }
    Ok((layers, problems))
}

/// `NAME=VALUE` of a `--set`.
pub fn parse_set(text: &str) -> anyhow::Result<(String, String)> {
    let (key, value) =
        text.split_once('=').with_context(|| format!("--set {text}: expected OPTION=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A size on the command line.
pub fn parse_size(text: &str) -> Result<u64, String> {
    value::bytes_at_command_line(text).ok_or_else(|| "expected bytes, as 512M or 20G".into())
}

/// An option's number of bytes as a section of `file` has it, or its default.
pub fn size_in_file(file: &ConfFile, section: &str, option: &str) -> anyhow::Result<u64> {
    let row = find(option).with_context(|| format!("there is no option {option}"))?;
    let read =
        file.get(section, option).map_or_else(|| Ok(row.default().clone()), |text| row.parse_value(text));
    match read {
        Ok(Value::Uint(bytes)) => Ok(bytes),
        Ok(_) => anyhow::bail!("{option} is not a size"),
        Err(why) => anyhow::bail!("{option} of [{section}]: {why}"),
    }
}

/// A share of one; a number above one is per cent, as Ceph reads it.
pub fn ratio(name: &str, number: f64) -> anyhow::Result<f32> {
    let ratio = if number > 1.0 { number / 100.0 } else { number };
    ensure!((0.0..=1.0).contains(&ratio), "{name}: {number} is neither a share of one nor per cent");
    Ok(ratio as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, set: &[(&str, &str)]) -> anyhow::Result<(Layers, Vec<Problem>)> {
        let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        layers(Identity::named("osd.1"), &ConfFile::parse(text).unwrap(), &set)
    }

    #[test]
    fn command_line_wins_over_every_section_of_the_file() {
        let file =
            "[global]\nrun dir = /x\nshoal cores = 2\n[osd]\nshoal cores = 3\n[osd.1]\nshoal_cores = 4\n";
        let (layers, problems) = read(file, &[]).unwrap();
        assert_eq!(problems, []);
        assert_eq!(OsdStartOptions::read(&layers).cores, 4);
        assert_eq!(ProcessOptions::read(&layers).admin_socket, Some("/x/osd.1.asok".into()));
        let (layers, _) = read(file, &[("shoal-cores", "5")]).unwrap();
        assert_eq!(OsdStartOptions::read(&layers).cores, 5);
    }

    #[test]
    fn unfit_values_stop_the_daemon_that_would_act_on_them() {
        let problem = |text: &str, set| format!("{:#}", read(text, set).unwrap_err());
        assert!(problem("[osd]\nshoal cores = many\n", &[]).contains("shoal_cores = many"));
        assert!(problem("", &[("no_such", "1")]).contains("no_such"));
        let (_, others) =
            read("[global]\nosd recovery max active hdd = many\nrgw_nonsense = 1\n", &[]).unwrap();
        assert_eq!(others.len(), 2);
    }

    #[test]
    fn memory_target_of_an_osd_includes_its_memory_store() {
        let file = "[osd]\nosd objectstore = memstore\nosd memory target = 1G\nmemstore device bytes = 2G\n";
        let of = |text: &str| LiveOptions::read(&read(text, &[]).unwrap().0).memory_target;
        assert_eq!(of(file), 3 << 30);
        assert_eq!(of(&file.replace("= memstore", "= disk")), 1 << 30);
    }
}
