//! Answers to commands that changed something. A client whose monitor died sends its command again, to another monitor and
//! under the same number: it gets the answer that the first one earned, and the change is not made twice.

use crate::answered::{CommandId, Given};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, VecDeque};

/// Answers that are kept. A client repeats a command within seconds.
const ANSWERS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    by_id: BTreeMap<CommandId, Given>,
    /// Oldest first.
    order: VecDeque<CommandId>,
    bytes: usize,
}

impl Answers {
    pub fn find(&self, id: CommandId, command: u64) -> Option<&Given> {
        self.by_id.get(&id).filter(|given| given.command == command)
    }

    pub(super) fn keep(&mut self, given: Given) {
        self.bytes += given.len();
        let id = given.id;
        match self.by_id.insert(id, given) {
            Some(old) => self.bytes -= old.len(),
            None => self.order.push_back(id),
        }
        // The newest stays, however large it is.
        while self.order.len() > ANSWERS_MAX || (self.bytes > BYTES_MAX && self.order.len() > 1) {
            let oldest = self.order.pop_front().and_then(|id| self.by_id.remove(&id));
            self.bytes -= oldest.as_ref().map_or(0, Given::len);
        }
    }
}

impl Encode for Answers {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.order.len() as u32);
        self.order.iter().for_each(|id| w.put(&self.by_id[id]));
    }
}

impl Decode for Answers {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Answers, DecodeError> {
        let mut answers = Answers::default();
        for given in r.get::<Vec<Given>>()? {
            answers.keep(given);
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    fn given(tid: u64, body: usize) -> Given {
        Given {
            id: CommandId { client: 4100, tid },
            command: tid * 10,
            result: -2,
            status: "s".into(),
            body: vec![7; body].into(),
        }
    }

    #[test]
    fn an_answer_is_found_by_its_request_and_its_command() {
        let mut answers = Answers::default();
        answers.keep(given(1, 3));
        let id = CommandId { client: 4100, tid: 1 };
        assert_eq!(answers.find(id, 10).unwrap().result, -2);
        assert!(answers.find(id, 11).is_none(), "another command under the same number");
        assert!(answers.find(CommandId { client: 4101, tid: 1 }, 10).is_none());
    }

    #[test]
    fn the_oldest_answers_go_by_number_and_by_size() {
        let mut answers = Answers::default();
        (0..2000).for_each(|tid| answers.keep(given(tid, 1)));
        assert_eq!((answers.order.len(), answers.bytes), (ANSWERS_MAX, 2 * ANSWERS_MAX));
        assert!(answers.find(CommandId { client: 4100, tid: 999 }, 9990).is_none());
        answers.keep(given(5000, BYTES_MAX + 1));
        assert_eq!(answers.order.len(), 1, "the newest stays");
        answers.keep(given(5001, 1));
        assert_eq!((answers.order.len(), answers.bytes), (1, 2));
    }

    #[test]
    fn answers_survive_their_encoding() {
        let mut answers = Answers::default();
        [3, 1, 2].into_iter().for_each(|tid| answers.keep(given(tid, 5)));
        answers.keep(given(1, 9));
        let again: Answers = codec::decode_exact(&answers.to_vec(Features::ALL)).unwrap();
        assert_eq!(again, answers);
    }
}
