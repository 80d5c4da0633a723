//! The load: which operations, how many at a time, for how long.

use super::report::{Progress, Recorder, Report};
use anyhow::Context;
use bytes::Bytes;
use client::{Event, ObjectRef, OpId, Operation, ReadOps, WriteOps};
use client_host::{Access, ClientHost};
use machine::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::types::{OsdFlags, PoolId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Write whole objects' worth at random places among the objects.
    Write,
    /// Read at random places; the objects are written first.
    Read,
    /// Seven reads to three writes.
    Mixed,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Write => "write",
            Work::Read => "read",
            Work::Mixed => "mixed",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Load {
    pub work: Work,
    /// Bytes of one operation.
    pub io_bytes: u64,
    /// Bytes of one object; a multiple of `io_bytes`.
    pub object_bytes: u64,
    pub objects_per_connection: u64,
    pub connections: usize,
    /// Operations in flight on each connection.
    pub depth: usize,
    pub warm_up: Duration,
    pub duration: Duration,
    pub keep_objects: bool,
    /// The objects are there, from a run that kept them.
    pub objects_exist: bool,
}

/// Objects are filled with writes of so much, or of one operation's size where that is more.
const FILL_BYTES: u64 = 4 << 20;

/// Run the load and report. Prints progress to standard error when asked.
pub async fn run(access: &Access, pool: &str, load: &Load, progress: bool) -> anyhow::Result<Report> {
    let mut workers = Vec::new();
    for index in 0..load.connections {
        workers.push(Worker::connect(access, pool, load, index).await?);
    }
    let needs_objects = load.work != Work::Write || load.object_bytes > load.io_bytes;
    if needs_objects && !load.objects_exist {
        for worker in &mut workers {
            worker.fill().await?;
        }
    }
    let start = Instant::now() + load.warm_up;
    let end = start + load.duration;
    let recorder = Rc::new(RefCell::new(Recorder::new(start..end)?));
    let local = tokio::task::LocalSet::new();
    let tasks: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            let recorder = recorder.clone();
            local.spawn_local(async move {
                worker.go(end, &recorder).await?;
                anyhow::Ok(worker)
            })
        })
        .collect();
    let shown = recorder.clone();
    let watch = local.spawn_local(async move {
        const STEP: Duration = Duration::from_millis(200);
        tokio::time::sleep_until(start.into()).await;
        let cpu_at_start = runtime::system::cpu_time();
        let mut line = Progress::new(progress);
        while Instant::now() < end {
            tokio::time::sleep_until((Instant::now() + STEP).min(end).into()).await;
            line.show(&shown.borrow());
        }
        line.clear();
        runtime::system::cpu_time().saturating_sub(cpu_at_start)
    });
    let (mut workers, cpu) = local
        .run_until(async move {
            let mut workers = Vec::new();
            for task in tasks {
                workers.push(task.await.context("a connection's task ended")??);
            }
            anyhow::Ok((workers, watch.await.context("the progress line's task ended")?))
        })
        .await?;
    if !load.keep_objects {
        for worker in &mut workers {
            worker.remove_all().await?;
        }
    }
    anyhow::ensure!(!workers.iter().any(|worker| worker.found_no_room), NO_ROOM);
    let recorder = Rc::into_inner(recorder).context("a task still records")?.into_inner();
    Ok(recorder.report(load, cpu))
}

/// One connection.
struct Worker {
    host: ClientHost,
    pool: PoolId,
    load: Load,
    names: Vec<Box<str>>,
    payload: Bytes,
    /// Different for each connection, the same in each run.
    random: Random,
    /// And when each was submitted.
    in_flight: BTreeMap<OpId, Instant>,
    found_no_room: bool,
}

const NO_ROOM: &str =
    "the cluster or the pool is full (ceph health detail, ceph df): make room, or use another pool";

fn is_no_room(result: i32) -> bool {
    const ENOSPC: i32 = -28;
    const EDQUOT: i32 = -122;
    matches!(result, ENOSPC | EDQUOT)
}

impl Worker {
    async fn connect(access: &Access, pool: &str, load: &Load, index: usize) -> anyhow::Result<Worker> {
        let mut host = ClientHost::new(access)?;
        host.connect(Duration::from_secs(30)).await?;
        let pool = host.client().pool_by_name(pool).with_context(|| format!("there is no pool {pool}"))?;
        let names =
            (0..load.objects_per_connection).map(|n| format!("shoal_bench_{index}_{n}").into()).collect();
        let mut random = Random::from_number(index as u64);
        let mut payload = vec![0; load.io_bytes as usize];
        random.fill(&mut payload);
        Ok(Worker {
            host,
            pool,
            load: load.clone(),
            names,
            payload: payload.into(),
            random,
            in_flight: BTreeMap::new(),
            found_no_room: false,
        })
    }

