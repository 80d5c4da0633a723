//! Start and stop of a daemon, the same for every kind, before and after its role.

use super::admin_commands::Common;
use super::data_dir::DataDir;
use super::log;
use super::restart::{self, Restart};
use super::side::{Role, Side};
use super::start_checks;
use super::version;
use super::{block_devices, crash, host_facts};
use crate::cluster::layout::parse_addr;
use crate::config::{self, LiveOptions, MonStartOptions, OsdStartOptions, ProcessOptions, SessionOptions};
use anyhow::Context;
use command::options::{Identity, Layers};
use command::restart::STARTED_AT;
use conf::conf_file::ConfFile;
use conf::private;
use runtime::system;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use wire::text::stamp;

/// The arguments of every daemon.
#[derive(Clone, Debug, clap::Args)]
// clap names a group after its struct, and every command's is called Args.
#[group(skip)]
pub struct Args {
    /// The configuration file
    #[arg(long, short = 'c', env = "CEPH_CONF")]
    pub conf: PathBuf,
    /// The part of the daemon's name after the dot: 0 of osd.0
    #[arg(long, short = 'i')]
    pub id: String,
    /// Set an option, over everything else: --set log_level=debug
    #[arg(long = "set", value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Leave the starter's session, as `shoal up` has its daemons do
    #[arg(long, hide = true)]
    pub own_session: bool,
}

/// A daemon that has its data, its log and its configuration.
pub struct Boot {
    pub name: String,
    pub data: DataDir,
    /// The configuration at the start. Its role's machine gets a copy, and that is the one that changes.
    pub layers: Layers,
    pub process: ProcessOptions,
    pub common: Arc<Common>,
    pub facts: BTreeMap<String, String>,
    file: ConfFile,
    set: Vec<(String, String)>,
}

impl Boot {
    /// `kind` is `mon` or `osd`; its data directory is the option `KIND_data`. `stored` finds what the monitors'
    /// database has for this daemon.
    pub fn begin(
        kind: &str,
        args: &Args,
        stored: impl FnOnce(&Layers, &Path) -> anyhow::Result<BTreeMap<String, String>>,
    ) -> anyhow::Result<Boot> {
        if args.own_session {
            // Fails when we lead a session already, which is as good.
            let _ = rustix::process::setsid();
        }
        // Before the file may be replaced.
        let program = restart::installed_program()?;
        let name = format!("{kind}.{}", args.id);
        let file = ConfFile::load(&args.conf)?;
        let set = args.set.iter().map(|pair| config::parse_set(pair)).collect::<anyhow::Result<Vec<_>>>()?;
        let (mut layers, problems) = config::layers(identity(&name), &file, &set)?;
        let data = match kind {
            "mon" => MonStartOptions::read(&layers).data,
            _ => OsdStartOptions::read(&layers).data,
        };
        let data = DataDir::open(&data)?;
        crash::enable(&name, &data.path);
        // The monitors may be waited for: meanwhile the log and the process number are where file and command line say.
        let early = ProcessOptions::read(&layers);
        let early_level = LiveOptions::read(&layers).log_level;
        let log = log::start(early.log_file.as_deref(), &early_level).context("log_level")?;
        for problem in problems {
            tracing::warn!("{}: {problem}", args.conf.display());
        }
        write_pid(early.pid_file.as_deref())?;
        let stored = stored(&layers, &data.path).map(|values| layers.set_monitor(&values));
        let unusable = start_checks::drop_unusable(&mut layers);
        let (process, live) = (ProcessOptions::read(&layers), LiveOptions::read(&layers));
        if process.log_file != early.log_file {
            log.move_to(process.log_file.as_deref())?;
        }
        if live.log_level != early_level {
            log.set_level(&live.log_level)?;
        }
        if process.pid_file != early.pid_file {
            early.pid_file.iter().for_each(|path| drop(std::fs::remove_file(path)));
            write_pid(process.pid_file.as_deref())?;
        }
        let narrowed = narrow(&data.path, &layers, &process)?;
        match stored {
            Ok(problems) => problems.iter().for_each(|p| tracing::warn!("the monitors' database: {p}")),
            Err(error) => tracing::warn!(
                "options that the monitors' database has for {name} and that act at start are not in force: {error:#}"
            ),
        }
        unusable.iter().for_each(|line| tracing::warn!("the monitors' database: {line}"));
        tracing::info!("{name}: {}, process {}", version::LONG, std::process::id());
        if let Some(first) = narrowed.first() {
            tracing::warn!(
                "other users of this host could read {} files of {name}, {} among them; they no longer can. The keys in \
                 them may be known to others: replace them (`ceph auth rotate {name}`, and the keys of clients)",
                narrowed.len(),
                first.display()
            );
        }
        let common = Arc::new(Common::new(live, log, Restart::new(program)));
        let facts = facts(&data.path);
        Ok(Boot { name, data, layers, process, common, facts, file, set })
    }

