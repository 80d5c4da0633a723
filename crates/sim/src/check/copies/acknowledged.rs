//! A write that a client has an answer to is durable on every living member of the acting set, at the moment of the answer.
//!
//! A later failure may take the other copies. Then this one must have the write.

use super::sight::{PgRole, PgSight, Sights};
use wire::types::{Eversion, OsdId, PgId};

/// The answer to a write, as its primary sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    pub osd: OsdId,
    pub pg: PgId,
    /// Version of the write in the PG's log.
    pub version: Eversion,
    /// The sender was the PG's primary when it sent the answer.
    pub by_primary: bool,
}

pub fn check(ack: Ack, sights: &Sights) -> Result<(), String> {
    let Ack { osd, pg, version, by_primary } = ack;
    let copies = sights.pg(pg.into());
    let primary = match copies.on(osd) {
        Some(sight) if sight.is_primary() => sight,
        Some(PgSight { role: PgRole::Replica { .. }, .. }) if !by_primary => {
            return Err(format!("{osd} acknowledges {version} of PG {pg}, and is a replica"));
        }
        // The PG is between two cores of its primary, or a new interval has come since.
        _ => return Ok(()),
    };
    // It answered in an earlier interval: the answer went from one core to another meanwhile.
    if !primary.is_serving() {
        return Ok(());
    }
    // A member that has started again, perhaps on an empty store, acknowledged in its earlier life. Its word was on the way
    // while a later interval began without this primary.
    let has_another_store =
        |member: &&PgSight| member.interval > primary.interval && member.store_since > version.epoch;
    let members = primary.acting.iter().filter_map(|osd| copies.on(*osd));
    for member in members.filter(|member| member.role != PgRole::Idle && !has_another_store(member)) {
        if member.durable_to < version {
            return Err(format!(
                "{osd} acknowledges {version} of PG {pg}, acting {:?}; on {} the log is durable up to {}",
                primary.acting, member.osd, member.durable_to
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::Service;
    use crate::check::copies::sight::tests::{PG, at, primary, replica, stray};

    fn check_ack(version: u64, sights: &[PgSight]) -> Result<(), String> {
        check(
            Ack { osd: OsdId(0), pg: PG, version: at(10, version), by_primary: false },
            &sights.iter().cloned().collect(),
        )
    }

    #[test]
    fn write_on_all_living_members_holds() {
        let members = [0, 1, 2];
        assert_eq!(check_ack(5, &[primary(0, &members), replica(1, &members)]), Ok(()), "osd.2 is dead");
    }

    #[test]
    fn write_that_a_member_lacks_is_reported() {
        let members = [0, 1];
        let mut late = replica(1, &members);
        late.durable_to = at(10, 4);
        let found = check_ack(5, &[primary(0, &members), late]).unwrap_err();
        assert!(found.contains("osd.1 the log is durable up to 10'4"), "{found}");
    }

    #[test]
    fn write_of_another_interval_is_older_or_newer_by_epoch() {
        let members = [0, 1];
        let mut newer = replica(1, &members);
        newer.durable_to = at(11, 1);
        assert_eq!(check_ack(5, &[primary(0, &members), newer]), Ok(()), "it went on in a later interval");
    }

    #[test]
    fn answer_of_an_ended_interval_is_not_judged_by_the_next() {
        let peers = PgSight { role: PgRole::Primary(Service::None), ..primary(0, &[0, 1]) };
        let empty = PgSight { durable_to: at(0, 0), ..replica(1, &[0, 1]) };
        assert_eq!(check_ack(5, &[peers, empty]), Ok(()));
    }

    #[test]
    fn member_that_lost_its_disk_since_is_not_judged() {
        let mut lost = replica(1, &[1]);
        (lost.interval, lost.store_since, lost.durable_to) = (12, 12, at(0, 0));
        assert_eq!(check_ack(5, &[primary(0, &[0, 1]), lost.clone()]), Ok(()));
        assert!(check_ack(5, &[primary(0, &[0, 1]), PgSight { store_since: 1, ..lost.clone() }]).is_err());
        assert!(check_ack(5, &[primary(0, &[0, 1]), PgSight { interval: 10, ..lost }]).is_err());
    }

    #[test]
    fn acknowledgement_by_a_replica_is_reported() {
        assert!(check_ack(5, &[replica(0, &[1, 0])]).is_err());
        assert_eq!(check_ack(5, &[stray(0)]), Ok(()), "it loads on another core");
    }
}
