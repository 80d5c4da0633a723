//! `shoal osd`: one OSD in the foreground.

use crate::cluster::host::monitors;
use crate::cluster::provision::StoreKind;
use crate::config::{MkfsOptions, OsdStartOptions, SessionOptions, parse_size};
use crate::daemon::admin_commands::Command;
use crate::daemon::admin_socket::{Reply, Request};
use crate::daemon::block_devices;
use crate::daemon::boot::{self, Boot};
use crate::daemon::memory;
use crate::daemon::side::{Answer, Role};
use crate::daemon::stored_options::{self, Wait};
use crate::daemon::version;
use crate::host::addresses::Listening;
use crate::host::ask::{Question, ask};
use crate::host::disk::{self, Device, DiskStore, HowToWrite, Owner};
use crate::host::making::{Made, Making, NewDevice, make};
use crate::host::osd::{Mail, OsdRole, Outcome};
use crate::host::stale_scan::StaleScan;
use crate::host::store::Store;
use crate::host::store_devices::{self, StorePaths};
use crate::host::store_key::OsdKey;
use crate::host::{identity, store_files};
use anyhow::{Context, bail};
use block_store::format::{DeviceRole, NewKeys};
use command::osd_network;
use command::perf::Counter;
use command::restart::{self, Checked};
use device::encrypted::{DATA_KEY_BYTES, DataKey};
use machine::{CoreId, Random};
use osd::control::{Addrs, ControlConfig, VersionText};
use osd::node::{Budgets, Core, CoreConfig, StoreContents, shards_of};
use runtime::device::{Disk, FlushPolicy};
use runtime::system;
use runtime::{Mailbox, Options, Reactors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::MemoryStore;
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, OsdId};
use zeroize::Zeroizing;

/// Run an OSD in the foreground, as an init system would; SIGTERM stops it cleanly. Or make its store
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal osd --conf /srv/shoal/ceph.conf --id 0 --mkfs --device /dev/nvme0n1
                        make its store on a disk, once; osd_data/block becomes a link to it
  shoal osd --conf /srv/shoal/ceph.conf --id 1 --mkfs --size 100G --cores 4
                        make it in the file osd_data/block, for up to four cores
  shoal osd --conf /srv/shoal/ceph.conf --id 2 --mkfs --encrypt --key-file /run/osd.2.key --device /dev/sdb
                        make it encrypted, with a key that you keep
  shoal osd --conf /srv/shoal/ceph.conf --id 3 --mkfs --device /dev/sdc --db /dev/nvme0n1p1
                        make it on a rotating disk, with its logs and its index on a faster device
  shoal osd --conf /srv/shoal/ceph.conf --id 0
                        run it

An OSD with such a store survives kill -9 and power loss. An OSD without one does not start, unless
osd_objectstore = memstore: then its objects live in memory. A clean stop writes them to osd_data and a start
reads them back. If that OSD is killed it comes back empty, and its PGs are reported as lost.")]
pub struct Args {
    #[command(flatten)]
    daemon: boot::Args,
    /// Number of reactor cores, as --set shoal_cores=N. A store on disk that has fewer shards gets more of them
    #[arg(long)]
    cores: Option<u16>,
    /// Make the store on a blank device and exit. Does nothing if this OSD's store exists
    #[arg(long)]
    mkfs: bool,
    /// The file or block device for the store [default: the option bluestore_block_path]
    #[arg(long, requires = "mkfs")]
    device: Option<PathBuf>,
    /// Size of a new file, for example 100G; overrides the option bluestore_block_size
    #[arg(long, requires = "mkfs", value_parser = parse_size)]
    size: Option<u64>,
    /// A faster device for the store's logs and index [default: the option bluestore_block_db_path]
    #[arg(long, requires = "mkfs")]
    db: Option<PathBuf>,
    /// Size of a new file for --db; overrides the option bluestore_block_db_size
    #[arg(long, requires = "mkfs", value_parser = parse_size)]
    db_size: Option<u64>,
    /// A faster device for the store's logs alone [default: the option bluestore_block_wal_path]
    #[arg(long, requires = "mkfs")]
    wal: Option<PathBuf>,
    /// Size of a new file for --wal; overrides the option bluestore_block_wal_size
    #[arg(long, requires = "mkfs", value_parser = parse_size)]
    wal_size: Option<u64>,
    /// Format a device that is not blank. Its contents are lost
    #[arg(long, requires = "mkfs")]
    force: bool,
    /// Encrypt the store that --mkfs makes, with AES-256-XTS
    #[arg(long, requires = "mkfs")]
    encrypt: bool,
    /// The key of an encrypted store, as --set shoal_key_file=FILE [default: the monitors have it]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Start without the options of the monitors' database, with the configuration file and the command line alone
    #[arg(long)]
    no_mon_config: bool,
}

