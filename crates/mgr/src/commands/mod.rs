//! The commands that the manager serves, and how one is answered.
//!
//! One table: a command's signature, help, module and permissions as stock describes them, and the function that
//! answers it from the last reports. Some commands also act: they send orders to OSDs, or ask the monitor for a change.

mod autoscale;
mod balancer;
mod config;
mod crash;
mod dump;
mod force;
mod images;
mod osd;
mod osd_df;
mod pg;
mod recovery;
mod removal;
mod reweight;
mod scrub;
mod service;
mod status;
mod stop;
mod telemetry;
#[cfg(test)]
mod tests;

use crate::PgMap;
use crate::balancer::Balancer;
use crate::caps::{Access, Caps, Request};
use crate::configs::Configs;
use crate::crashes::{Change, Crashes};
use crate::progress::{ProgressEvents, Setting};
use crate::services::Services;
use command::options::commands as option_commands;
use command::signature::{self, Description};
use command::{Answer, Args, Json, errno, panics};
pub(crate) use images::MODULE as IMAGES_MODULE;
pub(crate) use status::OsdRates;
use std::collections::BTreeSet;
use wire::messages::{CommandDescription, MOSDForceRecovery, MOSDScrub2};
use wire::types::{AuthName, EntityAddr, PgId, UTime, Uuid};

/// State that a command reads.
pub(crate) struct View<'a> {
    pub now: UTime,
    pub fsid: Uuid,
    pub pg_map: &'a PgMap,
    pub configs: &'a Configs,
    pub progress: &'a ProgressEvents,
    pub crashes: &'a Crashes,
    pub balancer: &'a Balancer,
    pub services: &'a Services,
    /// The client operations of an OSD, from its counters.
    pub osd_rates: &'a dyn Fn(i32) -> OsdRates,
    /// OSDs that have a session with this manager.
    pub connected: &'a BTreeSet<i32>,
    /// The command's input (`-i FILE`).
    pub input: &'a [u8],
}

impl View<'_> {
    /// PGs of the pools that the argument `who` names.
    fn pgs_of_pools(&self, args: &Args) -> Result<BTreeSet<PgId>, Answer> {
        let map = &self.pg_map.map;
        let mut chosen = BTreeSet::new();
        for name in args.texts("who") {
            let Some((&pool, _)) = map.pool_names.iter().find(|(_, known)| **known == name) else {
                return Err(Answer::error(errno::ENOENT, format!("unrecognized pool '{name}'")));
            };
            let pg_num = map.pools.get(&pool).map_or(0, |info| info.pg_num);
            chosen.extend((0..pg_num).map(|seed| PgId { pool, seed }));
        }
        match chosen.is_empty() {
            true => Err(Answer::invalid("must specify one or more pool names")),
            false => Ok(chosen),
        }
    }
}

/// The manager's reaction to a command.
pub(crate) enum Reaction {
    Answer(Answer),
    /// Send these to the OSDs, then answer.
    Orders {
        orders: Vec<(i32, MOSDForceRecovery)>,
        answer: Answer,
    },
    /// Orders to scrub, and the answer.
    Scrubs {
        orders: Vec<(i32, MOSDScrub2)>,
        answer: Answer,
    },
    /// Answer as the monitor answers this command, with a body of the manager's own before the monitor's. Where the monitor says
    /// nothing, `status` is the word of success.
    AskMonitor {
        command: Json,
        body: String,
        status: &'static str,
    },
    /// Have the monitors keep these changes, then answer. Without changes the answer is given at once.
    ChangeCrashes(Vec<Change>),
    ChangeBalancer(crate::balancer::Change),
    /// The host's work on block images answers.
    AskImages,
    SetProgress {
        setting: Setting,
        status: &'static str,
    },
}

impl From<Answer> for Reaction {
    fn from(answer: Answer) -> Reaction {
        Reaction::Answer(answer)
    }
}

