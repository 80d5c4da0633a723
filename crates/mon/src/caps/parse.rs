//! The text of a monitor capability, and a check of a manager capability's.
//!
//! ```text
//! caps    := grant { (";" | ",") grant }
//! grant   := "allow" rwx [network] ["fsname" name]
//!          | ["allow"] "profile" ("=" | " ") word [network]
//!          | "allow service" ("=" | " ") word rwx [network]
//!          | "allow command" ("=" | " ") word ["with" pair { pair }] [network]
//! pair    := word "=" word | word "prefix" word | word "regex" word
//! rwx     := "*" | "all" | letters of "rwx" in that order, at least one
//! network := "network" address "/" bits
//! word    := a-zA-Z0-9_./- ... | quoted with ' or "
//! ```
//! The alternatives of `grant` are tried in this order and the first that fits is taken, as stock does.
//!
//! A manager's capabilities have `pairs` behind a profile (`profile rbd pool=volumes`), and one alternative more:
//! `"allow module" ("=" | " ") word ["with" pairs] rwx [network]` (`src/mgr/MgrCap.cc`). The manager reads what they mean.

use super::{Allow, Constraint, Grant, Network, Scope, profiles};
use std::collections::BTreeMap;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CapParseError {
    #[error("{service} capability parse failed, stopped at '{rest}' of '{text}'")]
    StoppedAt { service: &'static str, rest: String, text: String },
    #[error("{service} capability parse failed, stopped at end of '{text}'")]
    StoppedAtEnd { service: &'static str, text: String },
}

pub(super) fn grants(text: &str) -> Result<Vec<Grant>, CapParseError> {
    list("mon", text, Cursor::grant)
}

/// Checks the text of a manager's capability.
pub fn check_mgr(text: &str) -> Result<(), CapParseError> {
    list("mgr", text, Cursor::mgr_grant).map(drop)
}

fn list<'a, T>(
    service: &'static str,
    text: &'a str,
    grant: impl Fn(&mut Cursor<'a>) -> Option<T>,
) -> Result<Vec<T>, CapParseError> {
    let mut cursor = Cursor(text);
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(one) = grant(&mut cursor) {
        out.push(one);
        rest = cursor.0;
        cursor.skip_blanks();
        if cursor.lit(";").or_else(|| cursor.lit(",")).is_none() {
            break;
        }
        cursor.skip_blanks();
    }
    match (out.is_empty(), rest.is_empty()) {
        (false, true) => Ok(out),
        (_, false) => Err(CapParseError::StoppedAt { service, rest: rest.into(), text: text.into() }),
        (true, true) => Err(CapParseError::StoppedAtEnd { service, text: text.into() }),
    }
}

/// The unread rest of the text. A method that returns `None` may have moved: callers that try alternatives restore it.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn grant(&mut self) -> Option<Grant> {
        self.first_of([Self::blanket, Self::profile, Self::service, Self::command])
    }

    fn mgr_grant(&mut self) -> Option<()> {
        let blanket = |c: &mut Self| c.blanket().map(drop);
        let service = |c: &mut Self| c.service().map(drop);
        let command = |c: &mut Self| c.command().map(drop);
        self.first_of([blanket, Self::mgr_profile, service, Self::mgr_module, command])
    }

    fn first_of<T, const N: usize>(&mut self, alternatives: [fn(&mut Self) -> Option<T>; N]) -> Option<T> {
        let start = *self;
        for alternative in alternatives {
            *self = start;
            self.skip_spaces();
            if let Some(grant) = alternative(self) {
                self.skip_spaces();
                return Some(grant);
            }
        }
        *self = start;
        None
    }

    fn blanket(&mut self) -> Option<Grant> {
        self.lit("allow")?;
        self.spaces()?;
        let allow = self.rwx()?;
        let network = self.network();
        let fs_name = self.optional(|c| {
            c.spaces()?;
            c.lit("fsname")?;
            c.equals_or_spaces()?;
            c.run(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
        });
        let fs_name = fs_name.unwrap_or_default().to_owned();
        Some(Grant { scope: Scope::All { allow, fs_name }, network })
    }

    fn profile(&mut self) -> Option<Grant> {
        self.optional(|c| {
            c.lit("allow")?;
            c.spaces()
        });
        self.lit("profile")?;
        self.equals_or_spaces()?;
        let name = self.word()?;
        Some(Grant { scope: Scope::Profile(profiles::expand(&name)), network: self.network() })
    }

    fn mgr_profile(&mut self) -> Option<()> {
        self.optional(|c| {
            c.lit("allow")?;
            c.spaces()
        });
        self.lit("profile")?;
        self.equals_or_spaces()?;
        self.word()?;
        self.optional(|c| {
            c.spaces()?;
            c.pairs()
        });
        self.network();
        Some(())
    }

    fn mgr_module(&mut self) -> Option<()> {
        self.lit("allow")?;
        self.spaces()?;
        self.lit("module")?;
        self.equals_or_spaces()?;
        self.word()?;
        self.optional(Self::with_pairs);
        self.spaces()?;
        self.rwx()?;
        self.network();
        Some(())
    }

    fn service(&mut self) -> Option<Grant> {
        self.lit("allow")?;
        self.spaces()?;
        self.lit("service")?;
        self.equals_or_spaces()?;
        let service = self.word()?;
        self.spaces()?;
        let allow = self.rwx()?;
        Some(Grant { scope: Scope::Service { service, allow }, network: self.network() })
    }

    fn command(&mut self) -> Option<Grant> {
        self.lit("allow")?;
        self.spaces()?;
        self.lit("command")?;
        self.equals_or_spaces()?;
        let command = self.word()?;
        let args = self.optional(Self::with_pairs).unwrap_or_default();
        Some(Grant { scope: Scope::Command { command, args }, network: self.network() })
    }

    fn with_pairs(&mut self) -> Option<BTreeMap<String, Constraint>> {
        self.spaces()?;
        self.lit("with")?;
        self.spaces()?;
        self.pairs()
    }

    fn pairs(&mut self) -> Option<BTreeMap<String, Constraint>> {
        let mut args = BTreeMap::from([self.pair()?]);
        while let Some((name, constraint)) = self.optional(|c| {
            c.spaces()?;
            c.pair()
        }) {
            args.insert(name, constraint);
        }
        Some(args)
    }

    fn pair(&mut self) -> Option<(String, Constraint)> {
        let name = self.word()?;
        if self.lit("=").is_some() {
            return Some((name, Constraint::Equal(self.word()?)));
        }
        self.spaces()?;
        let constraint = if self.lit("prefix").is_some() {
            self.spaces()?;
            Constraint::Prefix(self.word()?)
        } else {
            self.lit("regex")?;
            self.spaces()?;
            Constraint::matching(&self.word()?)
        };
        Some((name, constraint))
    }

    fn rwx(&mut self) -> Option<Allow> {
        if self.lit("*").or_else(|| self.lit("all")).is_some() {
            return Some(Allow::ANY);
        }
        let mut allow = Allow::NONE;
        for (letter, bit) in [("r", Allow::R), ("w", Allow::W), ("x", Allow::X)] {
            if self.lit(letter).is_some() {
                allow = allow.with(bit);
            }
        }
        (allow != Allow::NONE).then_some(allow)
    }

    fn network(&mut self) -> Option<Network> {
        self.optional(|c| {
            c.spaces()?;
            c.lit("network")?;
            c.spaces()?;
            c.run(|b| b.is_ascii_hexdigit() || b"/.:[]".contains(&b)).map(Network::parse)
        })
    }

    fn word(&mut self) -> Option<String> {
        for quote in ['"', '\''] {
            if let Some(rest) = self.0.strip_prefix(quote)
                && let Some(end) = rest.find(quote).filter(|&end| end > 0)
            {
                self.0 = &rest[end + 1..];
                return Some(rest[..end].to_owned());
            }
        }
        self.run(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b)).map(str::to_owned)
    }

    /// Try `what`; when it does not fit, nothing was read.
    fn optional<T>(&mut self, what: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = *self;
        let out = what(self);
        if out.is_none() {
            *self = start;
        }
        out
    }

    fn lit(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// One byte or more that `wanted` accepts; all of them ASCII.
    fn run(&mut self, wanted: impl Fn(u8) -> bool) -> Option<&'a str> {
        let n = self.0.bytes().take_while(|&b| b.is_ascii() && wanted(b)).count();
        let (out, rest) = self.0.split_at(n);
        self.0 = rest;
        (n > 0).then_some(out)
    }

    fn spaces(&mut self) -> Option<()> {
        self.run(|b| b" \n\t".contains(&b)).map(drop)
    }

    fn skip_spaces(&mut self) {
        self.optional(Self::spaces);
    }

    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches(' ');
    }

    fn equals_or_spaces(&mut self) -> Option<()> {
        self.lit("=").or_else(|| self.spaces())
    }
}

