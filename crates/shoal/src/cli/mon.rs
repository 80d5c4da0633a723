//! `shoal mon`: the monitor, and the manager that it hosts, in the foreground.

use super::mon_rebuild;
use crate::cluster::host::monitors;
use crate::config::{GenesisOptions, MonStartOptions, SessionOptions, ratio};
use crate::daemon::admin_commands::Command;
use crate::daemon::admin_socket::{Reply, Request};
use crate::daemon::boot::{self, Boot};
use crate::daemon::cluster_metrics;
use crate::daemon::memory::SPARE_MAX;
use crate::daemon::side::{Answer, Role};
use crate::daemon::version;
use crate::host::ask::{Question, ask};
use crate::host::identity;
use crate::host::images::{self, ImagesConfig};
use crate::host::mgr::{MgrRole, Question as MgrQuestion};
use crate::host::mgr_keeper::{self, Slot};
use crate::host::mon::{Mail, MonRole};
use crate::host::mon_log::{FILE, MonLog, Writer};
use anyhow::Context;
use clap::{ArgMatches, FromArgMatches, Subcommand};
use client_host::{Access, Modes};
use command::options::Identity;
use command::perf::Counter;
use command::restart::{self, Checked};
use conf::keyring::Keyring;
use machine::{Random, Time};
use mon::auth_entity::AuthEntity;
use mon::genesis::FullRatios;
use mon::replication::Recovered;
use mon::{AuthMode, Genesis, Monitor, Settings};
use runtime::system;
use runtime::{Mailbox, Options, Reactors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// Run a monitor in the foreground, as an init system would; SIGTERM stops it cleanly. Or rebuild one from OSDs
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  shoal mon --conf /srv/shoal/ceph.conf --id a --mkfs   the first monitor of a new cluster: make its disk
  shoal mon --conf /srv/shoal/ceph.conf --id a          run it
  shoal mon --conf /srv/shoal/ceph.conf --id b          one more: it joins the monitors that mon_host names
  shoal mon rebuild --help                              all monitors' directories are lost, the OSDs are not

A monitor whose directory is empty joins the others that mon_host names, with the key of `mon.` in its keyring. Where mon_host
names no other, it makes a new cluster.
The manager runs in the same process, on its own address (option mgr_addr)."
)]
pub struct DaemonArgs {
    #[command(flatten)]
    daemon: boot::Args,
    /// Make the disk of a new cluster's first monitor and stop
    #[arg(long)]
    mkfs: bool,
}

#[derive(Debug, clap::Subcommand)]
pub enum Task {
    Rebuild(mon_rebuild::Args),
}

/// A daemon, whose arguments are required, or a task, which has its own. (clap's derive would read the daemon's also beside a
/// task, as soon as the environment has one of them.)
#[derive(Debug)]
pub enum Args {
    Daemon(DaemonArgs),
    Task(Task),
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        match matches.subcommand() {
            Some(_) => Task::from_arg_matches(matches).map(Args::Task),
            None => DaemonArgs::from_arg_matches(matches).map(Args::Daemon),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Args {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = Task::augment_subcommands(DaemonArgs::augment_args(command));
        command.subcommand_required(false).arg_required_else_help(false)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Args::augment_args(command)
    }
}

/// Longer than a manager waits for the monitors.
const MANAGER_STOP_MAX: Duration = Duration::from_secs(2);

const COMMANDS: &[Command] = &[
    Command { signature: "abort", help: "" },
    Command { signature: "assert", help: "" },
    Command { signature: "health", help: "show cluster health" },
    Command { signature: "mon_status", help: "report status of monitors" },
    Command { signature: "quorum_status", help: "report status of monitor quorum" },
    Command { signature: restart::SIGNATURE, help: restart::HELP },
    Command { signature: "sessions", help: "list existing sessions" },
    Command { signature: "status", help: "show cluster status" },
];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Task(Task::Rebuild(args)) => mon_rebuild::run(args),
        Args::Daemon(args) => run_daemon(&args.daemon, args.mkfs),
    }
}

