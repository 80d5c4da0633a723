//! Wall clock, processor time and random seeds. Machines get them as inputs from here.

use machine::Random;
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::types::UTime;

pub fn wall_clock() -> UTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A stream of randomness seeded by the operating system: fit for keys.
pub fn os_random() -> std::io::Result<Random> {
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(Random::from_seed(seed))
}

/// Processor time that this process has used.
pub fn cpu_time() -> std::time::Duration {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::try_from(taken).unwrap_or_default()
}

/// Processor time that the calling thread has taken so far.
pub fn thread_cpu_time() -> std::time::Duration {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(taken).unwrap_or_default()
}

/// The host's load average of the last minute, divided by its processors.
pub fn load_by_processor() -> f64 {
    // Asked once: the answer is read from files of the control group, and a reactor calls this.
    static PROCESSORS: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    rustix::system::sysinfo().loads[0] as f64 / 65_536.0 / *PROCESSORS as f64
}

pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
