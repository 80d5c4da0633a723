//! How does a daemon begin and end? The same for every kind, before and after its role.

use super::admin_commands::Common;
use super::data_dir::DataDir;
use super::host_facts;
use super::log;
use super::side::{Role, Side};
use super::version;
use crate::cluster::layout::parse_addr;
use crate::config::expand::Identity;
use crate::config::layers::Config;
use anyhow::Context;
use conf::conf_file::ConfFile;
use conf::private;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What every daemon's command line has.
#[derive(Debug, clap::Args)]
// clap names a group after its struct, and every command's is called Args.
#[group(skip)]
pub struct Args {
    /// The configuration file
    #[arg(long, short = 'c', env = "CEPH_CONF")]
    pub conf: PathBuf,
    /// Which one: the part of its name after the dot
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
    pub common: Arc<Common>,
    pub facts: BTreeMap<String, String>,
}

impl Boot {
    /// `kind` is `mon` or `osd`; its data directory is the option `KIND_data`.
    pub fn begin(kind: &str, args: &Args) -> anyhow::Result<Boot> {
        if args.own_session {
            // Fails when we lead a session already, which is as good.
            let _ = rustix::process::setsid();
        }
        let name = format!("{kind}.{}", args.id);
        let file = ConfFile::load(&args.conf)?;
        let set = args
            .set
            .iter()
            .map(|pair| {
                let (key, value) =
                    pair.split_once('=').with_context(|| format!("--set {pair}: expected OPTION=VALUE"))?;
                Ok((key, value.to_owned()))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let who = Identity {
            name: name.clone(),
            cluster: "ceph".into(),
            host: runtime::system::hostname(),
            pid: std::process::id(),
        };
        let config = Config::new(who, &file, &set);
        let data_option = if kind == "mon" { "mon_data" } else { "osd_data" };
        let data = DataDir::open(&PathBuf::from(config.text(data_option)))?;
        let log_path = config.text_if_set("log_file").map(PathBuf::from);
        let narrowed = narrow(&data.path, &config)?;
        let log = log::start(log_path.as_deref(), &config.text("log_level")).context("log_level")?;
        if let Some(path) = config.text_if_set("pid_file") {
            private::replace(Path::new(&path), format!("{}\n", std::process::id()).as_bytes())
                .with_context(|| format!("cannot write {path}"))?;
        }
        tracing::info!("{name}: {}, process {}", version::LONG, std::process::id());
        if let Some(first) = narrowed.first() {
            tracing::warn!(
                "other users of this host could read {} files of {name}, {} among them; they no longer can. The keys in \
                 them may be known to others: replace them (`ceph auth rotate {name}`, and the keys of clients)",
                narrowed.len(),
                first.display()
            );
        }
        Ok(Boot { name, data, common: Arc::new(Common { config: Mutex::new(config), log }), facts: facts() })
    }

    pub fn config(&self) -> Config {
        self.common.config.lock().expect("no holder of this lock panics").clone()
    }

    /// Admin socket, metrics page and signals, from now on.
    pub fn serve(&self, role: Arc<dyn Role>) -> anyhow::Result<()> {
        let config = self.config();
        let metrics = config.text_if_set("metrics_addr").map(|text| parse_addr(&text)).transpose()?;
        let socket = config.text_if_set("admin_socket").map(PathBuf::from);
        Side { name: self.name.clone(), socket, metrics, common: self.common.clone(), role }.spawn()
    }

    /// The role has ended cleanly: leave nothing behind that says otherwise.
    pub fn end(self) {
        let config = self.config();
        for option in ["pid_file", "admin_socket"] {
            if let Some(path) = config.text_if_set(option) {
                let _ = std::fs::remove_file(path);
            }
        }
        tracing::info!("{} stopped", self.name);
        self.common.log.flush();
    }
}

/// What an earlier version left readable by others is made private. Returns it.
fn narrow(data: &Path, config: &Config) -> anyhow::Result<Vec<PathBuf>> {
    let mut narrowed = private::narrow_tree(data)?;
    for option in ["keyring", "log_file", "pid_file"] {
        let Some(path) = config.text_if_set(option).map(PathBuf::from) else { continue };
        match private::narrow(&path) {
            Ok(true) => narrowed.push(path),
            Ok(false) => {}
            // An administrator may keep the keyring where the daemon may only read it.
            Err(_) if option == "keyring" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(narrowed)
}

fn facts() -> BTreeMap<String, String> {
    let mut facts = host_facts::collect();
    facts.insert("ceph_version".into(), version::LONG.into());
    facts.insert("ceph_version_short".into(), version::SHORT.into());
    facts.insert("ceph_release".into(), version::RELEASE.into());
    facts
}
