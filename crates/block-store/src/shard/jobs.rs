//! Waiting transactions and reads, in queues by collection.
//!
//! A transaction waits for earlier ones of its collections, a read for earlier transactions. Only the head of a queue is
//! tried.

use super::commit::{Fit, log_bytes};
use super::{DataRequest, Failure, Phase, Shard};
use crate::index::Ticket;
use crate::io::Owner;
use crate::plan::{Effect, Fetched, Plan, Rest, ShardState, is_divisible, log_bytes_bound};
use crate::reading::InMemory;
use crate::space::Run;
use crate::view::{View, Wait};
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Collection, Completion, ReadRequest, Refusal, Transaction};

/// Tables that the look-ups of a plan ask in one turn: a transaction of more keys goes on in the next one. A table out of reach of the
/// processor's caches takes up to 3 us.
pub(super) const PROBES_OF_PLAN: u64 = 512;
/// Waits of a transaction, or of a part, after which its plan has no limit: flushes may have forgotten its answers again and again.
const LIMITED_PLANS_MAX: u32 = 64;

/// Work of a plan that had to wait, in addition to its queries, in query steps.
const FAILED_PLAN_STEPS: u64 = 16;

#[derive(Default)]
pub(super) struct Jobs {
    next: u64,
    by_ticket: BTreeMap<u64, Job>,
    queues: BTreeMap<Collection, VecDeque<u64>>,
    /// Heads of queues wait for room, or for the next poll.
    stalled: bool,
    /// The collection that the last poll had no time for: the next one begins with it.
    goes_on_with: Option<Collection>,
    /// One of them waits for blocks.
    out_of_space: bool,
    /// Numbers that the cleaner is done with.
    cleaned: u64,
    /// Collections with a refusal that the caller has not seen.
    refusing: BTreeMap<Collection, Refusal>,
}

struct Job {
    tag: u64,
    work: Work,
    /// Times that it was planned and had to wait, since its last part was applied.
    waits_before: u32,
    fetched: Fetched,
    /// Number of blocks being read for it.
    fetching: usize,
    /// It waits for anything but room in the log.
    waits: bool,
    /// It waits for blocks.
    lacks_space: bool,
    /// It waits for a shorter chain of layers since the cleaner was done with so many numbers.
    chain_since: Option<u64>,
    divided: Option<Divided>,
}

/// State of a transaction that is planned and applied in parts.
#[derive(Clone, Copy)]
enum Divided {
    /// The tables are asked for what the rest needs.
    Asking(Rest),
    /// The rest is to be applied.
    Applying(Rest),
}

/// Outcome of a plan.
enum Planned {
    Whole(Effect),
    /// A part, and what is left behind it.
    Part(Effect, Option<Rest>),
    /// It goes on in the next turn.
    Asked,
}

enum Work {
    Transaction(Transaction),
    /// A read that is queued behind transactions, or waits for the index.
    Read(ReadRequest),
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    fn add(&mut self, tag: u64, work: Work) -> u64 {
        self.next += 1;
        let job = Job {
            tag,
            work,
            waits_before: 0,
            fetched: Fetched::new(),
            fetching: 0,
            waits: false,
            lacks_space: false,
            chain_since: None,
            divided: None,
        };
        self.by_ticket.insert(self.next, job);
        self.next
    }

    /// True if a job waits for blocks.
    pub(super) fn lack_space(&self) -> bool {
        self.out_of_space
    }

    /// The collection of a transaction that waits.
    pub(super) fn collection_of(&self, ticket: u64) -> Option<Collection> {
        match &self.by_ticket.get(&ticket)?.work {
            Work::Transaction(transaction) => Some(transaction.collection),
            Work::Read(_) => None,
        }
    }

    pub(super) fn refusal_of(&self, collection: Collection) -> Option<Refusal> {
        self.refusing.get(&collection).copied()
    }

    /// The caller has all refusals: later transactions do not count on refused ones.
    pub(super) fn refusals_are_told(&mut self) {
        self.refusing.clear();
    }

    fn is_first(&self, ticket: u64, transaction: &Transaction) -> bool {
        transaction.collections().all(|c| self.queues.get(&c).is_some_and(|q| q.front() == Some(&ticket)))
    }

    fn dequeue(&mut self, ticket: u64, collection: Collection) {
        if let Some(queue) = self.queues.get_mut(&collection) {
            queue.retain(|t| *t != ticket);
            if queue.is_empty() {
                self.queues.remove(&collection);
            }
        }
    }
}

