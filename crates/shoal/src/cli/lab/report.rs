//! `shoal lab report`, `compare`, `gate`: runs as a page, as a verdict, as an exit code.

use super::Where;
use crate::cli::term;
use anyhow::Context;
use lab::judge::compare::{Difference, Metric, Verdict, compare, noise_floor, repeats};
use lab::report::{csv, figures, group, html, summary};
use lab::results::Results;
use std::collections::BTreeMap;
use std::io::stdout;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a run, or several, as one HTML page that needs nothing else
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab report --out today.html               the newest run
  shoal lab report last-1 last --out both.html    two runs on one page
  shoal lab report --out today.html --plots plots --csv today.csv --by-clients clients.csv")]
pub struct ReportArgs {
    /// Which: an id's beginning, a name, last, last-1 [default: last]
    runs: Vec<String>,
    #[arg(long)]
    out: PathBuf,
    /// Also write every chart as SVG into this folder
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Also write every point as CSV
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Also write the best rate over numbers of clients as CSV
    #[arg(long)]
    by_clients: Option<PathBuf>,
    #[command(flatten)]
    place: Where,
}

pub fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let results = args.place.open()?;
    let wanted = if args.runs.is_empty() { vec!["last".to_owned()] } else { args.runs.clone() };
    let mut runs = Vec::new();
    for name in &wanted {
        let run = results.find(name)?;
        let points = results.points(&run.id)?;
        runs.push((run, points));
    }
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    };
    write(&args.out, html::page(&runs))?;
    let all: Vec<_> = runs.iter().flat_map(|(_, points)| points.clone()).collect();
    let groups = group::groups(&all);
    if let Some(path) = &args.csv {
        write(path, csv::points(&all))?;
    }
    if let Some(path) = &args.by_clients {
        write(path, csv::best_by_clients(&groups))?;
    }
    if let Some(dir) = &args.plots {
        std::fs::create_dir_all(dir)?;
        for (n, figure) in figures::all(&groups).iter().enumerate() {
            write(&dir.join(figures::file_name(n + 1, &figure.title)), figure.svg.clone())?;
        }
    }
    for (run, points) in &runs {
        println!("{}\n", summary::paragraph(run, points, &group::groups(points)));
    }
    println!("written: {}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    /// Operations a second
    Rate,
    /// Mean latency
    Latency,
}

#[derive(Clone, Debug, clap::Args)]
struct Pair {
    /// The run that is compared with
    a: String,
    /// The run that is judged
    b: String,
    /// What is compared
    #[arg(long, value_enum, default_value = "rate")]
    by: By,
    #[command(flatten)]
    place: Where,
    /// Tell the result as JSON
    #[arg(long)]
    json: bool,
}

/// Say whether run B is better than run A, worse, or whether no difference is shown
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  shoal lab compare last-1 last

Points of the same description are paired. Intervals hold at 95 %; a ratio above 1 is B's advantage.")]
pub struct CompareArgs {
    #[command(flatten)]
    pair: Pair,
}

/// Exit with 1 when run B is worse than run A beyond a threshold: for CI
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  shoal lab gate baseline last --threshold 5

Exit codes: 0 no regression beyond the threshold is shown; 1 one is; 2 there are too few repeats to tell.")]
pub struct GateArgs {
    #[command(flatten)]
    pair: Pair,
    /// How much worse is too much, in percent
    #[arg(long, default_value_t = 5.0)]
    threshold: f64,
}

pub fn compare_runs(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    judged(&args.pair)?;
    Ok(ExitCode::SUCCESS)
}

pub fn gate(args: &GateArgs) -> anyhow::Result<ExitCode> {
    let (each, whole) = judged(&args.pair)?;
    let limit = 1.0 - args.threshold / 100.0;
    let is_too_bad = |d: &&Difference| d.verdict == Verdict::Worse && d.ratio < limit;
    let bad: Vec<&Difference> = each.iter().chain([&whole]).filter(is_too_bad).collect();
    for d in &bad {
        println!(
            "{} {}: {:.1} % worse",
            term::red(&stdout(), "regression:"),
            d.label,
            (1.0 - d.ratio) * 100.0
        );
    }
    Ok(match (bad.is_empty(), whole.verdict) {
        (false, _) => ExitCode::from(1),
        (true, Verdict::TooFewRepeats) => ExitCode::from(2),
        (true, _) => ExitCode::SUCCESS,
    })
}

fn judged(pair: &Pair) -> anyhow::Result<(Vec<Difference>, Difference)> {
    let results = pair.place.open()?;
    let metric = match pair.by {
        By::Rate => Metric::OpsPerS,
        By::Latency => Metric::Latency,
    };
    let (a, b) = (of(&results, &pair.a, metric)?, of(&results, &pair.b, metric)?);
    let (each, whole) = compare(&a, &b);
    let whole = whole.context("the two runs have no point in common")?;
    match pair.json {
        true => println!("{}", serde_json::json!({"points": each, "all": whole})),
        false => print(&each, &whole, noise_floor(&a)),
    }
    Ok((each, whole))
}

fn of(results: &Results, run: &str, metric: Metric) -> anyhow::Result<BTreeMap<String, Vec<f64>>> {
    let run = results.find(run)?;
    Ok(repeats(&results.points(&run.id)?, metric, false))
}

/// One line a point, then the whole, then what the whole is worth.
pub fn print(each: &[Difference], whole: &Difference, noise: Option<f64>) {
    let interval = |d: &Difference| match d.verdict {
        Verdict::TooFewRepeats => String::new(),
        _ => format!("[{:.3}, {:.3}]", d.low, d.high),
    };
    let word = |d: &Difference| match d.verdict {
        Verdict::Better => term::green(&stdout(), d.verdict.words()),
        Verdict::Worse => term::red(&stdout(), d.verdict.words()),
        _ => d.verdict.words().to_owned(),
    };
    for d in each.iter().chain([whole]) {
        println!("{:>7.3}  {:<16} {}  {}", d.ratio, interval(d), d.label, word(d));
    }
    if let Some(effect) = whole.effect {
        println!("effect size: {effect:.2} standard deviations of a single repeat");
    }
    if let Some(noise) = noise {
        println!("noise: repeats of the same point differ by {:.1} % (median)", noise * 100.0);
    }
    match whole.verdict {
        Verdict::TooFewRepeats => println!("measure each point at least twice: --iterations 3"),
        Verdict::NoDifferenceShown => println!(
            "a change of {:.1} % would have been seen four times in five; to see 5 %: {} repeats of every point",
            whole.detectable * 100.0,
            whole.repeats_for_5_percent
        ),
        _ => {}
    }
}