struct Entry {
    signature: &'static str,
    help: &'static str,
    /// The service of the permission, which is also the module that `ceph` lists it under.
    module: &'static str,
    permissions: &'static str,
    run: fn(&View<'_>, &Args) -> Reaction,
}

/// `"signature", "help", module permissions => function`, one command after another.
macro_rules! table {
    ($($signature:literal, $help:literal, $module:ident $permissions:ident => $run:path;)*) => {
        const TABLE: &[Entry] = &[$(Entry {
            signature: $signature,
            help: $help,
            module: stringify!($module),
            permissions: stringify!($permissions),
            run: |view: &View<'_>, args: &Args| $run(view, args).into(),
        }),*];
    };
}

table! {
    "pg stat", "show placement group status.", pg r => pg::stat;
    "pg dump name=dumpcontents,type=CephChoices,strings=all|summary|sum|delta|pools|osds|pgs|pgs_brief,n=N,req=false",
    "show human-readable versions of pg map (only 'all' valid with plain)", pg r => pg::dump;
    "pg dump_json name=dumpcontents,type=CephChoices,strings=all|summary|sum|pools|osds|pgs,n=N,req=false",
    "show human-readable version of pg map in json only", pg r => pg::dump_json;
    "pg dump_pools_json", "show pg pools info in json only", pg r => pg::dump_pools_json;
    "pg ls-by-pool name=poolstr,type=CephString name=states,type=CephString,n=N,req=false",
    "list pg with pool = [poolname]", pg r => pg::ls_by_pool;
    "pg ls-by-primary name=osd,type=CephOsdName name=pool,type=CephInt,req=false \
     name=states,type=CephString,n=N,req=false",
    "list pg with primary = [osd]", pg r => pg::ls_by_primary;
    "pg ls-by-osd name=osd,type=CephOsdName name=pool,type=CephInt,req=false \
     name=states,type=CephString,n=N,req=false",
    "list pg on osd [osd]", pg r => pg::ls_by_osd;
    "pg ls name=pool,type=CephInt,req=false name=states,type=CephString,n=N,req=false",
    "list pg with specific pool, osd, state", pg r => pg::ls;
    "pg dump_stuck name=stuckops,type=CephChoices,strings=inactive|unclean|stale|undersized|degraded,n=N,req=false \
     name=threshold,type=CephInt,req=false",
    "show information about stuck pgs", pg r => pg::dump_stuck;
    "pg debug name=debugop,type=CephChoices,strings=unfound_objects_exist|degraded_pgs_exist",
    "show debug info about pgs", pg r => pg::debug;
    "osd perf", "print dump of OSD perf summary stats", osd r => osd::perf;
    "osd status name=bucket,type=CephString,req=false", "Show the status of OSDs within a bucket, or all",
    osd r => status::osd_status;
    "telemetry status", "Show current configuration", mgr r => telemetry::status;
    "telemetry on name=license,type=CephString,req=false", "Enable telemetry reports from this cluster",
    mgr rw => telemetry::on;
    "telemetry off", "Disable telemetry reports from this cluster", mgr rw => telemetry::off;
    "telemetry show name=channels,type=CephString,n=N,req=false", "Show report of all channels",
    mgr r => telemetry::show;
    "osd df name=output_method,type=CephChoices,strings=plain|tree,req=false \
     name=filter_by,type=CephChoices,strings=class|name,req=false name=filter,type=CephString,req=false",
    "show OSD utilization", osd r => osd_df::df;
    "osd blocked-by", "print histogram of which OSDs are blocking their peers", osd r => osd::blocked_by;
    "osd pool stats name=pool_name,type=CephPoolname,req=false",
    "obtain stats from all pools, or from specified pool", osd r => osd::pool_stats;
    "osd safe-to-destroy name=ids,type=CephString,n=N",
    "check whether osd(s) can be safely destroyed without reducing data durability",
    osd r => removal::safe_to_destroy;
    "osd ok-to-stop name=ids,type=CephString,n=N name=max,type=CephInt,req=false",
    "check whether osd(s) can be safely stopped without reducing immediate data availability",
    osd r => stop::ok_to_stop;
    "osd destroy name=id,type=CephOsdName name=force,type=CephBool,req=false \
     name=yes_i_really_mean_it,type=CephBool,req=false",
    "mark osd as being destroyed. Keeps the ID intact (allowing reuse), but removes cephx keys, config-key data and \
     lockbox keys, rendering data permanently unreadable.",
    osd rw => removal::destroy;
    "osd purge name=id,type=CephOsdName name=force,type=CephBool,req=false \
     name=yes_i_really_mean_it,type=CephBool,req=false",
    "purge all osd data from the monitors including the OSD id and CRUSH position", osd rw => removal::purge;
    "osd reweight-by-utilization name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
     name=max_osds,type=CephInt,req=false name=no_increasing,type=CephBool,req=false",
    "reweight OSDs by utilization [overload-percentage-for-consideration, default 120]",
    osd rw => reweight::by_utilization;
    "osd test-reweight-by-utilization name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
     name=max_osds,type=CephInt,req=false name=no_increasing,type=CephBool,req=false",
    "dry run of reweight OSDs by utilization [overload-percentage-for-consideration, default 120]",
    osd r => reweight::test_by_utilization;
    "osd reweight-by-pg name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
     name=max_osds,type=CephInt,req=false name=pools,type=CephPoolname,n=N,req=false",
    "reweight OSDs by PG distribution [overload-percentage-for-consideration, default 120]",
    osd rw => reweight::by_pg;
    "osd test-reweight-by-pg name=oload,type=CephInt,req=false name=max_change,type=CephFloat,req=false \
     name=max_osds,type=CephInt,req=false name=pools,type=CephPoolname,n=N,req=false",
    "dry run of reweight OSDs by PG distribution [overload-percentage-for-consideration, default 120]",
    osd r => reweight::test_by_pg;
    "pg force-recovery name=pgid,type=CephPgid,n=N", "force recovery of <pgid> first", pg rw => force::pg_recovery;
    "pg force-backfill name=pgid,type=CephPgid,n=N", "force backfill of <pgid> first", pg rw => force::pg_backfill;
    "pg cancel-force-recovery name=pgid,type=CephPgid,n=N", "restore normal recovery priority of <pgid>",
    pg rw => force::pg_cancel_recovery;
    "pg cancel-force-backfill name=pgid,type=CephPgid,n=N", "restore normal backfill priority of <pgid>",
    pg rw => force::pg_cancel_backfill;
    "pg scrub name=pgid,type=CephPgid", "start scrub on <pgid>", pg rw => scrub::pg_scrub;
    "pg deep-scrub name=pgid,type=CephPgid", "start deep-scrub on <pgid>", pg rw => scrub::pg_deep_scrub;
    "pg repair name=pgid,type=CephPgid", "start repair on <pgid>", pg rw => scrub::pg_repair;
    "osd scrub name=who,type=CephString", "initiate scrub on osd <who>, or use <all|any> to scrub all", osd rw => scrub::osd_scrub;
    "osd deep-scrub name=who,type=CephString", "initiate deep scrub on osd <who>, or use <all|any> to deep scrub all", osd rw => scrub::osd_deep_scrub;
    "osd repair name=who,type=CephString", "initiate repair on osd <who>, or use <all|any> to repair all", osd rw => scrub::osd_repair;
    "osd pool scrub name=who,type=CephPoolname,n=N", "initiate scrub on pool <who>", osd rw => scrub::pool_scrub;
    "osd pool deep-scrub name=who,type=CephPoolname,n=N", "initiate deep-scrub on pool <who>", osd rw => scrub::pool_deep_scrub;
    "osd pool repair name=who,type=CephPoolname,n=N", "initiate repair on pool <who>", osd rw => scrub::pool_repair;
    "osd pool force-recovery name=who,type=CephPoolname,n=N", "force recovery of specified pool <who> first",
    osd rw => force::pool_recovery;
    "osd pool force-backfill name=who,type=CephPoolname,n=N", "force backfill of specified pool <who> first",
    osd rw => force::pool_backfill;
    "osd pool cancel-force-recovery name=who,type=CephPoolname,n=N",
    "restore normal recovery priority of specified pool <who>", osd rw => force::pool_cancel_recovery;
    "osd pool cancel-force-backfill name=who,type=CephPoolname,n=N",
    "restore normal recovery priority of specified pool <who>", osd rw => force::pool_cancel_backfill;
    "config show name=who,type=CephString name=key,type=CephString,req=false",
    "Show running configuration", mgr r => config::show;
    "config show-with-defaults name=who,type=CephString",
    "Show running configuration (including compiled-in defaults)", mgr r => config::show_with_defaults;
    "crash info name=id,type=CephString", "show crash dump metadata", mgr r => crash::info;
    "crash ls", "Show new and archived crash dumps", mgr r => crash::ls;
    "crash ls-new", "Show new crash dumps", mgr r => crash::ls_new;
    "crash post", "Add a crash dump (use -i <jsonfile>)", mgr rw => crash::post;
    "crash prune name=keep,type=CephString", "Remove crashes older than <keep> days", mgr rw => crash::prune;
    "crash rm name=id,type=CephString", "Remove a saved crash <id>", mgr rw => crash::rm;
    "crash stat", "Summarize recorded crashes", mgr r => crash::stat;
    "crash json_report name=hours,type=CephString", "Crashes in the last <hours> hours", mgr r => crash::json_report;
    "crash archive name=id,type=CephString", "Acknowledge a crash and silence health warning(s)",
    mgr w => crash::archive;
    "crash archive-all", "Acknowledge all new crashes and silence health warning(s)", mgr w => crash::archive_all;
    "service dump", "dump service map", service r => service::dump;
    "service status", "dump service state", service r => service::status;
    "progress", "Show progress of recovery operations", mgr r => service::progress;
    "progress json", "Show machine readable progress information", mgr r => service::progress_json;
    "progress clear", "Reset progress tracking", mgr rw => service::progress_clear;
    "progress on", "Enable progress tracking", mgr rw => service::progress_on;
    "progress off", "Disable progress tracking", mgr rw => service::progress_off;
    "osd pool autoscale-status", "report on pool pg_num sizing recommendation and intent", mgr r => autoscale::status;
    "osd pool get noautoscale",
    "Get the noautoscale flag to see if all pools are setting the autoscaler on or off as well as newly created pools in the future.",
    mgr rw => autoscale::get_noautoscale;
    "osd pool set noautoscale",
    "set the noautoscale for all pools (including newly created pools in the future) and complete all on-going progress events regarding PG-autoscaling.",
    mgr rw => autoscale::set_noautoscale;
    "osd pool unset noautoscale",
    "Unset the noautoscale flag so all pools will have autoscale enabled (including newly created pools in the future).",
    mgr rw => autoscale::unset_noautoscale;
    "balancer status name=detail,type=CephString,req=false", "Show balancer status", mgr r => balancer::status;
    "balancer mode name=mode,type=CephChoices,strings=none|crush-compat|upmap|read|upmap-read", "Set balancer mode",
    mgr rw => balancer::mode;
    "balancer on", "Enable automatic balancing", mgr rw => balancer::on;
    "balancer off", "Disable automatic balancing", mgr rw => balancer::off;
    "balancer pool ls", "List automatic balancing pools", mgr r => balancer::pool_ls;
    "balancer pool add name=pools,type=CephString,n=N", "Enable automatic balancing for specific pools",
    mgr rw => balancer::pool_add;
    "balancer pool rm name=pools,type=CephString,n=N", "Disable automatic balancing for specific pools",
    mgr rw => balancer::pool_rm;
    "balancer eval name=option,type=CephString,req=false",
    "Evaluate data distribution for the current cluster or specific pool or specific plan", mgr r => balancer::eval;
    "balancer eval-verbose name=option,type=CephString,req=false",
    "Evaluate data distribution for the current cluster or specific pool or specific plan (verbosely)",
    mgr r => balancer::eval_verbose;
    "balancer optimize name=plan,type=CephString name=pools,type=CephString,n=N,req=false",
    "Run optimizer to create a new plan", mgr r => balancer::optimize;
    "balancer show name=plan,type=CephString", "Show details of an optimization plan", mgr r => balancer::show;
    "balancer rm name=plan,type=CephString", "Discard an optimization plan", mgr rw => balancer::rm;
    "balancer reset", "Discard all optimization plans", mgr rw => balancer::reset;
    "balancer dump name=plan,type=CephString", "Show an optimization plan", mgr r => balancer::dump;
    "balancer ls", "List all plans", mgr r => balancer::ls;
    "balancer execute name=plan,type=CephString", "Execute an optimization plan", mgr rw => balancer::execute;
    "rbd mirror snapshot schedule add name=level_spec,type=CephString name=interval,type=CephString \
     name=start_time,type=CephString,req=false",
    "Add rbd mirror snapshot schedule", rbd_support w => images::ask;
    "rbd mirror snapshot schedule remove name=level_spec,type=CephString name=interval,type=CephString,req=false \
     name=start_time,type=CephString,req=false",
    "Remove rbd mirror snapshot schedule", rbd_support w => images::ask;
    "rbd mirror snapshot schedule list name=level_spec,type=CephString,req=false", "List rbd mirror snapshot schedule",
    rbd_support r => images::ask;
    "rbd mirror snapshot schedule status name=level_spec,type=CephString,req=false",
    "Show rbd mirror snapshot schedule status", rbd_support r => images::ask;
    "rbd perf image stats name=pool_spec,type=CephString,req=false \
     name=sort_by,type=CephChoices,strings=write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency,req=false",
    "Retrieve current RBD IO performance stats", rbd_support r => images::ask;
    "rbd perf image counters name=pool_spec,type=CephString,req=false \
     name=sort_by,type=CephChoices,strings=write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency,req=false",
    "Retrieve current RBD IO performance counters", rbd_support r => images::ask;
    "rbd task add flatten name=image_spec,type=CephString", "Flatten a cloned image asynchronously in the background",
    rbd_support w => images::ask;
    "rbd task add remove name=image_spec,type=CephString", "Remove an image asynchronously in the background",
    rbd_support w => images::ask;
    "rbd task add trash remove name=image_id_spec,type=CephString",
    "Remove an image from the trash asynchronously in the background", rbd_support w => images::ask;
    "rbd task add migration execute name=image_spec,type=CephString",
    "Execute an image migration asynchronously in the background", rbd_support w => images::ask;
    "rbd task add migration commit name=image_spec,type=CephString",
    "Commit an executed migration asynchronously in the background", rbd_support w => images::ask;
    "rbd task add migration abort name=image_spec,type=CephString",
    "Abort a prepared migration asynchronously in the background", rbd_support w => images::ask;
    "rbd task cancel name=task_id,type=CephString", "Cancel a pending or running asynchronous task",
    rbd_support r => images::ask;
    "rbd task list name=task_id,type=CephString,req=false", "List pending or running asynchronous tasks",
    rbd_support r => images::ask;
    "rbd trash purge schedule add name=level_spec,type=CephString name=interval,type=CephString \
     name=start_time,type=CephString,req=false",
    "Add rbd trash purge schedule", rbd_support w => images::ask;
    "rbd trash purge schedule remove name=level_spec,type=CephString name=interval,type=CephString,req=false \
     name=start_time,type=CephString,req=false",
    "Remove rbd trash purge schedule", rbd_support w => images::ask;
    "rbd trash purge schedule list name=level_spec,type=CephString,req=false", "List rbd trash purge schedule",
    rbd_support r => images::ask;
    "rbd trash purge schedule status name=level_spec,type=CephString,req=false", "Show rbd trash purge schedule status",
    rbd_support r => images::ask;
}

/// Commands of `ceph tell mgr` alone.
const TELL: &[Entry] = &[Entry {
    signature: command::osd_network::SIGNATURE,
    help: command::osd_network::HELP,
    module: "mgr",
    permissions: "r",
    run: |view: &View<'_>, args: &Args| osd::network(view, args).into(),
}];

/// `ceph` asks the manager for commands with this flag.
const FOR_MANAGER: u64 = 8;

/// As the monitor is told, so that clients hear of them.
pub fn descriptions() -> Vec<CommandDescription> {
    let describe = |e: &Entry| CommandDescription {
        signature: e.signature.into(),
        help: e.help.into(),
        module: e.module.into(),
        permissions: e.permissions.into(),
        availability: "cli,rest".into(),
        flags: FOR_MANAGER,
    };
    TABLE.iter().map(describe).collect()
}

/// The client that asks.
pub(crate) struct Asker<'a> {
    pub name: &'a AuthName,
    pub caps: &'a Caps,
    pub addr: EntityAddr,
}