impl Shard {
    pub(super) fn submit_job(&mut self, tag: u64, transaction: Transaction) {
        let is_free = transaction.collections().all(|c| !self.jobs.queues.contains_key(&c));
        let mut wait = None;
        let divided =
            is_divisible(&transaction, self.options.part_keys_max).then(|| Divided::Asking(Rest::default()));
        if is_free && divided.is_none() && self.log_has_room() {
            // The ticket of the job, if it has to wait.
            match self.plan(Ticket(self.jobs.next + 1), &transaction, &Fetched::new(), 0) {
                Ok(effect) => return self.apply(effect, Some(tag)),
                Err(why) => wait = Some(why),
            }
        }
        let collections: SmallVec<[Collection; 2]> = transaction.collections().collect();
        let ticket = self.jobs.add(tag, Work::Transaction(transaction));
        self.job(ticket).divided = divided;
        for collection in collections {
            let queue = self.jobs.queues.entry(collection).or_default();
            if queue.back() != Some(&ticket) {
                queue.push_back(ticket);
            }
        }
        match wait {
            Some(wait) => self.job_waits(ticket, wait),
            None if divided.is_some() => (self.jobs.stalled, self.work_is_due) = (true, true),
            None => {
                if is_free {
                    self.count_wait();
                }
                self.jobs.stalled = true;
            }
        }
    }

    fn plan(
        &mut self,
        ticket: Ticket,
        transaction: &Transaction,
        fetched: &Fetched,
        waits_before: u32,
    ) -> Result<Effect, Wait> {
        let plan = |shard: &mut Shard| shard.begin_plan(ticket, fetched).transaction(transaction);
        let effect = self.within_limit(waits_before, plan)?;
        let wait = match self.fits(&effect) {
            Fit::Now => return Ok(effect),
            Fit::Later => Wait::Log,
            Fit::Never => Wait::Refused(Refusal::TooLarge),
        };
        effect.taken.iter().for_each(|run| self.space.untake(*run));
        Err(wait)
    }

    /// Plans with few look-ups in the tables, unless the transaction has waited often.
    fn within_limit<T>(&mut self, waits_before: u32, plan: impl FnOnce(&mut Shard) -> T) -> T {
        self.index.begin_caller((waits_before < LIMITED_PLANS_MAX).then_some(PROBES_OF_PLAN));
        let planned = plan(self);
        self.index.begin_caller(None);
        self.ended(Phase::Planning);
        planned
    }

    fn begin_plan<'a>(&'a mut self, ticket: Ticket, fetched: &'a Fetched) -> Plan<'a> {
        let cleaner_works = self.cleaner_works();
        let Shard {
            index, io, space, staged, clean, collections, pools, compression, options, totals, ..
        } = self;
        let view = View { index, io, ticket };
        let range_keys_min = options.range_keys_min;
        let totals = *totals;
        let known = ShardState { collections, pools, compression, range_keys_min, totals, cleaner_works };
        Plan::new(view, space, InMemory { staged, clean }, fetched, known)
    }

    /// Plans a transaction, or the next part of a divided one.
    fn plan_next(&mut self, ticket: Ticket, job: &mut Job) -> Result<Planned, Wait> {
        let Work::Transaction(transaction) = &job.work else { unreachable!("a transaction") };
        let max = self.options.part_keys_max;
        match job.divided {
            None => {}
            Some(Divided::Asking(rest)) => {
                let ask =
                    |shard: &mut Shard| shard.begin_plan(ticket, &Fetched::new()).ask(transaction, rest, max);
                let (rest, waits) = self.within_limit(job.waits_before, ask)?;
                job.divided = Some(rest.map_or(Divided::Applying(Rest::default()), Divided::Asking));
                return if waits { Err(Wait::Index) } else { Ok(Planned::Asked) };
            }
            Some(Divided::Applying(rest)) => {
                let part = |shard: &mut Shard| {
                    shard.begin_plan(ticket, &Fetched::new()).part(transaction, rest, max)
                };
                let (effect, behind) = self.within_limit(job.waits_before, part)?;
                // Room for all parts. The first one has the object's record; later ones patch it.
                let bytes = || log_bytes(&effect).0 + log_bytes_bound(transaction);
                match rest.is_all().then(|| self.fits_bytes(bytes(), 0)) {
                    None | Some(Fit::Now) => return Ok(Planned::Part(effect, behind)),
                    Some(Fit::Later) => return Err(Wait::Log),
                    // The bound is generous: the whole plan tells.
                    Some(Fit::Never) => job.divided = None,
                }
            }
        }
        self.plan(ticket, transaction, &job.fetched, job.waits_before).map(Planned::Whole)
    }