const COMMANDS: &[Command] = &[
    Command { signature: "abort", help: "" },
    Command { signature: "assert", help: "" },
    Command {
        signature: "dump_blocked_ops name=filterstr,type=CephString,n=N,req=false",
        help: "show the blocked ops currently in flight",
    },
    Command {
        signature: "dump_historic_ops name=filterstr,type=CephString,n=N,req=false",
        help: "show recent ops",
    },
    Command {
        signature: "dump_historic_ops_by_duration name=filterstr,type=CephString,n=N,req=false",
        help: "show slowest recent ops, sorted by duration",
    },
    Command {
        signature: "dump_historic_slow_ops name=filterstr,type=CephString,n=N,req=false",
        help: "show slowest recent ops",
    },
    Command {
        signature: "dump_ops_in_flight name=filterstr,type=CephString,n=N,req=false",
        help: "show the ops currently in flight",
    },
    Command { signature: osd_network::SIGNATURE, help: osd_network::HELP },
    Command {
        signature: "dump_slow_ops name=filterstr,type=CephString,n=N,req=false",
        help: "show the ops in flight that are slower than osd_op_complaint_time",
    },
    Command { signature: "flush_pg_stats", help: "flush pg stats" },
    Command {
        signature: "ops name=filterstr,type=CephString,n=N,req=false",
        help: "show the ops currently in flight",
    },
    Command {
        signature: "perf histogram dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        help: "dump perf histogram values",
    },
    Command {
        signature: "perf histogram schema name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        help: "dump perf histogram schema",
    },
    Command { signature: "pg cores", help: "show which core each PG is on, and which one is moving" },
    Command {
        signature: "pg move name=pgid,type=CephPgid name=core,type=CephInt",
        help: "move a PG to another core's part of the store, while it is served",
    },
    Command { signature: restart::SIGNATURE, help: restart::HELP },
    Command { signature: "status", help: "high-level status of OSD" },
];

/// Memory for the object contexts of one PG.
const OBJECT_CACHE_BYTES: usize = 8 << 20;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let wait = if args.mkfs { Wait::FirstAttempt } else { Wait::UntilAnswered };
    let mut daemon = args.daemon.clone();
    daemon.set.extend(args.cores.map(|cores| format!("shoal_cores={cores}")));
    daemon.set.extend(args.key_file.as_ref().map(|file| format!("shoal_key_file={}", file.display())));
    let boot = Boot::begin("osd", &daemon, |layers, _| match args.no_mon_config {
        true => Ok(BTreeMap::new()),
        false => stored_options::fetch(layers, wait),
    })?;
    let outcome = if args.mkfs { make_store(&boot, args) } else { serve(&boot, args) };
    boot.end(outcome)
}

fn owner(boot: &Boot, start: &OsdStartOptions) -> Owner {
    Owner { name: boot.name.clone(), osd_uuid: start.uuid.clone(), fsid: start.fsid.clone() }
}

fn make_store(boot: &Boot, args: &Args) -> anyhow::Result<()> {
    let start = OsdStartOptions::read(&boot.layers);
    let block = &start.block_path;
    let path = args.device.as_deref().unwrap_or(block);
    let options = MkfsOptions::read(&boot.layers);
    let paths = StorePaths { main: block.clone(), dir: start.data.clone() };
    let mut random = system::os_random()?;
    let further = new_devices(args, &options, &paths, &mut random);
    let encryption = args.encrypt.then(|| new_keys(boot, &start, &mut random)).transpose()?;
    let making = Making {
        owner: owner(boot, &start),
        shards: start.cores.into(),
        size: args.size.unwrap_or(options.block_bytes),
        force: args.force,
        discard: start.discard,
        identity: random.bytes(),
        encryption,
        further,
    };
    let links: Vec<(PathBuf, &std::path::Path)> = std::iter::once((block.clone(), path))
        .chain(making.further.iter().map(|device| (paths.link(device.role), &*device.path)))
        .collect();
    for (link, device) in &links {
        store_devices::is_linked(link, device)?;
    }
    let made = make(path, &making)?;
    for (link, device) in &links {
        store_devices::link(link, device)?;
    }
    match made {
        Made::New { bytes, shards } => {
            let of_role = |device: &NewDevice| format!(", {} on {}", device.role, device.path.display());
            let further: String = making.further.iter().map(of_role).collect();
            tracing::info!(
                "made a store of {bytes} bytes in {shards} shard(s) on {}{further}",
                path.display()
            );
        }
        Made::WasThere => tracing::info!("{} has its store already: nothing done", path.display()),
    }
    Ok(())
}

