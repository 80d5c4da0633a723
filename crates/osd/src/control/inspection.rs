//! Commands that show or reset single parts of an OSD: caches, watchers, reservations, counters, statistics of PGs and
//! pools. All but those of [`Inspection`] are answered from the control machine's own state.

use super::signals::Gathered;
use super::{Control, Effect, Fx};
use crate::options::LimitOptions;
use crate::shard::{Inquiry, PlaceRecord};
use command::perf::{Counter, Reading};
use command::{Answer, Args, Format, Json, errno, object, perf, pg_json};
use machine::Time;
use std::collections::{BTreeMap, BTreeSet};
use wire::text::stamp;
use wire::types::{EntityAddr, EntityName, LogPriority, PgId, StoreStatfs};

/// Signature, help, permissions.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("1", "", "r"),
    ("2", "", "r"),
    ("cache drop", "Drop all OSD caches", "rwx"),
    ("cache status", "Get OSD caches statistics", "r"),
    (
        "cluster_log name=level,type=CephChoices,strings=error|warning|info|debug name=message,type=CephString,n=N",
        "log a message to the cluster log",
        "rw",
    ),
    ("counter dump", "dump all labeled and non-labeled counters and their values", "r"),
    ("counter schema", "dump all labeled and non-labeled counters schemas", "r"),
    ("cpu_profiler name=arg,type=CephChoices,strings=status|flush", "run cpu profiling on daemon", "rwx"),
    ("dump_blocklist", "dump blocklisted clients and times", "r"),
    ("dump_osd_pg_stats", "Dump OSD PGs' statistics", "r"),
    ("dump_pool_statfs name=poolid,type=CephInt,req=true", "Dump store's statistics for the given pool", "r"),
    ("dump_recovery_reservations", "show recovery reservations", "r"),
    ("dump_watchers", "show clients which have active watches, and on which objects", "r"),
    ("flush_journal", "flush the journal to permanent store", "rw"),
    ("get_heap_property name=property,type=CephString", "get malloc extension heap property", "r"),
    ("get_mapped_pools", "dump pools whose PG(s) are mapped to this OSD.", "r"),
    ("git_version", "get git sha1", "r"),
    (
        "heap name=heapcmd,type=CephChoices,strings=dump|start_profiler|stop_profiler|release|get_release_rate|set_release_rate|stats \
         name=value,type=CephString,req=false",
        "show heap usage info (available only if compiled with tcmalloc)",
        "rwx",
    ),
    ("list_devices", "list OSD devices.", "r"),
    ("objecter_requests", "show in-progress osd requests", "r"),
    (
        "perf reset name=var,type=CephString",
        "perf reset <name>: perf reset all or one perfcounter name",
        "rw",
    ),
    ("perfcounters_dump", "", "r"),
    ("perfcounters_schema", "", "r"),
    ("reset_pg_recovery_stats", "reset pg recovery statistics", "rw"),
    ("send_beacon", "send OSD beacon to mon immediately", "r"),
    (
        "set_heap_property name=property,type=CephString name=value,type=CephInt",
        "update malloc extension heap property",
        "rw",
    ),
];

/// A command that needs the shards: their answer, or their newest figures.
#[derive(Debug)]
pub(super) enum Inspection {
    CacheStatus,
    CacheDrop,
    Watchers,
    Reservations,
    CounterDump,
    CounterSchema,
    PerfReset { name: String },
    PgStats,
    PoolSpace { pool: i64 },
}

impl Inspection {
    pub fn of(prefix: &str, args: &Args) -> Option<Inspection> {
        Some(match prefix {
            "cache status" => Inspection::CacheStatus,
            "cache drop" => Inspection::CacheDrop,
            "dump_watchers" => Inspection::Watchers,
            "dump_recovery_reservations" => Inspection::Reservations,
            "counter dump" => Inspection::CounterDump,
            "counter schema" => Inspection::CounterSchema,
            "perf reset" => Inspection::PerfReset { name: args.text("var").unwrap_or_default() },
            "dump_osd_pg_stats" => Inspection::PgStats,
            "dump_pool_statfs" => Inspection::PoolSpace { pool: args.int("poolid").unwrap_or(-1) },
            _ => return None,
        })
    }

    pub fn inquiry(&self) -> Inquiry {
        match self {
            Inspection::CacheStatus => Inquiry::CachedObjects,
            Inspection::CacheDrop => Inquiry::DropCache,
            Inspection::Watchers => Inquiry::Watches,
            Inspection::Reservations => Inquiry::Places,
            _ => Inquiry::Report,
        }
    }
}

/// The values of counters when they were reset. Levels have no start and are left as they are.
#[derive(Default)]
pub(super) struct Baseline(BTreeMap<(String, String), Reading>);

