//! Two members of an interval have the same log entries up to the version that both know to be committed.
//!
//! Entries beyond it may differ: peering rewinds them. A log is trimmed at its own pace, so only the common range counts.

use super::sight::{PgSight, Sights};

pub fn check(sights: &Sights) -> Result<(), String> {
    for (pg, copies) in sights.pgs() {
        let Some(primary) = copies.serving().first().copied() else { continue };
        for member in copies.members(primary).filter(|member| member.osd != primary.osd) {
            agree(primary, member).map_err(|words| format!("PG {}: {words}", pg.pg))?;
        }
    }
    Ok(())
}

fn agree<'a>(one: &'a PgSight, other: &'a PgSight) -> Result<(), String> {
    let (Some(one_first), Some(other_first)) = (one.log.first(), other.log.first()) else { return Ok(()) };
    let (from, to) = (one_first.0.max(other_first.0), one.committed_to.min(other.committed_to));
    let in_range =
        |sight: &'a PgSight| sight.log.iter().filter(move |(version, _)| (from..=to).contains(version));
    let (one_entries, other_entries) = (in_range(one), in_range(other));
    if one_entries.clone().eq(other_entries.clone()) {
        return Ok(());
    }
    let pairs = one_entries.clone().zip(other_entries.clone());
    let same = pairs.take_while(|(one, other)| one == other).count();
    Err(format!(
        "from {from} to {to}, which both know as committed, {} has {:?} where {} has {:?}",
        one.osd,
        one_entries.clone().nth(same),
        other.osd,
        other_entries.clone().nth(same)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::tests::{at, check_pair};
    use wire::types::HObject;

    fn check_with(change: impl FnOnce(&mut PgSight)) -> Result<(), String> {
        check_pair(check, change)
    }

    #[test]
    fn equal_and_trimmed_logs_agree() {
        assert_eq!(check_with(|_| ()), Ok(()));
        assert_eq!(check_with(|other| drop(other.log.drain(..3))), Ok(()));
        assert_eq!(check_with(|other| other.log.clear()), Ok(()), "nothing in common");
    }

    #[test]
    fn uncommitted_entry_may_differ() {
        let diverges = |other: &mut PgSight| {
            other.committed_to = at(10, 4);
            other.log[4].0 = at(9, 5);
        };
        assert_eq!(check_with(diverges), Ok(()));
    }

    #[test]
    fn committed_entry_that_differs_or_lacks_is_reported() {
        let found = check_with(|other| other.log[2].0 = at(9, 3)).unwrap_err();
        assert!(found.contains("osd.0 has Some((10'3"), "{found}");
        assert!(check_with(|other| drop(other.log.remove(2))).is_err());
        let name = HObject { name: "x".into(), ..HObject::min() };
        assert!(check_with(|other| other.log[2].1 = name).is_err());
    }

    #[test]
    fn member_of_an_older_interval_is_not_compared() {
        let is_behind = |other: &mut PgSight| {
            other.interval = 9;
            other.log[2].0 = at(9, 3);
        };
        assert_eq!(check_with(is_behind), Ok(()));
    }
}
