//! Generations of clones: every object is cloned and then overwritten, many times over, and all clones are removed.

use crate::driver::Kind;
use crate::objects::{self, Name};
use crate::phases::Soak;
use store::Change;

/// Blocks of an object.
const BLOCKS: u64 = 16;

impl Soak {
    /// Clones `objects` objects `generations` times, with an overwrite of each after each clone, and removes all clones, the
    /// oldest first.
    ///
    /// # Panics
    /// If blocks of removed clones stay.
    pub fn clone_generations(&mut self, objects: u64, generations: u64) {
        let name = |at: u64| Name::Large((1 << 32) + at);
        self.phase("fill", objects, objects, |soak, at, window| {
            soak.submit(Kind::WriteLarge, name(at), vec![objects::write(name(at), 0, BLOCKS)], window);
        });
        let before = self.blocks_without_logs();
        let ops = generations * objects;
        let window = ops.div_ceil(8).max(1);
        self.phase("clone, overwrite", 2 * ops, 2 * window, |soak, step, window| {
            let (at, generation) = (step / 2 % objects, step / 2 / objects + 1);
            if step.is_multiple_of(2) {
                let Name::Large(of) = name(at) else { unreachable!("it is a large one") };
                let clone = Name::Clone { of, snap: generation };
                let change = Change::Clone { from: name(at).id(), to: clone.id() };
                return soak.submit(Kind::Clone, clone, vec![change], window);
            }
            let block = soak.below(BLOCKS);
            soak.submit(Kind::Write4k, name(at), vec![objects::write(name(at), block, 1)], window);
        });
        self.phase("remove clones", ops, window, |soak, step, window| {
            let Name::Large(of) = name(step % objects) else { unreachable!("it is a large one") };
            let clone = Name::Clone { of, snap: step / objects + 1 };
            soak.submit(Kind::Remove, clone, vec![Change::Remove { object: clone.id() }], window);
        });
        let measured = self.lengths.measured;
        while self.driver.figures().numbers_to_clean > 0 {
            self.phase("4k writes, cleaning", measured, measured, |soak, step, window| {
                let (name, block) = (name(step % objects), soak.below(BLOCKS));
                soak.submit(Kind::Write4k, name, vec![objects::write(name, block, 1)], window);
            });
        }
        assert_eq!(self.blocks_without_logs(), before, "blocks of removed clones stay");
        println!("{before} blocks with data before the first clone and after the last removal");
    }
}
