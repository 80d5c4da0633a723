//! A log with one replica: an entry holds as soon as it is on the disk.

use super::{Ready, Recovered, Replication, Write};
use bytes::Bytes;
use machine::Tag;

/// Entries wait in `queued` while a write is under way, so that they share the next one (group commit).
#[derive(Debug)]
pub struct Solo {
    next_index: u64,
    next_tag: u64,
    queued: Vec<(u64, Bytes)>,
    snapshot: Option<(u64, Bytes)>,
    writing: Option<(Tag, Vec<(u64, Bytes)>)>,
    committed: Vec<(u64, Bytes)>,
}

impl Solo {
    /// Entries that are on the disk hold: they come out of the first [`Replication::take`].
    pub fn recover(disk: Recovered) -> Solo {
        let snapshot_index = disk.snapshot.as_ref().map_or(0, |(index, _)| *index);
        let committed: Vec<_> =
            disk.entries.into_iter().filter(|(index, _)| *index > snapshot_index).collect();
        let last = committed.last().map_or(snapshot_index, |(index, _)| *index);
        Solo {
            next_index: last + 1,
            next_tag: 1,
            queued: Vec::new(),
            snapshot: None,
            writing: None,
            committed,
        }
    }
}

impl Replication for Solo {
    fn is_leader(&self) -> bool {
        true
    }

    fn propose(&mut self, entry: Bytes) -> u64 {
        let index = self.next_index;
        self.next_index += 1;
        self.queued.push((index, entry));
        index
    }

    fn snapshot(&mut self, index: u64, state: Bytes) {
        self.snapshot = Some((index, state));
    }

    fn on_written(&mut self, tag: Tag) {
        if let Some((_, entries)) = self.writing.take_if(|(under_way, _)| *under_way == tag) {
            self.committed.extend(entries);
        }
    }

    fn take(&mut self) -> Ready {
        let mut ready = Ready { committed: std::mem::take(&mut self.committed), ..Ready::default() };
        if self.writing.is_none() && !(self.queued.is_empty() && self.snapshot.is_none()) {
            let entries = std::mem::take(&mut self.queued);
            let snapshot = self.snapshot.take();
            let trim_through = snapshot.as_ref().map(|(index, _)| *index);
            let tag = Tag(self.next_tag);
            self.next_tag += 1;
            self.writing = Some((tag, entries.clone()));
            ready.write = Some((tag, Write { vote: None, entries, snapshot, trim_through }));
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u8) -> Bytes {
        Bytes::copy_from_slice(&[n])
    }

    #[test]
    fn entries_during_a_write_share_the_next_write() {
        let mut log = Solo::recover(Recovered::default());
        assert_eq!(log.propose(entry(1)), 1);
        let (first, write) = log.take().write.unwrap();
        assert_eq!(write.entries, [(1, entry(1))]);
        log.propose(entry(2));
        log.propose(entry(3));
        let ready = log.take();
        assert!(ready.write.is_none() && ready.committed.is_empty());
        log.on_written(first);
        let ready = log.take();
        assert_eq!(ready.committed, [(1, entry(1))]);
        assert_eq!(ready.write.unwrap().1.entries, [(2, entry(2)), (3, entry(3))]);
    }

    #[test]
    fn a_stale_completion_commits_nothing() {
        let mut log = Solo::recover(Recovered::default());
        log.propose(entry(1));
        log.take();
        log.on_written(Tag(99));
        assert!(log.take().committed.is_empty());
    }

    #[test]
    fn what_was_on_disk_holds_after_a_start_and_numbers_go_on() {
        let disk = Recovered {
            vote: None,
            snapshot: Some((2, entry(0))),
            entries: vec![(2, entry(2)), (3, entry(3)), (4, entry(4))],
        };
        let mut log = Solo::recover(disk);
        assert_eq!(log.take().committed, [(3, entry(3)), (4, entry(4))]);
        assert_eq!(log.propose(entry(5)), 5);
    }

    #[test]
    fn a_snapshot_trims_what_it_covers() {
        let mut log = Solo::recover(Recovered::default());
        log.snapshot(7, entry(9));
        let (_, write) = log.take().write.unwrap();
        assert_eq!(write.snapshot, Some((7, entry(9))));
        assert_eq!(write.trim_through, Some(7));
    }
}
