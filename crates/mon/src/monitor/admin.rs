//! Commands to this very monitor: over its admin socket, or with `ceph tell mon.a`.

use super::restart::Asker;
use super::{Effect, Monitor, Turn};
use bytes::Bytes;
use command::options::commands as option_commands;
use command::{Answer, Args, Json, object, panics, restart};
use wire::features;
use wire::types::{AuthName, EntityAddrVec, EntityKind};

impl Monitor {
    pub(super) fn run_admin(
        &mut self,
        turn: &mut Turn<'_>,
        prefix: &str,
        args: &Args,
    ) -> Result<Answer, Answer> {
        if let Some(answer) = option_commands::answer(&mut self.own.layers, prefix, args) {
            return Ok(answer);
        }
        if let Some(answer) = panics::obey(&self.own.layers, prefix) {
            return Ok(answer);
        }
        let format = args.format();
        let show = |json: Json| Ok(Answer::json(format, &json));
        match prefix {
            "sessions" => {
                // Neither those that other monitors hold, nor our own ends of connections to them.
                let own = self.sessions.iter().filter(|(conn, _)| !conn.is_outgoing());
                let sessions = own.map(|(_, s)| {
                    object! {
                        "name" => s.peer.claimed.to_string(),
                        "entity_name" => s.name().to_string(),
                        "addrs" => s.peer.addrs.to_string(),
                        "con_features" => s.peer.features.0,
                        "global_id" => s.peer.identity.global_id(),
                        "remote_host" => s.host.as_str(),
                        "caps" => object! { "text" => s.caps.text() },
                        "authenticated" => true,
                        "osd_epoch" => s.osd_epoch,
                    }
                });
                show(Json::array(sessions))
            }
            "restart" => {
                restart::admit(args, self.settings.metadata.get(restart::STARTED_AT))?;
                self.ask_restart(turn);
                Ok(Answer::ok(""))
            }
            "help" => show(object! {
                "help" => "list these commands",
                "mon_status" => "show this monitor's state",
                "quorum_status" => "show the quorum",
                "restart" => restart::HELP,
                "sessions" => "list connected peers",
                "version" => "show this daemon's version",
            }),
            _ => Err(Answer::invalid("unknown command")),
        }
    }

    /// A command on the admin socket: whoever can open it may do everything.
    pub(super) fn admin_command(&mut self, turn: &mut Turn<'_>, id: u64, text: &str) {
        let run = || -> Result<(String, Args), Answer> {
            let args = Args::parse(text).map_err(Answer::invalid)?;
            Ok((args.required("prefix")?, args))
        };
        let outcome = run().and_then(|(prefix, args)| self.local_command(turn, &prefix, &args));
        let (Ok(answer) | Err(answer)) = outcome;
        if !self.waits_for_check(Asker::Admin { id }) {
            turn.effects.push(Effect::AdminAnswer { id, answer });
        }
    }

    fn local_command(&mut self, turn: &mut Turn<'_>, prefix: &str, args: &Args) -> Result<Answer, Answer> {
        match prefix {
            "mon_status" | "quorum_status" | "version" | "status" | "health" | "mon metadata"
            | "mgr metadata" | "osd metadata" => {
                let command = crate::commands::find(prefix).expect("these commands are in the table");
                let name = AuthName::new(EntityKind::CLIENT, "admin");
                let nobody = EntityAddrVec::default();
                self.execute(
                    turn,
                    command,
                    args,
                    &Bytes::new(),
                    &name,
                    &nobody,
                    features::SUPPORTED,
                    true,
                    "",
                    None,
                )
            }
            other => self.run_admin(turn, other, args),
        }
    }
}
