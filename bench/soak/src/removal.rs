//! Removal of an object with a million omap keys, while other objects are written.

use crate::driver::Kind;
use crate::objects::{self, Name, omap_entries};
use crate::phases::Soak;
use store::Change;

const KEYS: u64 = 1_000_000;
/// Keys of a transaction.
const STEP: u64 = 1_000;

impl Soak {
    /// Measures 4 KiB writes before the removal, and until the cleaner has nothing left.
    pub fn remove_large_omap(&mut self) {
        let name = Name::Omap(0);
        self.phase("fill, one omap", KEYS / STEP, KEYS / STEP, |soak, step, window| {
            let keys = (step * STEP..(step + 1) * STEP).map(objects::mix);
            let change = Change::OmapSet { object: name.id(), entries: omap_entries(0, keys) };
            soak.submit(Kind::Omap, name, vec![change], window);
        });
        self.driver.settle();
        let (ops, large) = (self.lengths.measured, self.population.large.min(256));
        self.phase("4k writes, before", ops, ops, |soak, _, window| soak.overwrite(large, window));
        let mut is_removed = false;
        while !is_removed || self.driver.figures().numbers_to_clean > 0 {
            self.phase("4k writes, removal", ops, ops, |soak, _, window| {
                if !std::mem::replace(&mut is_removed, true) {
                    let change = Change::Remove { object: name.id() };
                    return soak.submit(Kind::Remove, name, vec![change], window);
                }
                soak.overwrite(large, window);
            });
        }
        self.phase("4k writes, after", ops, ops, |soak, _, window| soak.overwrite(large, window));
    }
}
