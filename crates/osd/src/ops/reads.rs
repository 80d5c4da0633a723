//! Reads of operations, made before their list is executed.
//!
//! Ceph executes a list against the object as it was *before* the list: a read after a write in the same list sees
//! the old bytes, attributes and omap; only size and existence follow the list. So the reads of all operations go to
//! the store as one request, are answered from one moment, and the list then runs without waiting.

use crate::errno::Errno;
use bytes::Bytes;
use codec::Rope;
use store::{Answer, Query};

/// A group of queries, and what comes of their answers. The two must agree: `take` consumes one answer for each
/// query that `push` adds.
pub(super) trait Reads {
    type Found;

    fn push(self, out: &mut Vec<Query>);

    /// `answers` is `None` when the object did not exist before the list.
    fn take(answers: Option<&mut Answers>) -> Self::Found;
}

pub(super) type Found<R> = <R as Reads>::Found;

/// The answers to a list's queries, in order.
#[derive(Debug)]
pub(super) struct Answers(std::vec::IntoIter<Answer>);

impl Answers {
    pub(super) fn new(answers: Vec<Answer>) -> Answers {
        Answers(answers.into_iter())
    }

    fn next(&mut self) -> Answer {
        self.0.next().expect("one answer for each query")
    }
}

/// The store answers each query with the answer of the same name: its contract.
macro_rules! next_answer {
    ($answers:ident, $pattern:pat => $value:expr) => {
        match $answers.next() {
            $pattern => $value,
            other => unreachable!("the store's answer is {other:?}"),
        }
    };
}

impl Reads for () {
    type Found = ();

    fn push(self, _: &mut Vec<Query>) {}

    fn take(_: Option<&mut Answers>) {}
}

impl<A: Reads, B: Reads> Reads for (A, B) {
    type Found = (A::Found, B::Found);

    fn push(self, out: &mut Vec<Query>) {
        self.0.push(out);
        self.1.push(out);
    }

    fn take(answers: Option<&mut Answers>) -> Self::Found {
        match answers {
            Some(answers) => (A::take(Some(answers)), B::take(Some(answers))),
            None => (A::take(None), B::take(None)),
        }
    }
}

/// A range of bytes. Without an object there are none, as beyond an object's end.
pub(super) struct DataRead {
    pub offset: u64,
    pub len: u64,
}

impl Reads for DataRead {
    type Found = Rope;

    fn push(self, out: &mut Vec<Query>) {
        out.push(Query::Data { offset: self.offset, len: self.len });
    }

    fn take(answers: Option<&mut Answers>) -> Rope {
        answers.map_or_else(Rope::new, |answers| next_answer!(answers, Answer::Data(data) => data))
    }
}

/// The stored parts of a range, as offset and length.
pub(super) struct ExtentsRead {
    pub offset: u64,
    pub len: u64,
}

impl Reads for ExtentsRead {
    type Found = Vec<(u64, u64)>;

    fn push(self, out: &mut Vec<Query>) {
        out.push(Query::Extents { offset: self.offset, len: self.len });
    }

    fn take(answers: Option<&mut Answers>) -> Vec<(u64, u64)> {
        answers.map_or_else(Vec::new, |answers| next_answer!(answers, Answer::Extents(extents) => extents))
    }
}

/// One attribute, by its stored name. `ENODATA` without the attribute; `ENOENT` without the object, even when the
/// list itself has created it.
pub(super) struct AttrRead(pub Bytes);

impl Reads for AttrRead {
    type Found = Result<Bytes, Errno>;

    fn push(self, out: &mut Vec<Query>) {
        out.push(Query::Attr { name: self.0 });
    }

    fn take(answers: Option<&mut Answers>) -> Result<Bytes, Errno> {
        let answers = answers.ok_or(Errno::NOENT)?;
        next_answer!(answers, Answer::Attr(value) => value).ok_or(Errno::NODATA)
    }
}

/// All attributes under their stored names; `ENOENT` as for one.
pub(super) struct AllAttrsRead;

impl Reads for AllAttrsRead {
    type Found = Result<Vec<(Bytes, Bytes)>, Errno>;

    fn push(self, out: &mut Vec<Query>) {
        out.push(Query::Attrs);
    }

    fn take(answers: Option<&mut Answers>) -> Self::Found {
        let answers = answers.ok_or(Errno::NOENT)?;
        Ok(next_answer!(answers, Answer::Attrs(attrs) => attrs))
    }
}

/// A page of an omap, from the first key greater than `after`. The empty key means "from the start": it skips only
/// an entry whose key is empty, as Ceph's upper-bound search does.
pub(super) struct OmapPageRead {
    pub after: Bytes,
    pub prefix: Bytes,
    pub max: usize,
    pub values: bool,
}

/// Keys with values, which are empty when they were not asked for.
#[derive(Debug, Default)]
pub(super) struct OmapPage {
    pub entries: Vec<(Bytes, Bytes)>,
    pub more: bool,
}

impl Reads for OmapPageRead {
    type Found = OmapPage;

    fn push(self, out: &mut Vec<Query>) {
        let OmapPageRead { after, prefix, max, values } = self;
        out.push(Query::OmapList { after: Some(after), from: Bytes::new(), prefix, max, values });
    }

    fn take(answers: Option<&mut Answers>) -> OmapPage {
        let Some(answers) = answers else { return OmapPage::default() };
        next_answer!(answers, Answer::OmapList { entries, more } => OmapPage { entries, more })
    }
}

pub(super) struct OmapHeaderRead;

impl Reads for OmapHeaderRead {
    type Found = Bytes;

    fn push(self, out: &mut Vec<Query>) {
        out.push(Query::OmapHeader);
    }

    fn take(answers: Option<&mut Answers>) -> Bytes {
        answers.map_or_else(Bytes::new, |answers| next_answer!(answers, Answer::OmapHeader(header) => header))
    }
}

/// The entries of those of the keys that exist, ascending.
pub(super) struct OmapKeysRead(pub Vec<Bytes>);

impl Reads for OmapKeysRead {
    type Found = Vec<(Bytes, Bytes)>;

    fn push(self, out: &mut Vec<Query>) {
        out.push(Query::OmapGet { keys: self.0 });
    }

    fn take(answers: Option<&mut Answers>) -> Vec<(Bytes, Bytes)> {
        answers.map_or_else(Vec::new, |answers| next_answer!(answers, Answer::OmapGet(entries) => entries))
    }
}
