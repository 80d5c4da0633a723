//! `shoal mon rebuild`: a monitor from the stores of OSDs, when the directories of all monitors are lost.

use super::term;
use crate::cluster::host::record::{HostRecord, Stage};
use crate::cluster::recovered_keys::{Keys, is_of_host, keyrings_beside};
use crate::config::{self, GenesisOptions, MonStartOptions, ProcessOptions, SessionOptions};
use crate::daemon::data_dir::DataDir;
use crate::host::identity;
use crate::host::mon_log::{FILE, MonLog};
use crate::store_tool::maps;
use anyhow::{Context, bail, ensure};
use command::options::{Identity, Layers};
use conf::conf_file::ConfFile;
use conf::keyring::Keyring;
use conf::private;
use mon::joining::Host;
use mon::rebuild::{Found, Rebuild, Rebuilt, SKIPPED_DEFAULT, SKIPPED_MAX, SKIPPED_MIN, Seen};
use runtime::system;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::types::{AuthName, EntityAddr, EntityAddrVec, Uuid};

/// Make a monitor from the stores of OSDs, when the directories of all monitors are lost. The OSDs must not run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal mon rebuild --conf /srv/shoal/ceph.conf --id a /srv/shoal/osd.*/
            all OSDs are on this host
  shoal mon rebuild --collect maps /var/lib/shoal/osd.*/
            several hosts: on each in turn, with the file `maps` copied from one to the next;
            then where the monitor is to run:
  shoal mon rebuild --conf /var/lib/shoal/ceph.conf --id h1 --with maps /var/lib/shoal/osd.*/
  shoal mon rebuild --conf … --id a --keyring backup.keyring --without 4 /srv/shoal/osd.*/
            clients' keys come from a keyring; the store of osd.4 is lost

The OSDMap names the OSDs: the store of each must be read, or declared lost with --without.
Keys of OSDs and managers come from the keyrings beside the stores, all others from
--keyring and from the keyring that ceph.conf names.

OSDs do not know the rest, which is gone: options of `ceph config`, keys of `ceph config-key`,
entities that no keyring has, the cluster log, join tokens. Never start an old monitor's
directory afterwards: it knows another history.

Exit codes: 0, done; 4, done, and records of a store are damaged; 1, nothing was done.")]
pub struct Args {
    /// An OSD's directory or device
    #[arg(value_name = "OSD")]
    osds: Vec<PathBuf>,
    /// Make no monitor: add what the stores have to this file. It holds keys
    #[arg(long, value_name = "FILE", conflicts_with_all = ["conf", "id", "with", "without", "skip_epochs"])]
    collect: Option<PathBuf>,
    /// Take what `--collect` has put into this file
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Take all entities of this keyring, with their capabilities
    #[arg(long, value_name = "FILE")]
    keyring: Vec<PathBuf>,
    /// The store of OSD N is lost. Writes that it alone has are lost with it
    #[arg(long, value_name = "N")]
    without: Vec<i32>,
    /// Epochs that are left out after the newest OSDMap, because lost monitors may have used them
    #[arg(long, value_name = "N", default_value_t = SKIPPED_DEFAULT, value_parser = clap::value_parser!(u32).range(i64::from(SKIPPED_MIN)..=i64::from(SKIPPED_MAX)))]
    skip_epochs: u32,
    /// The configuration file
    #[arg(long, short = 'c', required_unless_present = "collect")]
    conf: Option<PathBuf>,
    /// The monitor's name: a of mon.a
    #[arg(long, short = 'i', required_unless_present = "collect")]
    id: Option<String>,
}

/// As of `fsck`.
const DAMAGED: u8 = 4;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let is_sound = match (&args.collect, &args.conf, &args.id) {
        (Some(file), ..) => collect(args, file)?,
        (None, Some(conf), Some(id)) => rebuild(args, conf, id)?,
        _ => bail!("--conf and --id name the monitor"),
    };
    Ok(if is_sound { ExitCode::SUCCESS } else { DAMAGED.into() })
}

