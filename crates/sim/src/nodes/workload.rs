//! The operations that clients draw, their encoding, and the decoding of their answers.

use crate::check::object::LOCK_NAME;
use crate::check::{Answer, Fill, History, Output, Step};
use bytes::Bytes;
use client::{ObjectRef, Operation, ReadOps, Reply, WriteOps};
use codec::{DecodeError, Encode, Features, Writer};
use machine::Random;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::cls::lock::{GetInfoOp, LockInfo, LockOp, LockType, UnlockOp};
use wire::types::cls::version::{CondsOp, VersionBox};
use wire::types::op_value;

#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Objects of each pool that most operations use.
    pub objects: u64,
    /// Further objects that are rarely written, so that reads find damage in them.
    pub cold_objects: u64,
    /// Writes are up to two units long.
    pub unit_bytes: u64,
    /// Maximum operations in flight.
    pub depth: usize,
    /// Maximum pause between two operations.
    pub pause_max: Duration,
    /// Of 16 operations, the number that start a burst: further operations on the same object, up to `depth`.
    pub bursts: u64,
    /// Of this many operations one goes to any acting OSD if it only reads. 0: none.
    pub balanced_every: u64,
}

/// Attributes and omap keys: keys with unique values, one that guards compare, and counters.
const XATTRS: [&str; 2] = ["a", "b"];
const GUARD: &str = "guard";
const KEYS: [&str; 5] = ["k0", "k1", "k2", "k3", "k4"];
const NUMBERS: [&str; 2] = ["n0", "n1"];
/// Number of values that guards compare. Few, so that some comparisons succeed.
const GUARD_VALUES: u64 = 3;

impl Workload {
    /// Draws the number of an object.
    pub(super) fn object(&self, random: &mut Random) -> u64 {
        match random.below(COLD_ONE_IN) {
            0 => random.below(self.objects + self.cold_objects),
            _ => random.below(self.objects),
        }
    }
}

/// One operation in this many draws from all objects, the others from the hot ones.
const COLD_ONE_IN: u64 = 8;

/// Draws operations for one client.
#[derive(Debug, Default)]
pub(super) struct Draw {
    /// The client's last write at the start of each object, for comparisons that sometimes succeed.
    heads: BTreeMap<String, Fill>,
}

impl Draw {
    /// Draws a list of steps on `object`. With `reads` the list changes nothing.
    pub(super) fn steps(
        &mut self,
        random: &mut Random,
        workload: &Workload,
        history: &mut History,
        object: &str,
        owner: i64,
        reads: bool,
    ) -> Vec<Step> {
        let mut cx = Cx { random, workload, history };
        if reads || cx.random.below(16) < 6 {
            return cx.read();
        }
        let mut steps = match cx.random.below(16) {
            0..10 => vec![cx.write_step()],
            10..12 => vec![cx.class_step(owner)],
            _ => {
                let mut steps: Vec<Step> = self.guard(&mut cx, object).into_iter().collect();
                for _ in 0..1 + cx.random.below(4) {
                    steps.push(cx.write_step());
                }
                steps
            }
        };
        // A removal empties the object. Most lists leave it out, so that objects grow.
        if steps.len() > 1 && cx.random.below(4) > 0 {
            steps.retain(|step| *step != Step::Remove);
        }
        if !steps.iter().any(Step::writes) {
            steps.push(cx.write_step());
        }
        for step in &steps {
            if let Step::WriteFull(fill) | Step::Write { offset: 0, fill } = step {
                self.heads.insert(object.to_owned(), *fill);
            }
        }
        steps
    }

    fn guard(&self, cx: &mut Cx<'_>, object: &str) -> Option<Step> {
        Some(match cx.random.below(6) {
            0 => Step::Stat,
            1 => Step::CompareXattr { name: GUARD, value: cx.guard_value() },
            2 => Step::CompareOmap { key: GUARD, value: cx.guard_value() },
            3 => Step::CompareExtent { offset: 0, fill: *self.heads.get(object)? },
            4 => Step::Create { exclusive: true },
            _ => return None,
        })
    }
}

struct Cx<'a> {
    random: &'a mut Random,
    workload: &'a Workload,
    history: &'a mut History,
}

