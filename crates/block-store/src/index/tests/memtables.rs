//! Memtables end between two records of the log: a patch in the log is made from the value that whole records left.

use super::super::{Index, LogMark, Options};
use bytes::Bytes;

#[test]
pub(crate) fn memtable_ends_between_two_records() {
    let mut index = Index::new(Options { memtable_bytes: 1 << 10, ..Options::default() });
    let value = || Some(Bytes::from(vec![1; 600]));
    for key in 0..4u8 {
        index.apply([([key], value())], LogMark(1));
    }
    assert!(index.is_memtable_full() && index.memory.frozen.is_empty(), "the record may go on");
    index.apply([([9], value())], LogMark(2));
    let frozen: Vec<(LogMark, LogMark)> =
        index.memory.frozen.iter().map(|marked| (marked.first, marked.last)).collect();
    assert_eq!(frozen, [(LogMark(1), LogMark(1))]);
    assert_eq!((index.memory.active.first, index.flushed_mark()), (LogMark(2), LogMark(0)));
}

#[test]
fn late_values_belong_to_their_first_record() {
    let mut index = Index::new(Options::default());
    index.apply([(b"a", Some(Bytes::from_static(b"1")))], LogMark(9));
    index.apply_late([(b"b", Bytes::from_static(b"2"))], LogMark(5));
    assert_eq!(index.flushed_mark(), LogMark(4), "the log from record 5 on is needed");
    assert_eq!(index.peek(b"b"), Some(&Bytes::from_static(b"2")));
    assert_eq!((index.memory.active.first, index.memory.active.last), (LogMark(5), LogMark(9)));
}
