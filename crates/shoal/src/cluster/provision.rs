//! The content of a new cluster's directory: `ceph.conf` for stock tools and shoal's daemons, and all keys.

use super::layout::{Cluster, MON, MON_NAMES, Ports, conf_path};
use crate::daemon::host_facts;
use crate::daemon::process::Daemon;
use crate::host::store_key::{lockbox_entity, lockbox_name};
use anyhow::{Context, bail, ensure};
use conf::conf_file::ConfFile;
use conf::keyring::{Entity, Keyring, generate_key};
use conf::private;
use ipnet::IpNet;
use machine::Random;
use runtime::system;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    Cephx,
    None,
}

impl Auth {
    fn as_str(self) -> &'static str {
        match self {
            Auth::Cephx => "cephx",
            Auth::None => "none",
        }
    }
}

/// The medium of the OSDs' stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// Memory: saved by a clean stop, lost when an OSD is killed
    Mem,
    /// A file for each OSD: survives kill -9 and power loss
    Disk,
}

impl StoreKind {
    /// The value of `osd_objectstore`.
    pub fn option(self) -> &'static str {
        match self {
            StoreKind::Mem => "memstore",
            StoreKind::Disk => "disk",
        }
    }

    pub fn of_option(value: &str) -> anyhow::Result<StoreKind> {
        match value {
            "memstore" => Ok(StoreKind::Mem),
            // Configurations of stock clusters name its store; shoal's stands in its place.
            "disk" | "bluestore" => Ok(StoreKind::Disk),
            other => bail!("osd_objectstore = {other}: shoal has disk and memstore"),
        }
    }
}

/// The options of `shoal up`; `None` leaves the value as it is, or takes the default.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    pub mons: Option<u16>,
    pub osds: Option<u32>,
    pub auth: Option<Auth>,
    pub port: Option<u16>,
    pub addr: Option<IpAddr>,
    /// For the traffic among OSDs.
    pub cluster_network: Option<IpNet>,
    pub cores: Option<u32>,
    pub store: Option<StoreKind>,
    /// Of each OSD's store, in bytes.
    pub size: Option<u64>,
    /// Encrypt the stores of new OSDs.
    pub encrypt: bool,
    /// Further devices of the OSDs' stores.
    pub db: FurtherWish,
    pub wal: FurtherWish,
}

/// A db or wal device of each OSD of a new cluster.
#[derive(Clone, Debug, Default)]
pub struct FurtherWish {
    /// With metavariables: `/dev/nvme0n1p$id`. `None`: the file in the OSD's directory, if there is a size.
    pub path: Option<String>,
    /// Of a new file, in bytes.
    pub size: Option<u64>,
}

const OSDS_DEFAULT: u32 = 1;
/// One monitor's ids fit into a laptop; more is a typing error.
const OSDS_MAX: u32 = 1000;
const CORES_MAX: u32 = 64;
/// Copies of new pools in a new cluster.
const COPIES: u32 = COPIES_OF_STOCK;
/// The default of `osd_pool_default_size`.
const COPIES_OF_STOCK: u32 = 3;
/// Of each file. It takes room only as it is filled.
const DISK_SIZE_DEFAULT: u64 = 10 << 30;

impl Wish {
    fn check(&self) -> anyhow::Result<()> {
        let count = MON_NAMES.len();
        ensure!(
            self.mons.is_none_or(|n| n % 2 == 1 && usize::from(n) <= count),
            "--mons: 1, 3 or {count}; an even number survives no more failures than one fewer"
        );
        ensure!(self.osds.is_none_or(|n| n <= OSDS_MAX), "--osds: at most {OSDS_MAX}");
        ensure!(
            self.cores.is_none_or(|n| (1..=CORES_MAX).contains(&n)),
            "--cores: between 1 and {CORES_MAX}"
        );
        Ok(())
    }
}

/// Makes the cluster that `wish` describes, or adds to the one that is there what it lacks.
pub fn ensure_cluster(dir: &Path, wish: &Wish) -> anyhow::Result<Cluster> {
    wish.check()?;
    private::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    if conf_path(dir).exists() { adapt(Cluster::load(dir)?, wish) } else { create(dir, wish) }
}