    fn object(&self, index: usize) -> ObjectRef {
        ObjectRef::new(self.pool, self.names[index].clone())
    }

    /// Every object whole, so that reads find something.
    async fn fill(&mut self) -> anyhow::Result<()> {
        let Load { object_bytes, io_bytes, .. } = self.load;
        let ios = (FILL_BYTES.min(object_bytes) / io_bytes).max(1);
        let payload = Bytes::from(self.payload.repeat(ios as usize));
        let offsets = (0..object_bytes).step_by(payload.len());
        let mut rest = (0..self.names.len()).flat_map(|object| offsets.clone().map(move |at| (object, at)));
        // As many bytes under way as `depth` operations have, and two writes at least.
        let at_once = (self.load.depth / ios as usize).max(2);
        self.do_all(at_once, |worker| {
            let (object, at) = rest.next()?;
            let len = payload.len().min((object_bytes - at) as usize);
            let steps = WriteOps::new().write(at, payload.slice(..len));
            Some(Operation::write(worker.object(object), steps))
        })
        .await
        .context("writing the objects to read")
    }

    async fn remove_all(&mut self) -> anyhow::Result<()> {
        let mut rest = 0..self.names.len();
        self.do_all(self.load.depth, |worker| {
            Some(Operation::write(worker.object(rest.next()?), WriteOps::new().remove()))
        })
        .await
        .context("removing the objects")
    }

    /// All that `next_operation` gives, so many at a time. An object that is not there is no error here.
    async fn do_all(
        &mut self,
        at_once: usize,
        mut next_operation: impl FnMut(&Worker) -> Option<Operation>,
    ) -> anyhow::Result<()> {
        const ENOENT: i32 = -2;
        loop {
            while self.in_flight.len() < at_once {
                let Some(operation) = next_operation(self) else { break };
                self.submit(operation);
            }
            if self.in_flight.is_empty() {
                return Ok(());
            }
            for event in self.host.turn().await {
                let Event::Done { id, outcome } = event else { continue };
                self.in_flight.remove(&id);
                let result = outcome?.result;
                if result < 0 && result != ENOENT {
                    return Err(std::io::Error::from_raw_os_error(-result)).context(if is_no_room(result) {
                        NO_ROOM
                    } else {
                        "an operation failed"
                    });
                }
            }
        }
    }

    /// A full cluster answers, instead of keeping writes until there is room: a load that waits measures nothing.
    fn submit(&mut self, operation: Operation) {
        let operation = if operation.writes() { operation.with_flags(OsdFlags::FULL_TRY) } else { operation };
        let id = self.host.with(|(client, now, fx)| client.submit(now, operation, fx));
        self.in_flight.insert(id, Instant::now());
    }

    fn submit_random(&mut self) {
        let object = self.random.below(self.names.len() as u64) as usize;
        let io = self.random.below(self.load.object_bytes / self.load.io_bytes);
        let offset = io * self.load.io_bytes;
        let reads = match self.load.work {
            Work::Read => true,
            Work::Write => false,
            Work::Mixed => self.random.below(10) < 7,
        };
        let object = self.object(object);
        self.submit(match reads {
            true => Operation::read(object, ReadOps::new().read(offset, self.load.io_bytes)),
            false => Operation::write(object, WriteOps::new().write(offset, self.payload.clone())),
        });
    }

    /// Keep `depth` in flight until the end, or until there is no room, then wait for the last.
    async fn go(&mut self, end: Instant, recorder: &RefCell<Recorder>) -> anyhow::Result<()> {
        let mut done = Vec::new();
        let mut now = Instant::now();
        loop {
            while now < end && !self.found_no_room && self.in_flight.len() < self.load.depth {
                self.submit_random();
            }
            if self.in_flight.is_empty() {
                return Ok(());
            }
            done.extend(self.host.turn().await.filter_map(|event| match event {
                Event::Done { id, outcome } => Some((id, outcome)),
                _ => None,
            }));
            now = Instant::now();
            let mut recorder = recorder.borrow_mut();
            for (id, outcome) in done.drain(..) {
                let Some(submitted_at) = self.in_flight.remove(&id) else { continue };
                let result = outcome.map_or_else(|failure| failure.errno(), |reply| reply.result);
                self.found_no_room |= is_no_room(result);
                recorder.record(submitted_at, now, result);
            }
        }
    }
}