    fn job_waits(&mut self, ticket: u64, wait: Wait) {
        match wait {
            Wait::Index => self.job(ticket).waits = true,
            Wait::Log => {
                self.counts.waited_for_log += 1;
                self.jobs.stalled = true;
            }
            Wait::Space => {
                self.job(ticket).lacks_space = true;
                (self.jobs.stalled, self.jobs.out_of_space) = (true, true);
            }
            Wait::Cleaner => {
                self.counts.waited_for_cleaner += 1;
                self.job(ticket).chain_since = Some(self.jobs.cleaned);
            }
            Wait::Refused(why) => self.refuse(ticket, why),
            Wait::Units(mut units) => {
                units.sort_unstable();
                units.dedup();
                let job = self.job(ticket);
                job.waits = true;
                job.fetching = units.len();
                for unit in units {
                    let token = self.token();
                    self.data_requests.insert(token, DataRequest::Fetch { job: ticket, unit });
                    let run = Run::new(unit, 1);
                    self.io.read(Owner::Data, token, run.offset(), run.bytes() as usize);
                }
            }
            Wait::Bad(bad) => self.fail(bad),
        }
    }

    fn job(&mut self, ticket: u64) -> &mut Job {
        self.jobs.by_ticket.get_mut(&ticket).expect("a job of this ticket waits")
    }

    pub(super) fn on_fetched(&mut self, ticket: u64, unit: u64, data: Option<Bytes>) {
        let Some(job) = self.jobs.by_ticket.get_mut(&ticket) else { return };
        job.fetched.push((unit, data));
        job.fetching -= 1;
        if job.fetching == 0 {
            self.retry(ticket);
        }
    }

    /// Repeats a job whose wait is over.
    pub(super) fn retry(&mut self, ticket: u64) {
        let Some(job) = self.jobs.by_ticket.get_mut(&ticket) else { return };
        if job.fetching > 0 {
            return; // The index had read ahead for an earlier query.
        }
        match &job.work {
            Work::Transaction(transaction) => {
                let collection = transaction.collection;
                job.waits = false;
                self.advance(collection);
            }
            Work::Read(_) if job.waits => self.try_read(ticket),
            // It is queued behind transactions: a query of an earlier job, which this number was meant for, had read ahead.
            Work::Read(_) => {}
        }
    }

    /// Continues the jobs of a collection's queue, as far as possible.
    fn advance(&mut self, collection: Collection) {
        while let Some(&ticket) = self.jobs.queues.get(&collection).and_then(VecDeque::front) {
            let job = &self.jobs.by_ticket[&ticket];
            if job.waits {
                return;
            }
            let Work::Transaction(transaction) = &job.work else {
                self.jobs.dequeue(ticket, collection);
                self.try_read(ticket);
                continue;
            };
            if !self.jobs.is_first(ticket, transaction) || self.waits_for_cleaner(job) {
                return;
            }
            if !self.may_continue_jobs() {
                (self.jobs.stalled, self.work_is_due) = (true, true);
                return;
            }
            // The room for all parts was there before the first one.
            if self.log.divided() != Some(ticket) && !self.log_has_room() {
                self.jobs.stalled = true;
                return;
            }
            let mut job = self.jobs.by_ticket.remove(&ticket).expect("looked at just now");
            match self.plan_next(Ticket(ticket), &mut job) {
                Ok(Planned::Whole(effect) | Planned::Part(effect, None)) => {
                    let Work::Transaction(transaction) = &job.work else { unreachable!("seen to be one") };
                    let collections: SmallVec<[Collection; 2]> = transaction.collections().collect();
                    for other in &collections {
                        self.jobs.dequeue(ticket, *other);
                    }
                    self.apply(effect, Some(job.tag));
                    if self.log.divided().is_some() {
                        self.log.set_divided(None);
                        // Others waited for its last part.
                        (self.jobs.stalled, self.work_is_due) = (true, true);
                    }
                    // The head of the other collection's queue may go on now.
                    self.jobs.stalled |= collections.len() > 1;
                }
                Ok(planned) => {
                    if let Planned::Part(effect, Some(rest)) = planned {
                        job.divided = Some(Divided::Applying(rest));
                        job.waits_before = 0;
                        self.log.set_divided(Some(ticket));
                        self.apply(effect, None);
                    }
                    self.jobs.by_ticket.insert(ticket, job);
                    (self.jobs.stalled, self.work_is_due) = (true, true);
                    return;
                }
                Err(wait) => {
                    (job.waits, job.lacks_space, job.chain_since) = (false, false, None);
                    job.waits_before += 1;
                    self.applied_steps += FAILED_PLAN_STEPS;
                    self.jobs.by_ticket.insert(ticket, job);
                    self.job_waits(ticket, wait);
                    return;
                }
            }
        }
    }