/// True if no record is damaged.
fn collect(args: &Args, file: &Path) -> anyhow::Result<bool> {
    ensure!(!args.osds.is_empty(), "no OSD is named: give the directories or devices of this host's OSDs");
    let mut found = if file.exists() { load(file)? } else { Found::default() };
    let mut keys = Keys::default();
    keys.add_collected(std::mem::take(&mut found.keys), &file.display().to_string());
    let is_sound = read_stores(&args.osds, &mut found)?;
    gather_keys(args, &mut keys)?;
    gather_hosts(&args.osds, &mut found);
    keys.differing.iter().for_each(|line| warn(line));
    found.keys = keys.entities;
    private::replace(file, &found.to_file()).with_context(|| format!("cannot write {}", file.display()))?;
    let names: Vec<&str> = found.stores().map(|seen| seen.name.as_str()).collect();
    println!("{} has the maps of {} stores: {}", file.display(), names.len(), names.join(", "));
    println!("The newest is OSDMap {}. The file holds keys: treat it as a keyring.", found.newest_seen());
    Ok(is_sound)
}

fn load(file: &Path) -> anyhow::Result<Found> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Found::from_file(&bytes).with_context(|| file.display().to_string())
}

/// True if no record is damaged. A store that cannot be opened ends the command.
fn read_stores(paths: &[PathBuf], found: &mut Found) -> anyhow::Result<bool> {
    let mut is_sound = true;
    for path in paths {
        let maps::Read { store, mut problems } = maps::read(path)?;
        let (name, map) = match store {
            Some(store) => {
                let told = (store.name.clone(), Some(store.newest));
                problems.extend(found.add(store)?);
                told
            }
            None => (path.display().to_string(), None),
        };
        if let Some(map) = map {
            println!("{name} has OSDMap {map}");
        }
        problems.iter().for_each(|problem| warn(&format!("{name}: {problem}")));
        is_sound &= problems.is_empty();
    }
    Ok(is_sound)
}

/// Keys of the keyrings that were named, and of daemons from those beside the stores.
fn gather_keys(args: &Args, keys: &mut Keys) -> anyhow::Result<()> {
    for path in &args.keyring {
        keys.add(path, |_| true)?;
    }
    for path in args.osds.iter().flat_map(|store| keyrings_beside(store)) {
        if let Err(error) = keys.add(&path, is_of_host) {
            warn(&format!("{} is not used: {error:#}", path.display()));
        }
    }
    Ok(())
}

/// Hosts that joined, whose directories these stores stand in.
fn gather_hosts(stores: &[PathBuf], found: &mut Found) {
    let absolute =
        stores.iter().filter(|store| store.is_dir()).filter_map(|store| std::path::absolute(store).ok());
    absolute
        .filter_map(|store| Some(store.parent()?.to_owned()))
        .for_each(|directory| gather_host(&directory, found));
}

fn gather_host(directory: &Path, found: &mut Found) {
    let record = match HostRecord::load(directory) {
        Ok(record) => record.filter(|record| matches!(record.stage, Stage::Joined | Stage::Leaving)),
        Err(error) => return warn(&format!("the host of {} is not known: {error:#}", directory.display())),
    };
    if let Some(HostRecord { name, id, fsid, addr, monitor, .. }) = record
        && let Ok(id) = id.parse()
        && fsid.parse().ok() == found.cluster()
    {
        let joined = system::wall_clock();
        found.hosts.insert(name, Host { id, addr: addr.to_string(), monitor, joined });
    }
}

