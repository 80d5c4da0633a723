//! Patience with reads that the device fails: they are repeated for seconds before a block counts as lost.
//!
//! A controller reset or a path failover answers EIO for a few seconds, and then everything is there again. A failed read is
//! therefore repeated after 0.1, 0.2, 0.4, 0.8, 1, 1, … s until [`Patience::total`] is over. The operations that need the block
//! wait meanwhile; others go on. Then the block counts as lost, and the next read of it has one attempt only, until one succeeds
//! or the block is written.
//!
//! A device that loses many blocks within a short time has failed itself. Its shard then stops before it records any of
//! them as lost, and other copies serve.
//!
//! Time is the host's ([`Retries::set_now`]). Without one, in recovery and in tools, a failed read is repeated at once and a
//! few times only.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Attempts without a clock.
const ATTEMPTS_AT_ONCE: u32 = 3;
/// Places that are remembered as lost; beyond it the oldest is forgotten, and the next read of it is patient again.
const LOST_PLACES_MAX: usize = 4096;

/// Limits of the patience. The defaults suit production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time before the first repetition; it doubles with each, up to the longest.
    pub first: Duration,
    /// Longest time between two repetitions. A device that is there for that long between two resets is asked then.
    pub longest: Duration,
    /// Time from the first failure until the block counts as lost.
    pub total: Duration,
    /// Number of places lost within [`Patience::window`] beyond which the device has failed.
    pub lost_max: usize,
    pub window: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            total: Duration::from_secs(10),
            lost_max: 16,
            window: Duration::from_secs(60),
        }
    }
}

/// Counters and levels of repeated reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryFigures {
    /// Repetitions of failed reads.
    pub repeated: u64,
    /// Failed reads that succeeded later.
    pub recovered: u64,
    /// Failed reads that were given up.
    pub lost: u64,
    /// Failed reads that wait for their next repetition.
    pub waiting: u64,
}

/// Outcome of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Submit the read again at once.
    AtOnce,
    /// [`Retries::due`] returns it when its time has come.
    Later,
    /// The read has failed for good.
    Lost,
    /// Too many reads have failed for good: the device has failed.
    DeviceFailed,
}

/// A read that is in flight or waits for its repetition.
#[derive(Clone, Copy, Debug)]
struct Read {
    offset: u64,
    len: usize,
    failures: u32,
    /// Time of its first failure, if there is a clock.
    since: Option<Duration>,
}

/// Reads of one shard, by the token of their request.
pub struct Retries {
    patience: Patience,
    now: Option<Duration>,
    reads: BTreeMap<u64, Read>,
    due: BTreeSet<(Duration, u64)>,
    /// Lost places, by offset: their ends and the times of the loss.
    lost: BTreeMap<u64, (u64, Duration)>,
    /// Times of the losses within the window.
    losses: VecDeque<Duration>,
    has_failed: bool,
    figures: RetryFigures,
}

impl Retries {
    pub fn new() -> Retries {
        Retries {
            patience: Patience::default(),
            now: None,
            reads: BTreeMap::new(),
            due: BTreeSet::new(),
            lost: BTreeMap::new(),
            losses: VecDeque::new(),
            has_failed: false,
            figures: RetryFigures::default(),
        }
    }

    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Time since a fixed moment. It never goes back.
    pub fn set_now(&mut self, now: Duration) {
        self.now = self.now.max(Some(now));
    }

    pub fn figures(&self) -> RetryFigures {
        RetryFigures { waiting: self.due.len() as u64, ..self.figures }
    }

    /// Reads that wait for their repetition.
    pub fn waiting(&self) -> usize {
        self.due.len()
    }

    /// True once too many places were lost.
    pub fn device_has_failed(&self) -> bool {
        self.has_failed
    }

    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A read is submitted for the first time.
    pub fn began(&mut self, token: u64, offset: u64, len: usize) {
        self.reads.insert(token, Read { offset, len, failures: 0, since: None });
    }

    /// A read of the token has ended otherwise than by EIO. A read that did not begin here has no effect.
    pub fn ended(&mut self, token: u64, is_ok: bool) {
        let Some(read) = self.reads.remove(&token).filter(|_| is_ok) else { return };
        if read.failures > 0 {
            self.figures.recovered += 1;
            let Read { offset, failures, .. } = read;
            tracing::info!(offset, failures, "a failed read has succeeded: the device is back");
        }
        self.is_there(read.offset, read.len as u64);
    }

