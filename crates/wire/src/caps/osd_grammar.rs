//! The text of a client's capability on OSDs.
//!
//! ```text
//! caps    := grant { (";" | ",") grant }
//! grant   := "allow" spec match [network]
//!          | "allow" match spec [network]
//!          | "profile" eq str [pool] [ns] [network]
//! spec    := "*" | "all" | [rwx] ["class-read"] ["class-write"] | "class" str [str]
//! rwx     := letters of "rwx" in that order, at least one
//! match   := tag | ns tag | [pool] ns [prefix] | [pool] [prefix]
//! pool    := "pool" eq str
//! ns      := "namespace" eq str ["*"]
//! prefix  := "object_prefix" str
//! tag     := "tag" str word "=" word                     blanks around "=" allowed
//! word    := "*" | "all" | str
//! network := "network" (a-f A-F 0-9 / . : [ ]) ...
//! eq      := "=" | white space
//! str     := (a-z A-Z 0-9 _ . / -) ... | quoted with ' or "
//! ```
//! Words are set apart by white space. As in Ceph, the first alternative that fits is taken for good: after
//! `class NAME` a following word is the method, even if it is `pool`; and a word that begins with `all` where a
//! wildcard may stand is that wildcard, and an error.

use super::osd::{Access, Grant, Network, OsdCap, PoolTag, Rule, Scope, Spec, profile_rules};
use thiserror::Error;

/// In Ceph's words, because people search for them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("osd capability parse failed, stopped at '{rest}' of '{text}'")]
pub struct OsdCapError {
    pub rest: String,
    pub text: String,
}

