//! `shoal osd`: one OSD in the foreground.

use crate::config::layers::Config;
use crate::daemon::admin_commands::Command;
use crate::daemon::admin_socket::{Reply, Request};
use crate::daemon::boot::{self, Boot};
use crate::daemon::counters::Counter;
use crate::daemon::side::{Answer, Role};
use crate::daemon::{system, version};
use crate::host::ask::{Question, ask};
use crate::host::osd::{ControlPart, Hop, OsdRole, Outcome};
use crate::host::{identity, store_files};
use anyhow::Context;
use machine::{CoreId, mon_session};
use osd::control::{Addrs, Control, ControlConfig, VersionText};
use osd::shard::{Shard, ShardConfig};
use runtime::{Mailbox, Options, Reactors};
use serde_json::Value;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Collection, MemoryStore, ObjectStore};
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, OsdId};

/// Run an OSD in the foreground, as an init system would. SIGTERM stops it cleanly
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  shoal osd --conf /srv/shoal/ceph.conf --id 0

Its store is in memory: a clean stop writes it to osd_data, a start reads it back. An OSD that is killed
comes back empty, and what it held is reported as lost.")]
pub struct Args {
    #[command(flatten)]
    daemon: boot::Args,
    /// Reactor cores; over the option shoal_cores
    #[arg(long)]
    cores: Option<u16>,
}

const COMMANDS: &[Command] = &[
    Command { signature: "dump_ops_in_flight", help: "show the ops currently in flight" },
    Command { signature: "flush_pg_stats", help: "flush pg stats" },
    Command { signature: "ops", help: "show the ops currently in flight" },
    Command { signature: "status", help: "high-level status of OSD" },
];

/// Object contexts that one PG keeps in memory.
const OBJECT_CACHE_BYTES: usize = 8 << 20;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let boot = Boot::begin("osd", &args.daemon)?;
    let outcome = serve(&boot, args);
    if let Err(error) = &outcome {
        tracing::error!("{error:#}");
    }
    boot.end();
    outcome.map(|()| ExitCode::SUCCESS)
}

fn serve(boot: &Boot, args: &Args) -> anyhow::Result<()> {
    let config = boot.config();
    let id: i32 = args.daemon.id.parse().ok().filter(|id| *id >= 0).context("--id of an OSD is a number")?;
    let cores = match args.cores {
        Some(cores) => cores,
        None => u16::try_from(config.number("shoal_cores")?).context("shoal_cores")?,
    };
    anyhow::ensure!(
        (1..=machine::ConnId::CORES_MAX).contains(&cores),
        "an OSD has 1 to {} cores",
        machine::ConnId::CORES_MAX
    );
    let stores =
        store_files::open(&boot.data.path, usize::from(cores), config.number("memstore_device_bytes")?)?;

    let mut random = system::os_random()?;
    let cephx = identity::uses_cephx(&config)?;
    let public = identity::address(&config, "public_addr")?;
    let bind = match config.text_if_set("bind_addr") {
        Some(_) => identity::address(&config, "bind_addr")?,
        None => public,
    };
    let listener = identity::listen(bind)?;
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(public, std::process::id()));
    let control_config = control_config(boot, &config, OsdId(id), cores, &addrs, cephx)?;
    let session = identity::session(&config, EntityName::new(EntityKind::OSD, id.into()), addrs, cephx)?;
    let options = Options {
        cores,
        listeners: vec![listener],
        session,
        idle_poll: Duration::from_micros(config.number("shoal_idle_poll_us")?),
        seed: random.bytes(),
        name: "osd".into(),
    };

    let outcome = Arc::new(Outcome::default());
    let has_meta = stores[0].collections().iter().any(|(collection, _)| *collection == Collection::Meta);
    let control = Control::new(control_config, has_meta, random.fork());
    let parts: Vec<Option<MemoryStore>> = stores.into_iter().map(Some).collect();
    let parts = Mutex::new((Some(ControlPart::new(control)), parts));
    let for_roles = outcome.clone();
    let reactors = Reactors::start(options, move |core, mailboxes: &[Mailbox<Hop>]| {
        let mut parts = parts.lock().expect("no holder panics");
        let store = parts.1[usize::from(core.0)].take().expect("a core starts once");
        let control = if core == CoreId(0) { parts.0.take() } else { None };
        OsdRole::new(
            core,
            shard(core, OsdId(id), &store),
            store,
            control,
            mailboxes.to_vec(),
            for_roles.clone(),
        )
    })?;
    boot.serve(Arc::new(OsdSide { control: reactors.mailboxes()[0].clone() }))?;
    tracing::info!("listening on {bind}, {cores} core(s)");

    let clean = reactors.join();
    let failed = outcome.failed.load(Ordering::Acquire);
    anyhow::ensure!(clean && !failed, "stopped without saving the store; the log says why");
    let mut stores = std::mem::take(&mut *outcome.stores.lock().expect("the reactors have ended"));
    anyhow::ensure!(stores.len() == usize::from(cores), "a core did not give its store back");
    stores.sort_by_key(|(core, _)| *core);
    let stores: Vec<MemoryStore> = stores.into_iter().map(|(_, store)| store).collect();
    store_files::save(&boot.data.path, &stores).context("the store could not be saved")
}

