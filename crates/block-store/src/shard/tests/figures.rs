//! Figures of a store under load: each is above zero at some time.

use super::operations::{home, object};
use super::rig::Rig;
use super::small;
use crate::check::Depth;
use crate::shard::Options;
use device::simulated::Pace;
use store::{Change, Transaction};

fn submit(rig: &mut Rig, changes: Vec<Change>) {
    let transaction = Transaction { collection: home(), changes };
    rig.front_apply(transaction.clone());
    rig.submit(transaction);
}

/// Transactions arrive without a pause. With small memtables the index falls behind; with large ones the log is full first.
#[test]
fn waits_and_levels_of_a_busy_store_are_counted() {
    let mut peaks = [0; 6];
    for memtable_bytes in [16 << 10, 4 << 20] {
        let index = crate::index::Options { memtable_bytes, ..small().index };
        let mut rig = Rig::new(64 << 20, 512 << 10, Pace::Steps, 1, Options { index, ..small() });
        load(&mut rig, &mut peaks);
        rig.compare(Depth::Deep);
    }
    assert!(
        peaks.iter().all(|peak| *peak > 0),
        "waited_for_log, waited_for_index, fresh_tables, deferred, tables, numbers_to_clean: {peaks:?}"
    );
}

fn load(rig: &mut Rig, peaks: &mut [u64; 6]) {
    let mut look = |rig: &mut Rig| {
        rig.poll();
        let f = rig.shard.figures();
        let now =
            [f.waited_for_log, f.waited_for_index, f.fresh_tables, f.deferred, f.tables, f.numbers_to_clean];
        peaks.iter_mut().zip(now).for_each(|(peak, value)| *peak = value.max(*peak));
    };
    submit(rig, vec![Change::CreateCollection { split_bits: 0 }]);
    for n in 0..400u32 {
        let object = object(&format!("o{}", n % 40), 1);
        let entries = (0..40).map(|key| (format!("{n}-{key}").into(), vec![7; 200].into())).collect();
        let data = vec![n as u8; 8 << 10].into();
        let omap = Change::OmapSet { object: object.clone(), entries };
        submit(rig, vec![omap, Change::Write { object, offset: 0, data }]);
        look(rig);
    }
    rig.settle();
    for n in 0..40 {
        submit(rig, vec![Change::Remove { object: object(&format!("o{n}"), 1) }]);
    }
    for _ in 0..1000 {
        look(rig);
    }
}
