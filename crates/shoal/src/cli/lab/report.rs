//! `shoal lab report`, `compare`, `gate`: runs as a page, as a verdict, as an exit code.

use super::Where;
use crate::cli::term;
use anyhow::Context;
use lab::judge::compare::{
    Design, Difference, Metric, REPEATS_MAX, REPEATS_OF_PATIENCE, Repeats, Verdict, compare, noise_floor,
    repeats,
};
use lab::judge::conditions::{self, Conditions};
use lab::matrix::Tool;
use lab::report::{csv, figures, group, html, summary};
use lab::results::{Results, RunRecord};
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
    let results = args.place.read()?;
    let wanted = if args.runs.is_empty() { vec!["last".to_owned()] } else { args.runs.clone() };
    let mut parts = Vec::new();
    for name in &wanted {
        let run = results.find(name)?;
        let points = results.points(&run.id)?;
        let mut nothing = Vec::new();
        for point in points.iter().filter(|p| p.spec.tool == Tool::Nothing) {
            nothing.extend(conditions::of(&results.samples(point.id)?, 0.0));
        }
        parts.push(html::Part { run, points, nothing });
    }
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    };
    write(&args.out, html::page(&parts))?;
    let all: Vec<_> = parts.iter().flat_map(|part| part.points.clone()).collect();
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
            write(&dir.join(figures::file_name(n + 1, &figure.title)), figure.file())?;
        }
    }
    for html::Part { run, points, .. } in &parts {
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
    /// The 99th percentile of latency, where the tool tells one
    Tail,
    /// Processor time of an operation: what busy neighbours disturb least
    Cpu,
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
Examples:
  shoal lab compare last-1 last               the two newest runs, by operations a second
  shoal lab compare monday 19c0 --by tail     by name or the beginning of an id; by the 99th percentile
  shoal lab compare last-1 last --by cpu      by processor time: of use where the host is shared
  shoal lab compare last-1 last --json        for a program

Points of the same description are paired. A ratio above 1 is B's advantage, whatever it is compared by. Of 100
comparisons of a thing with itself at most 5 say anything but \"no difference shown\", of the whole or of any point.")]
pub struct CompareArgs {
    #[command(flatten)]
    pair: Pair,
}

/// Exit with 1 when run B is worse than run A beyond a threshold: for CI
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal lab gate baseline last --threshold 5
  shoal lab gate baseline last --by cpu       on a shared host of CI, where rates vary and processor time does not

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
    let results = pair.place.read()?;
    let metric = match pair.by {
        By::Rate => Metric::OpsPerS,
        By::Latency => Metric::Latency,
        By::Tail => Metric::Tail,
        By::Cpu => Metric::Processor,
    };
    let a = Compared::read(&results, &pair.a, metric)?;
    let b = Compared::read(&results, &pair.b, metric)?;
    anyhow::ensure!(a.run.id != b.run.id, "{} and {} are the same run: {}", pair.a, pair.b, a.run.id);
    for (side, name) in [(&a, &pair.a), (&b, &pair.b)] {
        anyhow::ensure!(!side.repeats.is_empty(), "no point of {name} has a value to compare by");
    }
    let (each, whole) = compare(&a.repeats, &b.repeats, Design::Apart);
    let whole = whole.with_context(|| no_common_point(&a.repeats, &b.repeats))?;
    let differs = conditions::differences((&a.run, &a.conditions), (&b.run, &b.conditions));
    if pair.json {
        println!("{}", serde_json::json!({"points": each, "all": whole, "conditions": differs}));
        return Ok((each, whole));
    }
    println!("A: {} ({})   B: {} ({})", a.run.name, a.run.id, b.run.name, b.run.id);
    print(&each, &whole, noise_floor(&a.repeats));
    for words in differs {
        println!("{} {words}", term::yellow(&stdout(), "conditions:"));
    }
    let alone = |x: &Repeats, y: &Repeats| x.keys().filter(|k| !y.contains_key(*k)).count();
    let (only_a, only_b) = (alone(&a.repeats, &b.repeats), alone(&b.repeats, &a.repeats));
    if only_a + only_b > 0 {
        println!("not compared: {only_a} points that only A has, {only_b} that only B has");
    }
    Ok((each, whole))
}

