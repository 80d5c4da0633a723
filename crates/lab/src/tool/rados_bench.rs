//! `rados bench`: how is it called, and what does it say?
//!
//! It is a closed loop that tells a mean and a maximum, no percentiles: those stay unknown.

use crate::matrix::{Op, Spec};
use crate::results::record::{Latency, Measured, Second};
use crate::tool::release::Release;
use anyhow::{Context, ensure};
use std::path::Path;
use std::process::Command;

/// One process for each client.
pub fn commands(tools: &Release, conf: &Path, pool: &str, spec: &Spec, op: Op, seconds: f64) -> Vec<Command> {
    let one = |client: u32| {
        let mut command = tools.command("rados");
        command.arg("-c").arg(conf).args(["-p", pool, "bench", &format!("{}", seconds.ceil().max(1.0))]);
        command.arg(match op {
            Op::Read => "seq",
            Op::RandRead | Op::RandMixed => "rand",
            Op::Write | Op::RandWrite => "write",
        });
        command.args(["-t", &spec.depth.to_string(), "--run-name", &format!("shoal_lab_{client}")]);
        if !op.reads() {
            command.args(["-b", &spec.op_bytes.to_string(), "--no-cleanup"]);
        }
        if !op.reads() && spec.objects > 0 && spec.objects != Spec::default().objects {
            command.args(["--max-objects", &spec.objects.to_string()]);
        }
        command
    };
    (spec.first_client..spec.first_client + spec.clients).map(one).collect()
}

/// The figures that one process printed.
pub fn parse(output: &str, spec: &Spec) -> anyhow::Result<Measured> {
    let number = |name: &str| {
        let line = output.lines().find(|line| line.starts_with(name) && line.contains(':'))?;
        line.split_once(':')?.1.trim().parse::<f64>().ok()
    };
    let seconds = number("Total time run").context("rados bench printed no result")?;
    let ops = ["Total writes made", "Total reads made"].iter().find_map(|name| number(name));
    let ops = ops.context("rados bench counted neither writes nor reads")?;
    ensure!(ops > 0.0, "rados bench did no operation in {seconds} s: is the pool served?");
    let us = |name: &str| number(name).unwrap_or(0.0) * 1e6;
    Ok(Measured {
        ops,
        seconds,
        ops_per_s: ops / seconds,
        bytes_per_s: ops / seconds * spec.op_bytes as f64,
        latency: Latency {
            mean_us: us("Average Latency(s)"),
            min_us: us("Min latency(s)"),
            max_us: us("Max latency(s)"),
            ..Latency::default()
        },
        series: series(output),
        ..Measured::default()
    })
}

/// The lines that it writes each second: second, in flight, started, finished, mean MB/s, MB/s now, latencies.
fn series(output: &str) -> Vec<Second> {
    let mut out: Vec<Second> = Vec::new();
    let (mut finished_before, mut at_before) = (0.0, 0.0);
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() != 8 {
            continue;
        }
        let numbers: Vec<Option<f64>> = words.iter().map(|w| w.parse().ok()).collect();
        let (Some(at), Some(_), Some(_), Some(finished)) = (numbers[0], numbers[1], numbers[2], numbers[3])
        else {
            continue;
        };
        if at > at_before {
            let ops = (finished - finished_before) / (at - at_before);
            out.push(Second { at_s: at, ops, mean_us: numbers[6].map(|s| s * 1e6), p99_us: None });
            (finished_before, at_before) = (finished, at);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from 16.2.15.
    const OUTPUT: &str = "\
hints = 1
Maintaining 16 concurrent writes of 4096 bytes to objects of size 4096 for up to 3 seconds or 0 objects
Object prefix: benchmark_data_host_4242
  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)
    0       0         0         0         0         0           -           0
    1      15      4119      4104   16.0296   16.0312  0.00433091  0.00388573
    2      15      8464      8449   16.4994   16.9727  0.00233344  0.00377789
    3      15     12901     12886   16.7759    17.332  0.00302157  0.00371843
Total time run:         3.00312
Total writes made:      12901
Write size:             4096
Object size:            4096
Bandwidth (MB/sec):     16.7806
Stddev Bandwidth:       0.665
Max bandwidth (MB/sec): 17.332
Min bandwidth (MB/sec): 16.0312
Average IOPS:           4295
Stddev IOPS:            170.314
Max IOPS:               4437
Min IOPS:               4104
Average Latency(s):     0.00371819
Stddev Latency(s):      0.00162093
Max latency(s):         0.0210311
Min latency(s):         0.00103115
";

    #[test]
    fn rados_bench_output_is_parsed() {
        let measured = parse(OUTPUT, &Spec::default()).unwrap();
        assert_eq!(measured.ops, 12901.0);
        assert!((measured.ops_per_s - 4295.9).abs() < 0.1);
        assert!((measured.latency.mean_us - 3718.19).abs() < 0.01);
        assert!((measured.latency.max_us - 21031.1).abs() < 0.01);
        assert_eq!(measured.latency.p99_us, None, "it tells none");
        let rates: Vec<f64> = measured.series.iter().map(|s| s.ops).collect();
        assert_eq!(rates, [4104.0, 4345.0, 4437.0]);
        assert!(parse("error connecting to the cluster", &Spec::default()).is_err());
    }
}