pub(crate) fn react(view: &View<'_>, asker: &Asker<'_>, text: &str) -> Reaction {
    let args = match Args::parse(text) {
        Ok(args) => args,
        Err(why) => return Answer::invalid(why).into(),
    };
    let Some(prefix) = args.text("prefix") else { return Answer::invalid("command without a prefix").into() };
    if prefix == "get_command_descriptions" {
        let all = TABLE.iter().map(Entry::description);
        return Answer::body(signature::descriptions(all, codec::Features::ALL).compact()).into();
    }
    let Some(entry) = TABLE.iter().chain(TELL).find(|e| signature::prefix(e.signature) == prefix) else {
        return Answer::invalid(format!("No handler found for '{prefix}'")).into();
    };
    // Stock's grants for a module do not cover the services of its own daemons, nor the other way round.
    let is_module = entry.module == images::MODULE;
    let request = Request {
        service: if is_module { "" } else { entry.module },
        module: if is_module { entry.module } else { "" },
        prefix: &prefix,
        args: &args.for_caps(),
        access: Access::parse(entry.permissions).expect("the table's permissions are letters"),
        peer: asker.addr.socket.map(|s| s.ip()),
    };
    let is_of_itself = || prefix == "crash post" && crash::is_own_report(asker.name, view.input);
    if !asker.caps.allow(&request) && !is_of_itself() {
        let why = format!("access denied: does the key of {} have mgr caps for '{prefix}'?", asker.name);
        return Answer::error(errno::EACCES, why).into();
    }
    if let Err(why) = signature::check(entry.signature, &args) {
        return Answer::invalid(why).into();
    }
    (entry.run)(view, &args)
}

/// Descriptions for `ceph tell mgr.x`: the daemon's own commands, then those of the manager.
pub(crate) fn describe_tell() -> String {
    let shared = option_commands::COMMANDS.iter().chain(panics::COMMANDS);
    let all = Description::of_table(shared, "mgr", 0).chain(TABLE.iter().chain(TELL).map(Entry::description));
    signature::descriptions(all, codec::Features::ALL).compact()
}

impl Entry {
    fn description(&self) -> Description<'static> {
        let Entry { signature, help, module, permissions, .. } = *self;
        Description { signature, help, module, permissions, flags: FOR_MANAGER }
    }
}

/// Name to value, in this order.
fn object_of(pairs: Vec<(&'static str, Json)>) -> Json {
    Json::Object(pairs.into_iter().map(|(k, v)| (k.into(), v)).collect())
}
