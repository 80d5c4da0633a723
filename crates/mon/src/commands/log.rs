//! `ceph log …`: the cluster log.

use super::{Answer, Command, Ctx, Outcome, commands};
use crate::proposal::Change;
use command::Json;
use command::object;
use wire::text::stamp;
use wire::types::{EntityAddrVec, EntityName, LogEntry, LogPriority};

pub(super) const COMMANDS: &[Command] = commands! {
    "log name=logtext,type=CephString,n=N", "write a line to the cluster log", "mon", "rw", write;
    "log last name=num,type=CephInt,range=1,req=false name=level,type=CephChoices,strings=debug|info|sec|warn|error,req=false name=channel,type=CephChoices,strings=*|cluster|audit|cephadm,req=false",
        "show the last lines of the cluster log", "mon", "r", last;
};

pub(crate) fn addrs_json(addrs: &EntityAddrVec) -> Json {
    let one = |addr: &wire::types::EntityAddr| {
        let kind = addr.to_string();
        let kind = kind.split(':').next().filter(|k| ["v1", "v2", "any"].contains(k)).unwrap_or("none");
        object! {
            "type" => kind,
            "addr" => addr.socket.map_or(":/0".into(), |s| s.to_string()),
            "nonce" => addr.nonce,
        }
    };
    object! { "addrvec" => Json::array(addrs.0.iter().map(one)) }
}

/// `2026-…+0000 mon.a (mon.0) 12 : cluster [INF] text`
pub(crate) fn line(entry: &LogEntry) -> String {
    format!(
        "{} {} ({}) {} : {} {} {}\n",
        stamp(entry.stamp),
        entry.name,
        entry.rank,
        entry.seq,
        entry.channel,
        entry.priority.tag(),
        entry.message
    )
}

fn line_json(entry: &LogEntry) -> Json {
    object! {
        "name" => entry.name.to_string(),
        "rank" => entry.rank.to_string(),
        "addrs" => addrs_json(&entry.addrs),
        "stamp" => stamp(entry.stamp),
        "seq" => entry.seq,
        "channel" => entry.channel.as_str(),
        "priority" => entry.priority.tag(),
        "message" => entry.message.as_str(),
    }
}

fn write(ctx: &mut Ctx<'_>) -> Outcome {
    let entry = LogEntry {
        name: ctx.caller.clone(),
        rank: EntityName::new(ctx.caller.kind, -1),
        addrs: ctx.caller_addrs.clone(),
        stamp: ctx.now,
        seq: 0,
        priority: LogPriority::INFO,
        message: ctx.args.texts("logtext").join(" "),
        channel: "cluster".into(),
    };
    ctx.changes.push(Change::Log { entry });
    Ok(Answer::default())
}

fn last(ctx: &mut Ctx<'_>) -> Outcome {
    let count = ctx.args.int("num").unwrap_or(20).max(1) as usize;
    let least = match ctx.args.text("level").as_deref() {
        Some("debug") => LogPriority::DEBUG,
        Some("sec") => LogPriority::SECURITY,
        Some("warn") => LogPriority::WARN,
        Some("error") => LogPriority::ERROR,
        _ => LogPriority::INFO,
    };
    let channel = ctx.args.text("channel").unwrap_or_else(|| "cluster".into());
    let lines = ctx.state.log.last(count, least, &channel);
    Ok(ctx
        .show(|| Json::array(lines.iter().map(|e| line_json(e))), || lines.iter().map(|e| line(e)).collect()))
}
