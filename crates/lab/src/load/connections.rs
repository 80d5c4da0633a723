//! A load over connections to a cluster: objects are filled, operations run on schedule, replies are recorded.
//!
//! Every client of the spec is a connection with a messenger of its own. All of them run on one thread, so that a
//! load generator at its limit shows as one thread at 100 %.

use super::recorder::Progress;
use super::{Next, Recorder, Schedule, Start, content};
use crate::matrix::Spec;
use crate::results::Measured;
use crate::tool::process::stopped;
use anyhow::{Context, ensure};
use bytes::{Bytes, BytesMut};
use client::{Event, ObjectRef, OpId, Operation, ReadOps, WriteOps};
use client_host::{Access, ClientHost};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::types::{Name, OsdFlags, PoolId};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of one operation that fills or removes objects.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of one filling write, unless one operation is larger.
const FILL_BYTES: u64 = 4 << 20;
/// Bytes of filling writes in flight on one connection.
const FILL_BYTES_IN_FLIGHT: u64 = 8 << 20;
const FILL_DEPTH_MAX: u64 = 64;
/// Interval at which Ctrl-C is looked at while nothing happens.
const LOOK_EVERY_NS: u64 = 200_000_000;
const WATCH_EVERY: Duration = Duration::from_millis(200);

pub const NO_ROOM: &str =
    "the cluster or the pool is full (ceph health detail, ceph df): make room, or use another pool";

/// The objects of a load: their names, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Objects {
    /// Object N of connection C is named `PREFIX_C_N`.
    pub prefix: String,
    /// They are there from an earlier load, and are not filled.
    pub exist: bool,
    /// They stay after the load.
    pub keep: bool,
}

impl Objects {
    /// In a pool of the lab's own, which is deleted as a whole.
    pub fn of_own_pool() -> Objects {
        Objects { prefix: "shoal_lab".into(), exist: false, keep: true }
    }
}

/// One load on one pool.
pub struct Load<'a> {
    pub access: &'a Access,
    pub pool: &'a str,
    pub spec: &'a Spec,
    pub objects: Objects,
    /// Time after the end in which replies are awaited.
    pub grace: Duration,
    /// Called several times a second while operations count.
    pub progress: Option<&'a dyn Fn(Progress)>,
}

impl<'a> Load<'a> {
    pub const GRACE: Duration = Duration::from_secs(30);

    pub fn new(access: &'a Access, pool: &'a str, spec: &'a Spec) -> Load<'a> {
        Load { access, pool, spec, objects: Objects::of_own_pool(), grace: Load::GRACE, progress: None }
    }

    /// Fills the objects, calls `begin`, and runs the load when that returns.
    pub fn run(&self, begin: &mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<Measured> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.drive(begin))
    }

