//! shoal's own load generator on a cluster: the lab says what to do when, this does it over connections.
//!
//! Every client of the spec is a connection with a messenger of its own; all run on one thread, so that a generator at
//! its limit shows as one thread at 100 %. Latency counts from when an operation was meant to begin.

use anyhow::Context;
use bytes::Bytes;
use client::{Event, ObjectRef, OpId, Operation, ReadOps, WriteOps};
use client_host::{Access, ClientHost};
use lab::load::{Generator, Recorder, Start, content};
use lab::matrix::Spec;
use lab::results::Measured;
use lab::tool::process::stopped;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::types::PoolId;

/// How long answers to the last operations are waited for.
const DRAIN: Duration = Duration::from_secs(30);
/// Objects being written at once before reads begin.
const FILL_DEPTH: usize = 32;

pub async fn run(
    access: &Access,
    pool: &str,
    spec: &Spec,
    begin: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    let mut workers = Vec::new();
    for index in 0..spec.clients {
        workers.push(Worker::connect(access, pool, spec, spec.first_client + index).await?);
    }
    if spec.op.reads() {
        for worker in &mut workers {
            worker.fill().await.context("writing what will be read")?;
        }
    }
    let window = |s: f64| (s * 1e9) as u64;
    let recorder = Recorder::new(window(spec.ramp_s), window(spec.ramp_s + spec.seconds))?;
    let recorder = Rc::new(RefCell::new(recorder));
    begin()?;
    let zero = Instant::now();
    let cpu_before = runtime::system::cpu_time();
    let local = tokio::task::LocalSet::new();
    let tasks: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            let recorder = recorder.clone();
            local.spawn_local(async move { worker.go(zero, &recorder).await })
        })
        .collect();
    local
        .run_until(async {
            for task in tasks {
                task.await.context("a connection's task ended")??;
            }
            anyhow::Ok(())
        })
        .await?;
    let cpu = runtime::system::cpu_time().saturating_sub(cpu_before);
    let recorder = Rc::into_inner(recorder).context("a task still records")?.into_inner();
    if let Some(errno) = recorder.first_error() {
        let error = std::io::Error::from_raw_os_error(-errno);
        eprintln!("the first operation that failed: {error}");
    }
    let mut measured = recorder.measured();
    let all_ops = measured.ops_per_s * (spec.seconds + spec.ramp_s);
    measured.cpu_us_per_op = vec![("client".into(), cpu.as_secs_f64() * 1e6 / all_ops.max(1.0))];
    Ok(measured)
}

/// One connection.
struct Worker {
    host: ClientHost,
    pool: PoolId,
    spec: Spec,
    index: u32,
    generator: Generator,
    payload: Bytes,
    in_flight: BTreeMap<OpId, (Start, u64)>,
    /// The newest version of each object that was acknowledged.
    acknowledged: Vec<u64>,
}

impl Worker {
    async fn connect(access: &Access, pool: &str, spec: &Spec, index: u32) -> anyhow::Result<Worker> {
        let mut host = ClientHost::new(access)?;
        host.connect(Duration::from_secs(30)).await?;
        let pool = host.client().pool_by_name(pool).with_context(|| format!("there is no pool {pool}"))?;
        let generator = Generator::new(spec, 1.0 / f64::from(spec.clients), u64::from(index) + 1);
        Ok(Worker {
            host,
            pool,
            spec: spec.clone(),
            index,
            generator,
            payload: content::make(u64::from(index), 0, spec.op_bytes_max() as usize).into(),
            in_flight: BTreeMap::new(),
            acknowledged: vec![0; spec.objects as usize],
        })
    }

    fn object(&self, object: u64) -> ObjectRef {
        ObjectRef::new(self.pool, format!("shoal_lab_{}_{object}", self.index))
    }

    fn payload(&self, object: u64, version: u64, bytes: u64) -> Bytes {
        match self.spec.verify {
            true => content::make(object, version, bytes as usize).into(),
            false => self.payload.slice(..bytes as usize),
        }
    }

