//! `shoal store`: a store on disk, looked at and repaired by a person while its OSD does not run.

use super::{store_object, store_pg};
use crate::config::parse_size;
use crate::host::store_devices::StorePaths;
use crate::host::{disk, store_key};
use crate::store_tool::devices::{self, Added, Target};
use crate::store_tool::opened::{Opened, Place};
use crate::store_tool::{dump, fsck, stats, transfer};
use anyhow::{Context, bail};
use block_store::format::{DeviceRole, KeyHolder};
use clap::{Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use runtime::system;
use serde_json::Value;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check, count, list or copy what an OSD has on its disk, while the OSD does not run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal store fsck --deep /srv/shoal/osd.0       is everything as it was written?
  shoal store stats /dev/nvme0n1                 whose store is this, and how full?
  shoal store dump .shoal/osd.0 --only 3.        the objects of pool 3, a line of JSON each
  shoal store export .shoal/osd.0 osd.0.export   what can be read, into a file
  shoal store import .shoal/osd.1 osd.0.export   and from there into an empty store
  shoal store pg list .shoal/osd.0               its PGs; `shoal store pg --help` shows more
  shoal store object get-bytes .shoal/osd.0 2.1f name
                                                 one object of one copy; `shoal store object --help` shows more
  shoal store rekey .shoal/osd.0 --key-file old --new-key-file new
                                                 another key for an encrypted store
  shoal store move .shoal/osd.0 --db /dev/nvme0n1p1
                                                 logs and index to a faster device; --back undoes it

DEVICE is a file, a block device, or an OSD's directory. Exit codes: 0, all is well; 4, damage was found, or not
everything could be read; 1, it could not be done (the device is in use, is no store, …).")]
pub struct Args {
    /// The key of an encrypted store
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Plain,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Does everything in the store agree with everything else?
    Fsck {
        device: PathBuf,
        /// Read all data too, and compare it with its checksums
        #[arg(long)]
        deep: bool,
        #[arg(long, short, value_enum, default_value = "plain")]
        format: Format,
    },
    /// Show the store's owner and its usage
    Stats {
        device: PathBuf,
        #[arg(long, short, value_enum, default_value = "plain")]
        format: Format,
    },
    /// Collections and objects, a line of JSON each
    Dump {
        device: PathBuf,
        /// Only collections whose name begins so: 3.1f
        #[arg(long, value_name = "PREFIX")]
        only: Option<String>,
    },
    /// Write what the store holds into a file
    Export {
        device: PathBuf,
        /// Must not exist
        file: PathBuf,
    },
    /// Fill an empty store from such a file
    Import {
        device: PathBuf,
        file: PathBuf,
    },
    /// Change the key of an encrypted store. The data is not written again
    Rekey {
        device: PathBuf,
        /// The new key: at least 32 random bytes, or a text of that length
        #[arg(long, value_name = "FILE")]
        new_key_file: PathBuf,
        /// The OSD is to ask the monitors for the new key. It must be stored there, too
        #[arg(long)]
        with_monitors: bool,
    },
    /// Move the store's logs and index to a faster device, or back to the main one
    ///
    /// A move that was cut goes on when it is repeated, and --back undoes it. DEVICE is the OSD's directory, where block.db and
    /// block.wal are links to these devices.
    Move {
        device: PathBuf,
        /// Logs and index go to this device. It must be blank
        #[arg(long, value_name = "PATH", group = "where")]
        db: Option<PathBuf>,
        /// Logs go to this device. It must be blank
        #[arg(long, value_name = "PATH", group = "where")]
        wal: Option<PathBuf>,
        /// Back from the db device, the wal device, or all [default: all]. The device is blank afterwards
        #[arg(long, value_name = "db|wal|all", num_args = 0..=1, default_missing_value = "all", group = "where")]
        back: Option<String>,
        /// Size of a new file for --db or --wal, for example 4G
        #[arg(long, value_parser = parse_size, conflicts_with = "back")]
        size: Option<u64>,
    },
    Pg(store_pg::Args),
    Object(store_object::Args),
}

/// Damage, as `fsck` programs say it.
const DAMAGED: u8 = 4;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let key_file = args.key_file.as_deref();
    let place = |device: &Path| Place::new(device, key_file);
    match &args.command {
        Command::Fsck { device, deep, format } => {
            let findings = fsck::check(&place(device), *deep)?;
            match format {
                Format::Plain => print!("{}", findings.text()),
                Format::Json => print_json(&findings.json())?,
            }
            Ok(if findings.is_sound() { ExitCode::SUCCESS } else { DAMAGED.into() })
        }
        Command::Stats { device, format } => {
            let store = Opened::open(place(device))?;
            match format {
                Format::Plain => print!("{}", stats::text(&store)),
                Format::Json => print_json(&stats::json(&store))?,
            }
            store.close()?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Dump { device, only } => {
            let mut store = Opened::open(place(device))?;
            let mut out = BufWriter::new(stdout().lock());
            dump::write(&mut store, only.as_deref(), &mut out)?;
            out.flush()?;
            store.close()?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Export { device, file } => {
            let mut store = Opened::open(place(device))?;
            let out = conf::private::file_options().write(true).create_new(true).open(file);
            let out = out.with_context(|| format!("cannot make {}", file.display()))?;
            let mut out = BufWriter::with_capacity(1 << 20, out);
            let exported = transfer::export(&mut store, &mut out)?;
            out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
            exported.lost.iter().for_each(|line| eprintln!("cannot be read: {line}"));
            println!("{} objects written to {}", exported.objects, file.display());
            store.close()?;
            Ok(if exported.lost.is_empty() { ExitCode::SUCCESS } else { DAMAGED.into() })
        }
        Command::Import { device, file } => {
            let mut store = Opened::open(place(device))?;
            let from = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            let objects = transfer::import(&mut store, &mut BufReader::with_capacity(1 << 20, from))?;
            store.close()?;
            println!("{objects} objects are in {}", device.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Rekey { device, new_key_file, with_monitors } => {
            let old = key_file.context("rekey needs the present key: give it with --key-file FILE")?;
            rekey(device, old, new_key_file, *with_monitors)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Move { device, db, wal, back, size } => {
            let place = place(device);
            match (db, wal, back) {
                (Some(path), _, _) => move_to(&place, DeviceRole::Db, path, *size)?,
                (_, Some(path), _) => move_to(&place, DeviceRole::Wal, path, *size)?,
                (_, _, Some(roles)) => move_back(&place, &devices::roles_of(roles)?)?,
                _ => bail!("say where to: --db PATH, --wal PATH, or --back"),
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Pg(pg) => store_pg::run(pg, key_file),
        Command::Object(object) => store_object::run(object, key_file),
    }
}

fn move_to(place: &Place, role: DeviceRole, path: &Path, size: Option<u64>) -> anyhow::Result<()> {
    let identity = system::os_random()?.bytes();
    let target = Target { role, path: std::path::absolute(path)?, size, identity };
    let bar = bar();
    let Added { spilled } = devices::add(place, &target, &mut |total, left| show(&bar, total, left))?;
    bar.finish_and_clear();
    let moved = if role == DeviceRole::Db { "logs and index are" } else { "logs are" };
    println!("{moved} on {}", path.display());
    if spilled > 0 {
        println!("{spilled} bytes of the index found no room there and stay on the main device");
    }
    Ok(())
}

fn move_back(place: &Place, roles: &[DeviceRole]) -> anyhow::Result<()> {
    let bar = bar();
    let freed = devices::back(place, roles, &mut |total, left| show(&bar, total, left))?;
    bar.finish_and_clear();
    if freed.is_empty() {
        println!("the store has no such device: nothing done");
    }
    for device in freed {
        println!("{} is not in use any more, and blank", device.display());
    }
    Ok(())
}

fn bar() -> ProgressBar {
    let bar = if stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style =
        ProgressStyle::with_template("index {bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    bar.with_style(style.expect("a sound template"))
}

fn show(bar: &ProgressBar, total: u64, left: u64) {
    bar.set_length(total);
    bar.set_position(total.saturating_sub(left));
}

fn rekey(device: &Path, old: &Path, new: &Path, with_monitors: bool) -> anyhow::Result<()> {
    let holder = if with_monitors { KeyHolder::Monitors } else { KeyHolder::File };
    let device = StorePaths::of(device).main;
    let superblock = disk::rekey(&device, &store_key::read(old)?, &store_key::read(new)?, holder)?;
    println!("{} has the new key, and the old one opens it no longer", device.display());
    if with_monitors {
        let uuid = superblock.label.split(' ').nth(1).unwrap_or("UUID");
        println!(
            "Next: ceph config-key set {} -i {}; then remove the file",
            store_key::key_path(uuid),
            new.display()
        );
    }
    Ok(())
}

fn print_json(value: &Value) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}
