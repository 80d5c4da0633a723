//! Questions of clients about the newest version of a map. The answer must not be older than the question, so the log is asked
//! first how far it was; questions that come meanwhile share the next round.

use super::Monitor;
use crate::monitor::Turn;
use machine::ConnId;
use wire::messages::MMonGetVersion;

#[derive(Debug)]
struct Question {
    conn: ConnId,
    tid: u64,
    what: MMonGetVersion,
}

#[derive(Debug, Default)]
pub(super) struct VersionQuestions {
    /// The log's number of the read that is under way, and for whom.
    asked: Option<(u64, Vec<Question>)>,
    next: Vec<Question>,
    /// To be answered when the entry of this index has been applied.
    ready: Vec<(u64, Vec<Question>)>,
}

impl VersionQuestions {
    /// True where questions wait for a read, and none is under way.
    fn wants_read(&self) -> bool {
        self.asked.is_none() && !self.next.is_empty()
    }

    fn on_asked(&mut self, read: u64) {
        self.asked = Some((read, std::mem::take(&mut self.next)));
    }

    fn on_index(&mut self, read: u64, index: u64) {
        if let Some((_, questions)) = self.asked.take_if(|(asked, _)| *asked == read) {
            self.ready.push((index, questions));
        }
    }

    fn take_ready(&mut self, applied: u64) -> Vec<Question> {
        let (due, later) =
            std::mem::take(&mut self.ready).into_iter().partition(|(index, _)| *index <= applied);
        self.ready = later;
        let due: Vec<(u64, Vec<Question>)> = due;
        due.into_iter().flat_map(|(_, questions)| questions).collect()
    }

    pub fn forget(&mut self, conn: ConnId) {
        let lists =
            self.asked.iter_mut().map(|(_, list)| list).chain(self.ready.iter_mut().map(|(_, list)| list));
        lists.chain([&mut self.next]).for_each(|list| list.retain(|question| question.conn != conn));
    }
}

impl Monitor {
    pub(in crate::monitor) fn ask_version(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        tid: u64,
        what: MMonGetVersion,
    ) {
        if self.is_alone() {
            return self.on_get_version(turn, conn, tid, what);
        }
        self.among.versions.next.push(Question { conn, tid, what });
        self.ask_log_for_versions();
    }

    fn ask_log_for_versions(&mut self) {
        if let Some(log) = &mut self.replication
            && self.among.versions.wants_read()
        {
            self.among.versions.on_asked(log.read());
        }
    }

    /// Everything that held when the log was asked under this number is in the entries up to `index`.
    pub(super) fn on_versions_index(&mut self, read: u64, index: u64) {
        self.among.versions.on_index(read, index);
        self.ask_log_for_versions();
    }

    pub(in crate::monitor) fn answer_versions(&mut self, turn: &mut Turn<'_>) {
        for Question { conn, tid, what } in self.among.versions.take_ready(self.applied) {
            self.on_get_version(turn, conn, tid, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(n: u64) -> Question {
        let what = MMonGetVersion { handle: n, what: "osdmap".into() };
        Question { conn: ConnId::accepted(n), tid: n, what }
    }

    fn tids(questions: &[Question]) -> Vec<u64> {
        questions.iter().map(|question| question.tid).collect()
    }

    #[test]
    fn questions_share_a_round_and_wait_for_its_index() {
        let mut all = VersionQuestions::default();
        all.next.push(question(1));
        assert!(all.wants_read());
        all.on_asked(1);
        all.next.extend([question(2), question(3)]);
        assert!(!all.wants_read(), "one round at a time");
        all.on_index(1, 10);
        assert!(all.take_ready(9).is_empty());
        assert_eq!(tids(&all.take_ready(10)), [1]);
        all.on_asked(2);
        all.on_index(1, 11);
        assert!(all.take_ready(11).is_empty(), "an answer to an older round");
        all.forget(ConnId::accepted(2));
        all.on_index(2, 11);
        assert_eq!(tids(&all.take_ready(11)), [3]);
    }
}
