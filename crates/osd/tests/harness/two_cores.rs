//! Cores of one OSD, for stories of moves: shard, store, routes, and mail to other cores.

use super::*;
use osd::Routes;
use store::{ObjectId, Placed};

pub struct Core {
    pub shard: Shard,
    pub store: MemoryStore,
    pub routes: Routes,
}

impl Core {
    /// One core of two. `held`: the copies in its store that count.
    pub fn new(osd: i32, core: u16, store: MemoryStore, held: Vec<(SpgId, Placed)>) -> Core {
        let config = ShardConfig { osd: OsdId(osd), core: CoreId(core), ..config() };
        Core { shard: Shard::new(config, held), store, routes: Routes::new(2) }
    }
}

/// Mail from one core to another. The control machine is on core 0.
pub enum Hop {
    Input(Input),
    Said(ToControl),
}

pub fn name(object: usize) -> String {
    format!("o{object}")
}

/// The text in an object of the PG. `None`: the store has no such object.
pub fn text_in(store: &mut MemoryStore, n: usize) -> Option<String> {
    text_of(store, object(&name(n)).into())
}

pub fn text_of(store: &mut MemoryStore, object: ObjectId) -> Option<String> {
    let queries = vec![Query::Data { offset: 0, len: u64::MAX }];
    store.read(u64::MAX, ReadRequest { collection: Collection::Pg(pg()), object, queries });
    loop {
        let mut done = Vec::new();
        store.poll(&mut done);
        for completion in done {
            if let Completion::Read { tag: u64::MAX, answers } = completion {
                return match answers.as_deref() {
                    Ok([Answer::Data(data)]) => {
                        Some(String::from_utf8(data.to_bytes().to_vec()).expect("it is text"))
                    }
                    _ => None,
                };
            }
        }
    }
}
