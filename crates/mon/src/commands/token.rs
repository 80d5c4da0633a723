//! `shoal token …`: join tokens are made, listed and revoked.

use super::{Answer, Command, Ctx, Outcome, commands};
use crate::auth_entity::AuthEntity;
use crate::join_token::{JoinToken, entity_of};
use crate::joining::Token;
use crate::proposal::Change;
use command::errno::{ENOENT, EOPNOTSUPP};
use command::{Json, object};
use std::fmt::Write;
use std::net::SocketAddr;
use wire::text::stamp;
use wire::types::UTime;

pub(super) const COMMANDS: &[Command] = commands! {
    "shoal token create name=expires,type=CephInt,range=1|31536000,req=false name=uses,type=CephInt,range=1|1000000,req=false name=mons,type=CephBool,req=false",
        "make a join token, which is valid for so many seconds (a day) and so many hosts (any number)", "auth", "rwx", create;
    "shoal token ls", "list join tokens with their uses, without their keys", "auth", "r", list;
    "shoal token revoke name=id,type=CephString", "end a join token; hosts that joined stay", "auth", "rwx", revoke;
};

const EXPIRES_S_DEFAULT: i64 = 24 * 3600;
/// A person reads it aloud: no letters and digits that look alike.
const ID_LETTERS: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
const ID_LEN: usize = 5;
/// Capability of a token's key at a monitor.
const CAPS: &str = "profile shoal-join";

fn new_id(ctx: &mut Ctx<'_>) -> String {
    loop {
        let letter = |random: &mut machine::Random| {
            char::from(ID_LETTERS[random.below(ID_LETTERS.len() as u64) as usize])
        };
        let id: String = (0..ID_LEN).map(|_| letter(ctx.random)).collect();
        if !ctx.state.auth.entities.contains_key(&entity_of(&id)) {
            return id;
        }
    }
}

fn create(ctx: &mut Ctx<'_>) -> Outcome {
    let Some(monitors) = monitors(ctx) else {
        return Err(Answer::error(
            EOPNOTSUPP,
            "a monitor has no msgr2 address, so that no host could reach it: correct its public_addr",
        ));
    };
    let id = new_id(ctx);
    let seconds = ctx.args.int("expires").unwrap_or(EXPIRES_S_DEFAULT);
    let expires = UTime { sec: ctx.now.sec.saturating_add(seconds as u32), nsec: ctx.now.nsec };
    let token = Token {
        created: ctx.now,
        expires,
        uses_left: ctx.args.int("uses").map(|uses| uses as u32),
        mons: ctx.args.flag("mons"),
        ..Token::default()
    };
    let key = super::auth::new_key_of_any_kind(ctx)?;
    let caps = [("mon".to_owned(), CAPS.to_owned())].into();
    let text = JoinToken {
        fsid: ctx.state.monmap.fsid,
        expires: expires.sec,
        id: id.clone(),
        key: key.clone(),
        monitors,
    }
    .to_string();
    let shown = ctx.show(
        || object! { "id" => id.as_str(), "expires" => stamp(expires), "token" => text.as_str() },
        || text.clone(),
    );
    ctx.changes.push(Change::AuthSet { name: entity_of(&id), entity: AuthEntity::new(key, caps) });
    ctx.changes.push(Change::JoinToken { id, token: Some(token) });
    Ok(shown)
}

/// Where each monitor listens; `None` if one does so nowhere.
fn monitors(ctx: &Ctx<'_>) -> Option<Vec<SocketAddr>> {
    let all = ctx.state.monmap.by_rank();
    let addrs = all.map(|(_, mon)| mon.addrs.msgr2().and_then(|addr| addr.socket));
    addrs.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
}

fn token_json(id: &str, token: &Token) -> Json {
    let uses = token.uses.iter().map(|one| object! { "host" => one.host.as_str(), "at" => stamp(one.at) });
    let mut json = object! {
        "id" => id,
        "entity" => entity_of(id).to_string(),
        "created" => stamp(token.created),
        "expires" => stamp(token.expires),
        "mons" => token.mons,
        "used" => token.used,
        "uses" => Json::array(uses),
    };
    if let Some(left) = token.uses_left {
        json.push("uses_left", left);
    }
    json
}

fn token_line(id: &str, token: &Token) -> String {
    let mut line = format!("{id}  until {}  {} hosts joined", stamp(token.expires), token.used);
    if let Some(left) = token.uses_left {
        let _ = write!(line, ", {left} more may");
    }
    if token.mons {
        line += ", may add monitors";
    }
    let hosts: Vec<&str> = token.uses.iter().map(|one| one.host.as_str()).collect();
    if !hosts.is_empty() {
        let _ = write!(line, ": {}", hosts.join(" "));
    }
    line + "\n"
}

fn list(ctx: &mut Ctx<'_>) -> Outcome {
    let tokens = &ctx.state.joining.tokens;
    Ok(ctx.show(
        || Json::array(tokens.iter().map(|(id, token)| token_json(id, token))),
        || tokens.iter().map(|(id, token)| token_line(id, token)).collect(),
    ))
}

fn revoke(ctx: &mut Ctx<'_>) -> Outcome {
    let id = ctx.args.required("id")?;
    if !ctx.state.joining.tokens.contains_key(&id) {
        let text = format!("there is no token {id}: it has expired, or `shoal token ls` names it otherwise");
        return Err(Answer::error(ENOENT, text));
    }
    ctx.changes.push(Change::AuthRemove { name: entity_of(&id) });
    ctx.changes.push(Change::JoinToken { id: id.clone(), token: None });
    Ok(Answer::ok(format!("revoked the join token {id}")))
}
