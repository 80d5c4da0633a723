//! A monitor's disk made from the stores of OSDs, when the disks of all monitors are lost.
//!
//! OSDs have the newest OSDMap that they saw and the increments that led there. So pools, CRUSH, OSDs with their states and
//! weights, and the blocklist come back. Keys come from keyrings, and hosts from their directories. The rest was on the monitors
//! alone: options and keys of the configuration, other entities, the log, tokens.
//!
//! The lost monitors may have made maps, pools, client numbers that no store shows: the monitor dies before the OSDs hear of it,
//! or a store was not read. Nothing of that may be made a second time with another meaning: an OSD orders writes by epoch, and
//! recognises a repeated request by its client's number. So all numbers go on above every number that can have been used:
//!
//! - OSDMap epochs and pool numbers continue [`Rebuild::skipped`] higher. Empty increments fill the gap; the last one has the map
//!   whole. An OSD passes through them with its knowledge of intervals intact; a client that has a lost map ends with the
//!   right one. An OSD that has a lost map finds that an increment does not fit and takes the whole map.
//! - Epochs of monitor map and manager map begin at that of the OSDMap: clients that live take only later ones.
//! - Client numbers, and the monitors' numbers as members of their log, begin at the time of the rebuild.

mod chain;
mod found;
#[cfg(test)]
mod tests;

pub use found::{BadFile, Conflict, Found, Seen, Store};

use crate::auth_entity::AuthEntity;
use crate::genesis::{bootstrap_entities, first_monmap, random_uuid};
use crate::joining::Host;
use crate::osd_step::step_after;
use crate::proposal::{Change, Proposal, SealedStep};
use crate::replication::{Identity, Quorum, Write};
use crate::state::{GLOBAL_ID_MIN, Members, OsdHistory, State};
use chain::{Chain, newest_chain};
use machine::Random;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{
    AuthName, EntityAddrVec, EntityKind, EntityName, Epoch, LogEntry, LogPriority, MgrMap, MonMap, OsdMap,
    OsdMapIncremental, PgId, PoolFlags, UTime, Uuid,
};

/// Epochs between the newest map that was found and the first one of the rebuilt monitor.
pub const SKIPPED_DEFAULT: u32 = 1000;
/// The first increment has the numbers that change, the last one the whole map.
pub const SKIPPED_MIN: u32 = 2;
/// Each is an increment in the monitor's history.
pub const SKIPPED_MAX: u32 = 100_000;
/// Client numbers that a second has: no monitor gives out as many.
const CLIENTS_PER_SECOND: u64 = 1024;

/// The settings of the rebuilt monitor.
#[derive(Clone, Debug)]
pub struct Rebuild {
    pub name: String,
    pub addrs: EntityAddrVec,
    pub entities: BTreeMap<AuthName, AuthEntity>,
    /// OSDs whose stores are lost, by the operator's word.
    pub without: BTreeSet<i32>,
    pub skipped: u32,
}

/// The rebuilt monitor's disk, and facts for the operator.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    pub write: Write,
    /// The newest map that was found, and the first one of the monitor.
    pub found: Epoch,
    pub epoch: Epoch,
    /// The oldest map that OSDs can catch up from.
    pub oldest: Epoch,
    pub pools: usize,
    /// OSDs whose stores were read.
    pub osds: Vec<i32>,
    /// OSDs of the map whose stores were not read, and that are not declared lost: they have never been up.
    pub never_up: Vec<i32>,
    /// OSDs of the map that have no key.
    pub keyless: Vec<i32>,
    /// Stores with a map older than [`Rebuilt::oldest`]: their OSDs do not learn the past intervals of their PGs.
    pub behind: Vec<Seen>,
    /// Stores of OSDs that the map does not know: they were replaced or removed.
    pub strange: Vec<Seen>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no store has a readable OSDMap")]
    NoMap,
    #[error(
        "{one} with OSDMap {one_epoch} and {other} with the increment to {epoch} do not fit: they followed different \
         monitors. Give the stores that followed the same ones"
    )]
    TwoHistories { one: String, one_epoch: Epoch, other: String, epoch: Epoch },
    #[error(
        "OSDMap {epoch} names {} and no store of them was read. They may have newer maps and newer writes: read their \
         stores, too. If a store is lost, say so: {}", osds(.missing), flags(.missing)
    )]
    NotRead { epoch: Epoch, missing: Vec<i32> },
    #[error(
        "{name} has seen OSDMap {seen}, and no store has a readable way to it; the newest is {found}. If the damaged records \
         cannot be had from elsewhere, {}", give_up(*.osd)
    )]
    NewestDamaged { name: String, osd: Option<i32>, seen: Epoch, found: Epoch },
    #[error(
        "a store has seen OSDMap {seen}, and the newest readable one is {found}: that gap is too long to be filled"
    )]
    GapTooLong { found: Epoch, seen: Epoch },
}

