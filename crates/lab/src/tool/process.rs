//! Stock programs as child processes: in a process group of their own, with their output kept, stopped with
//! the lab, and with their processor time measured.

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set by Ctrl-C. Everything that runs ends soon; complete points are kept.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// Set when the current point cannot go on. It ends soon; the run continues with the next point.
pub static GIVE_UP: AtomicBool = AtomicBool::new(false);

pub fn stopped() -> bool {
    STOP.load(Ordering::Relaxed) || GIVE_UP.load(Ordering::Relaxed)
}

/// Sleeps, but not through a Ctrl-C.
pub fn rest(seconds: f64) {
    let until = Instant::now() + Duration::from_secs_f64(seconds.max(0.0));
    while Instant::now() < until && !stopped() {
        std::thread::sleep((until - Instant::now()).min(Duration::from_millis(50)));
    }
}

/// Process ids of the current client processes, for the observer.
pub static CLIENTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Ticks of `/proc/PID/stat` in a second: Linux tells user space 100, whatever its own clock does.
pub const TICKS_PER_S: f64 = 100.0;

pub struct Finished {
    pub output: String,
    pub errors: String,
    pub cpu_s: f64,
}

struct Running {
    child: Child,
    output: File,
    errors: File,
    shown: String,
}

/// Run all at the same time, to their ends. The first that fails names itself with the last lines it wrote.
pub fn run_all(commands: Vec<Command>, patience: Duration) -> anyhow::Result<Vec<Finished>> {
    let mut running = Vec::new();
    for command in commands {
        match start(command) {
            Ok(one) => running.push(one),
            Err(error) => {
                running.iter_mut().for_each(kill);
                return Err(error);
            }
        }
    }
    *CLIENTS.lock().expect("no thread panics while it holds this") =
        running.iter().map(|r| r.child.id()).collect();
    let until = Instant::now() + patience;
    let mut cpu_s = vec![None; running.len()];
    while cpu_s.iter().any(Option::is_none) {
        for (one, cpu) in running.iter_mut().zip(&mut cpu_s) {
            if cpu.is_none() && has_ended(&one.child)? {
                *cpu = Some(cpu_seconds(one.child.id()).unwrap_or(0.0));
            }
        }
        let late = Instant::now() > until;
        if stopped() || late {
            running.iter_mut().for_each(kill);
            CLIENTS.lock().expect("as above").clear();
            match late {
                true => bail!("{} did not end within {} s", running[0].shown, patience.as_secs()),
                false => bail!("interrupted"),
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    CLIENTS.lock().expect("as above").clear();
    running.into_iter().zip(cpu_s).map(|(one, cpu)| finish(one, cpu.unwrap_or(0.0))).collect()
}

/// One program, to its end.
pub fn run(command: Command, patience: Duration) -> anyhow::Result<Finished> {
    let mut all = run_all(vec![command], patience)?;
    Ok(all.remove(0))
}

fn start(mut command: Command) -> anyhow::Result<Running> {
    let shown = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    let (output, errors) = (scratch()?, scratch()?);
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(errors.try_clone()?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("{program} cannot be started: is it installed?"))?;
    Ok(Running { child, output, errors, shown })
}

/// A file without a name, so that a chatty program never waits for a reader.
fn scratch() -> anyhow::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    Ok(File::from(memfd_create("shoal-lab", MemfdFlags::CLOEXEC).context("memory for a program's output")?))
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).expect("a child has a process id")
}

/// True if it has ended. It is not reaped, so its processor time can still be read.
fn has_ended(child: &Child) -> anyhow::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(pid(child)), options)?.is_some())
}

fn kill(one: &mut Running) {
    // It may have ended already.
    let _ = rustix::process::kill_process_group(pid(&one.child), Signal::KILL);
    drop(one.child.wait());
}

fn finish(mut one: Running, cpu_s: f64) -> anyhow::Result<Finished> {
    let status = one.child.wait()?;
    let (output, errors) = (contents(&mut one.output)?, contents(&mut one.errors)?);
    if !status.success() {
        let said = if errors.trim().is_empty() { &output } else { &errors };
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        bail!("{}: {status}\n{}", one.shown, lines[lines.len().saturating_sub(6)..].join("\n"));
    }
    Ok(Finished { output, errors, cpu_s })
}

fn contents(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Processor time of a process so far, all its threads and the children it has waited for.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat[stat.rfind(')')? + 2..].split(' ').collect();
    let ticks: f64 = fields.get(11..15)?.iter().filter_map(|f| f.parse::<f64>().ok()).sum();
    Some(ticks / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn process_output_errors_and_time_are_kept() {
        let patience = Duration::from_secs(60);
        let done =
            run(shell("echo out; echo err >&2; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"), patience);
        let done = done.unwrap();
        assert_eq!((done.output.as_str(), done.errors.as_str()), ("out\n", "err\n"));
        assert!(done.cpu_s > 0.0, "a loop takes processor time");
        let error = run(shell("echo why >&2; exit 3"), patience).err().unwrap().to_string();
        assert!(error.contains("exit status: 3") && error.contains("why"), "{error}");
        let error = run(shell("sleep 20"), Duration::from_millis(100)).err().unwrap().to_string();
        assert!(error.contains("did not end"), "{error}");
        let error = run(Command::new("no-such-program"), patience).err().unwrap().to_string();
        assert!(error.contains("is it installed"), "{error}");
    }
}