fn shard(core: CoreId, osd: OsdId, store: &MemoryStore) -> Shard {
    let pgs = store.collections().into_iter().filter_map(|(collection, split_bits)| match collection {
        Collection::Pg(pg) => Some((pg, split_bits)),
        Collection::Meta => None,
    });
    let config = ShardConfig {
        osd,
        core,
        limits: Default::default(),
        log: Default::default(),
        object_cache_bytes: OBJECT_CACHE_BYTES,
    };
    Shard::new(config, pgs.collect())
}

fn control_config(
    boot: &Boot,
    config: &Config,
    osd: OsdId,
    cores: u16,
    addrs: &EntityAddrVec,
    cephx: bool,
) -> anyhow::Result<ControlConfig> {
    let mon = mon_session::Config {
        auth_name: AuthName::new(EntityKind::OSD, osd.0.to_string()),
        key: identity::own_key(config, &boot.name)?,
        // To the manager it reports, and to other OSDs it sends heartbeats.
        services: (EntityKind::MGR.0 | EntityKind::OSD.0).into(),
        rotating_keys: cephx,
        hostname: config.who().host.clone(),
        monitors: identity::monitors(config)?,
        timing: mon_session::Timing::default(),
    };
    let mut metadata = boot.facts.clone();
    metadata.insert("osd_objectstore".into(), "memstore".into());
    metadata.insert("osd_data".into(), boot.data.path.display().to_string());
    Ok(ControlConfig {
        osd,
        osd_fsid: config.text("osd_uuid").parse().ok().context("osd_uuid is not a UUID")?,
        cores,
        mon,
        addrs: Addrs {
            client: addrs.clone(),
            cluster: addrs.clone(),
            heartbeat_back: addrs.clone(),
            heartbeat_front: addrs.clone(),
        },
        metadata,
        options: config.local_values(),
        version: VersionText {
            version: version::LONG.into(),
            release: version::RELEASE.into(),
            release_type: "stable".into(),
        },
    })
}

struct OsdSide {
    control: Mailbox<Hop>,
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
            let answer = ask(|reply| control.post(Hop::Ask(Question::Command { text, reply }))).await;
            answer.unwrap_or_else(|| Reply::Error(libc::ESHUTDOWN, "the OSD is stopping".into()))
        })
    }

    fn keeps_options(&self) -> bool {
        true
    }

    fn counters(&self) -> Answer<Vec<Counter>> {
        let control = self.control.clone();
        Box::pin(async move {
            ask(|reply| control.post(Hop::Ask(Question::Counters { reply }))).await.unwrap_or_default()
        })
    }

    fn stop(&self) {
        self.control.post(Hop::Stop);
    }
}
