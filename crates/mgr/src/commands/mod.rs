//! The commands that the manager serves, and how one is answered.
//!
//! One table: a command's signature, help, module and permissions as stock describes them, and the function that
//! answers it from the last reports.

mod config;
mod dump;
mod osd;
mod osd_df;
mod pg;
mod recovery;
mod service;

use crate::PgMap;
use crate::caps::{Access, Caps, Request};
use crate::configs::Configs;
use command::options::commands as option_commands;
use command::signature::{self, Description};
use command::{Answer, Args, Json, errno};
use wire::messages::CommandDescription;
use wire::types::{EntityAddr, UTime};

/// State that a command reads.
pub(crate) struct View<'a> {
    pub now: UTime,
    pub pg_map: &'a PgMap,
    pub configs: &'a Configs,
}

struct Entry {
    signature: &'static str,
    help: &'static str,
    /// The service of the permission, which is also the module that `ceph` lists it under.
    module: &'static str,
    permissions: &'static str,
    run: fn(&View<'_>, &Args) -> Answer,
}

/// `"signature", "help", module permissions => function`, one command after another.
macro_rules! table {
    ($($signature:literal, $help:literal, $module:ident $permissions:ident => $run:path;)*) => {
        const TABLE: &[Entry] = &[$(Entry {
            signature: $signature,
            help: $help,
            module: stringify!($module),
            permissions: stringify!($permissions),
            run: $run,
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
    "osd df name=output_method,type=CephChoices,strings=plain|tree,req=false \
     name=filter_by,type=CephChoices,strings=class|name,req=false name=filter,type=CephString,req=false",
    "show OSD utilization", osd r => osd_df::df;
    "osd blocked-by", "print histogram of which OSDs are blocking their peers", osd r => osd::blocked_by;
    "osd pool stats name=pool_name,type=CephPoolname,req=false",
    "obtain stats from all pools, or from specified pool", osd r => osd::pool_stats;
    "osd safe-to-destroy name=ids,type=CephString,n=N",
    "check whether osd(s) can be safely destroyed without reducing data durability", osd r => osd::safe_to_destroy;
    "osd ok-to-stop name=ids,type=CephString,n=N name=max,type=CephInt,req=false",
    "check whether osd(s) can be safely stopped without reducing immediate data availability",
    osd r => osd::ok_to_stop;
    "config show name=who,type=CephString name=key,type=CephString,req=false",
    "Show running configuration", mgr r => config::show;
    "config show-with-defaults name=who,type=CephString",
    "Show running configuration (including compiled-in defaults)", mgr r => config::show_with_defaults;
    "service dump", "dump service map", service r => service::dump;
    "service status", "dump service state", service r => service::status;
    "progress", "Show progress of recovery operations", mgr r => service::progress;
    "progress json", "Show machine readable progress information", mgr r => service::progress_json;
    "balancer status name=detail,type=CephString,req=false", "Show balancer status", mgr r => service::balancer;
}

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
    pub name: &'a str,
    pub caps: &'a Caps,
    pub addr: EntityAddr,
}

pub(crate) fn answer(view: &View<'_>, asker: &Asker<'_>, text: &str) -> Answer {
    let args = match Args::parse(text) {
        Ok(args) => args,
        Err(why) => return Answer::invalid(why),
    };
    let Some(prefix) = args.text("prefix") else { return Answer::invalid("command without a prefix") };
    if prefix == "get_command_descriptions" {
        let all = TABLE.iter().map(Entry::description);
        return Answer::body(signature::descriptions(all, codec::Features::ALL).compact());
    }
    let Some(entry) = TABLE.iter().find(|e| signature::prefix(e.signature) == prefix) else {
        return Answer::invalid(format!("No handler found for '{prefix}'"));
    };
    let request = Request {
        service: entry.module,
        module: "",
        prefix: &prefix,
        args: &args.for_caps(),
        access: Access::parse(entry.permissions).expect("the table's permissions are letters"),
        peer: asker.addr.socket.map(|s| s.ip()),
    };
    if !asker.caps.allow(&request) {
        let why = format!("access denied: does the key of {} have mgr caps for '{prefix}'?", asker.name);
        return Answer::error(errno::EACCES, why);
    }
    if let Err(why) = signature::check(entry.signature, &args) {
        return Answer::invalid(why);
    }
    (entry.run)(view, &args)
}

/// Descriptions for `ceph tell mgr.x`: the daemon's own commands, then those of the manager.
pub(crate) fn describe_tell() -> String {
    let all = option_commands::descriptions("mgr", 0).chain(TABLE.iter().map(Entry::description));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_named_once_and_its_permissions_are_letters() {
        let mut names: Vec<String> = TABLE.iter().map(|e| signature::prefix(e.signature)).collect();
        names.sort();
        assert!(names.windows(2).all(|w| w[0] != w[1]), "{names:?}");
        assert!(TABLE.iter().all(|e| Access::parse(e.permissions).is_some()));
    }
}