fn run_daemon(args: &boot::Args, mkfs: bool) -> anyhow::Result<ExitCode> {
    let mut for_manager = BTreeMap::new();
    let boot = Boot::begin("mon", args, |layers, data| {
        let Identity { host, .. } = layers.identity();
        let names = [EntityKind::MON, EntityKind::MGR].map(|kind| AuthName::new(kind, &args.id));
        let disk = MonLog::open(data)?.recover()?;
        let [of_mon, of_mgr] = Monitor::stored_options(&disk, names.each_ref(), host)?;
        for_manager = of_mgr;
        Ok(of_mon)
    })?;
    let outcome = match mkfs {
        true => make_disk(&boot, &args.id),
        false => serve(&boot, args, &for_manager),
    };
    boot.end(outcome)
}

/// `for_manager`: options of the monitors' database for the manager.
fn serve(boot: &Boot, args: &boot::Args, for_manager: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let id = &args.id;
    let log = MonLog::open(&boot.data.path)?;
    let session = SessionOptions::read(&boot.layers);
    let mut random = system::os_random()?;
    let cephx = identity::uses_cephx(&session)?;
    let disk = log.recover()?;
    let settings = settings(boot, id, is_empty(&disk))?;
    let addrs = settings.addrs.clone();
    let addr = addrs.msgr2().and_then(|addr| addr.socket).context("public_addr is no msgr2 address")?;
    let listener = identity::listen(addr)?;
    let monitor = open_monitor(boot, settings, &log, disk, &mut random)?;

    // Its rank follows with the first step.
    let session = identity::session(&session, EntityName::new(EntityKind::MON, -1), addrs, cephx)?;
    let options = Options {
        cores: 1,
        listeners: vec![listener],
        session,
        idle_poll: Duration::ZERO,
        seed: random.bytes(),
        name: "mon".into(),
    };
    let parts = Mutex::new(Some((monitor, log)));
    let common = boot.common.clone();
    let data = boot.data.path.clone();
    let mon = Reactors::start(options, move |_, mailboxes: &[Mailbox<Mail>]| {
        let (monitor, log) = parts.lock().expect("taken once").take().expect("one core");
        let mailbox = mailboxes[0].clone();
        let writer = Writer::spawn(log, data.clone(), move |told| mailbox.post(Mail::Told(told)));
        MonRole::new(monitor, writer.expect("a thread can be started"), common.clone())
    })?;
    let mgr = start_manager(boot, id, for_manager, &mut random)?;

    let manager = Arc::new(Slot::default());
    let side = MonSide { mon: mon.mailboxes()[0].clone(), manager: manager.clone() };
    boot.serve(Arc::new(side))?;
    monitors::keep(&args.conf);
    tracing::info!("listening on {addr}");
    let (running, stopped) = mpsc::channel();
    let clean = std::thread::scope(|scope| {
        if let Some(mgr) = mgr {
            let (slot, mut random) = (&*manager, random.fork());
            let start = move || start_manager(boot, id, for_manager, &mut random);
            scope.spawn(move || mgr_keeper::keep(slot, &stopped, mgr, start));
        }
        let clean = mon.join();
        // The manager ends with its monitor.
        drop(running);
        manager.get().iter().for_each(Mailbox::stop);
        clean
    });
    anyhow::ensure!(clean, "the monitor panicked; the log says where");
    Ok(())
}

/// A monitor whose disk `is_new` learns from its configuration what others have on their disk: the cluster's number, the key of
/// `mon.`, where the other monitors are.
fn settings(boot: &Boot, id: &str, is_new: bool) -> anyhow::Result<Settings> {
    let session = SessionOptions::read(&boot.layers);
    let cephx = identity::uses_cephx(&session)?;
    let addr = identity::address(&boot.name, "public_addr", boot.process.public_addr.as_deref())?;
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(addr, 0));
    let others = if_needed(is_new, identity::monitors(&boot.layers))?.unwrap_or_default().into_iter();
    let fsid = GenesisOptions::read(&boot.layers).fsid;
    let fsid = if_needed(is_new, fsid.parse().ok().context("fsid is not a UUID"))?;
    Ok(Settings {
        name: id.to_owned(),
        auth: if cephx { AuthMode::Cephx } else { AuthMode::None },
        host: boot.layers.identity().host.clone(),
        version: version::LONG.to_owned(),
        options: boot.layers.clone(),
        metadata: boot.facts.clone(),
        fsid: fsid.unwrap_or_default(),
        monitor_key: if_needed(is_new, identity::own_key(&session, "mon."))?.flatten(),
        seeds: others.filter(|other| other.msgr2().and_then(|a| a.socket) != Some(addr)).collect(),
        addrs,
    })
}

fn if_needed<T>(is_needed: bool, found: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    if is_needed { found.map(Some) } else { Ok(found.ok()) }
}