    async fn drive(&self, begin: &mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<Measured> {
        let spec = self.spec;
        let mut connections = Vec::new();
        for index in 0..spec.clients {
            connections.push(Connection::open(self, spec.first_client + index).await?);
        }
        if (spec.op.reads() || spec.object_bytes.is_some()) && !self.objects.exist {
            for connection in &mut connections {
                connection.fill().await.context("writing the objects to read")?;
            }
        }
        let ns = |s: f64| (s * 1e9) as u64;
        let (begin_ns, end_ns) = (ns(spec.ramp_s), ns(spec.ramp_s + spec.seconds));
        let recorder = Rc::new(RefCell::new(Recorder::new(begin_ns, end_ns)?));
        begin()?;
        let zero = Instant::now();
        let (connections, cpu) = self.run_connections(connections, zero, &recorder).await?;
        let recorder = Rc::into_inner(recorder).context("a connection still records")?.into_inner();
        let mut measured = recorder.measured();
        let ops = measured.ops_per_s * measured.seconds;
        measured.cpu_us_per_op = vec![("client".into(), cpu.as_secs_f64() * 1e6 / ops.max(1.0))];
        let is_full = connections.iter().any(|connection| connection.found_no_room);
        // A cluster that has not answered would not answer the removals either.
        if !self.objects.keep && measured.unanswered == 0 {
            for mut connection in connections {
                connection.remove_all().await.context("removing the objects")?;
            }
        }
        ensure!(!is_full, NO_ROOM);
        Ok(measured)
    }

    /// All connections to their ends, and the processor time of this process within the window.
    async fn run_connections(
        &self,
        connections: Vec<Connection>,
        zero: Instant,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> anyhow::Result<(Vec<Connection>, Duration)> {
        let local = tokio::task::LocalSet::new();
        let tasks: Vec<_> = connections
            .into_iter()
            .map(|mut connection| {
                let recorder = recorder.clone();
                local.spawn_local(async move {
                    connection.run(zero, &recorder).await?;
                    anyhow::Ok(connection)
                })
            })
            .collect();
        let begin = zero + Duration::from_secs_f64(self.spec.ramp_s);
        let end = begin + Duration::from_secs_f64(self.spec.seconds);
        // A full cluster and a failed connection end the load early.
        let is_over = Cell::new(false);
        let watch = async {
            let pass = async |until: Instant| {
                while Instant::now() < until && !is_over.get() {
                    tokio::time::sleep_until((Instant::now() + WATCH_EVERY).min(until).into()).await;
                    if let Some(progress) = self.progress.filter(|_| Instant::now() > begin) {
                        progress(recorder.borrow().progress(zero.elapsed().as_nanos() as u64));
                    }
                }
            };
            pass(begin).await;
            let before = runtime::system::cpu_time();
            pass(end).await;
            runtime::system::cpu_time().saturating_sub(before)
        };
        let run_all = async {
            let mut done = Vec::new();
            for task in tasks {
                match task.await.context("a connection's task ended").flatten() {
                    Ok(connection) => done.push(connection),
                    Err(error) => {
                        is_over.set(true);
                        return Err(error);
                    }
                }
            }
            is_over.set(true);
            Ok(done)
        };
        let (done, cpu) = local.run_until(async { tokio::join!(run_all, watch) }).await;
        Ok((done?, cpu))
    }
}

struct Connection {
    host: ClientHost,
    pool: PoolId,
    spec: Spec,
    names: Vec<Name>,
    schedule: Schedule,
    payload: Bytes,
    /// Each operation with the version that its block had when it was sent.
    in_flight: BTreeMap<OpId, (Start, u64)>,
    /// The newest acknowledged version of each block, where reads are verified.
    acknowledged: Vec<u64>,
    found_no_room: bool,
}

fn is_no_room(errno: i32) -> bool {
    const ENOSPC: i32 = -28;
    const EDQUOT: i32 = -122;
    matches!(errno, ENOSPC | EDQUOT)
}

impl Connection {
    async fn open(load: &Load<'_>, index: u32) -> anyhow::Result<Connection> {
        let spec = load.spec;
        let mut host = ClientHost::new(load.access)?;
        host.connect(CONNECT_TIMEOUT).await?;
        let pool = host
            .client()
            .pool_by_name(load.pool)
            .with_context(|| format!("there is no pool {}", load.pool))?;
        let share = 1.0 / f64::from(spec.clients);
        let blocks = if spec.verify { spec.objects * spec.blocks_per_object() } else { 0 };
        let prefix = &load.objects.prefix;
        Ok(Connection {
            host,
            pool,
            spec: spec.clone(),
            names: (0..spec.objects).map(|n| format!("{prefix}_{index}_{n}").into()).collect(),
            schedule: Schedule::new(spec, share, u64::from(index) + 1, load.grace.as_nanos() as u64),
            payload: content::make(u64::from(index), 0, spec.op_bytes_max() as usize).into(),
            in_flight: BTreeMap::new(),
            acknowledged: vec![0; blocks as usize],
            found_no_room: false,
        })
    }

    fn object(&self, object: u64) -> ObjectRef {
        ObjectRef::new(self.pool, self.names[object as usize].clone())
    }

    /// A block's number over all objects, which names it in its payload.
    fn block_number(&self, object: u64, block: u64) -> u64 {
        object * self.spec.blocks_per_object() + block
    }

    fn payload(&self, block_number: u64, version: u64, bytes: u64) -> Bytes {
        match self.spec.verify {
            true => content::make(block_number, version, bytes as usize).into(),
            false => self.payload.slice(..bytes as usize),
        }
    }

    /// Writes every object whole, so that reads find bytes.
    async fn fill(&mut self) -> anyhow::Result<()> {
        let block_bytes = self.spec.op_bytes_max();
        let blocks_per_object = self.spec.blocks_per_object();
        let blocks_at_once = (FILL_BYTES / block_bytes).clamp(1, blocks_per_object);
        let depth = (FILL_BYTES_IN_FLIGHT / (blocks_at_once * block_bytes)).clamp(2, FILL_DEPTH_MAX);
        let first_blocks = (0..blocks_per_object).step_by(blocks_at_once as usize);
        let mut rest = (0..self.spec.objects).flat_map(|o| first_blocks.clone().map(move |b| (o, b)));
        self.do_all(depth as usize, |connection| {
            let (object, first) = rest.next()?;
            let blocks = first..(first + blocks_at_once).min(blocks_per_object);
            let mut data = BytesMut::with_capacity(((blocks.end - blocks.start) * block_bytes) as usize);
            for block in blocks {
                let number = connection.block_number(object, block);
                data.extend_from_slice(&connection.payload(number, 0, block_bytes));
            }
            let steps = match blocks_per_object {
                1 => WriteOps::new().write_full(data.freeze()),
                _ => WriteOps::new().write(first * block_bytes, data.freeze()),
            };
            Some(Operation::write(connection.object(object), steps))
        })
        .await
    }

    async fn remove_all(&mut self) -> anyhow::Result<()> {
        let mut rest = 0..self.spec.objects;
        self.do_all(self.spec.depth as usize, |connection| {
            Some(Operation::write(connection.object(rest.next()?), WriteOps::new().remove()))
        })
        .await
    }

    /// All operations that `next_operation` returns, `depth` at a time. A missing object is no error.
    async fn do_all(
        &mut self,
        depth: usize,
        mut next_operation: impl FnMut(&Connection) -> Option<Operation>,
    ) -> anyhow::Result<()> {
        const ENOENT: i32 = -2;
        let mut in_flight = 0;
        loop {
            ensure!(!stopped(), "interrupted");
            while in_flight < depth {
                let Some(operation) = next_operation(self) else { break };
                self.send(operation.with_timeout(PREPARE_TIMEOUT));
                in_flight += 1;
            }
            if in_flight == 0 {
                return Ok(());
            }
            let look = self.host.now() + Duration::from_nanos(LOOK_EVERY_NS);
            for event in self.host.turn_until(look).await {
                let Event::Done { outcome, .. } = event else { continue };
                in_flight -= 1;
                let errno = outcome?.result;
                ensure!(!is_no_room(errno), NO_ROOM);
                if errno < 0 && errno != ENOENT {
                    return Err(std::io::Error::from_raw_os_error(-errno).into());
                }
            }
        }
    }

    /// A full cluster is to reply with an error, and not to hold writes back until there is room: a load that is held
    /// back measures nothing.
    fn send(&mut self, operation: Operation) -> OpId {
        let operation = if operation.writes() { operation.with_flags(OsdFlags::FULL_TRY) } else { operation };
        self.host.with(|(client, now, fx)| client.submit(now, operation, fx))
    }

    fn start(&mut self, start: Start) {
        let object = self.object(start.object);
        let number = self.block_number(start.object, start.block);
        let acknowledged = self.acknowledged.get(number as usize).copied().unwrap_or(0);
        let operation = match start.read {
            true => Operation::read(object, ReadOps::new().read(start.offset(), start.bytes)),
            false => {
                let payload = self.payload(number, start.ticket, start.bytes);
                Operation::write(object, WriteOps::new().write(start.offset(), payload))
            }
        };
        let id = self.send(operation);
        self.in_flight.insert(id, (start, acknowledged));
    }

    async fn run(&mut self, zero: Instant, recorder: &RefCell<Recorder>) -> anyhow::Result<()> {
        let mut done = Vec::new();
        // The load's clock less the client's.
        let zero_at_host = self.host.now().0.saturating_sub(zero.elapsed().as_nanos() as u64);
        loop {
            ensure!(!stopped(), "interrupted");
            let now_ns = zero.elapsed().as_nanos() as u64;
            let until_ns = match self.schedule.next(now_ns) {
                Next::Start(start) => {
                    self.start(start);
                    continue;
                }
                Next::Wait { until_ns } => until_ns,
                Next::Over { unanswered } => {
                    recorder.borrow_mut().give_up(unanswered);
                    return Ok(());
                }
            };
            // On a grid, so that the timer is set again only a few times a second while replies keep coming.
            let look_ns = (now_ns / LOOK_EVERY_NS + 1) * LOOK_EVERY_NS;
            let until = machine::Time(zero_at_host + until_ns.min(look_ns));
            done.extend(self.host.turn_until(until).await.filter_map(|event| match event {
                Event::Done { id, outcome } => Some((id, outcome)),
                _ => None,
            }));
            let now_ns = zero.elapsed().as_nanos() as u64;
            let mut recorder = recorder.borrow_mut();
            for (id, outcome) in done.drain(..) {
                let Some((start, acknowledged)) = self.in_flight.remove(&id) else { continue };
                self.schedule.answered(now_ns);
                let errno = outcome.as_ref().map_or_else(|failure| failure.errno(), |reply| reply.result);
                recorder.done(now_ns, &start, errno);
                if is_no_room(errno) {
                    self.found_no_room = true;
                    self.schedule.stop_early(now_ns);
                }
                if !self.spec.verify {
                    continue;
                }
                let number = self.block_number(start.object, start.block);
                if !start.read && errno >= 0 {
                    let newest = &mut self.acknowledged[number as usize];
                    *newest = (*newest).max(start.ticket);
                } else if let (true, Ok(reply)) = (start.read, outcome.as_ref()) {
                    recorder.checked += 1;
                    let is_right = content::check(number, acknowledged, &reply.data(0));
                    recorder.wrong += u64::from(!is_right);
                }
            }
        }
    }
}
