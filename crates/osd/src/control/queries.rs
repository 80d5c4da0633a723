//! The manager's metric queries on this OSD: which ones the shards serve, and the sums of their counts until the next report.

use super::{Control, Effect, Fx, Level};
use crate::shard;
use crate::signals::queries::{self, Counts, LIMITS_MAX, MetricQuery, QUERIES_MAX, ShardCounts};
use machine::CoreId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::{PerfLimit, PerfQueries, PerfQuery, PerfReports};

#[derive(Default)]
pub(super) struct Queries {
    served: BTreeMap<PerfQuery, Served>,
}

struct Served {
    query: Arc<MetricQuery>,
    limits: BTreeSet<PerfLimit>,
    /// Of all shards, since the last report.
    counts: Counts,
}

impl Queries {
    /// Counts of a shard. Those of a query that has ended are dropped.
    pub fn add(&mut self, shard: Vec<ShardCounts>) {
        for ShardCounts { query, counts } in shard {
            let served =
                self.served.get_mut(&query.query).filter(|served| Arc::ptr_eq(&served.query, &query));
            if let Some(served) = served {
                counts.into_iter().for_each(|(key, more)| queries::add(&mut served.counts, &key, more));
            }
        }
    }

    /// The counts since the last report, if there are any.
    pub fn report(&mut self) -> Option<PerfReports> {
        let counted = self.served.iter_mut().filter(|(_, served)| !served.counts.is_empty());
        let reports: PerfReports = counted
            .map(|(query, served)| {
                let counts = std::mem::take(&mut served.counts);
                (query.clone(), queries::report(query, &served.limits, &counts))
            })
            .collect();
        (!reports.is_empty()).then_some(reports)
    }
}

impl Control {
    /// The manager wants these queries served, and no others.
    pub(super) fn set_queries(&mut self, wanted: &PerfQueries, fx: &mut Fx) {
        let mut before = std::mem::take(&mut self.queries.served);
        let mut is_changed = false;
        for (query, limits) in wanted.iter().take(QUERIES_MAX) {
            if limits.len() > LIMITS_MAX {
                let text =
                    format!("a metric query of the manager with {} limits is not served", limits.len());
                self.log(Level::Warn, text, fx);
                continue;
            }
            let served = match before.remove(query) {
                Some(known) => Served { limits: limits.clone(), ..known },
                None => match MetricQuery::compile(query) {
                    Ok(compiled) => {
                        is_changed = true;
                        Served { query: Arc::new(compiled), limits: limits.clone(), counts: Counts::new() }
                    }
                    Err(why) => {
                        let text = format!("a metric query of the manager is not served: {why}");
                        self.log(Level::Warn, text, fx);
                        continue;
                    }
                },
            };
            self.queries.served.insert(query.clone(), served);
        }
        if wanted.len() > QUERIES_MAX {
            let text = format!("{} metric queries of {} are served", QUERIES_MAX, wanted.len());
            self.log(Level::Warn, text, fx);
        }
        if is_changed || !before.is_empty() {
            let served: Arc<[Arc<MetricQuery>]> =
                self.queries.served.values().map(|served| Arc::clone(&served.query)).collect();
            for core in (0..self.config.cores).map(CoreId) {
                let input = shard::Input::Queries(Arc::clone(&served));
                fx.push(Effect::Shard { core, input });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing;
    use crate::signals::queries::KeyCounts;
    use crate::signals::queries::tests::query;
    use machine::{Effects, Random};
    use wire::types::{PerfCounterKind, PerfKeyPart};

    fn told(fx: &mut Fx) -> Vec<(CoreId, usize)> {
        let told = fx.take().into_iter().filter_map(|effect| match effect {
            Effect::Shard { core, input: shard::Input::Queries(queries) } => Some((core, queries.len())),
            _ => None,
        });
        told.collect()
    }

    #[test]
    fn shards_follow_the_queries_that_can_be_served() {
        let mut control = Control::new(testing::config(2), true, Random::from_number(1));
        let mut fx = Effects::new();
        let mut wanted = PerfQueries::from([(query("^(2)$"), BTreeSet::new())]);
        let mut bad = query("^(3)$");
        bad.key.0[0] = PerfKeyPart::new(99, "(a)");
        wanted.insert(bad, BTreeSet::new());
        // Each limit sorts the keys of a report.
        let limit = |max_count| PerfLimit { max_count, ..PerfLimit::default() };
        wanted.insert(query("^(4)$"), (0..1 + LIMITS_MAX as u64).map(limit).collect());
        control.set_queries(&wanted, &mut fx);
        assert_eq!(told(&mut fx), [(CoreId(0), 1), (CoreId(1), 1)]);
        let limit = PerfLimit { order_by: PerfCounterKind::READ_OPS, max_count: 1 };
        wanted.insert(query("^(2)$"), BTreeSet::from([limit]));
        control.set_queries(&wanted, &mut fx);
        assert_eq!(told(&mut fx), [], "limits are the control machine's alone");
        control.set_queries(&PerfQueries::new(), &mut fx);
        assert_eq!(told(&mut fx), [(CoreId(0), 0), (CoreId(1), 0)]);
    }

    #[test]
    fn number_of_queries_is_bounded() {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        let mut fx = Effects::new();
        let wanted =
            (0..QUERIES_MAX + 3).map(|pool| (query(&format!("^({pool})$")), BTreeSet::new())).collect();
        control.set_queries(&wanted, &mut fx);
        assert_eq!(told(&mut fx), [(CoreId(0), QUERIES_MAX)]);
    }

    #[test]
    fn report_has_the_sums_of_all_shards() {
        let mut control = Control::new(testing::config(2), true, Random::from_number(1));
        let wanted = PerfQueries::from([(query("^(2)$"), BTreeSet::new())]);
        control.set_queries(&wanted, &mut Effects::new());
        let served = Arc::clone(&control.queries.served[&query("^(2)$")].query);
        let counts = |writes| {
            let key: Box<[u8]> = Box::from([1, 1, 0, b'a']);
            Counts::from([(key, KeyCounts { writes, ..KeyCounts::default() })])
        };
        let mut say = |query: &Arc<MetricQuery>, writes| {
            control.queries.add(vec![ShardCounts { query: Arc::clone(query), counts: counts(writes) }]);
        };
        say(&served, 3);
        say(&served, 4);
        // The same query of another time.
        say(&Arc::new(MetricQuery::compile(&query("^(2)$")).unwrap()), 100);
        let reports = control.queries.report().unwrap();
        let rows: Vec<_> = reports[&query("^(2)$")].unpack().map(|row| row.unwrap().1[0]).collect();
        assert_eq!(rows, [(7, 0)]);
        assert_eq!(control.queries.report(), None);
    }
}