fn is_empty(disk: &Recovered) -> bool {
    disk.entries.is_empty() && disk.snapshot.is_none() && disk.identity.is_none()
}

/// `--mkfs`: the disk of a new cluster's first monitor.
fn make_disk(boot: &Boot, id: &str) -> anyhow::Result<()> {
    let log = MonLog::open(&boot.data.path)?;
    let path = boot.data.path.display();
    anyhow::ensure!(is_empty(&log.recover()?), "{path} holds a monitor already: run it without --mkfs");
    let settings = settings(boot, id, true);
    let made = settings.and_then(|settings| make_cluster(boot, &settings, &log, &mut system::os_random()?));
    if made.is_err() {
        log.remove(&boot.data.path).with_context(|| format!("cannot remove {path}/{FILE}"))?;
    }
    made
}

fn make_cluster(boot: &Boot, settings: &Settings, log: &MonLog, random: &mut Random) -> anyhow::Result<()> {
    let genesis = genesis(boot, settings)?;
    tracing::info!("making a new cluster, fsid {}", genesis.fsid);
    log.write(&genesis.write(&settings.name, system::wall_clock(), random))
}

/// The monitor of the log on disk. Where the log is empty, it joins the other monitors, or makes a new cluster if there are none.
fn open_monitor(
    boot: &Boot,
    settings: Settings,
    log: &MonLog,
    mut disk: Recovered,
    random: &mut Random,
) -> anyhow::Result<Monitor> {
    if is_empty(&disk) && settings.seeds.is_empty() {
        make_cluster(boot, &settings, log, random)?;
        disk = log.recover()?;
    } else if is_empty(&disk) {
        tracing::info!("this directory is empty: joining the monitors that mon_host names");
    }
    let wall = system::wall_clock();
    Monitor::recover(settings, disk, random.fork(), Time::ZERO, wall)
        .context("the monitor's log does not decode")
}

/// A new cluster's first state, from `ceph.conf` and the keyring.
fn genesis(boot: &Boot, settings: &Settings) -> anyhow::Result<Genesis> {
    let options = GenesisOptions::read(&boot.layers);
    let keyring = SessionOptions::read(&boot.layers).keyring;
    let path = keyring.display();
    let entities = Keyring::load(&keyring)?.0.into_iter().map(|(name, entity)| {
        let parsed: AuthName = name.parse().ok().with_context(|| format!("{path}: [{name}] is no entity"))?;
        Ok((parsed, AuthEntity::new(entity.key, entity.caps)))
    });
    Ok(Genesis {
        fsid: options.fsid.parse().ok().context("fsid is not a UUID")?,
        monitors: vec![(settings.name.clone(), settings.addrs.clone())],
        entities: entities.collect::<anyhow::Result<_>>()?,
        failure_domain: failure_domain(options.chooseleaf_type)?,
        full_ratios: FullRatios {
            full: ratio("mon_osd_full_ratio", options.full_ratio)?,
            backfillfull: ratio("mon_osd_backfillfull_ratio", options.backfillfull_ratio)?,
            nearfull: ratio("mon_osd_nearfull_ratio", options.nearfull_ratio)?,
        },
    })
}

fn failure_domain(chooseleaf_type: i64) -> anyhow::Result<String> {
    let name = placement::crush::edit::new_map_type(chooseleaf_type);
    let name = name.with_context(|| {
        format!(
            "osd_crush_chooseleaf_type = {chooseleaf_type}: a new CRUSH map has types 0 (osd) to 11 (root)"
        )
    })?;
    Ok(name.to_owned())
}

