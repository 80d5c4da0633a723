//! `shoal lab list`, `export`, `import`, `clean`: stored runs, their transfer to other machines, and leftovers of killed runs.

use super::Where;
use lab::cluster::Login;
use lab::results::Results;
use std::path::PathBuf;
use std::process::ExitCode;
use wire::text::stamp;
use wire::types::UTime;

/// Show the runs there are
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  shoal lab list --results /srv/lab")]
pub struct ListArgs {
    #[command(flatten)]
    place: Where,
    /// Tell them as JSON
    #[arg(long)]
    json: bool,
}

pub fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    // Looking makes nothing.
    if !args.place.exists() {
        match args.json {
            true => println!("[]"),
            false => println!("there is no run in {} yet: shoal lab run FILE", args.place.results.display()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let results = args.place.open()?;
    let runs = results.runs()?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&runs)?);
        return Ok(ExitCode::SUCCESS);
    }
    for run in runs {
        let points = results.points(&run.id)?;
        let failed = points.iter().filter(|p| p.error.is_some()).count();
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let started = stamp(UTime { sec: run.started_unix_s as u32, nsec: 0 });
        let minute = started.get(..16).unwrap_or(&started);
        println!("{}  {minute}  {:<11} {:>4} points{failed}  {}", run.id, run.state, points.len(), run.name);
    }
    Ok(ExitCode::SUCCESS)
}

/// Copy runs with everything that belongs to them into one file, to be taken elsewhere
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  shoal lab export last --to friday.sqlite")]
pub struct ExportArgs {
    /// Runs: the beginning of an id, a name, last, last-1; all if none is given
    runs: Vec<String>,
    /// The file; runs that it has stay as they are
    #[arg(long)]
    to: PathBuf,
    #[command(flatten)]
    place: Where,
}

pub fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let results = args.place.read()?;
    let ids = match args.runs.is_empty() {
        true => results.runs()?.into_iter().map(|run| run.id).collect(),
        false => args.runs.iter().map(|r| Ok(results.find(r)?.id)).collect::<anyhow::Result<Vec<_>>>()?,
    };
    let copied = results.export(&ids, &args.to)?;
    println!("{copied} of {} runs copied into {}", ids.len(), args.to.display());
    Ok(ExitCode::SUCCESS)
}

/// Take in the runs of a file that `export` made
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  shoal lab import friday.sqlite")]
pub struct ImportArgs {
    file: PathBuf,
    #[command(flatten)]
    place: Where,
}

pub fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.file.exists(), "{} is not there", args.file.display());
    let other = Results::open_file(&args.file)?;
    let own = args.place.open()?;
    let ids: Vec<String> = other.runs()?.into_iter().map(|run| run.id).collect();
    let copied = other.export(&ids, own.path())?;
    println!("{copied} of {} runs taken in; the others were there", ids.len());
    Ok(ExitCode::SUCCESS)
}

/// Remove pools and profiles that a killed run has left in a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  shoal lab clean --conf /etc/ceph/ceph.conf")]
pub struct CleanArgs {
    #[arg(long, short)]
    conf: PathBuf,
    #[arg(long)]
    keyring: Option<PathBuf>,
}

pub fn clean(args: &CleanArgs) -> anyhow::Result<ExitCode> {
    let login = Login::with_keyring(args.keyring.clone());
    let gone = lab::run::pool::clean(login.connect(&args.conf)?.as_mut())?;
    match gone.as_slice() {
        [] => println!("there is nothing of the lab's in this cluster"),
        gone => gone.iter().for_each(|what| println!("removed {what}")),
    }
    Ok(ExitCode::SUCCESS)
}