    /// Offset and length of a read that has not ended.
    pub fn place_of(&self, token: u64) -> (u64, usize) {
        let read = &self.reads[&token];
        (read.offset, read.len)
    }

    /// A write of the range has begun: the device puts the bytes elsewhere.
    pub fn written(&mut self, offset: u64, len: u64) {
        self.is_there(offset, len);
    }

    fn is_there(&mut self, offset: u64, len: u64) {
        while let Some(place) = self.lost_place(offset, len) {
            self.lost.remove(&place);
        }
    }

    /// The start of a lost place within the range. Lost places are disjoint, except for their first bytes.
    fn lost_place(&self, offset: u64, len: u64) -> Option<u64> {
        if self.lost.is_empty() {
            return None;
        }
        let before = self.lost.range(..offset + len).rev();
        // Reads overlap hardly ever, so the last one is the longest that may reach here.
        before.take(2).find(|(_, (end, _))| *end > offset).map(|(start, _)| *start)
    }

    /// An attempt of the token has failed. `None`: the read did not begin here, and nothing repeats it.
    pub fn failed(&mut self, token: u64) -> Option<Verdict> {
        let mut read = *self.reads.get(&token)?;
        read.failures += 1;
        let verdict = self.verdict(token, &mut read);
        match verdict {
            Verdict::AtOnce | Verdict::Later => {
                self.figures.repeated += 1;
                self.reads.insert(token, read);
            }
            Verdict::Lost | Verdict::DeviceFailed => drop(self.reads.remove(&token)),
        }
        Some(verdict)
    }

    fn verdict(&mut self, token: u64, read: &mut Read) -> Verdict {
        if self.has_failed {
            return Verdict::DeviceFailed;
        }
        let Some(now) = self.now else {
            return if read.failures < ATTEMPTS_AT_ONCE { Verdict::AtOnce } else { Verdict::Lost };
        };
        if self.lost_place(read.offset, read.len as u64).is_some() {
            return Verdict::Lost;
        }
        let since = *read.since.get_or_insert(now);
        let end = since + self.patience.total;
        if now >= end {
            return self.lose(read, now);
        }
        if read.failures == 1 {
            tracing::warn!(
                offset = read.offset,
                len = read.len,
                patience_s = self.patience.total.as_secs_f64(),
                "a read failed and is repeated"
            );
        }
        let doubled = self.patience.first.saturating_mul(1 << (read.failures - 1).min(20));
        let delay = doubled.min(self.patience.longest);
        self.due.insert(((now + delay).min(end), token));
        Verdict::Later
    }

    fn lose(&mut self, read: &Read, now: Duration) -> Verdict {
        self.figures.lost += 1;
        self.losses.push_back(now);
        while self.losses.front().is_some_and(|at| *at + self.patience.window <= now) {
            self.losses.pop_front();
        }
        if self.losses.len() > self.patience.lost_max {
            self.has_failed = true;
            return Verdict::DeviceFailed;
        }
        tracing::error!(offset = read.offset, len = read.len, "a block stays unreadable and counts as lost");
        if self.lost.len() == LOST_PLACES_MAX {
            let oldest = self.lost.iter().min_by_key(|(_, (_, at))| *at).map(|(start, _)| *start);
            if let Some(start) = oldest {
                self.lost.remove(&start);
            }
        }
        self.lost.insert(read.offset, (read.offset + read.len as u64, now));
        Verdict::Lost
    }

