fn main() {
    let mut args = std::env::args().skip(1);
    let from: u64 = args.next().unwrap().parse().unwrap();
    let to: u64 = args.next().unwrap().parse().unwrap();
    let secs: u64 = args.next().unwrap().parse().unwrap();
    let kind = args.next().unwrap_or_default();
    let level = args.next().unwrap_or_default();
    let trace = args.next().is_some();
    let mut failed = Vec::new();
    for seed in from..to {
        let mut config = sim::Config::new(std::time::Duration::from_secs(secs));
        match level.as_str() {
            "messages" => config.level = sim::LevelChoice::Always(sim::Level::Messages),
            "cephx" => config.level = sim::LevelChoice::Always(sim::Level::Bytes { cephx: true }),
            _ => {}
        }
        match kind.as_str() {
            "one" => {}
            "several" => {
                config.cluster = sim::ClusterChoice::Always(sim::ClusterConfig {
                    osds: 5,
                    pools: vec![sim::PoolConfig { pg_num: 8, ..sim::PoolConfig::ONE_COPY }; 3],
                })
            }
            "seed" => config.cluster = sim::ClusterChoice::BySeed,
            size => {
                config.cluster = sim::ClusterChoice::Always(sim::ClusterConfig {
                    osds: 3,
                    pools: vec![sim::PoolConfig::of_size(size.parse().unwrap())],
                })
            }
        }
        let report = if trace {
            sim::run_tracing(seed, &config, |w| println!("{w}"))
        } else {
            sim::run(seed, &config)
        };
        let text = format!("{report}");
        let head: Vec<&str> = text
            .lines()
            .filter(|l| !l.contains("fault: ") && !l.contains("transitions") && !l.contains("never:"))
            .take(8)
            .collect();
        println!(
            "seed {seed}: clean={} {}",
            report.is_clean(),
            head.join(" | ").chars().take(900).collect::<String>()
        );
        if !report.is_clean() {
            failed.push(seed);
            println!(
                "{:?}",
                report
                    .violations
                    .iter()
                    .map(|v| format!("{v:?}").chars().take(600).collect::<String>())
                    .collect::<Vec<_>>()
            );
        }
    }
    println!("failed: {failed:?}");
}