impl Cx<'_> {
    fn any(&mut self, of: &[&'static str]) -> &'static str {
        of[self.random.below(of.len() as u64) as usize]
    }

    fn some(&mut self, of: &[&'static str]) -> Vec<&'static str> {
        let some: Vec<_> = of.iter().copied().filter(|_| self.random.below(2) == 0).collect();
        if some.is_empty() { vec![self.any(of)] } else { some }
    }

    /// A length of at least two words, so that a read shows the token.
    fn len(&mut self) -> u64 {
        16 + self.random.below(2 * self.workload.unit_bytes)
    }

    fn offset(&mut self) -> u64 {
        match self.random.below(4) {
            0 => 0,
            1 => self.random.below(4) * self.workload.unit_bytes,
            _ => self.random.below(4 * self.workload.unit_bytes),
        }
    }

    fn fill(&mut self) -> Fill {
        Fill { token: self.history.token(), len: self.len() }
    }

    /// A small unique value.
    fn value(&mut self) -> Bytes {
        let token = self.history.token();
        let padding = if self.random.below(8) == 0 { self.random.below(200) as usize } else { 0 };
        format!("{token}{}", ".".repeat(padding)).into()
    }

    fn guard_value(&mut self) -> Bytes {
        format!("g{}", self.random.below(GUARD_VALUES)).into()
    }

    fn read(&mut self) -> Vec<Step> {
        match self.random.below(16) {
            0..6 => everything(),
            6 | 7 => vec![Step::Read { offset: 0, len: 0 }],
            8 => vec![Step::Read { offset: self.offset(), len: self.len() }, Step::Stat],
            9 => vec![Step::SparseRead { offset: self.offset(), len: 4 * self.len() }],
            10 => vec![Step::GetXattr(self.any(&XATTRS)), Step::GetXattrs],
            11 => {
                let (after, max) = (self.any(&KEYS), 1 + self.random.below(3));
                vec![Step::OmapKeys { after, max }, Step::OmapEntries { after: "", max }]
            }
            12 => vec![Step::OmapGet(self.some(&KEYS)), Step::OmapHeader],
            13 => vec![Step::OmapGet(NUMBERS.to_vec()), Step::VersionRead],
            14 => vec![Step::LockInfo],
            _ => vec![Step::Stat],
        }
    }

    fn write_step(&mut self) -> Step {
        match self.random.below(32) {
            0..4 => Step::WriteFull(self.fill()),
            4..9 => Step::Write { offset: self.offset(), fill: self.fill() },
            9..13 => Step::Append(self.fill()),
            13 | 14 => Step::Zero { offset: self.offset(), len: self.len() },
            15..17 => Step::Truncate { size: self.offset() },
            17..19 => Step::Remove,
            19 => Step::Create { exclusive: self.random.below(2) == 0 },
            20..22 => Step::SetXattr { name: self.any(&XATTRS), value: self.value() },
            22 => Step::SetXattr { name: GUARD, value: self.guard_value() },
            23 => Step::RemoveXattr(self.any(&[XATTRS[0], XATTRS[1], GUARD])),
            24..26 => {
                let keys = self.some(&KEYS);
                Step::OmapSet(keys.into_iter().map(|key| (key, self.value())).collect())
            }
            26 => Step::OmapSet([(GUARD, self.guard_value())].into()),
            27 => Step::OmapSetHeader(self.value()),
            28 => Step::OmapRemove(self.some(&KEYS)),
            29 => {
                let (from, to) = (self.any(&KEYS), self.any(&KEYS));
                Step::OmapRemoveRange { from: from.min(to), to: from.max(to) }
            }
            30 => Step::OmapClear,
            _ => Step::Add { key: self.any(&NUMBERS), by: 1 + self.random.below(9) },
        }
    }

    fn class_step(&mut self, owner: i64) -> Step {
        match self.random.below(8) {
            0..4 => Step::Add { key: self.any(&NUMBERS), by: 1 + self.random.below(9) },
            4 | 5 => Step::VersionIncrement,
            6 => Step::Lock { owner },
            _ => Step::Unlock { owner },
        }
    }
}

/// Reads the whole object.
pub(super) fn everything() -> Vec<Step> {
    vec![
        Step::Stat,
        Step::Read { offset: 0, len: 0 },
        Step::GetXattrs,
        Step::OmapHeader,
        Step::OmapEntries { after: "", max: 100 },
        Step::VersionRead,
        Step::LockInfo,
    ]
}

/// The client operation for a list.
pub(super) fn operation(object: ObjectRef, steps: &[Step]) -> Operation {
    if steps.iter().any(Step::writes) {
        Operation::write(object, steps.iter().fold(WriteOps::new(), write_op))
    } else {
        Operation::read(object, steps.iter().fold(ReadOps::new(), read_op))
    }
}

fn read_op(ops: ReadOps, step: &Step) -> ReadOps {
    let bytes = |key: &&'static str| Bytes::from_static(key.as_bytes());
    match step {
        Step::Read { offset, len } => ops.read(*offset, *len),
        Step::SparseRead { offset, len } => ops.sparse_read(*offset, *len),
        Step::Stat => ops.stat(),
        Step::GetXattr(name) => ops.get_xattr(name),
        Step::GetXattrs => ops.get_xattrs(),
        Step::OmapKeys { after, max } => ops.omap_keys(after.as_bytes(), *max),
        Step::OmapEntries { after, max } => ops.omap_entries(after.as_bytes(), b"", *max),
        Step::OmapGet(keys) => ops.omap_get(&keys.iter().map(bytes).collect::<Vec<_>>()),
        Step::OmapHeader => ops.omap_header(),
        Step::VersionRead => ops.exec("version", "read", &[]),
        Step::LockInfo => {
            let argument = GetInfoOp { name: LOCK_NAME.into() };
            ops.exec("lock", "get_info", &argument.to_vec(Features::ALL))
        }
        other => unreachable!("{other:?} is not drawn in a list that reads"),
    }
}

fn write_op(ops: WriteOps, step: &Step) -> WriteOps {
    let bytes = |key: &&'static str| Bytes::from_static(key.as_bytes());
    let data = |fill: &Fill| Bytes::from(fill.bytes());
    match step {
        Step::Stat => ops.assert_exists(),
        Step::CompareXattr { name, value } => {
            ops.compare_xattr(name, op_value::CMP_EQ, op_value::CMP_MODE_STRING, value)
        }
        Step::CompareExtent { offset, fill } => ops.compare_extent(*offset, data(fill)),
        Step::CompareOmap { key, value } => {
            ops.compare_omap(&[(bytes(key), (value.clone(), op_value::CMP_EQ.into()))].into())
        }
        Step::Create { exclusive } => ops.create(*exclusive),
        Step::Write { offset, fill } => ops.write(*offset, data(fill)),
        Step::WriteFull(fill) => ops.write_full(data(fill)),
        Step::Append(fill) => ops.append(data(fill)),
        Step::Zero { offset, len } => ops.zero(*offset, *len),
        Step::Truncate { size } => ops.truncate(*size),
        Step::Remove => ops.remove(),
        Step::SetXattr { name, value } => ops.set_xattr(name, value),
        Step::RemoveXattr(name) => ops.remove_xattr(name),
        Step::OmapSet(entries) => {
            ops.omap_set(&entries.iter().map(|(key, value)| (bytes(key), value.clone())).collect())
        }
        Step::OmapSetHeader(header) => ops.omap_set_header(header.clone()),
        Step::OmapRemove(keys) => ops.omap_remove(&keys.iter().map(bytes).collect::<Vec<_>>()),
        Step::OmapRemoveRange { from, to } => ops.omap_remove_range(from.as_bytes(), to.as_bytes()),
        Step::OmapClear => ops.omap_clear(),
        Step::Add { key, by } => {
            let mut w = Writer::new(Features::ALL);
            w.string(key);
            w.string(&by.to_string());
            ops.exec("numops", "add", &w.into_bytes())
        }
        Step::VersionIncrement => ops.exec("version", "inc", &CondsOp::default().to_vec(Features::ALL)),
        Step::Lock { .. } => {
            let argument = LockOp { name: LOCK_NAME.into(), kind: LockType::EXCLUSIVE, ..LockOp::default() };
            ops.exec("lock", "lock", &argument.to_vec(Features::ALL))
        }
        Step::Unlock { .. } => {
            let argument = UnlockOp { name: LOCK_NAME.into(), cookie: Default::default() };
            ops.exec("lock", "unlock", &argument.to_vec(Features::ALL))
        }
        other => unreachable!("{other:?} is not drawn in a list that writes"),
    }
}

/// The answer in a reply, step by step.
pub(super) fn answer(steps: &[Step], reply: &Reply) -> Result<Answer, DecodeError> {
    if reply.result < 0 {
        return Ok(Answer::failed(reply.result));
    }
    if steps.iter().any(Step::writes) {
        return Ok(Answer::done());
    }
    let outputs = steps.iter().enumerate().map(|(at, step)| output(step, at, reply));
    Ok(Answer::with(outputs.collect::<Result<_, _>>()?))
}

fn output(step: &Step, at: usize, reply: &Reply) -> Result<Output, DecodeError> {
    Ok(match step {
        Step::Read { .. } => Output::Data(reply.data(at)),
        Step::SparseRead { .. } => Output::Extents(reply.sparse(at)?),
        Step::Stat => Output::Size(reply.stat(at)?.0),
        Step::GetXattr(_) | Step::OmapHeader => Output::Value(reply.data(at)),
        Step::GetXattrs | Step::OmapGet(_) => Output::Map(reply.map(at)?),
        Step::OmapKeys { .. } => reply.keys(at).map(|(keys, more)| Output::Keys(keys, more))?,
        Step::OmapEntries { .. } => reply.entries(at).map(|(map, more)| Output::Entries(map, more))?,
        Step::VersionRead => Output::Number(reply.decode::<VersionBox>(at)?.version.version),
        Step::LockInfo => {
            let lock: LockInfo = reply.decode(at)?;
            Output::Owner(lock.lockers.keys().next().map(|locker| locker.locker.num))
        }
        _ => Output::None,
    })
}