/// The further devices that the command line or the options name.
fn new_devices(
    args: &Args,
    options: &MkfsOptions,
    paths: &StorePaths,
    random: &mut Random,
) -> Vec<NewDevice> {
    let wished = [
        (DeviceRole::Db, &args.db, args.db_size, &options.db_path, options.db_create, options.db_bytes),
        (DeviceRole::Wal, &args.wal, args.wal_size, &options.wal_path, options.wal_create, options.wal_bytes),
    ];
    let device = |(role, named, named_size, path, create, size): (
        _,
        &Option<PathBuf>,
        Option<u64>,
        &Option<PathBuf>,
        bool,
        u64,
    )| {
        let size = named_size.or((create && size > 0).then_some(size));
        let path = named.clone().or(path.clone()).or(size.map(|_| paths.link(role)))?;
        Some(NewDevice { role, path, size, identity: random.bytes() })
    };
    wished.into_iter().filter_map(device).collect()
}

fn flush_policy(start: &OsdStartOptions) -> anyhow::Result<FlushPolicy> {
    start.flush.parse().map_err(|why| anyhow::anyhow!("shoal_device_flush: {why}"))
}

fn osd_key<'a>(boot: &'a Boot, start: &'a OsdStartOptions, wait: Wait) -> OsdKey<'a> {
    OsdKey {
        layers: &boot.layers,
        file: start.key_file.clone(),
        osd_uuid: &start.uuid,
        osd_data: &start.data,
        wait,
    }
}

/// A random data key for a new store, and the key that wraps it.
fn new_keys(boot: &Boot, start: &OsdStartOptions, random: &mut Random) -> anyhow::Result<NewKeys> {
    let (secret, holder) = osd_key(boot, start, Wait::FirstAttempt).for_new_store()?;
    let bytes: Zeroizing<[u8; DATA_KEY_BYTES]> = Zeroizing::new(random.bytes());
    let data_key = DataKey::new(&bytes).context("the random data key is weak: repeat")?;
    Ok(NewKeys { data_key, secret, holder })
}

/// The objects' medium, before the cores open their parts of it.
enum Objects {
    /// One store for each core.
    Memory(Mutex<Vec<Option<MemoryStore>>>),
    Disk {
        device: Device,
        how: HowToWrite,
        scan: StaleScan,
    },
}

impl Objects {
    /// Finds the medium, and the number of cores that can serve it.
    fn find(boot: &Boot, start: &OsdStartOptions) -> anyhow::Result<(Objects, u16)> {
        let wished = start.cores;
        let block = &start.block_path;
        if std::fs::symlink_metadata(block).is_ok() {
            let key = osd_key(boot, start, Wait::UntilAnswered);
            let paths = StorePaths { main: block.clone(), dir: start.data.clone() };
            let device = Device::open(&paths, &|superblock| {
                disk::must_be_of(block, superblock, &owner(boot, start))?;
                key.of_store(superblock)
            })?;
            let device = device.with_flush_policy(flush_policy(start)?);
            let rotation = start.rotational.parse();
            let rotation = rotation.map_err(|why| anyhow::anyhow!("shoal_device_rotational: {why}"))?;
            let device = device.with_rotation_policy(rotation);
            device.log_traits();
            let device = device.grown(wished.into())?;
            let shards = device.shards() as u16;
            let how = HowToWrite { discards: start.discard, deferred_bytes_hdd: start.deferred_bytes_hdd };
            let cores = wished.min(shards);
            let scan = StaleScan::new(cores.into());
            return Ok((Objects::Disk { device, how, scan }, cores));
        }
        if StoreKind::of_option(&start.objectstore)? == StoreKind::Disk {
            bail!(
                "there is no store at {}: make it with `shoal osd --mkfs`, or correct bluestore_block_path. (An OSD that \
                 keeps its objects in memory has osd_objectstore = memstore.)",
                block.display()
            );
        }
        let stores = store_files::open(&boot.data.path, wished.into(), start.memstore_bytes)?;
        Ok((Objects::Memory(Mutex::new(stores.into_iter().map(Some).collect())), wished))
    }