fn rebuild(args: &Args, conf: &Path, id: &str) -> anyhow::Result<bool> {
    let name = format!("mon.{id}");
    let (layers, problems) = config::layers(Identity::named(&name), &ConfFile::load(conf)?, &[])?;
    problems.iter().for_each(|problem| warn(&format!("{}: {problem}", conf.display())));
    let public_addr = ProcessOptions::read(&layers).public_addr;
    let addr = identity::address(&name, "public_addr", public_addr.as_deref())?;
    let data = MonStartOptions::read(&layers).data;
    let data = claim(&data)?;

    let mut found = args.with.as_deref().map(load).transpose()?.unwrap_or_default();
    let is_sound = read_stores(&args.osds, &mut found)?;
    gather_hosts(&args.osds, &mut found);
    conf.parent().into_iter().for_each(|directory| gather_host(directory, &mut found));
    check_cluster(&layers, conf, found.cluster())?;
    let keyring = SessionOptions::read(&layers).keyring;
    let (now, mut random) = (system::wall_clock(), system::os_random()?);
    let mut keys = Keys::default();
    for path in &args.keyring {
        keys.add(path, |_| true)?;
    }
    if keyring.exists() {
        keys.add(&keyring, |_| true)?;
    }
    keys.add_collected(std::mem::take(&mut found.keys), "the collected file");
    gather_keys(args, &mut keys)?;
    let made = keys.complete(now, &mut random);
    keys.differing.iter().for_each(|line| warn(line));

    let plan = Rebuild {
        name: id.to_owned(),
        addrs: EntityAddrVec::one(EntityAddr::msgr2(addr, 0)),
        entities: keys.entities,
        without: args.without.iter().copied().collect(),
        skipped: args.skip_epochs,
    };
    let rebuilt = plan.make(&found, now, &mut random)?;
    save_made(&made, &keyring)?;
    write(&data.path, &rebuilt)?;
    let names = plan.entities.keys().map(AuthName::to_string).collect::<Vec<_>>();
    let hosts: Vec<&str> = found.hosts.keys().map(String::as_str).collect();
    report(&name, &data.path, &rebuilt, &names, &hosts, &made, &keyring);
    Ok(is_sound)
}

/// Locks the monitor's directory, which must have no monitor's disk.
fn claim(data: &Path) -> anyhow::Result<DataDir> {
    let data = DataDir::open(data)?;
    let path = data.path.join(FILE);
    if path.exists() {
        let disk = MonLog::open(&data.path)?.recover()?;
        let is_empty = disk.snapshot.is_none() && disk.entries.is_empty() && disk.identity.is_none();
        ensure!(
            is_empty,
            "{} is a monitor's disk: start that monitor if it is the cluster's. A monitor that was started after the loss may \
             have made an empty cluster there: move the directory away then, and repeat this",
            path.display()
        );
    }
    Ok(data)
}

fn check_cluster(layers: &Layers, conf: &Path, found: Option<Uuid>) -> anyhow::Result<()> {
    let cluster =
        found.context("no store has OSDMaps: name the directories or devices of the OSDs, or --with FILE")?;
    let fsid = GenesisOptions::read(layers).fsid;
    let is_same = fsid.parse().is_ok_and(|fsid: Uuid| fsid == cluster);
    ensure!(is_same, "{} is of cluster {fsid}, and the stores are of {cluster}", conf.display());
    Ok(())
}

/// New keys stand in the keyring before a monitor knows them.
fn save_made(made: &Keyring, path: &Path) -> anyhow::Result<()> {
    if made.0.is_empty() {
        return Ok(());
    }
    let mut keyring = if path.exists() { Keyring::load(path)? } else { Keyring::default() };
    keyring.0.extend(made.0.iter().map(|(name, entity)| (name.clone(), entity.clone())));
    keyring.save(path)
}

fn write(data: &Path, rebuilt: &Rebuilt) -> anyhow::Result<()> {
    let log = MonLog::open(data)?;
    let written = log.write(&rebuilt.write);
    if written.is_err() {
        log.remove(data).with_context(|| format!("cannot remove {}/{FILE}", data.display()))?;
    }
    written
}