/// Starts the manager. It has its own address, name and key, so clients see a separate daemon.
fn start_manager(
    boot: &Boot,
    id: &str,
    stored: &BTreeMap<String, String>,
    random: &mut Random,
) -> anyhow::Result<Option<Reactors<MgrQuestion>>> {
    let Some(addr) = MonStartOptions::read(&boot.layers).mgr_addr else { return Ok(None) };
    let name = format!("mgr.{id}");
    let addr = identity::address(&boot.name, "mgr_addr", Some(&addr))?;
    let layers = boot.layers_of(&name, stored)?;
    let session = SessionOptions::read(&layers);
    let listener = identity::listen(addr)?;
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(addr, random.u32()));
    let cephx = identity::uses_cephx(&session)?;
    let monitors = mon_client::Config {
        auth_name: AuthName::new(EntityKind::MGR, id),
        key: identity::own_key(&session, &name)?,
        services: mgr::SERVICES,
        rotating_keys: cephx,
        hostname: layers.identity().host.clone(),
        monitors: identity::monitors(&layers)?,
        timing: mon_client::Timing::default(),
    };
    let page = boot.process.metrics_addr.as_ref();
    let page = page.map(|addr| ("prometheus".into(), format!("http://{addr}/")));
    let manager = mgr::Config {
        name: id.to_owned(),
        services: page.into_iter().collect(),
        monitors,
        addrs: addrs.clone(),
        metadata: boot.facts.clone(),
        options: layers,
        timing: Default::default(),
    };
    let session = identity::session(&session, EntityName::new(EntityKind::MGR, 0), addrs, cephx)?;
    let images = ImagesConfig {
        access: Access {
            name: manager.monitors.auth_name.clone(),
            key: manager.monitors.key.clone(),
            monitors: manager.monitors.monitors.clone(),
            modes: Modes::Default,
        },
        modes: session.modes.clone(),
    };
    let options = Options {
        cores: 1,
        listeners: vec![listener],
        session,
        idle_poll: Duration::ZERO,
        seed: random.bytes(),
        name: "mgr".into(),
    };
    let parts = Mutex::new(Some((manager, images, random.fork())));
    Ok(Some(Reactors::try_start(options, move |_, mailboxes: &[Mailbox<MgrQuestion>]| {
        let (manager, images, mut random) = parts.lock().expect("taken once").take().expect("one core");
        let orders = images::start(images, mailboxes[0].clone(), random.fork())?;
        Ok::<_, std::io::Error>(MgrRole::new(manager, random, orders))
    })?))
}

struct MonSide {
    mon: Mailbox<Mail>,
    manager: Arc<Slot>,
}

impl Role for MonSide {
    fn spare_memory_max(&self) -> u64 {
        SPARE_MAX
    }

    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn call(&self, request: Request) -> Answer<Reply> {
        let mon = self.mon.clone();
        let mut args = request.args;
        args.insert("prefix".into(), Value::String(request.prefix));
        args.entry("format").or_insert_with(|| "json".into());
        let text = Value::Object(args).to_string();
        Box::pin(async move {
            let answer = ask(|reply| mon.post(Mail::Ask(Question::Command { text, reply }))).await;
            answer.unwrap_or_else(|| Reply::Error(libc::ESHUTDOWN, "the monitor is stopping".into()))
        })
    }

    fn counters(&self) -> Answer<Vec<Counter>> {
        let mon = self.mon.clone();
        Box::pin(async move {
            ask(|reply| mon.post(Mail::Ask(Question::Counters { reply }))).await.unwrap_or_default()
        })
    }

    /// The cluster's metrics, if the active manager is in this process.
    fn more_metrics(&self) -> Answer<String> {
        let (mon, manager) = (self.mon.clone(), self.manager.get());
        Box::pin(async move {
            let Some(manager) = manager else { return String::new() };
            let told = ask(|reply| manager.post(MgrQuestion::Metrics { reply })).await;
            let (is_active, page) = told.unwrap_or_default();
            if !is_active {
                return page;
            }
            let mut answers = [const { Value::Null }; cluster_metrics::COMMANDS.len()];
            for (command, answer) in cluster_metrics::COMMANDS.into_iter().zip(&mut answers) {
                let text = cluster_metrics::request(command);
                let reply = ask(|reply| mon.post(Mail::Ask(Question::Command { text, reply }))).await;
                if let Some(Reply::Json(value)) = reply {
                    *answer = value;
                }
            }
            cluster_metrics::monitor_page(&answers) + &page
        })
    }

    fn on_restart_checked(&self, checked: Checked) {
        self.mon.post(Mail::RestartChecked(checked));
    }

    /// The manager hands its role over first, while its monitor is in the quorum; one that starts again at once keeps it.
    fn stop(&self, restarts: bool) {
        let (mon, manager) = (self.mon.clone(), self.manager.get().filter(|_| !restarts));
        tokio::spawn(async move {
            if let Some(manager) = manager {
                let told = ask(|reply| manager.post(MgrQuestion::Stop { reply }));
                if tokio::time::timeout(MANAGER_STOP_MAX, told).await.is_err() {
                    tracing::warn!("the manager does not hand over its role");
                }
            }
            mon.post(Mail::Stop);
        });
    }
}