    /// Opens the part of `core`, on that core's thread.
    fn open(&self, core: CoreId, cores: u16) -> anyhow::Result<(Store, StoreContents)> {
        match self {
            Objects::Memory(stores) => {
                let store = stores.lock().expect("no holder panics")[usize::from(core.0)].take();
                let store = store.expect("a core starts once");
                let contents = StoreContents::of_store(&store);
                Ok((Store::Memory(store), contents))
            }
            Objects::Disk { device, how, scan } => {
                let shards = shards_of(core, cores, device.shards());
                let (store, contents) = DiskStore::open(device, shards, *how, scan)?;
                Ok((Store::Disk(store), contents))
            }
        }
    }

    /// Adds the medium's fields of `ceph osd metadata`.
    fn describe(&self, metadata: &mut BTreeMap<String, String>) {
        let mut set = |name: &str, value: String| metadata.insert(name.into(), value);
        match self {
            Objects::Memory(_) => {
                set("osd_objectstore", "memstore".into());
            }
            Objects::Disk { device, .. } => {
                set("osd_objectstore", "disk".into());
                let mut describe = |prefix: &str, disk: &Disk| {
                    let mut of = |name: &str, value: String| set(&format!("{prefix}_{name}"), value);
                    of("dev_node", store_devices::resolved(disk.path()).display().to_string());
                    of("size", disk.size().to_string());
                    of("access_mode", if disk.is_block_device() { "blk" } else { "file" }.into());
                    of("rotational", u8::from(disk.is_rotational()).to_string());
                    of("type", if disk.is_rotational() { "hdd" } else { "ssd" }.into());
                };
                let disks = &device.disks;
                describe("bluestore_bdev", &disks.main);
                for (role, disk) in &disks.further {
                    describe(&format!("bluefs_{role}"), disk);
                }
                let paths = disks.further.iter().map(|(_, disk)| disk.path()).chain([disks.main.path()]);
                for (name, value) in block_devices::facts(paths) {
                    set(&name, value);
                }
                // As stock: the index is on the main device unless there is a db device.
                let has_db = disks.of_role(DeviceRole::Db).is_some();
                set("bluefs", "1".into());
                set("rotational", u8::from(disks.main.is_rotational()).to_string());
                set("journal_rotational", u8::from(disks.of_logs().is_rotational()).to_string());
                set("bluefs_dedicated_db", u8::from(has_db).to_string());
                set("bluefs_dedicated_wal", u8::from(disks.of_role(DeviceRole::Wal).is_some()).to_string());
                set("bluefs_single_shared_device", u8::from(disks.further.is_empty()).to_string());
                set("shoal_device_flush", disks.main.persistence().to_string());
                set("shoal_device_write_cache", disks.main.write_cache().to_string());
                if device.superblock().encryption.is_some() {
                    set("shoal_store_encrypted", "1".into());
                }
            }
        }
    }
}

