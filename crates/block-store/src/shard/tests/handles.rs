//! Shards that share a disk: each gets the completions of its own requests.

use super::{ZONE_BYTES, attached, new_keys};
use crate::Pool;
use crate::format::{FormatOptions, Identity};
use crate::mkfs::format;
use crate::shard::{OpenError, Options, Shard};
use device::simulated::{Pace, Simulated};
use device::{BlockDevice, Done, Request};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Requests in flight by the disk's token, and completions by handle.
#[derive(Default)]
struct Exchange {
    next: u64,
    in_flight: BTreeMap<u64, (usize, u64)>,
    done: BTreeMap<usize, Vec<Done>>,
}

/// One of several handles to a disk.
pub(crate) struct Handle {
    disk: Simulated,
    number: usize,
    exchange: Rc<RefCell<Exchange>>,
}

impl BlockDevice for Handle {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn submit(&mut self, token: u64, request: Request) {
        let exchange = &mut *self.exchange.borrow_mut();
        exchange.next += 1;
        exchange.in_flight.insert(exchange.next, (self.number, token));
        self.disk.submit(exchange.next, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        let mut all = Vec::new();
        let busy = self.disk.poll(&mut all);
        let exchange = &mut *self.exchange.borrow_mut();
        for Done { token, result } in all {
            let (number, token) = exchange.in_flight.remove(&token).expect("a request in flight");
            exchange.done.entry(number).or_default().push(Done { token, result });
        }
        out.append(exchange.done.entry(self.number).or_default());
        busy || exchange.done.values().any(|done| !done.is_empty())
    }
}

/// One handle for each shard.
pub(crate) fn handles(disk: &Simulated, count: usize) -> Vec<Handle> {
    let exchange = Rc::default();
    (0..count).map(|number| Handle { disk: disk.clone(), number, exchange: Rc::clone(&exchange) }).collect()
}

/// Opens all shards of a disk, with one pool.
pub(crate) fn open_all(disk: &Simulated, options: &Options) -> Vec<Shard> {
    try_open_all(disk, options).map(|(shards, _)| shards).expect("a store was made on this disk")
}

pub(crate) fn try_open_all(
    disk: &Simulated,
    options: &Options,
) -> Result<(Vec<Shard>, Arc<Pool>), OpenError> {
    let pool = attached(&mut disk.clone())?;
    let count = pool.superblock().shards.len();
    let shards = handles(disk, count)
        .into_iter()
        .enumerate()
        .map(|(number, handle)| Shard::open(Box::new(handle), number, &pool, options.clone(), &mut || ()));
    Ok((shards.collect::<Result<_, _>>()?, pool.clone()))
}

/// A disk with a store of several shards.
pub(crate) fn formatted_for(shards: usize, size: u64, log_bytes: u64, seed: u64) -> Simulated {
    let disk = Simulated::new(size, Pace::AtOnce, seed);
    let options = FormatOptions {
        identity: Identity([seed as u8; 16]),
        label: "test".into(),
        shards,
        log_bytes: Some(log_bytes),
        zone_bytes: Some(ZONE_BYTES),
        discard: false,
        encryption: seed.is_multiple_of(2).then(new_keys),
        devices: Vec::new(),
    };
    format(&mut disk.clone(), &options, &mut || ()).expect("a store fits on this disk");
    disk
}