    /// True if a plan would only find the same long chain again: each takes dozens of look-ups, and the cleaner's own batches would
    /// repeat it.
    fn waits_for_cleaner(&self, job: &Job) -> bool {
        job.chain_since == Some(self.jobs.cleaned) && self.cleaner_works()
    }

    /// The cleaner is done with a number: some may wait for a shorter chain of layers.
    pub(super) fn number_is_cleaned(&mut self) {
        self.jobs.cleaned += 1;
        self.jobs_may_go_on();
        self.work_is_due |= !self.jobs.is_empty();
    }

    /// A batch is durable: there may be room.
    pub(super) fn jobs_may_go_on(&mut self) {
        self.jobs.stalled |= !self.jobs.queues.is_empty();
    }

    /// Repeats jobs that waited for room.
    pub(super) fn advance_stalled(&mut self) {
        if self.jobs.stalled && !self.may_continue_jobs() {
            self.work_is_due = true;
            return;
        }
        if !std::mem::take(&mut self.jobs.stalled) {
            return;
        }
        self.jobs.out_of_space = false;
        self.space.forget_shortage();
        let first = self.jobs.goes_on_with.take();
        let (before, behind): (Vec<_>, Vec<_>) =
            self.jobs.queues.keys().partition(|collection| first.is_some_and(|first| **collection < first));
        for collection in behind.into_iter().chain(before) {
            if !self.may_continue_jobs() {
                (self.jobs.stalled, self.jobs.goes_on_with) = (true, Some(collection));
                self.work_is_due = true;
                return;
            }
            self.advance(collection);
        }
    }

    /// Refuses transactions that wait for blocks, if no work in progress can free any. Fails the store as full, if its own log
    /// waits like this.
    pub(super) fn fail_when_stuck(&mut self) {
        let waits_for_checkpoint = !self.jobs.queues.is_empty() && !self.log_has_room();
        let lacks_room = self.jobs.out_of_space || waits_for_checkpoint && self.checkpoint_waits_for_room();
        if !lacks_room || !self.nothing_makes_room() {
            return;
        }
        if self.index.give_up_starving_merge() {
            self.work_is_due = true;
        } else if !self.index.is_all_in_tables() && !self.checkpoint_waits_for_room() {
            // Flushed deletions let merges drop entries.
            self.checkpoints.force();
            self.work_is_due = true;
        } else if self.jobs.out_of_space {
            let lacks_space = |(ticket, job): (&u64, &Job)| job.lacks_space.then_some(*ticket);
            let tickets: Vec<u64> = self.jobs.by_ticket.iter().filter_map(lacks_space).collect();
            tickets.into_iter().for_each(|ticket| self.refuse(ticket, Refusal::NoSpace));
            self.jobs.out_of_space = false;
            self.work_is_due = true;
        } else {
            self.fail(Failure::Full);
        }
    }

    /// Refuses a transaction, and those behind it in the queues of its collections, which count on it.
    fn refuse(&mut self, ticket: u64, why: Refusal) {
        let mut refused = BTreeSet::from([ticket]);
        while let Some(ticket) = refused.pop_first() {
            // Already refused, behind another one.
            let Some(job) = self.jobs.by_ticket.get(&ticket) else { continue };
            let Work::Transaction(transaction) = &job.work else { continue };
            let collections: SmallVec<[Collection; 2]> = transaction.collections().collect();
            let tag = job.tag;
            self.jobs.by_ticket.remove(&ticket);
            for collection in collections {
                let queue = self.jobs.queues.get(&collection);
                refused.extend(queue.into_iter().flatten().filter(|behind| **behind > ticket));
                self.jobs.dequeue(ticket, collection);
                self.jobs.refusing.insert(collection, why);
            }
            tracing::error!(%why, "a transaction was refused");
            self.ready.push(Completion::Refused { tag, why });
        }
        // Reads that were queued behind it go on.
        self.jobs_may_go_on();
        self.work_is_due = true;
    }

