//! `ceph tell osd.N …` and the admin socket: what can be asked of, or done to, one OSD.

use super::signals::{self, Asker, Kind};
use super::{Control, Effect, Fx, bench, inspection};
use command::options::commands as option_commands;
use command::signature::{self, Description};
use command::{Answer, Args, Json, errno, object, osd_network, panics, restart};
use machine::{ConnId, Time};
use wire::messages::{MCommand, MCommandReply, Message};

/// An OSD's own commands: signature, help, permissions. [`option_commands::COMMANDS`] come on top.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("get_command_descriptions", "list available commands", "r"),
    ("help", "list available commands", "r"),
    ("version", "report version of OSD", "r"),
    ("status", "high-level status of OSD", "r"),
    (osd_network::SIGNATURE, osd_network::HELP, "r"),
    ("dump_pg_recovery_stats", "dump pg recovery statistics", "r"),
    ("flush_pg_stats", "flush pg stats", "r"),
    ("pg cores", "show which core each PG is on, and which one is moving", "r"),
    (
        "pg move name=pgid,type=CephPgid name=core,type=CephInt",
        "move a PG to another core's part of the store, while it is served",
        "rw",
    ),
    (
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=query",
        "show details of a specific pg",
        "r",
    ),
    (
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=mark_unfound_lost \
         name=mulcmd,type=CephChoices,strings=revert|delete",
        "mark all unfound objects in this pg as lost, either removing or reverting to a prior version if one is \
         available",
        "rw",
    ),
    (
        "pg name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=list_unfound \
         name=offset,type=CephString,req=false",
        "list unfound objects on this pg, perhaps starting at an offset given in JSON",
        "r",
    ),
    ("query", "show details of a specific pg", "r"),
    (restart::SIGNATURE, restart::HELP, "rwx"),
    (
        "mark_unfound_lost name=pgid,type=CephPgid,req=false name=mulcmd,type=CephChoices,strings=revert|delete",
        "mark all unfound objects in this pg as lost, either removing or reverting to a prior version if one is \
         available",
        "rw",
    ),
    (
        "list_unfound name=pgid,type=CephPgid,req=false name=offset,type=CephString,req=false",
        "list unfound objects on this pg, perhaps starting at an offset given in JSON",
        "r",
    ),
];

/// Every command that an OSD answers: signature, help, permissions.
pub fn all_commands() -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    let own = COMMANDS.iter().chain(signals::COMMANDS).chain(inspection::COMMANDS).chain(bench::COMMANDS);
    own.chain(option_commands::COMMANDS).chain(panics::COMMANDS)
}

impl Control {
    pub(super) fn on_command(&mut self, now: Time, conn: ConnId, tid: u64, m: &MCommand, fx: &mut Fx) {
        let answer = match self.may_command(conn) {
            false => Some(Answer::error(
                errno::EACCES,
                "connection does not have capabilities to run this command",
            )),
            true => {
                let features = self.peers.get(&conn).map_or(codec::Features::ALL, |p| p.features);
                self.run(now, &m.command.join(" "), features, Asker::Client { conn, tid }, fx)
            }
        };
        let Some(Answer { result, status, body }) = answer else { return };
        let reply = MCommandReply { result, status, output: body };
        self.send(conn, Message::with_tid(tid, reply), fx);
    }

    /// Commands reach everything, so they need everything.
    fn may_command(&self, conn: ConnId) -> bool {
        self.peers.get(&conn).is_some_and(|peer| crate::caps::of_peer(peer).allows_everything())
    }

    pub(super) fn on_admin(&mut self, now: Time, id: u64, text: &str, fx: &mut Fx) {
        if let Some(answer) = self.run(now, text, codec::Features::ALL, Asker::Admin { id }, fx) {
            fx.push(Effect::AdminAnswer { id, answer });
        }
    }

    /// `None`: the answer waits for the shards or the host, and goes to `asker` then.
    fn run(
        &mut self,
        now: Time,
        text: &str,
        features: codec::Features,
        asker: Asker,
        fx: &mut Fx,
    ) -> Option<Answer> {
        let args = match Args::parse(text) {
            Ok(args) => args,
            Err(why) => return Some(Answer::invalid(why)),
        };
        let prefix = args.text("prefix").unwrap_or_default();
        // Commands about one PG share their first word.
        let known = all_commands().filter(|(sig, _, _)| signature::prefix(sig) == prefix);
        let checks: Vec<Result<(), String>> = known.map(|(sig, _, _)| signature::check(sig, &args)).collect();
        if let Some(Err(why)) = checks.iter().find(|check| check.is_ok()).or(checks.last()) {
            return Some(Answer::invalid(why.clone()));
        }
        if let Some(answer) = option_commands::answer(&mut self.layers, &prefix, &args) {
            return Some(answer);
        }
        if let Some(answer) = panics::obey(&self.layers, &prefix) {
            return Some(answer);
        }
        if prefix == "restart" {
            return self.ask_restart(&args, asker, fx);
        }
        if prefix == "bench" {
            return self.begin_bench(now, &args, asker, fx);
        }
        if let Some(answer) = self.answer_at_once(now, &prefix, &args, fx) {
            return Some(answer);
        }
        match Kind::of(&prefix, &args) {
            Err(refusal) => Some(refusal),
            Ok(None) => Some(self.answer(&prefix, &args, features)),
            Ok(Some(kind)) => {
                self.ask_shards(asker, kind, args.format(), fx);
                None
            }
        }
    }

    fn answer(&mut self, prefix: &str, args: &Args, features: codec::Features) -> Answer {
        let format = args.format();
        match prefix {
            "get_command_descriptions" => {
                let all = Description::of_table(all_commands(), "osd", 0);
                Answer::body(signature::descriptions(all, features).compact())
            }
            "help" => {
                let pairs = all_commands().map(|(sig, help, _)| (signature::prefix(sig), *help));
                let mut all = Json::Object(Vec::new());
                pairs.for_each(|(name, help)| all.push(name, help));
                Answer::json(format, &all)
            }
            "version" => {
                let v = &self.config.version;
                let json = object! {
                    "version" => v.version.as_str(),
                    "release" => v.release.as_str(),
                    "release_type" => v.release_type.as_str(),
                };
                Answer::json(format, &json)
            }
            "status" => Answer::json(format, &self.status()),
            "dump_osd_network" => self.dump_osd_network(args),
            "dump_pg_recovery_stats" => Answer::body(""),
            "flush_pg_stats" => {
                self.reports.make_due();
                let seq = self.osd_stat().seq;
                Answer::body(format!("{seq}\n"))
            }
            "pg cores" => self.cores_command(args),
            "pg move" => self.move_command(args),
            _ => Answer::invalid(format!("unknown command '{prefix}'")),
        }
    }

    fn status(&self) -> Json {
        let maps = self.history.kept();
        let runs: Vec<String> = maps.iter().map(|(first, len)| format!("{first}~{len}")).collect();
        object! {
            "cluster_fsid" => self.mon.fsid().to_string(),
            "osd_fsid" => self.config.osd_fsid.to_string(),
            "whoami" => self.config.osd.0 as i64,
            "state" => self.life.state_name(),
            "maps" => format!("[{}]", runs.join(",")),
            "oldest_map" => maps.first().map_or(0, |(first, _)| *first).to_string(),
            "newest_map" => self.epoch().to_string(),
            "cluster_osdmap_trim_lower_bound" => self.history.trim_lower_bound() as u64,
            "num_pgs" => self.pg_roles().all(),
        }
    }
}