pub(super) fn parse(text: &str) -> Result<OsdCap, OsdCapError> {
    let mut cursor = Cursor(text);
    let mut grants = Vec::new();
    while let Some(grant) = cursor.attempt(|c| {
        if !grants.is_empty() {
            c.lit(";").or_else(|| c.lit(","))?;
        }
        c.grant()
    }) {
        grants.push(grant);
    }
    let rest = if grants.is_empty() { text } else { cursor.0.trim_start_matches(is_space) };
    match (grants.is_empty(), rest.is_empty()) {
        (false, true) => Ok(OsdCap { grants }),
        _ => Err(OsdCapError { rest: rest.into(), text: text.into() }),
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// The rest of the text.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    /// Whatever `f` reads, or nothing at all.
    fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = *self;
        let out = f(self);
        if out.is_none() {
            *self = start;
        }
        out
    }

    fn lit(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// At least one character that `f` takes.
    fn run(&mut self, f: impl Fn(char) -> bool) -> Option<&'a str> {
        let len = self.0.find(|c| !f(c)).unwrap_or(self.0.len());
        let (out, rest) = self.0.split_at(len);
        self.0 = rest;
        (len > 0).then_some(out)
    }

    fn spaces(&mut self) -> Option<()> {
        self.run(is_space).map(drop)
    }

    fn blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    /// White space and a word of the grammar.
    fn keyword(&mut self, word: &str) -> Option<()> {
        self.attempt(|c| {
            c.spaces()?;
            c.lit(word)
        })
    }

    fn equals_or_spaces(&mut self) -> Option<()> {
        self.attempt(|c| c.lit("=")).or_else(|| self.spaces())
    }

    fn quoted(&mut self) -> Option<&'a str> {
        self.attempt(|c| {
            let quote = c.0.chars().next().filter(|q| matches!(q, '"' | '\''))?;
            let (out, rest) = c.0[1..].split_once(quote)?;
            c.0 = rest;
            Some(out)
        })
    }

    fn bare_word(&mut self) -> Option<&'a str> {
        self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-'))
    }

    fn string(&mut self) -> Option<String> {
        let quoted = self.attempt(|c| c.quoted().filter(|s| !s.is_empty()));
        quoted.or_else(|| self.bare_word()).map(String::from)
    }

    /// A string that may be empty when it is quoted.
    fn string_or_empty(&mut self) -> Option<String> {
        self.quoted().or_else(|| self.bare_word()).map(String::from)
    }

    fn wildcard(&mut self) -> Option<()> {
        self.attempt(|c| c.lit("*")).or_else(|| self.attempt(|c| c.lit("all")))
    }

    fn string_or_wildcard(&mut self) -> Option<String> {
        self.wildcard().map(|()| "*".into()).or_else(|| self.string())
    }

    fn grant(&mut self) -> Option<Grant> {
        self.blanks();
        let spec_first = |c: &mut Self| {
            c.lit("allow")?;
            let spec = c.spec()?;
            Some(vec![Rule { spec, scope: c.scope() }])
        };
        let scope_first = |c: &mut Self| {
            c.lit("allow")?;
            let scope = c.scope();
            Some(vec![Rule { scope, spec: c.spec()? }])
        };
        let rules = self
            .attempt(spec_first)
            .or_else(|| self.attempt(scope_first))
            .or_else(|| self.attempt(Self::profile))?;
        let network = self.network().unwrap_or(Network::Any);
        self.blanks();
        Some(Grant { rules, network })
    }

    fn profile(&mut self) -> Option<Vec<Rule>> {
        self.lit("profile")?;
        self.equals_or_spaces()?;
        let name = self.string()?;
        let pool = self.pool();
        Some(profile_rules(&name, pool, self.namespace()))
    }

    fn spec(&mut self) -> Option<Spec> {
        self.access().map(Spec::Access).or_else(|| self.class())
    }

    fn access(&mut self) -> Option<Access> {
        let all = self.attempt(|c| {
            c.spaces()?;
            c.wildcard()
        });
        if all.is_some() {
            return Some(Access::ALL);
        }
        let mut access = Access::NONE;
        let letters = self.attempt(|c| {
            c.spaces()?;
            let mut letters = Access::NONE;
            for (letter, bit) in [("r", Access::READ), ("w", Access::WRITE), ("x", Access::EXECUTE)] {
                if c.attempt(|c| c.lit(letter)).is_some() {
                    letters |= bit;
                }
            }
            (letters != Access::NONE).then_some(letters)
        });
        access |= letters.unwrap_or_default();
        for (word, bit) in [("class-read", Access::CLASS_READ), ("class-write", Access::CLASS_WRITE)] {
            if self.keyword(word).is_some() {
                access |= bit;
            }
        }
        (access != Access::NONE).then_some(access)
    }

    fn class(&mut self) -> Option<Spec> {
        self.attempt(|c| {
            c.keyword("class")?;
            c.spaces()?;
            let class = c.string()?;
            let method = c.attempt(|c| {
                c.spaces()?;
                c.string()
            });
            Some(Spec::Class { class, method: method.unwrap_or_default() })
        })
    }

    fn scope(&mut self) -> Scope {
        if let Some(tag) = self.tag() {
            return Scope { tag: Some(tag), ..Scope::default() };
        }
        let namespace_and_tag = self.attempt(|c| Some((c.namespace()?, c.tag()?)));
        if let Some((namespace, tag)) = namespace_and_tag {
            return Scope { namespace: Some(namespace), tag: Some(tag), ..Scope::default() };
        }
        Scope {
            pool: self.pool(),
            namespace: self.namespace(),
            object_prefix: self.object_prefix().unwrap_or_default(),
            tag: None,
        }
    }

    /// Empty when there is none.
    fn pool(&mut self) -> String {
        let pool = self.attempt(|c| {
            c.keyword("pool")?;
            c.equals_or_spaces()?;
            c.string()
        });
        pool.unwrap_or_default()
    }

    fn namespace(&mut self) -> Option<String> {
        self.attempt(|c| {
            c.keyword("namespace")?;
            c.equals_or_spaces()?;
            let mut namespace = c.string_or_empty()?;
            if c.attempt(|c| c.lit("*")).is_some() {
                namespace.push('*');
            }
            Some(namespace)
        })
    }

    fn object_prefix(&mut self) -> Option<String> {
        self.attempt(|c| {
            c.keyword("object_prefix")?;
            c.spaces()?;
            c.string()
        })
    }

    fn tag(&mut self) -> Option<PoolTag> {
        self.attempt(|c| {
            c.keyword("tag")?;
            c.spaces()?;
            let application = c.string()?;
            c.spaces()?;
            let key = c.string_or_wildcard()?;
            c.spaces();
            c.lit("=")?;
            c.spaces();
            Some(PoolTag { application, key, value: c.string_or_wildcard()? })
        })
    }

    fn network(&mut self) -> Option<Network> {
        self.attempt(|c| {
            c.keyword("network")?;
            c.spaces()?;
            let text = c.run(|c| c.is_ascii_hexdigit() || matches!(c, '/' | '.' | ':' | '[' | ']'))?;
            Some(Network::parse(text))
        })
    }
}
