//! `shoal lab report`, `compare`, `gate`: runs as a page, as a verdict, as an exit code.

use super::Where;
use crate::cli::term;
use anyhow::Context;
use lab::judge::compare::{
    Design, Difference, Metric, ROUNDS_MAX, ROUNDS_MIN, ROUNDS_OF_PATIENCE, Rounds, Verdict, compare,
    noise_floor, rounds,
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
    /// Runs: the beginning of an id, a name, last, last-1 [default: last]
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
pub enum By {
    /// Operations a second
    Rate,
    /// Mean latency
    Latency,
    /// The 99th percentile of latency, where the tool tells one
    Tail,
    /// Processor time of an operation: what busy neighbours disturb least
    Cpu,
}

impl By {
    pub fn metric(self) -> Metric {
        match self {
            By::Rate => Metric::OpsPerS,
            By::Latency => Metric::Latency,
            By::Tail => Metric::Tail,
            By::Cpu => Metric::Processor,
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
struct Pair {
    /// The run that is compared with; alone: a run whose matrix measured two clusters in turns
    a: String,
    /// The run that is judged
    b: Option<String>,
    /// The compared quantity
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
  shoal lab compare last                      the two clusters of one run, which were measured in turns
  shoal lab compare monday 19c0 --by tail     by name or the beginning of an id; by the 99th percentile
  shoal lab compare last-1 last --by cpu      by processor time: of use where the host is shared
  shoal lab compare last-1 last --json        for a program

Points of the same description are paired. A ratio above 1 is B's advantage, whatever it is compared by. Of 100
comparisons of a thing with itself at most 5 say anything but \"no difference shown\", of the whole or of any point;
shoal lab calibrate measures that. Two runs one after the other differ by the machine's drift, too, so their intervals
are wide; shoal lab versus measures two clusters in turns and finds smaller differences in less time.")]
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

Exit codes: 0 no regression beyond the threshold is shown; 1 one is; 2 there are too few rounds to tell.")]
pub struct GateArgs {
    #[command(flatten)]
    pair: Pair,
    /// Tolerated loss in percent
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
        (true, Verdict::TooFewRounds) => ExitCode::from(2),
        (true, _) => ExitCode::SUCCESS,
    })
}

fn judged(pair: &Pair) -> anyhow::Result<(Vec<Difference>, Difference)> {
    let results = pair.place.read()?;
    let metric = pair.by.metric();
    let Some(b) = &pair.b else { return judged_in_turns(pair, &results, metric) };
    let a = Compared::read(&results, &pair.a, metric)?;
    let b = Compared::read(&results, b, metric)?;
    anyhow::ensure!(a.run.id != b.run.id, "both are the same run: {}", a.run.id);
    for side in [&a, &b] {
        anyhow::ensure!(!side.rounds.is_empty(), "no point of {} has a value to compare by", side.run.name);
    }
    let (each, whole) = compare(&a.rounds, &b.rounds, Design::Successive);
    let whole = whole.with_context(|| no_common_point(&a.rounds, &b.rounds))?;
    let differs = conditions::differences((&a.run, &a.conditions), (&b.run, &b.conditions));
    if pair.json {
        println!("{}", serde_json::json!({"points": each, "all": whole, "conditions": differs}));
        return Ok((each, whole));
    }
    println!("A: {} ({})   B: {} ({})", a.run.name, a.run.id, b.run.name, b.run.id);
    print(&each, &whole, noise_floor(&a.rounds), Design::Successive);
    for words in differs {
        println!("{} {words}", term::yellow(&stdout(), "conditions:"));
    }
    let alone = |x: &Rounds, y: &Rounds| x.keys().filter(|k| !y.contains_key(*k)).count();
    let (only_a, only_b) = (alone(&a.rounds, &b.rounds), alone(&b.rounds, &a.rounds));
    if only_a + only_b > 0 {
        println!("not compared: {only_a} points that only A has, {only_b} that only B has");
    }
    Ok((each, whole))
}

/// The two clusters of one run.
fn judged_in_turns(
    pair: &Pair,
    results: &Results,
    metric: Metric,
) -> anyhow::Result<(Vec<Difference>, Difference)> {
    let run = results.find(&pair.a)?;
    let points = results.points(&run.id)?;
    let mut clusters: Vec<String> = Vec::new();
    for label in points.iter().map(|p| p.cluster.label()) {
        if !clusters.contains(&label) {
            clusters.push(label);
        }
    }
    clusters.sort();
    let [a, b] = clusters.as_slice() else {
        anyhow::bail!(
            "{} measured {} clusters: name a second run, or measure two clusters in turns",
            run.name,
            clusters.len()
        );
    };
    let of = |label: &String| {
        let own: Vec<_> = points.iter().filter(|p| p.cluster.label() == *label).cloned().collect();
        rounds(&own, metric, true)
    };
    let (of_a, of_b) = (of(a), of(b));
    let (each, whole) = compare(&of_a, &of_b, Design::InTurns);
    let whole = whole.with_context(|| no_common_point(&of_a, &of_b))?;
    if pair.json {
        println!("{}", serde_json::json!({"points": each, "all": whole, "conditions": []}));
        return Ok((each, whole));
    }
    println!("A: {a}   B: {b}   in turns, {} ({})", run.name, run.id);
    print(&each, &whole, noise_floor(&of_a), Design::InTurns);
    Ok((each, whole))
}

/// One side of a comparison.
struct Compared {
    run: RunRecord,
    rounds: Rounds,
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
        Ok(Compared { rounds: rounds(&points, metric, false), run, conditions: seen })
    }
}

fn no_common_point(a: &Rounds, b: &Rounds) -> String {
    let first = |r: &Rounds| r.keys().next().cloned().unwrap_or_default();
    format!("the two sides have no point in common: A has \"{}\", B has \"{}\"", first(a), first(b))
}

/// One line a point, then the whole, then what the whole is worth.
pub fn print(each: &[Difference], whole: &Difference, noise: Option<f64>, design: Design) {
    let interval = |d: &Difference| match d.verdict {
        Verdict::TooFewRounds => String::new(),
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
        println!("effect size: {effect:.2} standard deviations of a single round");
    }
    if let Some(noise) = noise {
        println!("noise: rounds of the same point differ by {:.1} % (median)", noise * 100.0);
    }
    for line in advice(whole, design) {
        println!("{line}");
    }
}

/// Advice: the number of rounds that would show more.
fn advice(whole: &Difference, design: Design) -> Vec<String> {
    let missing = |n: u32| (n as usize).saturating_sub(whole.rounds);
    match whole.verdict {
        Verdict::TooFewRounds => {
            let n = ROUNDS_MIN as u32;
            let plural = if missing(n) == 1 { "" } else { "s" };
            vec![format!("{} more complete round{plural} at least (iterations: {n} or more)", missing(n))]
        }
        Verdict::Better | Verdict::Worse => Vec::new(),
        Verdict::NoDifferenceShown => {
            let no_plan = format!(
                "which is no plan: {ROUNDS_OF_PATIENCE} rounds would show a change of {:.0} %; measure longer points \
                 (time:), where it is quieter, or --by cpu",
                whole.detectable_with_patience * 100.0
            );
            let plan = match whole.rounds_for_5_percent {
                None => format!("more than {ROUNDS_MAX} rounds, {no_plan}"),
                Some(n) if n > 100 => format!("some {} more rounds, {no_plan}", rounded(missing(n))),
                Some(n) => format!("{} more rounds (iterations: {n})", missing(n)),
            };
            let mut lines = vec![format!(
                "a change of {:.1} % would have been seen four times in five; to see 5 % takes {plan}",
                whole.detectable * 100.0
            )];
            if design == Design::Successive {
                lines.push(
                    "measured in turns (shoal lab versus) it takes fewer: drift then hits both alike".into(),
                );
            }
            lines
        }
    }
}

/// With two digits that count: of a plan for the future no more are known.
fn rounded(n: usize) -> usize {
    let unit = 10usize.pow(n.max(1).ilog10().saturating_sub(1));
    n.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::{Design, Verdict, advice};
    use lab::judge::compare::{Round, Rounds, compare};

    #[test]
    fn too_few_rounds_say_how_many_more() {
        let of = |values: &[f64]| {
            let round = |(n, v): (usize, &f64)| Round { number: n as u32, value: *v };
            Rounds::from([("x".to_owned(), values.iter().enumerate().map(round).collect())])
        };
        let whole = compare(&of(&[10.0, 12.0]), &of(&[70.0, 72.0]), Design::InTurns).1.unwrap();
        assert_eq!(whole.verdict, Verdict::TooFewRounds);
        assert_eq!(
            advice(&whole, Design::InTurns),
            ["1 more complete round at least (iterations: 3 or more)"]
        );
        let (a, b) = (of(&[10.0, 12.0, 11.0]), of(&[11.0, 10.0, 12.0]));
        let words = advice(&compare(&a, &b, Design::Successive).1.unwrap(), Design::Successive);
        assert!(words[0].contains("would have been seen") && words[1].contains("in turns"), "{words:?}");
    }

    #[test]
    fn plans_have_two_digits() {
        assert_eq!([0, 7, 42, 431, 16_384].map(super::rounded), [0, 7, 42, 440, 17_000]);
    }
}