    /// Every object once, so that reads find something.
    async fn fill(&mut self) -> anyhow::Result<()> {
        let (mut next, mut waiting) = (0, 0);
        while next < self.spec.objects || waiting > 0 {
            anyhow::ensure!(!stopped(), "interrupted");
            while next < self.spec.objects && waiting < FILL_DEPTH {
                let steps = WriteOps::new().write_full(self.payload(next, 0, self.spec.op_bytes_max()));
                let operation = Operation::write(self.object(next), steps).with_timeout(DRAIN);
                self.host.with(|(client, now, fx)| client.submit(now, operation, fx));
                (next, waiting) = (next + 1, waiting + 1);
            }
            for event in self.host.turn().await {
                let Event::Done { outcome, .. } = event else { continue };
                waiting -= 1;
                let result = outcome?.result;
                anyhow::ensure!(
                    result >= 0,
                    "a write failed: {}",
                    std::io::Error::from_raw_os_error(-result)
                );
            }
        }
        Ok(())
    }

    fn submit(&mut self, start: Start) {
        let object = self.object(start.object);
        let (bytes, known) = (start.bytes, self.acknowledged[start.object as usize]);
        let operation = match start.read {
            true => Operation::read(object, ReadOps::new().read(0, bytes)),
            false => Operation::write(
                object,
                WriteOps::new().write(0, self.payload(start.object, start.ticket, bytes)),
            ),
        };
        let id = self.host.with(|(client, now, fx)| client.submit(now, operation, fx));
        self.in_flight.insert(id, (start, known));
    }

    async fn go(&mut self, zero: Instant, recorder: &RefCell<Recorder>) -> anyhow::Result<()> {
        let end_ns = recorder.borrow().end_ns();
        let at = |ns: u64| zero + Duration::from_nanos(ns);
        let mut done = Vec::new();
        loop {
            let now_ns = zero.elapsed().as_nanos() as u64;
            anyhow::ensure!(!stopped(), "interrupted");
            while now_ns < end_ns
                && let Some(start) = self.generator.next(now_ns)
            {
                self.submit(start);
            }
            if now_ns >= end_ns && self.in_flight.is_empty() {
                return Ok(());
            }
            anyhow::ensure!(
                now_ns < end_ns + DRAIN.as_nanos() as u64,
                "{} operations are not answered {} s after the end",
                self.in_flight.len(),
                DRAIN.as_secs()
            );
            // Until something is answered, or the next operation is due, or it is time to look at Ctrl-C.
            let due = self.generator.next_due_ns().filter(|ns| *ns < end_ns).unwrap_or(end_ns.max(now_ns));
            let wake = at(due.clamp(now_ns, now_ns + 200_000_000)).max(Instant::now());
            let wait = wake.saturating_duration_since(Instant::now());
            let wait = if now_ns >= end_ns { Duration::from_millis(100) } else { wait };
            match tokio::time::timeout(wait, self.host.turn()).await {
                Ok(events) => done.extend(events.filter_map(|event| match event {
                    Event::Done { id, outcome } => Some((id, outcome)),
                    _ => None,
                })),
                Err(_) => continue,
            }
            let now_ns = zero.elapsed().as_nanos() as u64;
            let mut recorder = recorder.borrow_mut();
            for (id, outcome) in done.drain(..) {
                let Some((start, known)) = self.in_flight.remove(&id) else { continue };
                self.generator.done(now_ns, &start);
                let errno = outcome.as_ref().map_or_else(|failure| failure.errno(), |reply| reply.result);
                recorder.done(now_ns, &start, errno);
                let object = start.object as usize;
                if !start.read && errno >= 0 {
                    self.acknowledged[object] = self.acknowledged[object].max(start.ticket);
                } else if let (true, true, Ok(reply)) = (start.read, self.spec.verify, outcome.as_ref()) {
                    recorder.checked += 1;
                    let is_right = content::check(start.object, known, &reply.data(0));
                    recorder.wrong += u64::from(!is_right);
                }
            }
        }
    }
}