impl Baseline {
    pub fn subtract(&self, counters: &mut [Counter]) {
        if self.0.is_empty() {
            return;
        }
        for counter in counters {
            let Some(start) = self.0.get(&(counter.group.to_string(), counter.name.to_string())) else {
                continue;
            };
            counter.value = match (counter.value, *start) {
                (Reading::Total(now), Reading::Total(start)) => Reading::Total(now.saturating_sub(start)),
                (
                    Reading::Time { count, sum_ns },
                    Reading::Time { count: count_start, sum_ns: sum_start },
                ) => Reading::Time {
                    count: count.saturating_sub(count_start),
                    sum_ns: sum_ns.saturating_sub(sum_start),
                },
                (now, _) => now,
            };
        }
    }

    /// Counters of one group, or of all, start from these values. False if there is no such group.
    fn reset(&mut self, name: &str, counters: &[Counter]) -> bool {
        let mut is_known = false;
        for counter in counters.iter().filter(|counter| name == "all" || counter.group == name) {
            is_known = true;
            self.0.insert((counter.group.to_string(), counter.name.to_string()), counter.value);
        }
        is_known
    }
}

impl Control {
    pub(super) fn show_inspection(
        &mut self,
        now: Time,
        inspection: &Inspection,
        gathered: Gathered,
        format: Format,
    ) -> Answer {
        let wall = self.wall.at(now);
        let json = match inspection {
            Inspection::CacheDrop => return Answer::default(),
            Inspection::CacheStatus => object! { "object_ctx" => gathered.cached_objects },
            Inspection::Watchers => {
                let mut watches = gathered.watches;
                watches.sort_by(|a, b| (&a.object, a.client, a.cookie).cmp(&(&b.object, b.client, b.cookie)));
                Json::array(watches.iter().map(|watch| {
                    object! {
                        "namespace" => watch.object.namespace.to_string(),
                        "object" => watch.object.name.to_string(),
                        "entity_name" => entity_json(watch.client),
                        "cookie" => watch.cookie,
                        "timeout" => watch.timeout_s,
                        "entity_addr_t" => addr_json(&watch.addr.unwrap_or_default()),
                    }
                }))
            }
            Inspection::Reservations => {
                let max = LimitOptions::read(&self.layers).backfills_max as u64;
                object! {
                    "local_reservations" => places_json(&gathered.places.local, max),
                    "remote_reservations" => places_json(&gathered.places.lent, max),
                }
            }
            Inspection::CounterDump => labeled(perf::dump(&self.counters(), perf::Filter::default())),
            Inspection::CounterSchema => labeled(perf::schema(&self.counters(), perf::Filter::default())),
            Inspection::PerfReset { name } => {
                let counters = self.counters_since_start();
                match self.signals.baseline.reset(name, &counters) {
                    true => object! { "success" => format!("perf reset {name}") },
                    false => object! { "error" => format!("Not find: {name}") },
                }
            }
            Inspection::PgStats => {
                let primary = self.holdings.entries.iter().filter(|(_, entry)| entry.primary_since.is_some());
                let pgs: Vec<PgId> = primary.map(|(pg, _)| *pg).collect();
                let rows = pgs.into_iter().filter_map(|pg| {
                    let stat = self.present_stat(wall, pg)?;
                    let mut row = object! { "pool" => pg.pool, "seed" => pg.seed };
                    pg_json::pg_stat(&stat).into_iter().for_each(|(key, value)| row.push(key, value));
                    Some(row)
                });
                object! { "pg_stat" => Json::array(rows.collect::<Vec<_>>()) }
            }
            Inspection::PoolSpace { pool } => {
                let statfs = self.pool_statfs().remove(pool).unwrap_or_default();
                return Answer::json(format, &statfs_json(*pool, &statfs))
                    .with_status("dumping pool statfs...");
            }
        };
        Answer::json(format, &json)
    }

    /// Commands of [`COMMANDS`] that the control machine answers at once; `None` for any other.
    pub(super) fn answer_at_once(
        &mut self,
        now: Time,
        prefix: &str,
        args: &Args,
        fx: &mut Fx,
    ) -> Option<Answer> {
        let format = args.format();
        let show = |json: Json| Answer::json(format, &json);
        Some(match prefix {
            "cluster_log" => {
                let priority = match args.text("level").as_deref() {
                    Some("error") => LogPriority::ERROR,
                    Some("warning") => LogPriority::WARN,
                    Some("info") => LogPriority::INFO,
                    _ => LogPriority::DEBUG,
                };
                self.tell_cluster(now, priority, args.texts("message").join(" "), fx);
                Answer::default()
            }
            "cpu_profiler" => Answer::body("cpu_profiler support not linked in"),
            "dump_blocklist" => self.dump_blocklist(format),
            // What was acknowledged is durable, and there is no journal that still has to go elsewhere.
            "flush_journal" => Answer::default(),
            "get_heap_property" => {
                show(object! { "error" => "invalid property", "success" => false, "value" => 0u64 })
            }
            "set_heap_property" => show(object! { "error" => "invalid property", "success" => false }),
            "get_mapped_pools" => {
                let pools: BTreeSet<i64> = self.holdings.entries.keys().map(|pg| pg.pool).collect();
                show(Json::array(pools))
            }
            "git_version" => show(object! { "git_version" => self.config.version.git.as_str() }),
            "heap" if args.text("heapcmd").as_deref() == Some("release") => {
                fx.push(Effect::ReleaseMemory);
                Answer::body(format!("osd.{} releasing free RAM back to system.\n", self.config.osd.0))
            }
            "heap" => Answer::error(
                errno::EOPNOTSUPP,
                "could not issue heap profiler command -- not using tcmalloc!",
            ),
            "list_devices" => show(self.devices()),
            "objecter_requests" => {
                let none = || Json::Array(Vec::new());
                show(object! {
                    "ops" => none(),
                    "linger_ops" => none(),
                    "pool_ops" => none(),
                    "pool_stat_ops" => none(),
                    "statfs_ops" => none(),
                    "command_ops" => none(),
                })
            }
            "reset_pg_recovery_stats" => Answer::default(),
            "send_beacon" => {
                self.send_beacon(now, fx);
                Answer::default()
            }
            _ => return None,
        })
    }