    /// The configuration of a second daemon in this process; `stored` is the monitors' database's part of it.
    pub fn layers_of(&self, name: &str, stored: &BTreeMap<String, String>) -> anyhow::Result<Layers> {
        let (mut layers, _) = config::layers(identity(name), &self.file, &self.set)?;
        let unfit = layers.set_monitor(stored).into_iter().map(|problem| problem.to_string());
        for line in unfit.chain(start_checks::drop_unusable(&mut layers)) {
            tracing::warn!("the monitors' database, for {name}: {line}");
        }
        Ok(layers)
    }

    /// Admin socket, metrics page and signals, from now on.
    pub fn serve(&self, role: Arc<dyn Role>) -> anyhow::Result<()> {
        let metrics = self.process.metrics_addr.as_deref().map(parse_addr).transpose()?;
        let socket = self.process.admin_socket.clone();
        Side::new(self.name.clone(), socket, metrics, self.common.clone(), role).spawn()?;
        crash::start_posting(&self.layers).context("cannot start a thread")
    }

    /// The role has ended. Leaves nothing behind that says otherwise, or goes on with the installed program if that was asked for.
    pub fn end(self, outcome: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
        if let Err(error) = &outcome {
            tracing::error!("{error:#}");
        }
        if outcome.is_ok() && self.common.restart.is_due() {
            let Err(error) = self.restart();
            tracing::error!("{} does not start again: {error:#}", self.name);
            self.common.log.flush();
            return Err(error);
        }
        for path in [&self.process.pid_file, &self.process.admin_socket].into_iter().flatten() {
            let _ = std::fs::remove_file(path);
        }
        tracing::info!("{} stopped", self.name);
        self.common.log.flush();
        outcome.map(|()| ExitCode::SUCCESS)
    }

    /// The process, its number and the lock stay.
    fn restart(&self) -> anyhow::Result<std::convert::Infallible> {
        tracing::info!("{} stopped, and starts again", self.name);
        self.common.log.flush();
        self.common.restart.exec(self.data.share_lock()?)
    }
}

fn write_pid(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    private::replace(path, format!("{}\n", std::process::id()).as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Makes files private that an earlier version left readable by others; returns them.
fn narrow(data: &Path, layers: &Layers, process: &ProcessOptions) -> anyhow::Result<Vec<PathBuf>> {
    let mut narrowed = private::narrow_tree(data)?;
    for path in [&process.log_file, &process.pid_file].into_iter().flatten() {
        if private::narrow(path)? {
            narrowed.push(path.clone());
        }
    }
    // An administrator may keep the keyring where the daemon may only read it.
    let keyring = SessionOptions::read(layers).keyring;
    if private::narrow(&keyring).unwrap_or(false) {
        narrowed.push(keyring);
    }
    Ok(narrowed)
}

fn identity(name: &str) -> Identity {
    Identity {
        name: name.to_owned(),
        cluster: "ceph".into(),
        host: runtime::system::hostname(),
        pid: std::process::id(),
    }
}

fn facts(data: &Path) -> BTreeMap<String, String> {
    let mut facts = host_facts::collect();
    facts.extend(block_devices::facts([data]));
    facts.insert(STARTED_AT.into(), stamp(system::wall_clock()));
    facts.insert("ceph_version".into(), version::LONG.into());
    facts.insert("ceph_version_short".into(), version::SHORT.into());
    facts.insert("ceph_release".into(), version::RELEASE.into());
    facts
}
