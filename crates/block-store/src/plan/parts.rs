//! Transactions of many omap keys, planned and applied in parts.
//!
//! A transaction of 5,000 keys would take one turn of several milliseconds. So it is divided: each part has some of its keys
//! and a turn of its own. All parts are in one batch, which is sealed behind the last one, so a crash leaves all of them or
//! none. Reads and transactions of the collection wait behind it.
//!
//! A divided transaction must not fail half-way. So it takes no device block, and its omap keys are of one object and of PG
//! meta objects: once the first part is applied, the object's layer is its own. Before that, [`Plan::ask`] has the answers of
//! the tables in memory, a part of the keys a turn: a wait for the device between two parts would delay the batch.

use super::{Effect, Plan};
use crate::view::Wait;
use std::ops::Range;
use store::{Change, Transaction};

/// The rest of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    change: usize,
    /// First key of that change.
    key: usize,
    /// The omap that earlier parts have created: no table has its keys.
    new_omap: Option<u64>,
}

impl Rest {
    /// True if no part is done.
    pub fn is_all(&self) -> bool {
        (self.change, self.key) == (0, 0)
    }

    /// The range of keys of its first change that a part of up to `max` takes, and the rest behind them.
    fn divide(self, keys: usize, max: usize) -> (Range<usize>, Rest) {
        let end = keys.min(self.key + max);
        let behind = match end < keys {
            true => Rest { key: end, ..self },
            false => Rest { change: self.change + 1, key: 0, ..self },
        };
        (self.key..end, behind)
    }
}

/// Bytes of a log entry beside key and value, and of what a key has before its name.
const ENTRY_BYTES: usize = 64;
/// Upper bound of the log entries of records and totals.
const RECORDS_BYTES: usize = 64 << 10;

/// Omap keys that a change sets or removes one by one.
fn keys_of(change: &Change) -> usize {
    match change {
        Change::OmapSet { entries, .. } => entries.len(),
        Change::OmapRemove { keys, .. } => keys.len(),
        _ => 0,
    }
}

/// True if a transaction has more than `max` omap keys, and may be divided.
pub fn is_divisible(transaction: &Transaction, max: usize) -> bool {
    let changes = &transaction.changes;
    if changes.iter().map(keys_of).sum::<usize>() <= max {
        return false;
    }
    let is_simple = |change: &Change| {
        matches!(
            change,
            Change::Touch { .. }
                | Change::SetAttr { .. }
                | Change::RemoveAttr { .. }
                | Change::RemoveAttrs { .. }
                | Change::OmapSet { .. }
                | Change::OmapRemove { .. }
                | Change::OmapSetHeader { .. }
                | Change::LogAppend { .. }
                | Change::LogTrim { .. }
                | Change::AllocHint { .. }
        )
    };
    let mut objects = changes.iter().filter_map(Change::content_of).filter(|id| !id.is_pg_meta());
    let first = objects.next();
    changes.iter().all(is_simple) && objects.all(|id| Some(id) == first)
}

/// Upper bound of the bytes of a divisible transaction's log entries. Twice: a removed key may be hidden in an ancestor, and
/// attributes are in the object's record in more than one part.
pub fn log_bytes_bound(transaction: &Transaction) -> usize {
    let of_change = |change: &Change| match change {
        Change::OmapRemove { keys, .. } => keys.iter().map(|key| key.len() + ENTRY_BYTES).sum(),
        other => other.growth() as usize + ENTRY_BYTES * (1 + keys_of(other)),
    };
    2 * transaction.changes.iter().map(of_change).sum::<usize>() + RECORDS_BYTES
}