fn create(dir: &Path, wish: &Wish) -> anyhow::Result<Cluster> {
    let dir = std::path::absolute(dir)?;
    let mut random = system::os_random()?;
    let ports = Ports {
        addr: wish.addr.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        base: wish.port.unwrap_or(super::layout::PORT_BASE_DEFAULT),
    };
    ensure!(ports.base <= u16::MAX - 10, "--port {}: choose a lower one", ports.base);
    ensure!(ports.base > 1024 + 6 || ports.base == 0, "--port {}: choose a higher one", ports.base);
    let auth = wish.auth.unwrap_or(Auth::Cephx);
    let mut conf = common_conf(&dir, &new_uuid(&mut random), auth);
    // All OSDs of this directory run on one host.
    conf.set("global", "osd crush chooseleaf type", "0");
    if let Some(network) = wish.cluster_network {
        conf.set("global", "cluster network", network.to_string());
    }
    let osds = wish.osds.unwrap_or(OSDS_DEFAULT);
    for (key, value) in copies(osds) {
        conf.set("global", key, value);
    }
    let store = wish.store.unwrap_or(StoreKind::Disk);
    conf.set("osd", "osd objectstore", store.option());
    match store {
        StoreKind::Mem => {
            let size = wish.size.unwrap_or_else(|| store_size(host_facts::memory_bytes(), osds));
            conf.set("osd", "memstore device bytes", size.to_string());
        }
        StoreKind::Disk => {
            let size = wish.size.unwrap_or(DISK_SIZE_DEFAULT);
            conf.set("osd", "bluestore block size", size.to_string());
            for (role, wish) in [("db", &wish.db), ("wal", &wish.wal)] {
                if let Some(path) = &wish.path {
                    conf.set("osd", &format!("bluestore block {role} path"), path);
                }
                if let Some(size) = wish.size {
                    conf.set("osd", &format!("bluestore block {role} size"), size.to_string());
                    conf.set("osd", &format!("bluestore block {role} create"), "true");
                }
            }
        }
    }
    conf.set("osd", "shoal cores", wish.cores.unwrap_or(1).to_string());
    let created = system::wall_clock();
    let mut keyring = Keyring::default();
    let mut add = |name: &str, caps: &[(&str, &str)]| {
        keyring.0.insert(name.into(), Entity::new(generate_key(&mut random, created), caps));
    };
    add("mon.", &[("mon", "allow *")]);
    add("client.admin", &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")]);
    keyring.save(&dir.join("keyring"))?;

    let mut cluster = Cluster { dir, conf };
    add_monitors(&mut cluster, ports, wish.mons.unwrap_or(1))?;
    ensure!(!wish.encrypt || store == StoreKind::Disk, "--encrypt: a store in memory is not encrypted");
    add_osds(&mut cluster, osds, wish.encrypt)?;
    write_conf(&cluster)?;
    Ok(cluster)
}

/// The part of `ceph.conf` that every directory has: where its files are, and which cluster it is of.
pub(super) fn common_conf(dir: &Path, fsid: &str, auth: Auth) -> ConfFile {
    let (mut conf, auth, shown) = (ConfFile::default(), auth.as_str(), dir.display().to_string());
    let keyring = format!("{shown}/keyring");
    for (key, value) in [
        ("fsid", fsid),
        ("auth cluster required", auth),
        ("auth service required", auth),
        ("auth client required", auth),
        ("keyring", keyring.as_str()),
        ("run dir", shown.as_str()),
        // Its disk has other uses: stock's 30 % would warn on many a laptop.
        ("mon data avail warn", "2"),
        ("mon data avail crit", "1"),
        // `rbd map`: without it the kernel speaks Ceph's first protocol, which shoal does not have.
        ("rbd default map options", "ms_mode=prefer-crc"),
    ] {
        conf.set("global", key, value);
    }
    for kind in ["mon", "osd"] {
        conf.set(kind, "admin socket", format!("{shown}/$name.asok"));
        conf.set(kind, "log file", format!("{shown}/$name.log"));
        conf.set(kind, "pid file", format!("{shown}/$name.pid"));
        conf.set(kind, &format!("{kind} data"), format!("{shown}/$name"));
    }
    conf
}

/// Options for the number of copies of a new cluster's pools: [`COPIES`], or fewer in a cluster with fewer OSDs.
fn copies(osds: u32) -> Vec<(&'static str, String)> {
    match COPIES.min(osds.max(1)) {
        COPIES_OF_STOCK => Vec::new(),
        1 => vec![
            ("osd pool default size", "1".into()),
            ("mon allow pool size one", "true".into()),
            // The warning about each pool would hide those that matter.
            ("mon warn on pool no redundancy", "false".into()),
        ],
        copies => vec![("osd pool default size", copies.to_string())],
    }
}

/// An existing cluster keeps what it was made with; OSDs may be added and their cores changed.
fn adapt(mut cluster: Cluster, wish: &Wish) -> anyhow::Result<Cluster> {
    private::narrow(&conf_path(&cluster.dir))?;
    let ports = cluster.ports()?;
    let advice = "stop it and use another --dir, or leave the option out";
    ensure!(wish.port.is_none_or(|p| p == ports.base), "this cluster is on port {}: {advice}", ports.base);
    ensure!(wish.addr.is_none_or(|a| a == ports.addr), "this cluster is on {}: {advice}", ports.addr);
    let auth = cluster.conf.get(MON, "auth client required").unwrap_or_default();
    ensure!(wish.auth.is_none_or(|a| a.as_str() == auth), "this cluster's auth is {auth}: {advice}");
    let store = cluster.store_kind()?;
    ensure!(
        wish.store.is_none_or(|kind| kind == store),
        "this cluster's store is {}: {advice}",
        store.option()
    );
    ensure!(wish.size.is_none(), "the size of a store is chosen when it is made: {advice}");
    let mut changed = false;
    let have = cluster.mon_names().len() as u16;
    if let Some(want) = wish.mons {
        ensure!(want >= have, "this cluster has {have} monitors; `ceph mon rm` takes one away");
        changed |= want > have;
        add_monitors(&mut cluster, ports, want)?;
    }
    let have = cluster.osd_ids().len() as u32;
    ensure!(
        !wish.encrypt || (store == StoreKind::Disk && wish.osds.is_some_and(|want| want > have)),
        "--encrypt is for stores on disk that are made: there is none to make"
    );
    if let Some(want) = wish.osds {
        ensure!(want >= have, "this cluster has {have} OSDs; `shoal up` adds OSDs and never takes one away");
        changed |= want > have;
        add_osds(&mut cluster, want - have, wish.encrypt)?;
    }
    let at_start = [
        ("--cores", "osd", "shoal cores", wish.cores.map(|cores| cores.to_string())),
        ("--cluster-network", "global", "cluster network", wish.cluster_network.map(|n| n.to_string())),
    ];
    for (flag, section, option, value) in at_start {
        let Some(value) = value.filter(|value| cluster.conf.get(section, option) != Some(value)) else {
            continue;
        };
        let is_any_running = cluster.osds().iter().any(Daemon::is_running);
        ensure!(!is_any_running, "{flag} changes with a restart: `shoal down` first");
        cluster.conf.set(section, option, value);
        changed = true;
    }
    if changed {
        write_conf(&cluster)?;
    }
    Ok(cluster)
}

/// Sections and managers' keys for monitors up to this number, and all of them in `mon host`.
fn add_monitors(cluster: &mut Cluster, ports: Ports, count: u16) -> anyhow::Result<()> {
    let mut random = system::os_random()?;
    let keyring_path = cluster.dir.join("keyring");
    let mut keyring = Keyring::load(&keyring_path)?;
    for (n, name) in (0..count).zip(MON_NAMES) {
        let (mon, mgr) = (format!("mon.{name}"), format!("mgr.{name}"));
        keyring.0.entry(mgr).or_insert_with(|| {
            let caps = [("mds", "allow *"), ("mon", "profile mgr"), ("osd", "allow *")];
            Entity::new(generate_key(&mut random, system::wall_clock()), &caps)
        });
        let [addr, mgr_addr, metrics] = ports.mon(n);
        cluster.conf.set(&mon, "public addr", format!("v2:{addr}"));
        cluster.conf.set(&mon, "mgr addr", format!("v2:{mgr_addr}"));
        cluster.conf.set(&mon, "metrics addr", metrics.to_string());
    }
    let hosts: Vec<String> = (0..count).map(|n| format!("[v2:{}]", ports.mon(n)[0])).collect();
    cluster.conf.set("global", "mon host", hosts.join(","));
    keyring.save(&keyring_path)
}

/// Sections and keys for `count` more. The keyring is written before `ceph.conf` names its owner. An OSD whose store is
/// encrypted has the key of a lockbox, too.
fn add_osds(cluster: &mut Cluster, count: u32, encrypt: bool) -> anyhow::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let ports = cluster.ports()?;
    let mut random = system::os_random()?;
    let keyring_path = cluster.dir.join("keyring");
    let mut keyring = Keyring::load(&keyring_path)?;
    let first = cluster.osd_ids().last().map_or(0, |last| last + 1);
    for id in first..first + count {
        let name = format!("osd.{id}");
        let key = generate_key(&mut random, system::wall_clock());
        let caps = [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];
        keyring.0.insert(name.clone(), Entity::new(key, &caps));
        cluster.conf.set(&name, "public addr", format!("v2:{}", ports.osd(id)?));
        cluster.conf.set(&name, "metrics addr", ports.osd_metrics(id)?.to_string());
        let uuid = new_uuid(&mut random);
        if encrypt {
            let key = generate_key(&mut random, system::wall_clock());
            keyring.0.insert(lockbox_name(&uuid), lockbox_entity(&uuid, key));
        }
        cluster.conf.set(&name, "osd uuid", uuid);
    }
    keyring.save(&keyring_path)
}

