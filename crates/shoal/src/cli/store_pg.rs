//! `shoal store pg`: single PGs of a stopped OSD.

use crate::cli::store::Format;
use crate::cli::term;
use crate::store_tool::opened::Place;
use crate::store_tool::pg::access::Access;
use crate::store_tool::pg::{change, export, import, show};
use anyhow::{Context, bail};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::types::{PgId, SpgId};

/// Show, export, import, complete or remove single PGs of an OSD that does not run
///
/// The work of Ceph's ceph-objectstore-tool. DEVICE is a block store's file or device, or an OSD's directory, also that of a
/// memory store (--store mem) after a clean stop. The OSD must not run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal store pg list /srv/shoal/osd.3                            the PGs, with objects and bytes
  shoal store pg info /srv/shoal/osd.3 2.1f                       as ceph-objectstore-tool --op info
  shoal store pg log /srv/shoal/osd.3 2.1f                        as ceph-objectstore-tool --op log

The host of osd.3 is dead, its disk is readable, and PG 2.1f is down. With osd.5 stopped:
  shoal store pg export /mnt/osd.3 2.1f --file 2.1f.export
  shoal store pg import /srv/shoal/osd.5 --file 2.1f.export
Start osd.5: the PG becomes active. Do not say `ceph osd lost 3` before: the PG would go on without these writes.

