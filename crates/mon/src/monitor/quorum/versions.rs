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
    /// To be answered now.
    ready: Vec<Question>,
}

impl VersionQuestions {
    /// True where questions wait for a read, and none is under way.
    fn wants_read(&self) -> bool {
        self.asked.is_none() && !self.next.is_empty()
    }

    fn on_asked(&mut self, read: u64) {
        self.asked = Some((read, std::mem::take(&mut self.next)));
    }

    /// The log has handed out everything that held when it was asked.
    fn on_read(&mut self, read: u64) {
        if let Some((_, questions)) = self.asked.take_if(|(asked, _)| *asked == read) {
            self.ready.extend(questions);
        }
    }

    pub fn forget(&mut self, conn: ConnId) {
        let asked = self.asked.iter_mut().map(|(_, list)| list);
        asked
            .chain([&mut self.next, &mut self.ready])
            .for_each(|list| list.retain(|question| question.conn != conn));
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
        self.quorum.versions.next.push(Question { conn, tid, what });
        self.ask_log_for_versions();
    }

    fn ask_log_for_versions(&mut self) {
        if let Some(log) = &mut self.replication
            && self.quorum.versions.wants_read()
        {
            self.quorum.versions.on_asked(log.read());
        }
    }

    pub(super) fn on_versions_read(&mut self, read: u64) {
        self.quorum.versions.on_read(read);
        self.ask_log_for_versions();
    }

    pub(in crate::monitor) fn answer_versions(&mut self, turn: &mut Turn<'_>) {
        for Question { conn, tid, what } in std::mem::take(&mut self.quorum.versions.ready) {
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
    fn questions_share_a_round() {
        let mut all = VersionQuestions::default();
        all.next.push(question(1));
        assert!(all.wants_read());
        all.on_asked(1);
        all.next.extend([question(2), question(3)]);
        assert!(!all.wants_read(), "one round at a time");
        all.on_read(1);
        assert_eq!(tids(&std::mem::take(&mut all.ready)), [1]);
        all.on_asked(2);
        all.on_read(1);
        assert!(all.ready.is_empty(), "an answer to an older round");
        all.forget(ConnId::accepted(2));
        all.on_read(2);
        assert_eq!(tids(&all.ready), [3]);
    }
}