#[cfg(test)]
mod tests {
    use crate::caps::{MonCap, check_mgr};
    use proptest::prelude::*;

    #[test]
    fn stock_texts_parse() {
        for text in [
            "allow *",
            "allow all",
            "allow r",
            "allow rwx",
            "allow rw, allow x",
            "allow r;allow w ; allow x",
            "  allow r  ",
            "allow profile osd",
            "profile rbd",
            "profile=rbd, profile \"rbd-mirror\"",
            "allow service mds rw",
            "allow service=\"mds\" *",
            "allow command foo",
            "allow command=\"foo bar\" with a=b c prefix d e regex 'f.*'",
            "allow command foo with a=b network 10.0.0.0/8",
            "allow r network 10.0.0.0/8, allow w network [::1]/128",
            "allow rw fsname=a, allow r fsname b",
        ] {
            assert!(MonCap::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_does_not_parse_says_where() {
        let message = |text: &str| MonCap::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("allow bogus"),
            "mon capability parse failed, stopped at 'allow bogus' of 'allow bogus'"
        );
        assert_eq!(message("allow wr"), "mon capability parse failed, stopped at 'r' of 'allow wr'");
        assert_eq!(
            message("allow r, deny w"),
            "mon capability parse failed, stopped at ', deny w' of 'allow r, deny w'"
        );
        assert_eq!(message(""), "mon capability parse failed, stopped at end of ''");
        assert!(MonCap::parse("allow command ''").is_err());
        assert!(MonCap::parse("allow service mds").is_err());
    }

    #[test]
    fn manager_texts_of_the_guides_parse() {
        for text in [
            "allow *",
            "allow rw",
            "allow r network 10.0.0.0/8",
            "profile rbd",
            "profile rbd pool=volumes, profile rbd pool=vms",
            "profile rbd pool=kube namespace='tenant'",
            "profile rbd-read-only pool=images network 10.0.0.0/8",
            "allow profile crash",
            "allow module rbd_support rw",
            "allow module rbd_support with pool=kube namespace prefix t r",
            "allow service mds rw",
            "allow command 'pg dump' with dumpcontents=sum",
        ] {
            assert_eq!(check_mgr(text), Ok(()), "{text}");
        }
        for (text, rest) in [
            ("profile rbd pool=a, bogus", ", bogus"),
            ("allow module rbd_support", "allow module rbd_support"),
            ("allow module m with a rw", "ith a rw"),
        ] {
            let said = format!("mgr capability parse failed, stopped at '{rest}' of '{text}'");
            assert_eq!(check_mgr(text).unwrap_err().to_string(), said);
        }
        // A monitor's profile has no arguments.
        assert!(MonCap::parse("profile rbd pool=volumes").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let _ = (MonCap::parse(&text), check_mgr(&text));
        }

        #[test]
        fn no_sequence_of_words_panics(words in proptest::collection::vec(
            prop_oneof!["allow", "profile", "service", "module", "command", "with", "network", "prefix", "regex", "[rwx*=,;'\"]", "é"],
            0..12,
        )) {
            let text = words.join(" ");
            let _ = (MonCap::parse(&text), check_mgr(&text));
        }
    }
}
