//! Logs and duplicates keep to their limits, and no copy has trimmed an entry that an acting member lacks.
//!
//! The log is the means to bring members together: by the entry that one lacks it gets the object, and by the entry that
//! another has alone it rewinds. Without the entry only a backfill helps.

use super::sight::{PgRole, PgSight, Sights};

/// A merge may join two logs, which the next change trims. Entries that are not committed stay beyond that.
const LOGS_MERGED: usize = 2;
const UNCOMMITTED_MAX: usize = 100;

pub fn check(sights: &Sights) -> Result<(), String> {
    for (pg, copies) in sights.pgs() {
        for copy in copies.iter() {
            within_limits(copy).map_err(|words| format!("PG {}: {words}", pg.pg))?;
        }
        let Some(primary) = copies.serving().first().copied() else { continue };
        let is_active = |member: &&PgSight| !matches!(member.role, PgRole::Replica { is_activated: false });
        let members: Vec<&PgSight> = copies.members(primary).filter(is_active).collect();
        for (trimmed, member) in members.iter().flat_map(|one| members.iter().map(move |other| (one, other)))
        {
            if trimmed.log_tail > member.durable_to {
                return Err(format!(
                    "PG {}: {} has trimmed its log up to {}; on {} the log is durable up to {}",
                    pg.pg, trimmed.osd, trimmed.log_tail, member.osd, member.durable_to
                ));
            }
        }
    }
    Ok(())
}

fn within_limits(copy: &PgSight) -> Result<(), String> {
    let limits = &copy.log_limits;
    let entries_max = LOGS_MERGED * (limits.max_entries + limits.batch) + UNCOMMITTED_MAX;
    let duplicates_max = LOGS_MERGED * limits.max_duplicates;
    if copy.log_len > entries_max {
        return Err(format!(
            "the log of {} has {} entries, at most {entries_max} ({:?} since epoch {}: from {} to {}, committed to {})",
            copy.osd,
            copy.log_len,
            copy.role,
            copy.interval,
            copy.log_tail,
            copy.last_update,
            copy.committed_to
        ));
    }
    if copy.duplicates_len > duplicates_max {
        return Err(format!(
            "the log of {} has {} duplicates, at most {duplicates_max}",
            copy.osd, copy.duplicates_len
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::tests::{at, check_pair};

    fn check_with(change: impl FnOnce(&mut PgSight)) -> Result<(), String> {
        check_pair(check, change)
    }

    #[test]
    fn trimmed_entries_that_all_members_have_hold() {
        assert_eq!(check_with(|_| ()), Ok(()));
        assert_eq!(check_with(|other| other.log_tail = at(10, 5)), Ok(()));
        let behind = |other: &mut PgSight| {
            other.interval = 9;
            other.log_tail = at(10, 6);
        };
        assert_eq!(check_with(behind), Ok(()), "a member of an older interval");
    }

    #[test]
    fn trimmed_entry_that_a_member_lacks_is_reported() {
        let found = check_with(|other| other.log_tail = at(10, 6)).unwrap_err();
        assert!(found.contains("osd.1 has trimmed its log up to 10'6; on osd.0"), "{found}");
    }

    #[test]
    fn log_beyond_its_limits_is_reported() {
        assert_eq!(check_with(|other| other.log_len = 124), Ok(()));
        assert!(check_with(|other| other.log_len = 125).is_err());
        assert_eq!(check_with(|other| other.duplicates_len = 20), Ok(()));
        assert!(check_with(|other| other.duplicates_len = 21).is_err());
    }
}