fn osds(numbers: &[i32]) -> String {
    numbers.iter().map(|osd| format!("osd.{osd}")).collect::<Vec<_>>().join(", ")
}

fn flags(numbers: &[i32]) -> String {
    numbers.iter().map(|osd| format!("--without {osd}")).collect::<Vec<_>>().join(" ")
}

fn give_up(osd: Option<i32>) -> String {
    match osd {
        Some(osd) => format!("declare its newest maps lost: {}", flags(&[osd])),
        None => "leave this store out".into(),
    }
}

impl Rebuild {
    pub fn make(&self, found: &Found, now: UTime, random: &mut Random) -> Result<Rebuilt, Refused> {
        let chain = newest_chain(found)?;
        let map = chain.newest.clone();
        let number_of = |identity: &Uuid| {
            let at = map.osds.iter().position(|row| row.uuid == *identity)?;
            i32::try_from(at).ok()
        };
        let read: BTreeMap<i32, &Seen> =
            found.stores.iter().filter_map(|(id, seen)| Some((number_of(id)?, seen))).collect();
        let strange = found.stores.iter().filter(|(id, _)| number_of(id).is_none());
        let strange: Vec<Seen> = strange.map(|(_, seen)| seen.clone()).collect();
        for (identity, seen) in found.stores.iter().filter(|(_, seen)| seen.newest > map.epoch) {
            let osd = number_of(identity);
            if osd.is_none_or(|osd| !self.without.contains(&osd)) {
                let (name, seen) = (seen.name.clone(), seen.newest);
                return Err(Refused::NewestDamaged { name, osd, seen, found: map.epoch });
            }
        }
        let is_missing = |osd: &i32| !read.contains_key(osd) && !self.without.contains(osd);
        let was_up = |osd: &i32| map.osd(*osd).is_some_and(|row| row.info.up_from != 0);
        let (missing, never_up): (Vec<i32>, Vec<i32>) = map.osd_ids().filter(is_missing).partition(was_up);
        if !missing.is_empty() {
            return Err(Refused::NotRead { epoch: map.epoch, missing });
        }
        let seen = found.newest_seen().max(map.epoch);
        let last = seen.checked_add(self.skipped.clamp(SKIPPED_MIN, SKIPPED_MAX));
        let last = last.filter(|last| last - map.epoch <= 2 * SKIPPED_MAX);
        let last = last.ok_or(Refused::GapTooLong { found: map.epoch, seen })?;
        let history = continued(chain, last, now);
        let key_of = |osd: &i32| self.entities.contains_key(&AuthName::new(EntityKind::OSD, osd.to_string()));
        let behind = read.values().filter(|seen| seen.newest < history.oldest());
        Ok(Rebuilt {
            found: map.epoch,
            epoch: last,
            oldest: history.oldest(),
            pools: map.pools.len(),
            osds: read.keys().copied().collect(),
            never_up,
            keyless: map.osd_ids().filter(|osd| !key_of(osd)).collect(),
            behind: behind.map(|seen| (*seen).clone()).collect(),
            strange,
            write: self.disk(history, &map, found, &read, now, random),
        })
    }