impl Plan<'_> {
    /// Plans a part of a transaction, of up to `keys_max` omap keys. Returns what is left behind it.
    pub fn part(
        mut self,
        transaction: &Transaction,
        mut rest: Rest,
        keys_max: usize,
    ) -> Result<(Effect, Option<Rest>), Wait> {
        self.continues = !rest.is_all();
        let mut left = keys_max;
        let worked = loop {
            let Some(change) = transaction.changes.get(rest.change).filter(|_| left > 0) else {
                break Ok(());
            };
            let (keys, behind) = rest.divide(keys_of(change), left);
            left -= keys.len();
            match self.change_keys(transaction, change, keys, rest.new_omap) {
                Ok(new_omap) => rest = Rest { new_omap, ..behind },
                Err(wait) => break Err(wait),
            }
        };
        let rest = (rest.change < transaction.changes.len()).then_some(rest);
        if worked == Err(Wait::Index) {
            self.view.hold();
        } else if rest.is_some() {
            self.view.keep_answers();
        }
        self.finish(worked).map(|effect| (effect, rest))
    }

    /// Carries out a change, or these keys of it. Takes and returns the number of the omap that the transaction has created.
    fn change_keys(
        &mut self,
        transaction: &Transaction,
        change: &Change,
        keys: Range<usize>,
        new_omap: Option<u64>,
    ) -> Result<Option<u64>, Wait> {
        let (Change::OmapSet { object: id, .. } | Change::OmapRemove { object: id, .. }) = change else {
            return self.change(transaction.collection, change).map(|()| new_omap);
        };
        let object = self.open(transaction.collection, id, change.creates())?;
        let Some(mut object) = object else { return Ok(new_omap) };
        let number = |object: &super::objects::OpenObject| object.record.omap.map(|omap| omap.number);
        object.omap_is_new |= new_omap.is_some() && number(&object) == new_omap;
        match change {
            Change::OmapSet { entries, .. } => self.omap_set(&mut object, &entries[keys])?,
            Change::OmapRemove { keys: names, .. } => self.omap_remove(&mut object, &names[keys])?,
            _ => unreachable!("a change of keys"),
        }
        let is_new = object.omap_is_new && !id.is_pg_meta();
        let new_omap = if is_new { number(&object) } else { new_omap };
        self.open = Some(object);
        Ok(new_omap)
    }

    /// Starts the reads of index blocks that a part of up to `keys_max` keys lacks, and drops the plan. Returns what is left
    /// behind them, and true if the ticket waits for a read.
    pub fn ask(
        mut self,
        transaction: &Transaction,
        mut rest: Rest,
        keys_max: usize,
    ) -> Result<(Option<Rest>, bool), Wait> {
        let (mut left, mut waits) = (keys_max, false);
        while let Some(change) = transaction.changes.get(rest.change)
            && left > 0
            && self.view.may_ask_more()
        {
            let (keys, behind) = rest.divide(keys_of(change), left);
            left -= keys.len();
            let asked = match change {
                Change::OmapSet { object, entries } => {
                    let names = entries[keys].iter().map(|(name, _)| name);
                    self.ask_for_keys(transaction, object, names)
                }
                Change::OmapRemove { object, keys: names } => {
                    self.ask_for_keys(transaction, object, names[keys].iter())
                }
                other => self.look_at_change(transaction.collection, other).map(|()| false),
            };
            match asked {
                Ok(pending) => waits |= pending,
                // The names of its keys are not known before its record is.
                Err(Wait::Index) => {
                    self.view.hold();
                    return Err(Wait::Index);
                }
                // The plan meets it again.
                Err(_) => {}
            }
            rest = behind;
        }
        match waits {
            true => self.view.hold(),
            false => self.view.keep_answers(),
        }
        Ok(((rest.change < transaction.changes.len()).then_some(rest), waits))
    }

    /// True if the value of one of these keys is being read.
    fn ask_for_keys<'k>(
        &mut self,
        transaction: &Transaction,
        id: &store::ObjectId,
        names: impl Iterator<Item = &'k ::bytes::Bytes>,
    ) -> Result<bool, Wait> {
        let Some(mut object) = self.stored_object(transaction.collection, id)? else { return Ok(false) };
        if !object.record.omap_is_counted() {
            return Ok(false);
        }
        self.own_omap(&mut object)?;
        let Some(state) = object.record.omap else { return Ok(false) };
        let mut is_pending = false;
        for name in names {
            if !self.view.may_ask_more() {
                break;
            }
            let found = self.find_omap_value(state.number, &object.omap_ancestors, name);
            is_pending |= found == Err(Wait::Index);
        }
        Ok(is_pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tests::operations::{home, object};
    use bytes::Bytes;

    fn set(name: &str, keys: usize) -> Change {
        let entries = (0..keys).map(|i| (Bytes::from(format!("{i:04}")), Bytes::from_static(b"v"))).collect();
        Change::OmapSet { object: object(name, 1), entries }
    }

    fn of(changes: Vec<Change>) -> Transaction {
        Transaction { collection: home(), changes }
    }

    #[test]
    fn only_transactions_that_cannot_fail_half_way_are_divided() {
        assert!(!is_divisible(&of(vec![set("a", 10)]), 10), "few keys");
        assert!(is_divisible(&of(vec![set("a", 6), set("a", 5)]), 10));
        assert!(!is_divisible(&of(vec![set("a", 6), set("b", 5)]), 10), "two objects");
        let write =
            Change::Write { object: object("a", 1), offset: 0, data: Bytes::from_static(b"x").into() };
        assert!(!is_divisible(&of(vec![set("a", 11), write]), 10), "takes a block");
        let clear = Change::OmapClear { object: object("a", 1) };
        assert!(!is_divisible(&of(vec![set("a", 11), clear]), 10));
    }

    #[test]
    fn parts_cover_all_keys_once() {
        let transaction = of(vec![set("a", 5), set("a", 0), set("a", 4)]);
        let (mut rest, mut parts) = (Rest::default(), Vec::new());
        while let Some(change) = transaction.changes.get(rest.change) {
            let (keys, behind) = rest.divide(keys_of(change), 3);
            parts.push((rest.change, keys));
            rest = behind;
        }
        assert_eq!(parts, [(0, 0..3), (0, 3..5), (1, 0..0), (2, 0..3), (2, 3..4)]);
    }
}