/// A memory store's size: all of them together half of the host's memory, in whole GiB.
fn store_size(memory: Option<u64>, osds: u32) -> u64 {
    const GIB: u64 = 1 << 30;
    const UNKNOWN_HOST: u64 = 8 * GIB;
    let each = memory.unwrap_or(UNKNOWN_HOST) / 2 / u64::from(osds.max(1));
    (each / GIB).clamp(1, 64) * GIB
}

pub(super) fn write_conf(cluster: &Cluster) -> anyhow::Result<()> {
    let path = conf_path(&cluster.dir);
    let text =
        format!("# Made by shoal. Stock tools read it too: ceph -c {} -s\n{}", path.display(), cluster.conf);
    private::replace(&path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// A random (version 4) UUID.
pub fn new_uuid(random: &mut Random) -> String {
    let mut bytes: [u8; 16] = random.bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("shoal-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_stores_together_take_half_of_the_memory() {
        assert_eq!(store_size(Some(25 << 30), 1), 12 << 30);
        assert_eq!(store_size(Some(25 << 30), 3), 4 << 30);
        assert_eq!(store_size(Some(1 << 30), 3), 1 << 30);
        assert_eq!(store_size(None, 0), 4 << 30);
    }

    #[test]
    fn new_cluster_has_copies_as_its_osds_allow() {
        let dir = temporary("copies");
        let cluster = ensure_cluster(&dir, &Wish { osds: Some(3), port: Some(14690), ..Wish::default() });
        let conf = cluster.unwrap().conf;
        assert_eq!(conf.get(MON, "osd crush chooseleaf type"), Some("0"));
        assert_eq!(conf.get(MON, "osd pool default size"), None, "three, as in stock");
        assert_eq!(copies(2), [("osd pool default size", "2".into())]);
        assert!(copies(1).contains(&("osd pool default size", "1".into())));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_second_time_keeps_what_is_there_and_adds_osds() {
        let dir = temporary("provision");
        let wish = Wish { osds: Some(2), port: Some(14790), ..Wish::default() };
        let first = ensure_cluster(&dir, &wish).unwrap();
        assert_eq!(first.osd_ids(), [0, 1]);
        let keys = Keyring::load(&dir.join("keyring")).unwrap();
        assert!(keys.key_of("client.admin").is_some() && keys.key_of("osd.1").is_some());

        let again = ensure_cluster(&dir, &Wish { osds: Some(3), ..Wish::default() }).unwrap();
        assert_eq!(again.conf.get("x", "fsid"), first.conf.get("x", "fsid"));
        assert_eq!(again.osd_ids(), [0, 1, 2]);
        let more = Keyring::load(&dir.join("keyring")).unwrap();
        assert_eq!(more.key_of("client.admin"), keys.key_of("client.admin"));
        assert_eq!(again.conf.get("osd.2", "public addr"), Some("v2:127.0.0.1:14804"));

        for wrong in [
            Wish { osds: Some(1), ..Wish::default() },
            Wish { auth: Some(Auth::None), ..Wish::default() },
            Wish { port: Some(1), ..Wish::default() },
            Wish { store: Some(StoreKind::Mem), ..Wish::default() },
            Wish { size: Some(1 << 30), ..Wish::default() },
        ] {
            assert!(ensure_cluster(&dir, &wrong).is_err(), "{wrong:?}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