    /// The monitor's disk: alone, with this history.
    fn disk(
        &self,
        history: OsdHistory,
        newest: &OsdMap,
        found: &Found,
        read: &BTreeMap<i32, &Seen>,
        now: UTime,
        random: &mut Random,
    ) -> Write {
        let epoch = history.map().epoch;
        let monitors = [(self.name.clone(), self.addrs.clone())];
        let monmap = MonMap { epoch, created: newest.created, ..first_monmap(newest.fsid, &monitors, now) };
        let mgrmap = MgrMap { epoch, active_change: now, ..MgrMap::default() };
        // Clocks of monitors may have been ahead.
        let seconds = u64::from(now.sec.max(newest.modified.sec));
        let mut changes = vec![
            Change::MonMap { map: monmap },
            Change::MonDisk { name: self.name.clone(), disk: random_uuid(random) },
            Change::MgrMap { map: Box::new(mgrmap) },
            Change::GlobalIdLimit { limit: GLOBAL_ID_MIN + seconds * CLIENTS_PER_SECOND },
        ];
        let new = bootstrap_entities(now, random).into_iter();
        let known = self.entities.iter().map(|(name, entity)| (name.clone(), entity.clone()));
        changes.extend(new.chain(known).map(|(name, entity)| Change::AuthSet { name, entity }));
        let host =
            |(name, host): (&String, &Host)| Change::Host { name: name.clone(), host: Some(host.clone()) };
        changes.extend(found.hosts.iter().map(host));
        changes.push(Change::Log { entry: self.log_line(epoch, newest.epoch, read, now) });

        let members = Members::numbered_after(seconds);
        let mut state = State { osd: history, members, ..State::default() };
        state.apply(&Proposal { at: now, base: Some(0), changes });
        let own = state.members.get(&self.name).expect("the monitor map names it");
        let identity = Identity { member: own.id, disk: own.disk };
        Write { identity: Some(identity), ..Quorum::format(&[own.id], state.snapshot()) }
    }

    fn log_line(&self, epoch: Epoch, found: Epoch, read: &BTreeMap<i32, &Seen>, now: UTime) -> LogEntry {
        let from: Vec<i32> = read.keys().copied().collect();
        LogEntry {
            name: AuthName::new(EntityKind::MON, self.name.as_str()),
            rank: EntityName::new(EntityKind::MON, 0),
            addrs: self.addrs.clone(),
            stamp: now,
            seq: 1,
            priority: LogPriority::WARN,
            message: format!(
                "mon.{} was rebuilt from the stores of {}: OSDMap {found} was the newest there, {epoch} is the first new \
                 one. Options, config keys, join tokens, the log and keys that no keyring had are gone",
                self.name,
                osds(&from)
            ),
            channel: "cluster".into(),
        }
    }
}

/// The chain, continued up to epoch `last`.
fn continued(chain: Chain, last: Epoch, now: UTime) -> OsdHistory {
    let mut history = OsdHistory::starting_with(chain.oldest);
    chain.steps.into_iter().for_each(|step| history.apply(&SealedStep::of_sealed(step)));
    let skipped = i64::from(last - history.map().epoch);
    let pool_max = i64::from(history.map().pool_max) + skipped;
    let mut first = step_after(history.map(), now);
    first.new_pool_max = Some(pool_max.min(i32::MAX.into()));
    first.new_up_thru = up_thru(history.map());
    history.apply(&sealed(first, history.map()));
    while history.map().epoch + 1 < last {
        history.apply(&sealed(step_after(history.map(), now), history.map()));
    }
    let map = history.map();
    let mut whole = step_after(map, now);
    whole.full_map = OsdMap { epoch: last, ..map.clone() }.to_canonical().0.into();
    history.apply(&sealed(whole, map));
    history.creating = creating(&history);
    history
}

/// OSDs that are up count as alive up to the newest map: the lost monitors may have recorded that, and a primary have served since.
/// Peering then asks the members of the present intervals.
fn up_thru(map: &OsdMap) -> BTreeMap<i32, Epoch> {
    map.osd_ids().filter(|osd| map.is_up(*osd)).map(|osd| (osd, map.epoch)).collect()
}

fn sealed(step: OsdMapIncremental, map: &OsdMap) -> SealedStep {
    SealedStep::seal(step, map).expect("an empty step, or a whole map, fits any map")
}

/// PGs that wait for the report that they exist. The history has those of pools that were made in it; OSDs report them again. Of
/// an older pool the first epoch is named, and a primary that does not know all intervals since then does not make the PG anew.
fn creating(history: &OsdHistory) -> BTreeMap<PgId, (Epoch, UTime)> {
    let map = history.map();
    let waits = map.pools.iter().filter(|(_, pool)| pool.flags.has(PoolFlags::CREATING));
    let pgs = waits.flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId { pool: *id, seed }));
    pgs.map(|pg| (pg, history.creating.get(&pg).copied().unwrap_or((1, map.created)))).collect()
}
