//! The cluster log: the last lines of each channel, and how many there have been.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, VecDeque};
use wire::types::{AuthName, LogEntry, LogPriority};

/// Maximum lines kept of each channel (stock's `mon_log_max`).
const CHANNEL_LINES_MAX: usize = 10_000;

/// The log's lines by channel, newest last, each with its number in the whole log.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    pub version: u64,
    pub channels: BTreeMap<String, VecDeque<(u64, LogEntry)>>,
    /// By sender and channel: the highest sequence number seen, so that a line sent again is not logged again.
    seen: BTreeMap<(AuthName, String), (u64, i64)>,
}

impl ClusterLog {
    pub fn append(&mut self, entry: LogEntry) {
        self.version += 1;
        self.seen.insert((entry.name.clone(), entry.channel.clone()), (entry.seq, entry.rank.num));
        let channel = self.channels.entry(entry.channel.clone()).or_default();
        channel.push_back((self.version, entry));
        if channel.len() > CHANNEL_LINES_MAX {
            channel.pop_front();
        }
    }

    /// True for a line that this life of its sender has sent before.
    pub fn has_seen(&self, entry: &LogEntry) -> bool {
        let last = self.seen.get(&(entry.name.clone(), entry.channel.clone()));
        last.is_some_and(|&(seq, rank)| rank == entry.rank.num && entry.seq <= seq && entry.seq != 0)
    }

    /// The last `n` lines at or above a priority, of one channel or of all (`*`), oldest first.
    pub fn last(&self, n: usize, least: LogPriority, channel: &str) -> Vec<&LogEntry> {
        let mut lines: Vec<&(u64, LogEntry)> = self
            .channels
            .iter()
            .filter(|(name, _)| channel == "*" || channel == name.as_str())
            .flat_map(|(_, lines)| lines.iter().rev().filter(|(_, e)| e.priority >= least).take(n))
            .collect();
        lines.sort_by_key(|(number, _)| *number);
        let skip = lines.len().saturating_sub(n);
        lines.into_iter().skip(skip).map(|(_, entry)| entry).collect()
    }

    /// Lines numbered above `after` at or above a priority.
    pub fn after(&self, after: u64, least: LogPriority, channel: Option<&str>) -> Vec<&LogEntry> {
        let mut lines: Vec<&(u64, LogEntry)> = self
            .channels
            .iter()
            .filter(|(name, _)| channel.is_none_or(|c| c == name.as_str()))
            .flat_map(|(_, lines)| lines.iter().rev().take_while(|(number, _)| *number > after))
            .filter(|(_, e)| e.priority >= least)
            .collect();
        lines.sort_by_key(|(number, _)| *number);
        lines.into_iter().map(|(_, entry)| entry).collect()
    }
}

impl Encode for ClusterLog {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.version);
            w.put(&self.channels);
            w.put(&self.seen);
        });
    }
}

impl Decode for ClusterLog {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("cluster log", 1, |r, _| {
            Ok(ClusterLog { version: r.u64()?, channels: r.get()?, seen: r.get()? })
        })
    }
}