Exit codes: 0, done; 4, an export lacks objects that could not be read; 1, nothing was done.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The PGs of the store, with objects, bytes and last update
    List {
        device: PathBuf,
        #[arg(long, short, value_enum, default_value = "plain")]
        format: Format,
    },
    /// A PG's info: pg_info_t as JSON with stock's keys
    Info {
        device: PathBuf,
        #[arg(value_parser = parse_pg)]
        pg: PgId,
    },
    /// A PG's log and missing set: pg_log_t and pg_missing_t as JSON with stock's keys
    Log {
        device: PathBuf,
        #[arg(value_parser = parse_pg)]
        pg: PgId,
    },
    /// Write a PG into a file: objects, log, missing set, past intervals
    Export {
        device: PathBuf,
        #[arg(value_parser = parse_pg)]
        pg: PgId,
        /// Must not exist
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Take a PG from such a file, as a true copy with its log and history
    ///
    /// The whole file is checked first. Refused, and nothing is changed: a file that is damaged or cut off, a PG that the
    /// OSD has, of another cluster, of a deleted pool, or that was split or merged since.
    Import {
        device: PathBuf,
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Declare this copy complete, and so the PG's authority. Acknowledged writes that it lacks are lost
    MarkComplete {
        device: PathBuf,
        #[arg(value_parser = parse_pg)]
        pg: PgId,
        /// Do it. Without this the command says what it would do
        #[arg(long)]
        force: bool,
    },
    /// Remove a PG's copy from the store
    Remove {
        device: PathBuf,
        #[arg(value_parser = parse_pg)]
        pg: PgId,
        /// Do it. Without this the command says what it would do
        #[arg(long)]
        force: bool,
    },
}

/// As of `fsck`.
const DAMAGED: u8 = 4;

pub fn run(args: &Args, key_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let place = |device: &Path| Place::new(device, key_file);
    match &args.command {
        Command::List { device, format } => {
            let mut store = Access::open(place(device))?;
            let rows = show::list(&mut store);
            match format {
                Format::Plain => print!("{}", show::list_text(&rows)),
                Format::Json => println!("{}", serde_json::to_string_pretty(&show::list_json(&rows))?),
            }
            store.close()?;
        }
        Command::Info { device, pg } => {
            let mut store = Access::open(place(device))?;
            println!("{}", show::info(&mut store, SpgId::from(*pg))?);
            store.close()?;
        }
        Command::Log { device, pg } => {
            let mut store = Access::open(place(device))?;
            println!("{}", show::log(&mut store, SpgId::from(*pg))?);
            store.close()?;
        }
        Command::Export { device, pg, file } => return export_pg(place(device), SpgId::from(*pg), file),
        Command::Import { device, file } => import_pg(place(device), file)?,
        Command::MarkComplete { device, pg, force } => {
            mark_complete(place(device), SpgId::from(*pg), *force)?
        }
        Command::Remove { device, pg, force } => remove(place(device), SpgId::from(*pg), *force)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn parse_pg(text: &str) -> Result<PgId, String> {
    text.parse().map_err(|()| "a PG is POOL.SEED, the seed in hexadecimal: 2.1f".into())
}

fn export_pg(place: Place, pg: SpgId, file: &Path) -> anyhow::Result<ExitCode> {
    if file.symlink_metadata().is_ok() {
        bail!("{} is there already: choose another name, or remove it", file.display());
    }
    let mut store = Access::open(place)?;
    let bar = bar("exporting");
    let exported = write_file(file, |out| {
        bar.set_length(show::data_bytes(&mut store, pg)?);
        export::export(&mut store, pg, out, &mut |bytes| bar.inc(bytes))
    });
    bar.finish_and_clear();
    let exported = exported?;
    store.close()?;
    let totals = exported.totals;
    println!(
        "PG {pg}: {} objects, {} bytes of data written to {}",
        totals.objects,
        totals.data_bytes,
        file.display()
    );
    exported.lost.iter().for_each(|line| eprintln!("cannot be read whole: {line}"));
    if exported.lost.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "After an import these objects are missing: peering takes them from another copy, if one has them."
    );
    Ok(DAMAGED.into())
}

/// Writes beside `file`; it has its name when all of it is on stable storage.
fn write_file<T>(file: &Path, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut name = OsString::from(file);
    name.push(".partial");
    let partial = PathBuf::from(name);
    // What an export that was killed has left would keep its own mode.
    let _ = std::fs::remove_file(&partial);
    let out = conf::private::file_options().write(true).create_new(true).open(&partial);
    let out = out.with_context(|| format!("cannot make {}", partial.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let written = write(&mut out).and_then(|written| {
        let out = out.into_inner().map_err(|error| error.into_error())?;
        out.sync_all()?;
        std::fs::rename(&partial, file)?;
        let directory = std::path::absolute(file)?.parent().map(Path::to_owned).unwrap_or_default();
        File::open(directory)?.sync_all()?;
        Ok(written)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

fn import_pg(place: Place, file: &Path) -> anyhow::Result<()> {
    let shown = place.path.clone();
    let mut store = Access::open(place)?;
    let mut open = || -> anyhow::Result<Box<dyn Read>> {
        let from = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Box::new(BufReader::with_capacity(1 << 20, from)))
    };
    let bar = bar("importing");
    let imported = import::import(
        &mut store,
        &mut open,
        &mut |totals| bar.set_length(totals.data_bytes),
        &mut |bytes| bar.inc(bytes),
    );
    bar.finish_and_clear();
    let imported = match imported {
        Ok(imported) => imported,
        Err(error) => {
            // Ends cleanly, where it can; the error counts.
            let _ = store.close();
            return Err(error.context(file.display().to_string()));
        }
    };
    store.close()?;
    let (source, totals) = (&imported.source, imported.totals);
    println!(
        "PG {}, {} objects of osd.{} as of map {}, is in {}: start its OSD",
        source.pg,
        totals.objects,
        source.osd,
        source.epoch,
        shown.display()
    );
    if totals.lost > 0 {
        println!(
            "{} of them are not whole in the file, and are missing until another copy has them",
            totals.lost
        );
    }
    if !imported.is_past_known {
        warn(
            "this OSD lacks maps between the export and its newest map. The PG stays incomplete unless another OSD knows \
             its intervals; `shoal store pg mark-complete` overrides that",
        );
    }
    Ok(())
}

fn mark_complete(place: Place, pg: SpgId, force: bool) -> anyhow::Result<()> {
    warn(&format!(
        "mark-complete makes this copy of PG {pg} the authority, whatever other OSDs have. Acknowledged writes that it \
         lacks are lost, and copies that have them are made equal to it. Do it when the OSDs with a better copy will never \
         return, on the newest copy that is left (compare last_update in `shoal store pg info`)"
    ));
    if !force {
        bail!("nothing was changed: repeat with --force to do it");
    }
    let mut store = Access::open(place)?;
    let completion = change::mark_complete(&mut store, pg)?;
    store.close()?;
    println!("PG {pg} is complete, and was last active in map {}: start its OSD", completion.started);
    if completion.was_partial {
        println!(
            "A backfill had not brought all its objects: it has those that came, and every other copy will be \
                  backfilled from it"
        );
    }
    Ok(())
}

fn remove(place: Place, pg: SpgId, force: bool) -> anyhow::Result<()> {
    let shown = place.path.clone();
    if !force {
        bail!(
            "nothing was changed: this removes the copy of PG {pg} with all its objects. Keep it with `shoal store pg \
             export` first, and repeat with --force to remove it"
        );
    }
    let mut store = Access::open(place)?;
    change::remove(&mut store, pg)?;
    store.close()?;
    println!("the copy of PG {pg} is removed from {}", shown.display());
    Ok(())
}

fn warn(text: &str) {
    eprintln!("{} {text}", term::yellow(&std::io::stderr(), "warning:"));
}

/// Visible only where a person looks at it.
fn bar(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar:.green} {bytes}/{total_bytes} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style).with_message(what)
}
