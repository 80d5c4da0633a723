//! `osd safe-to-destroy`, `osd destroy` and `osd purge`: OSDs whose data nobody needs any more.

use super::{Reaction, View};
use command::{Answer, Args, errno, object};
use std::collections::BTreeSet;
use wire::types::{OsdMap, PgState};

/// `0`, `osd.0`, `any`, `all` or `*`, in any number.
pub(super) fn osd_ids(map: &OsdMap, args: &Args) -> Result<BTreeSet<i32>, Answer> {
    let mut osds = BTreeSet::new();
    for word in args.texts("ids").iter().flat_map(|w| w.split_whitespace()) {
        if matches!(word, "any" | "all" | "*") {
            osds = (0..map.max_osd()).filter(|osd| map.exists(*osd)).collect();
            break;
        }
        osds.insert(command::parse_osd(word)?.0);
    }
    match osds.is_empty() {
        true => Err(Answer::invalid("must specify one or more OSDs")),
        false => Ok(osds),
    }
}

fn set_text(osds: &[i32]) -> String {
    osds.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

/// OSDs by the use that their data still has.
#[derive(Default)]
struct Removal {
    safe: Vec<i32>,
    /// PGs are mapped to them.
    active: Vec<i32>,
    /// Silent, while not every PG is clean.
    silent: Vec<i32>,
    /// They store PGs, while not every PG is clean.
    holding: Vec<i32>,
    /// PGs that are mapped to the active ones.
    affected: i32,
}

impl Removal {
    /// # Errors
    /// The answer while a PG is unknown.
    fn of(view: &View<'_>, osds: &BTreeSet<i32>) -> Result<Removal, Answer> {
        let map = view.pg_map;
        let unknown = map.pgs.values().filter(|stat| stat.state == PgState::UNKNOWN).count();
        if unknown > 0 {
            let why = format!("{unknown} pgs have unknown state; cannot draw any conclusions");
            return Err(Answer::error(errno::EAGAIN, why));
        }
        let clean = PgState::ACTIVE.with(PgState::CLEAN);
        let all_clean = map.pgs.values().all(|stat| stat.state.has(clean));
        let counts = map.pg_counts();
        let mut removal = Removal::default();
        for &osd in osds {
            let count = counts.get(&osd).copied().unwrap_or_default();
            let mapped = count.acting + count.up_not_acting;
            if !map.map.exists(osd) {
                removal.safe.push(osd);
            } else if mapped > 0 {
                removal.active.push(osd);
                removal.affected += mapped;
            } else if all_clean {
                removal.safe.push(osd);
            } else {
                match map.osds.get(&osd).filter(|_| map.map.is_up(osd)) {
                    None => removal.silent.push(osd),
                    Some(stat) if stat.num_pgs > 0 => removal.holding.push(osd),
                    Some(_) => removal.safe.push(osd),
                }
            }
        }
        Ok(removal)
    }

    /// Why data could be lost.
    fn danger(&self) -> Option<Answer> {
        let Removal { safe, active, silent, holding, affected } = self;
        if active.is_empty() && silent.is_empty() && holding.is_empty() {
            return None;
        }
        let mut why = String::new();
        if !safe.is_empty() {
            why +=
                &format!("OSD(s) {} are safe to destroy without reducing data durability. ", set_text(safe));
        }
        if !active.is_empty() {
            why += &format!("OSD(s) {} have {affected} pgs currently mapped to them. ", set_text(active));
        }
        if !silent.is_empty() {
            why += &format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
                set_text(silent)
            );
        }
        if !holding.is_empty() {
            why += &format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot \
                 be sure they aren't still needed.",
                set_text(holding)
            );
        }
        let code = if active.is_empty() && holding.is_empty() { errno::EAGAIN } else { errno::EBUSY };
        Some(Answer::error(code, why))
    }
}

pub(super) fn safe_to_destroy(view: &View<'_>, args: &Args) -> Answer {
    let osds = match osd_ids(&view.pg_map.map, args) {
        Ok(osds) => osds,
        Err(answer) => return answer,
    };
    let removal = match Removal::of(view, &osds) {
        Ok(removal) => removal,
        Err(answer) => return answer,
    };
    if !args.format().is_plain() {
        let Removal { safe, active, silent, holding, .. } = removal;
        let status = object! {
            "safe_to_destroy" => safe, "active" => active, "missing_stats" => silent, "stored_pgs" => holding,
        };
        return Answer::json(args.format(), &status);
    }
    removal.danger().unwrap_or_else(|| {
        let all: Vec<i32> = osds.into_iter().collect();
        let text = format!("OSD(s) {} are safe to destroy without reducing data durability.", set_text(&all));
        Answer::ok(text)
    })
}

pub(super) fn destroy(view: &View<'_>, args: &Args) -> Reaction {
    remove(view, args, "osd destroy-actual")
}

pub(super) fn purge(view: &View<'_>, args: &Args) -> Reaction {
    remove(view, args, "osd purge-actual")
}

/// The monitor removes the OSD once its data is not needed, or where `--force` says so.
fn remove(view: &View<'_>, args: &Args, prefix: &str) -> Reaction {
    let osd = match args.osd("id") {
        Ok(osd) => osd.0,
        Err(answer) => return answer.into(),
    };
    let is_forced = args.flag("force") || args.flag("yes_i_really_mean_it");
    let danger = match Removal::of(view, &[osd].into()) {
        Ok(removal) => removal.danger(),
        Err(answer) => Some(answer),
    };
    if let Some(answer) = danger.filter(|_| !is_forced) {
        let warning = "\nYou can proceed by passing --force, but be warned that this will likely mean real, permanent \
                       data loss.";
        let status = answer.status.clone() + warning;
        return answer.with_status(status).into();
    }
    let command = object! { "prefix" => prefix, "id" => osd, "yes_i_really_mean_it" => true };
    Reaction::AskMonitor { command, body: String::new(), status: "" }
}