/// One side of a comparison.
struct Compared {
    run: RunRecord,
    repeats: Repeats,
    conditions: Vec<Conditions>,
}

impl Compared {
    fn read(results: &Results, wanted: &str, metric: Metric) -> anyhow::Result<Compared> {
        let run = results.find(wanted)?;
        let points = results.points(&run.id)?;
        let mut seen = Vec::new();
        for point in &points {
            seen.extend(conditions::of(&results.samples(point.id)?, point.spec.ramp_s));
        }
        Ok(Compared { repeats: repeats(&points, metric, false), run, conditions: seen })
    }
}

fn no_common_point(a: &Repeats, b: &Repeats) -> String {
    let first = |r: &Repeats| r.keys().next().cloned().unwrap_or_default();
    format!("the two runs have no point in common: A has \"{}\", B has \"{}\"", first(a), first(b))
}

/// One line a point, then the whole, then what the whole is worth.
pub fn print(each: &[Difference], whole: &Difference, noise: Option<f64>) {
    let interval = |d: &Difference| match d.verdict {
        Verdict::TooFewRepeats => String::new(),
        _ => format!("{:.3} to {:.3}", d.low, d.high),
    };
    let word = |d: &Difference| match d.verdict {
        Verdict::Better => term::green(&stdout(), d.verdict.words()),
        Verdict::Worse => term::red(&stdout(), d.verdict.words()),
        _ => d.verdict.words().to_owned(),
    };
    let wide = each.iter().chain([whole]).map(|d| d.label.chars().count()).max().unwrap_or(0);
    println!("{:>7}  {:<16}  {:<wide$}  verdict", "B/A", "interval", "point");
    for d in each.iter().chain([whole]) {
        println!("{:>7.3}  {:<16}  {:<wide$}  {}", d.ratio, interval(d), d.label, word(d));
    }
    println!();
    if let Some(effect) = whole.effect {
        println!("effect size: {effect:.2} standard deviations of a single repeat");
    }
    if let Some(noise) = noise {
        println!("noise: repeats of the same point differ by {:.1} % (median)", noise * 100.0);
    }
    let more = |n: u32| (n as usize).saturating_sub(whole.repeats);
    let no_plan = format!(
        "which is no plan: {REPEATS_OF_PATIENCE} repeats would show a change of {:.0} %; measure longer points (time:), where it is quieter, \
         or --by cpu",
        whole.detectable_with_patience * 100.0
    );
    let repeats = match whole.repeats_for_5_percent {
        None => format!("more than {REPEATS_MAX} repeats, {no_plan}"),
        Some(n) if n > 100 => format!("some {} more repeats of every point, {no_plan}", rounded(more(n))),
        Some(n) => format!("{} more repeats of every point (iterations: {n})", more(n)),
    };
    match whole.verdict {
        Verdict::TooFewRepeats => {
            println!("a single repeat says nothing about noise: set iterations to 3 and more in the matrix");
        }
        Verdict::NoDifferenceShown => println!(
            "a change of {:.1} % would have been seen four times in five; to see 5 % takes {repeats}",
            whole.detectable * 100.0
        ),
        _ => {}
    }
}

/// With two digits that count: of a plan for the future no more are known.
fn rounded(n: usize) -> usize {
    let unit = 10usize.pow(n.max(1).ilog10().saturating_sub(1));
    n.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    #[test]
    fn plans_have_two_digits() {
        assert_eq!([0, 7, 42, 431, 16_384].map(super::rounded), [0, 7, 42, 440, 17_000]);
    }
}
