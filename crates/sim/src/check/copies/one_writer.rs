//! At most one interval of a PG at a time can commit writes, and a primary of an older one answers no reads.
//!
//! An old primary that is cut off may take requests for a while. That is harmless as long as no write of its interval can
//! commit, because a member has left the interval, and as long as its lease for reads ends before a newer interval commits.

use super::sight::Sights;

pub fn check(sights: &Sights) -> Result<(), String> {
    for (pg, copies) in sights.pgs() {
        let serving = copies.serving();
        let Some(newest) = serving.iter().find(|primary| copies.can_commit(primary)) else { continue };
        for older in serving.iter().filter(|primary| primary.osd != newest.osd) {
            let both = format!(
                "PG {}: {} of interval {} commits writes, and {} of interval {}",
                pg.pg, newest.osd, newest.interval, older.osd, older.interval
            );
            if copies.can_commit(older) {
                return Err(format!("{both} does, too"));
            }
            if older.admits_reads() && older.interval < newest.interval {
                return Err(format!("{both} still answers reads"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::tests::{primary, replica};
    use crate::check::copies::sight::{PgRole, PgSight, Service};

    fn in_interval(sight: PgSight, interval: u32) -> PgSight {
        PgSight { interval, ..sight }
    }

    fn check_all(sights: Vec<PgSight>) -> Result<(), String> {
        check(&sights.into_iter().collect())
    }

    #[test]
    fn one_serving_primary_holds() {
        let members = [0, 1, 2];
        let all = vec![primary(0, &members), replica(1, &members), replica(2, &members)];
        assert_eq!(check_all(all), Ok(()));
    }

    #[test]
    fn two_disjoint_intervals_that_commit_are_reported() {
        let old = vec![primary(0, &[0]), in_interval(primary(1, &[1, 2]), 11)];
        let new = vec![in_interval(replica(2, &[1, 2]), 11)];
        let found = check_all([old, new].concat()).unwrap_err();
        assert!(found.contains("does, too"), "{found}");
    }

    /// osd.1 has left the interval of osd.0, which holds its lease yet.
    #[test]
    fn old_primary_that_reads_beside_new_writer_is_reported() {
        let mut old = primary(0, &[0, 1]);
        let new = [in_interval(primary(1, &[1, 2]), 11), in_interval(replica(2, &[1, 2]), 11)];
        let found = check_all([&[old.clone()][..], &new].concat()).unwrap_err();
        assert!(found.contains("still answers reads"), "{found}");
        old.role = PgRole::Primary(Service::Writes);
        assert_eq!(check_all([&[old][..], &new].concat()), Ok(()), "its writes wait for osd.1");
    }

    #[test]
    fn old_primary_may_read_until_new_one_serves() {
        let mut new = in_interval(primary(1, &[1, 2]), 11);
        new.role = PgRole::Primary(Service::None);
        let all = vec![primary(0, &[0, 1]), new, in_interval(replica(2, &[1, 2]), 11)];
        assert_eq!(check_all(all), Ok(()));
    }
}
