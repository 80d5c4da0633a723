//! Capabilities for the manager's commands (`MgrCap`): grants separated by commas or semicolons.
//!
//! `allow *`, `allow rw`, `allow profile read-only`, `profile rbd pool=vms`, `allow service osd r`, `allow module NAME rw`,
//! `allow command "pg dump" with dumpcontents=sum`, each optionally with `network CIDR`. Facts: `src/mgr/MgrCap.cc`.

use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

impl Access {
    const ALL: Access = Access { read: true, write: true, execute: true };

    /// `*`, `all`, or some of the letters `r`, `w`, `x`.
    pub(crate) fn parse(text: &str) -> Option<Access> {
        if matches!(text, "*" | "all") {
            return Some(Access::ALL);
        }
        let known = !text.is_empty() && text.chars().all(|c| matches!(c, 'r' | 'w' | 'x'));
        known.then(|| Access {
            read: text.contains('r'),
            write: text.contains('w'),
            execute: text.contains('x'),
        })
    }

    fn covers(self, wanted: Access) -> bool {
        (self.read || !wanted.read) && (self.write || !wanted.write) && (self.execute || !wanted.execute)
    }
}

/// A command, as capabilities see it.
pub(crate) struct Request<'a> {
    pub service: &'a str,
    pub module: &'a str,
    pub prefix: &'a str,
    pub args: &'a BTreeMap<String, String>,
    pub access: Access,
    pub peer: Option<IpAddr>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Caps {
    grants: Vec<Grant>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct Grant {
    /// All of these that are set must match.
    service: Option<String>,
    module: Option<String>,
    command: Option<String>,
    args: Vec<(String, Match)>,
    /// A command grant gives the command itself.
    access: Access,
    network: Option<(IpAddr, u8)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Match {
    Equal(String),
    Prefix(String),
}

impl Caps {
    pub(crate) fn all() -> Caps {
        Caps { grants: vec![Grant { access: Access::ALL, ..Grant::default() }] }
    }

    /// `None` when the text is not a capability; then nothing is granted.
    pub(crate) fn parse(text: &str) -> Option<Caps> {
        let mut grants = Vec::new();
        for clause in split(text, |c| matches!(c, ',' | ';')) {
            let words = split(&clause, char::is_whitespace);
            if !words.is_empty() {
                parse_grant(&words, &mut grants)?;
            }
        }
        Some(Caps { grants })
    }

    /// True if a grant gives everything to every holder of the key.
    pub(crate) fn allow_all(&self) -> bool {
        self.grants.iter().any(|grant| *grant == Grant { access: Access::ALL, ..Grant::default() })
    }

    pub(crate) fn allow(&self, request: &Request<'_>) -> bool {
        self.grants.iter().any(|g| g.allows(request))
    }
}

impl Grant {
    fn allows(&self, r: &Request<'_>) -> bool {
        let near = match (self.network, r.peer) {
            (None, _) => true,
            (Some(network), Some(peer)) => within(network, peer),
            (Some(_), None) => false,
        };
        let arg_matches = |(name, wanted): &(String, Match)| match (r.args.get(name), wanted) {
            (Some(given), Match::Equal(text)) => given == text,
            (Some(given), Match::Prefix(text)) => given.starts_with(text.as_str()),
            (None, _) => false,
        };
        // A module tests pools and namespaces itself: they are not among the arguments of its commands.
        let is_of_module = self.module.is_some() && !r.module.is_empty() && !r.prefix.is_empty();
        if !near || !is_of_module && !self.args.iter().all(arg_matches) {
            return false;
        }
        match (&self.command, &self.service, &self.module) {
            (Some(command), _, _) => command == r.prefix,
            (None, Some(service), _) => service == r.service && self.access.covers(r.access),
            (None, None, Some(module)) => module == r.module && self.access.covers(r.access),
            (None, None, None) => self.access.covers(r.access),
        }
    }
}

fn parse_grant(words: &[String], grants: &mut Vec<Grant>) -> Option<()> {
    let mut words = words.iter().map(String::as_str).peekable();
    // A profile needs no `allow`.
    if words.next_if_eq(&"allow").is_none() && words.peek()?.split('=').next() != Some("profile") {
        return None;
    }
    let mut grant = Grant::default();
    let mut profile = None;
    while let Some(word) = words.next() {
        let (word, joined) = match word.split_once('=') {
            Some((key, value)) if matches!(key, "profile" | "service" | "module" | "command") => {
                (key, Some(value))
            }
            _ => (word, None),
        };
        let mut value = || joined.or_else(|| words.next()).map(str::to_owned);
        match word {
            "profile" => profile = Some(value()?),
            "service" => grant.service = Some(value()?),
            "module" => grant.module = Some(value()?),
            "command" => grant.command = Some(value()?),
            "network" => grant.network = Some(parse_network(&value()?)?),
            "with" => {
                while let Some(pair) = words.next_if(|w| w.contains('=') || *w == "prefix") {
                    let (name, text) = pair.split_once('=')?;
                    grant.args.push((name.to_owned(), Match::Equal(text.to_owned())));
                    if words.next_if_eq(&"prefix").is_some() {
                        let (name, _) = grant.args.pop()?;
                        grant.args.push((name, Match::Prefix(words.next()?.to_owned())));
                    }
                }
            }
            // Arguments of a profile.
            pair if profile.is_some() => {
                let (name, text) = pair.split_once('=')?;
                grant.args.push((name.to_owned(), Match::Equal(text.to_owned())));
            }
            access => grant.access = Access::parse(access)?,
        }
    }
    match profile.as_deref() {
        None => grants.push(grant),
        Some(name) => {
            let limited = |g| Grant { network: grant.network, args: grant.args.clone(), ..g };
            grants.extend(profile_grants(name)?.into_iter().map(limited))
        }
    }
    Some(())
}

/// Profiles that stock knows; a daemon's own profile grants no commands, since reports are not commands.
fn profile_grants(name: &str) -> Option<Vec<Grant>> {
    let access = |text| Access::parse(text).unwrap_or_default();
    let module =
        |module: &str, text| Grant { module: Some(module.into()), access: access(text), ..Grant::default() };
    Some(match name {
        "read-only" => vec![Grant { access: access("r"), ..Grant::default() }],
        "read-write" => vec![Grant { access: access("rw"), ..Grant::default() }],
        "crash" => vec![Grant { command: Some("crash post".into()), ..Grant::default() }],
        "rbd" => vec![module("rbd_support", "rw")],
        "rbd-read-only" => vec![module("rbd_support", "r")],
        "osd" | "mds" | "rbd-mirror" | "cephfs-mirror" | "rgw" | "simple-rados-client-with-blocklist" => {
            Vec::new()
        }
        _ => return None,
    })
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, bits) = text.split_once('/')?;
    Some((ip.parse().ok()?, bits.parse().ok()?))
}

fn within((network, bits): (IpAddr, u8), ip: IpAddr) -> bool {
    let leading = |a: u128, b: u128, width: u32| {
        let bits = u32::from(bits).min(width);
        bits == 0 || (a ^ b) << (128 - width) >> (128 - bits) == 0
    };
    match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => leading(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => leading(a.into(), b.into(), 128),
        _ => false,
    }
}

/// Pieces between separators; quotes keep a piece together and are dropped when they surround a word.
fn split(text: &str, is_separator: impl Fn(char) -> bool) -> Vec<String> {
    let (mut pieces, mut piece, mut quote) = (Vec::new(), String::new(), None);
    let keep_quotes = is_separator(',');
    for c in text.chars() {
        match quote {
            Some(q) if c == q => {
                quote = None;
                if keep_quotes {
                    piece.push(c);
                }
            }
            None if matches!(c, '"' | '\'') => {
                quote = Some(c);
                if keep_quotes {
                    piece.push(c);
                }
            }
            None if is_separator(c) => {
                if !piece.is_empty() {
                    pieces.push(std::mem::take(&mut piece));
                }
            }
            _ => piece.push(c),
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(caps: &str, service: &str, prefix: &str, access: &str) -> bool {
        let args = BTreeMap::from([("dumpcontents".to_owned(), "sum".to_owned())]);
        let peer = Some("10.1.2.3".parse().unwrap());
        let access = Access::parse(access).unwrap();
        let request = Request { service, module: "", prefix, args: &args, access, peer };
        Caps::parse(caps).is_some_and(|c| c.allow(&request))
    }

    #[test]
    fn a_grant_covers_what_it_says_and_no_more() {
        let cases = [
            ("allow *", "pg", "pg dump", "rwx", true),
            ("allow r", "pg", "pg dump", "r", true),
            ("allow r", "pg", "pg repair", "rw", false),
            ("allow service osd r", "pg", "pg dump", "r", false),
            ("allow service osd rw; allow r", "osd", "osd df", "rw", true),
            ("allow profile read-only", "pg", "pg dump", "r", true),
            ("allow profile osd", "pg", "pg dump", "r", false),
            ("allow command \"pg dump\"", "pg", "pg dump", "r", true),
            ("allow command \"pg dump\" with dumpcontents=sum", "pg", "pg dump", "r", true),
            ("allow command \"pg dump\" with dumpcontents=all", "pg", "pg dump", "r", false),
            ("allow command 'pg dump'", "pg", "pg ls", "r", false),
            ("allow r network 10.1.0.0/16", "pg", "pg dump", "r", true),
            ("allow r network 10.2.0.0/16", "pg", "pg dump", "r", false),
            ("allow r network ::/0", "pg", "pg dump", "r", false),
            ("profile read-only", "pg", "pg dump", "r", true),
            ("profile=read-only", "pg", "pg dump", "r", true),
            ("profile read-only dumpcontents=sum", "pg", "pg dump", "r", true),
            ("profile read-only dumpcontents=all", "pg", "pg dump", "r", false),
            ("profile read-only network 10.2.0.0/16", "pg", "pg dump", "r", false),
            ("profile rbd pool=vms, allow r", "pg", "pg dump", "r", true),
            ("profile rbd pool=vms", "pg", "pg dump", "r", false),
            ("service pg r", "pg", "pg dump", "r", false),
            ("", "pg", "pg dump", "r", false),
            ("deny r", "pg", "pg dump", "r", false),
            ("allow q", "pg", "pg dump", "r", false),
        ];
        for (caps, service, prefix, access, want) in cases {
            assert_eq!(allows(caps, service, prefix, access), want, "{caps}: {prefix} {access}");
        }
    }
}