    /// Two lists one after the other, as stock prints them.
    fn dump_blocklist(&self, format: Format) -> Answer {
        let map = self.history.map.as_deref();
        let rows = map.into_iter().flat_map(|map| &map.blocklist).map(|(addr, until)| {
            object! { "entity_addr_t" => addr_json(addr), "expire_time" => stamp(*until) }
        });
        let (list, ranges) = (Json::array(rows), Json::Array(Vec::new()));
        Answer::body(match format {
            Format::Xml(_) | Format::XmlPretty(_) => {
                format.render(&object! { "blocklist" => list, "range_blocklist" => ranges })
            }
            _ => format.render(&list) + &format.render(&ranges),
        })
    }

    /// The devices of the store and their identities, as the OSD told the monitor.
    fn devices(&self) -> Json {
        let field = |name: &str| self.config.metadata.get(name).map_or("", String::as_str);
        let ids: BTreeMap<&str, &str> =
            field("device_ids").split(',').filter_map(|pair| pair.split_once('=')).collect();
        let names = field("devices").split(',').filter(|name| !name.is_empty());
        Json::array(names.map(|name| {
            let path = if name.starts_with('/') { name.to_owned() } else { format!("/dev/{name}") };
            object! { "device" => path, "device_id" => ids.get(name).copied().unwrap_or_default() }
        }))
    }
}

fn entity_json(name: EntityName) -> Json {
    object! { "type" => name.kind.name(), "num" => name.num }
}

fn addr_json(addr: &EntityAddr) -> Json {
    let shown = addr.to_string();
    let kind = shown.split(':').next().filter(|kind| ["v1", "v2", "any"].contains(kind)).unwrap_or("none");
    object! {
        "type" => kind,
        "addr" => addr.socket.map_or(":/0".into(), |socket| socket.to_string()),
        "nonce" => addr.nonce,
    }
}

/// `AsyncReserver::dump`: PGs that wait, by priority, and those that have a place.
fn places_json(places: &[PlaceRecord], max: u64) -> Json {
    let item = |place: &PlaceRecord| {
        object! { "item" => place.pg.pg.to_string(), "prio" => u64::from(place.priority), "can_preempt" => true }
    };
    let mut queues: BTreeMap<u8, Vec<Json>> = BTreeMap::new();
    for place in places.iter().filter(|place| place.is_queued) {
        queues.entry(place.priority).or_default().push(item(place));
    }
    let queues = queues.into_iter().map(|(priority, items)| {
        object! { "priority" => u64::from(priority), "items" => Json::Array(items) }
    });
    object! {
        "max_allowed" => max,
        "min_priority" => 0u64,
        "queues" => Json::array(queues),
        "in_progress" => Json::array(places.iter().filter(|place| !place.is_queued).map(item)),
    }
}

/// `counter dump` and `counter schema`: each group with its labels. Groups of an OSD have none.
fn labeled(groups: Json) -> Json {
    let Json::Object(groups) = groups else { return groups };
    let labeled = groups.into_iter().map(|(name, counters)| {
        (name, Json::Array(vec![object! { "labels" => object! {}, "counters" => counters }]))
    });
    Json::Object(labeled.collect())
}

fn statfs_json(pool: i64, statfs: &StoreStatfs) -> Json {
    object! {
        "poolid" => pool,
        "total" => statfs.total,
        "available" => statfs.available,
        "internally_reserved" => statfs.internally_reserved,
        "allocated" => statfs.allocated,
        "data_stored" => statfs.data_stored,
        "data_compressed" => statfs.data_compressed,
        "data_compressed_allocated" => statfs.data_compressed_allocated,
        "data_compressed_original" => statfs.data_compressed_original,
        "omap_allocated" => statfs.omap_allocated,
        "internal_metadata" => statfs.internal_metadata,
    }
}