fn serve(boot: &Boot, args: &Args) -> anyhow::Result<()> {
    let start = OsdStartOptions::read(&boot.layers);
    let session = SessionOptions::read(&boot.layers);
    let id: i32 = args.daemon.id.parse().ok().filter(|id| *id >= 0).context("--id of an OSD is a number")?;
    let (objects, cores) = Objects::find(boot, &start)?;
    let is_in_memory = matches!(objects, Objects::Memory(_));

    let mut random = system::os_random()?;
    let cephx = identity::uses_cephx(&session)?;
    let Listening { listeners, public, cluster } = Listening::start(&boot.name, &boot.layers)?;
    // A restart keeps the process number, and peers must tell both runs apart.
    let nonce = random.u32();
    let told = |addr| EntityAddrVec::one(EntityAddr::msgr2(addr, nonce));
    let addrs = Addrs {
        client: told(public),
        cluster: told(cluster),
        heartbeat_back: told(cluster),
        heartbeat_front: told(public),
    };
    let mut session =
        identity::session(&session, EntityName::new(EntityKind::OSD, id.into()), told(public), cephx)?;
    session.second_addrs = (cluster != public).then(|| told(cluster));
    let mut control_config = control_config(boot, &start, OsdId(id), cores, addrs, cephx)?;
    objects.describe(&mut control_config.metadata);
    let options = Options {
        cores,
        listeners,
        session,
        idle_poll: Duration::from_micros(start.idle_poll_us),
        seed: random.bytes(),
        name: "osd".into(),
    };

    let layers = boot.layers.clone();
    let outcome = Arc::new(Outcome::default());
    let for_control = Mutex::new(Some((control_config, random.fork())));
    let (for_roles, common) = (outcome.clone(), boot.common.clone());
    let reactors = Reactors::try_start(options, move |core, mailboxes: &[Mailbox<Mail>]| {
        let (store, contents) = objects.open(core, cores)?;
        let config = CoreConfig {
            osd: OsdId(id),
            core,
            cores,
            log: Default::default(),
            scan_max: osd::shard::BACKFILL_SCAN_MAX,
            object_cache_bytes: OBJECT_CACHE_BYTES,
            options: layers.clone(),
        };
        let for_control = for_control.lock().expect("no holder panics").take_if(|_| core == CoreId(0));
        let node = Core::new(config, contents, for_control);
        anyhow::Ok(OsdRole::new(core, node, store, common.clone(), mailboxes.to_vec(), for_roles.clone()))
    })?;
    let all = reactors.mailboxes().to_vec();
    boot.serve(Arc::new(OsdSide { control: all[0].clone(), all }))?;
    match cluster == public {
        true => tracing::info!("listening on {public}, {cores} core(s)"),
        false => tracing::info!("listening on {public}, for OSDs on {cluster}, {cores} core(s)"),
    }

    monitors::keep(&args.daemon.conf);
    let clean = reactors.join();
    let failed = outcome.failed.load(Ordering::Acquire);
    anyhow::ensure!(clean && !failed, "did not end cleanly; the log says why");
    if is_in_memory {
        let mut stores = std::mem::take(&mut *outcome.stores.lock().expect("the reactors have ended"));
        anyhow::ensure!(stores.len() == usize::from(cores), "a core did not give its store back");
        stores.sort_by_key(|(core, _)| *core);
        let stores: Vec<MemoryStore> = stores.into_iter().map(|(_, store)| store).collect();
        store_files::save(&boot.data.path, &stores).context("the store could not be saved")?;
    }
    Ok(())
}

fn control_config(
    boot: &Boot,
    start: &OsdStartOptions,
    osd: OsdId,
    cores: u16,
    addrs: Addrs,
    cephx: bool,
) -> anyhow::Result<ControlConfig> {
    let mon = mon_client::Config {
        auth_name: AuthName::new(EntityKind::OSD, osd.0.to_string()),
        key: identity::own_key(&SessionOptions::read(&boot.layers), &boot.name)?,
        services: osd::control::SERVICES,
        rotating_keys: cephx,
        hostname: boot.layers.identity().host.clone(),
        monitors: identity::monitors(&boot.layers)?,
        timing: mon_client::Timing::default(),
    };
    let mut metadata = boot.facts.clone();
    metadata.insert("osd_data".into(), boot.data.path.display().to_string());
    Ok(ControlConfig {
        osd,
        osd_fsid: start.uuid.parse().ok().context("osd_uuid is not a UUID")?,
        cores,
        mon,
        addrs,
        metadata,
        options: boot.layers.clone(),
        version: VersionText {
            version: version::LONG.into(),
            release: version::RELEASE.into(),
            release_type: "stable".into(),
            git: version::GIT.into(),
        },
    })
}

struct OsdSide {
    control: Mailbox<Mail>,
    all: Vec<Mailbox<Mail>>,
}

impl Role for OsdSide {
    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn call(&self, request: Request) -> Answer<Reply> {
        let control = self.control.clone();
        let mut args = request.args;
        args.insert("prefix".into(), Value::String(request.prefix));
        args.entry("format").or_insert_with(|| "json".into());
        let text = Value::Object(args).to_string();
        Box::pin(async move {
            let answer = ask(|reply| control.post(Mail::Ask(Question::Command { text, reply }))).await;
            answer.unwrap_or_else(|| Reply::Error(libc::ESHUTDOWN, "the OSD is stopping".into()))
        })
    }

    fn counters(&self) -> Answer<Vec<Counter>> {
        let control = self.control.clone();
        Box::pin(async move {
            ask(|reply| control.post(Mail::Ask(Question::Counters { reply }))).await.unwrap_or_default()
        })
    }

    fn set_budgets(&self, memory::Budgets { caches, memtables, messages }: memory::Budgets) {
        self.all.iter().for_each(|core| core.post(Mail::Budgets(Budgets { caches, memtables, messages })));
    }

    fn on_restart_checked(&self, checked: Checked) {
        self.control.post(Mail::RestartChecked(checked));
    }

    fn stop(&self, _restarts: bool) {
        self.control.post(Mail::Stop);
    }
}