    /// Takes the reads whose time has come, as token, offset and length.
    pub fn due(&mut self) -> Vec<(u64, u64, usize)> {
        let mut out = Vec::new();
        while let Some((at, token)) = self.due.first().copied()
            && self.now.is_some_and(|now| at <= now)
        {
            self.due.pop_first();
            let read = self.reads[&token];
            out.push((token, read.offset, read.len));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// A read fails at each attempt until its verdict is final. Returns the times of the attempts, and the verdict.
    fn fail_to_the_end(retries: &mut Retries, token: u64, start: Duration) -> (Vec<f64>, Verdict) {
        retries.set_now(start);
        let mut attempts = vec![start.as_secs_f64()];
        loop {
            match retries.failed(token).expect("it began") {
                Verdict::Later => {}
                verdict => return (attempts, verdict),
            }
            let at = retries.next_deadline().expect("it waits");
            retries.set_now(at - Duration::from_millis(1));
            assert_eq!(retries.due(), []);
            retries.set_now(at);
            assert_eq!(retries.due().iter().map(|due| due.0).collect::<Vec<_>>(), [token]);
            attempts.push(at.as_secs_f64());
        }
    }

    #[test]
    fn failed_read_is_repeated_over_ten_seconds() {
        let mut retries = Retries::new();
        retries.began(1, 8 * BLOCK, 4096);
        let (attempts, verdict) = fail_to_the_end(&mut retries, 1, seconds(5.0));
        let expected = [5.0, 5.1, 5.3, 5.7, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 12.5, 13.5, 14.5, 15.0];
        assert_eq!(attempts.len(), expected.len());
        assert!(attempts.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{attempts:?}");
        assert_eq!(verdict, Verdict::Lost);
        let RetryFigures { repeated, recovered, lost, waiting } = retries.figures();
        assert_eq!((repeated, recovered, lost, waiting), (13, 0, 1, 0));
    }

    #[test]
    fn lost_block_has_one_attempt_until_it_is_there_again() {
        let mut retries = Retries::new();
        retries.began(1, 8 * BLOCK, 4 * 4096);
        fail_to_the_end(&mut retries, 1, seconds(0.0));
        let verdict_of = |retries: &mut Retries, token, block: u64, len| {
            retries.began(token, block * BLOCK, len);
            retries.failed(token).unwrap()
        };
        assert_eq!(verdict_of(&mut retries, 2, 11, 4096), Verdict::Lost);
        assert_eq!(verdict_of(&mut retries, 3, 6, 3 * 4096), Verdict::Lost);
        assert_eq!(verdict_of(&mut retries, 4, 12, 4096), Verdict::Later);
        assert_eq!(retries.figures().lost, 1, "one place, however often it is read");
        // A read succeeds, or the block is written.
        retries.began(5, 9 * BLOCK, 4096);
        retries.ended(5, true);
        assert_eq!(verdict_of(&mut retries, 6, 11, 4096), Verdict::Later);
        fail_to_the_end(&mut retries, 6, seconds(20.0));
        assert_eq!(verdict_of(&mut retries, 7, 11, 4096), Verdict::Lost);
        retries.written(11 * BLOCK, 4096);
        assert_eq!(verdict_of(&mut retries, 8, 11, 4096), Verdict::Later);
    }

    #[test]
    fn many_losses_in_a_short_time_fail_the_device() {
        let patience = Patience { lost_max: 2, window: seconds(30.0), ..Patience::default() };
        let mut retries = Retries::new();
        retries.set_patience(patience);
        let mut lose = |token: u64, start: f64| {
            retries.began(token, token * BLOCK, 4096);
            fail_to_the_end(&mut retries, token, seconds(start)).1
        };
        // One every 20 seconds is rot, and not a device that has failed.
        for n in 0..4u32 {
            assert_eq!(lose(n.into(), 20.0 * f64::from(n)), Verdict::Lost);
        }
        assert_eq!(lose(10, 71.0), Verdict::Lost);
        assert_eq!(lose(11, 82.0), Verdict::DeviceFailed);
        assert!(retries.device_has_failed());
        retries.began(12, 12 * BLOCK, 4096);
        assert_eq!(retries.failed(12), Some(Verdict::DeviceFailed));
    }

    #[test]
    fn read_without_a_clock_has_three_attempts() {
        let mut retries = Retries::new();
        retries.began(1, 0, 4096);
        let verdicts: Vec<_> = (0..3).map(|_| retries.failed(1).unwrap()).collect();
        assert_eq!(verdicts, [Verdict::AtOnce, Verdict::AtOnce, Verdict::Lost]);
        assert_eq!(retries.failed(1), None);
    }

    #[test]
    fn recovered_read_is_counted_once() {
        let mut retries = Retries::new();
        retries.set_now(seconds(1.0));
        retries.began(1, 0, 4096);
        assert_eq!(retries.failed(1), Some(Verdict::Later));
        assert_eq!(retries.figures().waiting, 1);
        retries.set_now(seconds(1.1));
        assert_eq!(retries.due(), [(1, 0, 4096)]);
        retries.ended(1, true);
        let RetryFigures { repeated, recovered, lost, waiting } = retries.figures();
        assert_eq!((repeated, recovered, lost, waiting), (1, 1, 0, 0));
    }
}