    /// Refuses a new transaction that counts on a refused one.
    pub(super) fn refuse_at_once(&mut self, tag: u64, transaction: &Transaction, why: Refusal) {
        self.jobs.refusing.extend(transaction.collections().map(|collection| (collection, why)));
        self.ready.push(Completion::Refused { tag, why });
    }

    fn nothing_makes_room(&self) -> bool {
        let checkpoint_does = self.checkpoints.is_running() && !self.checkpoint_waits_for_room();
        let cleaning_does = !self.cleaner.is_idle() && self.log_has_room();
        self.io.under_way() == 0
            && !self.can_lease()
            && !self.waits_for_others()
            && self.log.is_idle()
            && !self.index_has_more
            && !checkpoint_does
            && !cleaning_does
            && self.space.released_blocks() == 0
    }

    pub(super) fn fail_jobs(&mut self) {
        let tickets: Vec<u64> = self.jobs.by_ticket.keys().copied().collect();
        self.jobs.queues.clear();
        for ticket in tickets {
            let job = &self.jobs.by_ticket[&ticket];
            match job.work {
                Work::Transaction(_) => {
                    self.ready.push(Completion::Failed { tag: job.tag });
                    self.jobs.by_ticket.remove(&ticket);
                }
                Work::Read(_) if !job.waits => self.try_read(ticket),
                Work::Read(_) => {}
            }
        }
    }

    pub(super) fn read_job(&mut self, tag: u64, request: ReadRequest) {
        let is_free = !self.jobs.queues.contains_key(&request.collection);
        // The ticket of the job, if it has to wait.
        if is_free && self.begin_read(Ticket(self.jobs.next + 1), tag, &request) {
            return;
        }
        let collection = request.collection;
        let ticket = self.jobs.add(tag, Work::Read(request));
        match self.jobs.queues.get_mut(&collection) {
            Some(queue) => queue.push_back(ticket),
            None => self.job(ticket).waits = true,
        }
    }

    fn try_read(&mut self, ticket: u64) {
        let job = self.jobs.by_ticket.remove(&ticket).expect("a job of this ticket waits");
        let Work::Read(request) = &job.work else { unreachable!("a read") };
        if self.begin_read(Ticket(ticket), job.tag, request) {
            return;
        }
        self.jobs.by_ticket.insert(ticket, Job { waits: true, ..job });
    }
}

#[cfg(test)]
mod tests {
    use crate::shard::Shard;
    use crate::shard::tests::operations::{home, object};
    use crate::shard::tests::{formatted, open, settle, small};
    use device::simulated::Pace;
    use store::{Answer, Change, Completion, ObjectStore, Query, ReadRequest, Transaction};

    /// In simulated clusters the number of a job that never waited became ready when its successor had the number.
    #[test]
    fn read_behind_a_transaction_is_not_made_before_it() {
        let a = object("a", 1);
        let change = |shard: &mut Shard, tag, change| {
            shard.submit(tag, Transaction { collection: home(), changes: vec![change] });
        };
        let write = |offset, byte, len| {
            let data = vec![byte; len].into();
            Change::Write { object: a.clone(), offset, data }
        };
        let disk = formatted(32 << 20, 512 << 10, Pace::AtOnce, 3);
        let mut shard = open(&disk, small());
        change(&mut shard, 1, Change::CreateCollection { split_bits: 0 });
        change(&mut shard, 2, write(0, 1, device::BLOCK));
        shard.stop();
        settle(&mut shard);

        let mut shard = open(&disk, small());
        // It waits for the object's old bytes.
        change(&mut shard, 3, write(7, 2, 5));
        let queries = vec![Query::Data { offset: 0, len: 9 }];
        shard.read(4, ReadRequest { collection: home(), object: a.clone(), queries });
        assert_eq!(shard.jobs.by_ticket.len(), 2, "both wait");
        shard.retry(shard.jobs.next);
        let completions = settle(&mut shard);
        let answers = completions.into_iter().filter_map(|completion| match completion {
            Completion::Read { tag: 4, answers } => Some(answers.expect("it can be read")),
            _ => None,
        });
        let seen: Vec<Answer> = answers.flatten().collect();
        assert_eq!(seen, [Answer::Data(vec![1, 1, 1, 1, 1, 1, 1, 2, 2].into())]);
    }
}
