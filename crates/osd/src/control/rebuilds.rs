//! The record of a copy that could not be read and begins again.
//!
//! The record is durable before the shard touches the copy. So a crash at any later moment leaves an OSD that does not claim
//! the copy's earlier writes, whatever is left of the copy ([`super::copy_starts`]).

use super::{Control, CopyStart, Fx, Level};
use crate::control::io::Effect;
use crate::shard::{self, PgOrder};
use machine::{CoreId, Tag, Time};
use std::sync::Arc;
use wire::types::{LogPriority, SpgId};

impl Control {
    /// The primary of a PG has released its copy on this core. It says so again until it hears of a new copy.
    pub(super) fn note_rebuild(&mut self, now: Time, core: CoreId, pg: SpgId, split_bits: u8, fx: &mut Fx) {
        let is_noted = self.rebuilds.values().any(|(_, noted)| *noted == pg);
        if is_noted || !self.holdings.begin_again(pg.pg, core) {
            return;
        }
        let start = CopyStart { since: self.epoch() + 1, split_bits };
        let records = self.holdings.take_record_changes();
        let transaction = self.history.begin_copy(pg.pg, start, records);
        let tag = self.submit(transaction, fx);
        self.rebuilds.insert(tag, (core, pg));
        let (pg, osd) = (pg.pg, self.config.osd.0);
        let text = format!(
            "{pg}: osd.{osd} removes its copy, which cannot be read; the PG's other copies are whole"
        );
        self.log(Level::Warn, text.clone(), fx);
        self.tell_cluster(now, LogPriority::WARN, text, fx);
    }

    /// The daemon's own records are durable up to this one.
    pub(super) fn on_rebuild_noted(&mut self, tag: Tag, fx: &mut Fx) {
        let Some((core, pg)) = self.rebuilds.remove(&tag) else { return };
        let Some(map) = self.history.map.clone() else { return };
        let view = Arc::new(self.view(&map));
        let orders = vec![PgOrder::Rebuild { pg }];
        fx.push(Effect::Shard { core, input: shard::Input::Map { view, orders } });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::holdings::held;
    use crate::control::testing;
    use machine::{Effects, Random};
    use wire::types::{OsdMap, PgId};

    #[test]
    fn shard_is_told_when_the_record_is_durable() {
        let mut control = Control::new(testing::config(2), false, Random::from_number(1));
        let (pg, core) = (PgId { pool: 1, seed: 0 }, CoreId(1));
        control.history.map = Some(Arc::new(OsdMap { epoch: 20, ..OsdMap::default() }));
        control.holdings.entries.insert(pg, held(core, 3));
        let mut fx = Effects::new();
        // Repeated, and from a core that has no copy.
        for core in [CoreId(0), core, core] {
            control.note_rebuild(testing::NOW, core, pg.into(), 3, &mut fx);
        }
        let mut tags = Vec::new();
        for effect in fx.take() {
            match effect {
                Effect::Submit { tag, .. } => tags.push(tag),
                Effect::Shard { .. } => panic!("the record is not durable"),
                _ => {}
            }
        }
        let [tag] = tags[..] else { panic!("{tags:?}") };
        control.on_own_commit(testing::NOW, tag, &mut fx);
        let told = fx.take();
        let [Effect::Shard { core: to, input: shard::Input::Map { view, orders } }] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((*to, &orders[..]), (core, &[PgOrder::Rebuild { pg: pg.into() }][..]));
        assert_eq!((view.copy_starts.since(pg, 7), view.epoch), (21, 20));
    }
}
