//! Logs of collections: their changes, and spills of records into blocks; see [`crate::pg_log`].

use super::damage::is_rot;
use super::objects::parse_record;
use super::{Effect, Plan};
use crate::object::key;
use crate::pg_log::{LOG_COPIES, LogChange, PgLog, Spill, SpillData};
use crate::view::Wait;
use codec::Rope;
use device::BLOCK;
use store::{Collection, ObjectId};
use wire::types::HObject;

const BLOCK_BYTES: u64 = BLOCK as u64;

/// Identity of a collection's log object in its record, and in reports of damage.
fn log_object(collection: Collection) -> ObjectId {
    let object = match collection {
        Collection::Pg(pg) => ObjectId::pg_meta(pg).object,
        Collection::Meta => HObject::min(),
    };
    ObjectId { object, generation: 0 }
}

impl Plan<'_> {
    pub(super) fn change_log(&mut self, id: Collection, change: LogChange) -> Result<(), Wait> {
        // It must exist.
        self.collection(id);
        self.effect.logs.push((id, change));
        Ok(())
    }

    /// The next spill of a log; `None` if there is nothing to do.
    pub fn spill(mut self, id: Collection, log: &PgLog) -> Result<Option<Effect>, Wait> {
        let Some(data) = log.next_spill() else { return Ok(None) };
        let done = self.put_spill(id, log, data);
        self.finish(done).map(Some)
    }

    fn put_spill(&mut self, id: Collection, log: &PgLog, data: SpillData) -> Result<(), Wait> {
        let SpillData { spill, bytes, released: (start, blocks) } = data;
        let (object_id, key) = (log_object(id), key::log_object(id));
        let object = self.open_at(id, &object_id, key, true)?;
        let mut object = object.expect("it is created where there is none");
        // Its pages are known by the record alone. What follows is readable again.
        let lost = std::mem::take(&mut object.record.is_lost) && !log.chunks().is_empty();
        let bytes = Rope::from(bytes);
        for copy in LOG_COPIES {
            self.zero(&mut object, (copy + start) * BLOCK_BYTES, blocks * BLOCK_BYTES)?;
            self.write(&mut object, (copy + spill.start) * BLOCK_BYTES, &bytes)?;
        }
        self.effect.stage.iter_mut().for_each(|(_, run)| run.is_logged = true);
        self.open = Some(object);
        self.effect.logs.push((id, LogChange::Spill(Spill { lost, ..spill })));
        Ok(())
    }

    /// The log of a collection that is removed.
    pub(super) fn end_log(&mut self, id: Collection) -> Result<(), Wait> {
        let key = key::log_object(id);
        let record = self.get(&key).and_then(|value| value.map(|v| parse_record(&v)).transpose());
        match record {
            Ok(None) => {}
            Ok(Some(record)) => {
                self.release_object(&record, log_object(id).object.pool)?;
                self.delete(key);
            }
            Err(wait) if is_rot(&wait) => self.delete(key),
            Err(wait) => return Err(wait),
        }
        self.delete(key::log_state(id));
        // A collection of the same name may follow in the same transaction.
        self.effect.logs.push((id, LogChange::Clear));
        Ok(())
    }
}