fn report(
    name: &str,
    data: &Path,
    rebuilt: &Rebuilt,
    keys: &[String],
    hosts: &[&str],
    made: &Keyring,
    keyring: &Path,
) {
    let Rebuilt { found, epoch, oldest, pools, osds, never_up, keyless, behind, strange, .. } = rebuilt;
    let read = list(osds);
    println!(
        "{} in {}, from the stores of {read}",
        term::green(&std::io::stdout(), &format!("{name} is rebuilt")),
        data.display()
    );
    println!(
        "  OSDMap   {found} was the newest; the monitor begins with {epoch}. {pools} pools, CRUSH, OSDs, blocklist as of {found}"
    );
    println!("  keys     {}", keys.join(", "));
    if !hosts.is_empty() {
        println!("  hosts    {}", hosts.join(", "));
    }
    if !made.0.is_empty() {
        let names: Vec<&str> = made.0.keys().map(String::as_str).collect();
        println!(
            "  new keys {}, in {}: clients and hosts need the new ones",
            names.join(", "),
            keyring.display()
        );
    }
    println!(
        "Gone, because OSDs do not know it:\n  \
           options of `ceph config`, keys of `ceph config-key`: set them again. ceph.conf holds as before\n  \
           keys of other entities: `ceph auth import -i KEYRING` brings them back where a keyring is left\n  \
           other monitors: start each with an empty directory, and it joins {name}. Their weights and locations\n  \
           the cluster log, muted health checks, join tokens\n  \
           changes that the lost monitors had told no OSD: compare `ceph osd dump` with what you expect"
    );
    if !keyless.is_empty() {
        warn(&format!("no keyring has keys of {}: import them before these OSDs start", list(keyless)));
    }
    if !never_up.is_empty() {
        println!("{} have never been up, and their stores were not read", list(never_up));
    }
    for Seen { name, newest } in behind {
        warn(&format!(
            "{name} has OSDMap {newest}, and increments to {oldest} are gone: it does not learn the past intervals of its PGs. \
             They wait until another OSD reports them"
        ));
    }
    for Seen { name, .. } in strange {
        warn(&format!(
            "{name} is the store of an OSD that OSDMap {found} does not know: it was replaced or removed"
        ));
    }
    println!(
        "Next: start {name}, then the OSDs. Never start an old monitor's directory again: it knows another history."
    );
}

fn list(osds: &[i32]) -> String {
    osds.iter().map(|osd| format!("osd.{osd}")).collect::<Vec<_>>().join(", ")
}

fn warn(text: &str) {
    eprintln!("{} {text}", term::yellow(&std::io::stderr(), "warning:"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::host::record::{PORT_DEFAULT, Supervisor};
    use mon::rebuild::Store;

    const CLUSTER: &str = "07070707-0707-0707-0707-070707070707";
    const HOST: &str = "00000000-0000-4000-8000-000000000001";

    #[test]
    fn hosts_beside_the_stores_come_back() {
        let dir = std::env::temp_dir().join(format!("shoal-rebuild-hosts-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("osd.4")).unwrap();
        let mut found = Found::default();
        let (cluster, identity) = (CLUSTER.parse().unwrap(), Uuid([4; 16]));
        let (name, steps) = ("osd.4".to_owned(), Default::default());
        found.add(Store { name, cluster, identity, newest: 1, map: None, steps }).unwrap();
        let mut record = HostRecord {
            name: "h2".into(),
            id: HOST.into(),
            fsid: CLUSTER.into(),
            addr: "10.0.0.2".parse().unwrap(),
            port: PORT_DEFAULT,
            stage: Stage::Joined,
            supervisor: Supervisor::None,
            monitor: true,
            osds: Vec::new(),
        };
        let mut gathered = |record: &HostRecord| {
            record.save(&dir).unwrap();
            found.hosts.clear();
            gather_hosts(&[dir.join("osd.4")], &mut found);
            found.hosts.clone()
        };
        let hosts = gathered(&record);
        let host = &hosts["h2"];
        assert_eq!(
            (host.id.to_string().as_str(), host.addr.as_str(), host.monitor),
            (HOST, "10.0.0.2", true)
        );
        record.stage = Stage::Left;
        assert!(gathered(&record).is_empty());
        (record.stage, record.fsid) = (Stage::Joined, HOST.into());
        assert!(gathered(&record).is_empty(), "it is a host of another cluster");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
