//! `shoal store object`: single objects of one copy, while its OSD does not run.

use super::store_pg::parse_pg;
use crate::store_tool::object::{AttrName, Object, Wanted};
use crate::store_tool::opened::Place;
use crate::store_tool::pg::access::Access;
use anyhow::Context;
use bytes::Bytes;
use clap::Subcommand;
use std::fs::File;
use std::io::{Read, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::types::{Name, PgId, SpgId};

/// Show or change single objects of an OSD that does not run. A change reaches this copy alone
///
/// The work of Ceph's ceph-objectstore-tool on objects. DEVICE is a block store's file or device, or an OSD's directory, also that of a
/// memory store (--store mem) after a clean stop. The other copies of the PG do not learn of a change, and a deep scrub reports it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ceph osd map rbd photo                                        the PG of an object, and its OSDs
  shoal store object get-bytes /srv/shoal/osd.3 2.1f photo > photo
  shoal store object set-bytes /srv/shoal/osd.3 2.1f photo < photo
  shoal store object list-attrs /srv/shoal/osd.3 2.1f photo
  shoal store object set-omap /srv/shoal/osd.3 2.1f photo key < value
  shoal store object remove /srv/shoal/osd.3 2.1f photo
  shoal store object list-clones /srv/shoal/osd.3 2.1f photo
  shoal store object get-bytes /srv/shoal/osd.3 2.1f photo --clone 4 > photo.4
  shoal store object remove /srv/shoal/osd.3 2.1f photo --clone 4
  shoal store object remove-clone-metadata /srv/shoal/osd.3 2.1f photo 4

Values go to standard output, and come from --file or standard input. Exit codes: 0, done; 1, nothing was done.")]
pub struct Args {
    /// Namespace of the object
    #[arg(long, global = true, default_value = "", hide_default_value = true)]
    nspace: String,
    /// Locator key of the object
    #[arg(long, global = true, default_value = "", hide_default_value = true)]
    locator: String,
    /// A clone of the object, by its number in `rados listsnaps`, instead of the object itself
    #[arg(long, global = true, value_name = "NUMBER")]
    clone: Option<u64>,
    /// The attribute has this name in the store: `_` is the object's own info, and a client's attribute begins with `_`
    #[arg(long, global = true)]
    stored_name: bool,
    /// Read the value from this file instead of standard input
    #[arg(long, global = true, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
struct Target {
    device: PathBuf,
    #[arg(value_parser = parse_pg)]
    pg: PgId,
    object: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the object's bytes to standard output
    GetBytes {
        #[command(flatten)]
        of: Target,
    },
    /// Replace the object's bytes
    SetBytes {
        #[command(flatten)]
        of: Target,
    },
    /// Names of the attributes, a line each
    ListAttrs {
        #[command(flatten)]
        of: Target,
    },
    /// An attribute's value
    GetAttr {
        #[command(flatten)]
        of: Target,
        name: String,
    },
    /// Set an attribute
    SetAttr {
        #[command(flatten)]
        of: Target,
        name: String,
    },
    /// Remove an attribute
    RmAttr {
        #[command(flatten)]
        of: Target,
        name: String,
    },
    /// Keys of the omap, a line each
    ListOmap {
        #[command(flatten)]
        of: Target,
    },
    /// The value of an omap key
    GetOmap {
        #[command(flatten)]
        of: Target,
        key: String,
    },
    /// Set an omap key
    SetOmap {
        #[command(flatten)]
        of: Target,
        key: String,
    },
    /// Remove an omap key
    RmOmap {
        #[command(flatten)]
        of: Target,
        key: String,
    },
    /// The header of the omap
    GetOmaphdr {
        #[command(flatten)]
        of: Target,
    },
    /// Set the header of the omap
    SetOmaphdr {
        #[command(flatten)]
        of: Target,
    },
    /// Remove the object, or with --clone the clone, from this copy
    Remove {
        #[command(flatten)]
        of: Target,
    },
    /// Numbers of the clones that the object names, a line each
    ListClones {
        #[command(flatten)]
        of: Target,
    },
    /// Take a clone that is lost off the object's list: its snapshots no longer have the object
    RemoveCloneMetadata {
        #[command(flatten)]
        of: Target,
        number: u64,
    },
}

impl Command {
    fn target(&self) -> &Target {
        match self {
            Command::GetBytes { of }
            | Command::SetBytes { of }
            | Command::ListAttrs { of }
            | Command::GetAttr { of, .. }
            | Command::SetAttr { of, .. }
            | Command::RmAttr { of, .. }
            | Command::ListOmap { of }
            | Command::GetOmap { of, .. }
            | Command::SetOmap { of, .. }
            | Command::RmOmap { of, .. }
            | Command::GetOmaphdr { of }
            | Command::ListClones { of }
            | Command::RemoveCloneMetadata { of, .. }
            | Command::SetOmaphdr { of }
            | Command::Remove { of } => of,
        }
    }
}

pub fn run(args: &Args, key_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let Target { device, pg, object } = args.command.target();
    let name = |text: &str| Name::from(text.as_bytes());
    let wanted = Wanted {
        name: name(object),
        namespace: name(&args.nspace),
        key: name(&args.locator),
        clone: args.clone,
    };
    let mut store = Access::open(Place::new(device, key_file))?;
    let mut found = Object::find(&mut store, SpgId::from(*pg), &wanted)?;
    let mut out = stdout().lock();
    let value = || read_value(args.file.as_deref());
    let attr = |name: &str| match args.stored_name {
        true => AttrName::stored(name),
        false => AttrName::of_client(name),
    };
    match &args.command {
        Command::GetBytes { .. } => found.get_bytes(&mut out)?,
        Command::SetBytes { .. } => found.set_bytes(value()?)?,
        Command::ListAttrs { .. } => {
            found.attrs()?.iter().try_for_each(|(name, _)| write_line(&mut out, name))?;
        }
        Command::GetAttr { name, .. } => out.write_all(&found.get_attr(&attr(name))?)?,
        Command::SetAttr { name, .. } => found.set_attr(&attr(name), value()?)?,
        Command::RmAttr { name, .. } => found.remove_attr(&attr(name))?,
        Command::ListOmap { .. } => found.omap_keys(&mut |key| write_line(&mut out, key))?,
        Command::GetOmap { key, .. } => out.write_all(&found.get_omap(key)?)?,
        Command::SetOmap { key, .. } => found.set_omap(key, value()?)?,
        Command::RmOmap { key, .. } => found.remove_omap(key)?,
        Command::GetOmaphdr { .. } => out.write_all(&found.get_omap_header()?)?,
        Command::SetOmaphdr { .. } => found.set_omap_header(value()?)?,
        Command::Remove { .. } => found.remove()?,
        Command::ListClones { .. } => {
            found
                .clones()?
                .iter()
                .try_for_each(|clone| write_line(&mut out, clone.to_string().as_bytes()))?;
        }
        Command::RemoveCloneMetadata { number, .. } => found.forget_clone(*number)?,
    }
    out.flush()?;
    store.close()?;
    Ok(ExitCode::SUCCESS)
}

fn write_line(out: &mut dyn Write, text: &[u8]) -> anyhow::Result<()> {
    out.write_all(text)?;
    Ok(out.write_all(b"\n")?)
}

fn read_value(file: Option<&Path>) -> anyhow::Result<Bytes> {
    let mut value = Vec::new();
    match file {
        Some(path) => {
            File::open(path)
                .and_then(|mut file| file.read_to_end(&mut value))
                .with_context(|| format!("cannot read {}", path.display()))?;
        }
        None => drop(stdin().lock().read_to_end(&mut value)?),
    }
    Ok(value.into())
}
