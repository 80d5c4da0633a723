//! Signatures of commands: words and typed arguments, as one line of text.
//!
//! `osd pool rm name=pool,type=CephPoolname name=sure,type=CephBool,req=false`: a word without `,` or `=` is part
//! of the command's name, the others describe arguments; after a `--` arguments can only be given by name. The
//! line is both what is checked here and, as JSON, what the `ceph` tool parses its command line with.

use crate::json::Json;
use crate::{Args, Value, object};
use codec::Features;
use wire::features;

/// One argument's description: its pairs, sorted by key as stock's map sorts them.
struct Param<'a> {
    pairs: Vec<(&'a str, &'a str)>,
    positional: bool,
}

impl<'a> Param<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    fn required(&self) -> bool {
        self.get("req") != Some("false")
    }
}

enum Word<'a> {
    Literal(&'a str),
    Param(Param<'a>),
}

fn words(signature: &str) -> impl Iterator<Item = Word<'_>> {
    let mut positional = true;
    signature.split_whitespace().filter_map(move |word| {
        if word == "--" {
            positional = false;
            return None;
        }
        if !word.contains([',', '=']) {
            return Some(Word::Literal(word));
        }
        let mut pairs: Vec<_> = word.split(',').filter_map(|pair| pair.split_once('=')).collect();
        pairs.sort();
        Some(Word::Param(Param { pairs, positional }))
    })
}

/// The command's name: its literal words before the first argument. (A few have a word after one.)
pub fn prefix(signature: &str) -> String {
    let literals = words(signature).map_while(|w| match w {
        Word::Literal(word) => Some(word),
        Word::Param(_) => None,
    });
    literals.collect::<Vec<_>>().join(" ")
}

/// The array that `get_command_descriptions` gives for `sig`. Callers before Quincy take every value as a string
/// and know no `positional`.
pub fn describe(signature: &str, caller: Features) -> Json {
    let quincy = caller.has(features::SERVER_QUINCY);
    let describe_param = |param: Param<'_>| {
        let mut pairs = param.pairs;
        if !param.positional {
            pairs.push(("positional", "false"));
            pairs.sort();
        }
        let known = pairs.into_iter().filter(|(key, _)| quincy || *key != "positional");
        Json::Object(
            known
                .map(|(key, value)| {
                    let boolean = quincy && matches!(key, "req" | "positional");
                    let value = if boolean { Json::Bool(value == "true") } else { value.into() };
                    (key.to_owned().into(), value)
                })
                .collect(),
        )
    };
    Json::array(words(signature).map(|word| match word {
        Word::Literal(word) => word.into(),
        Word::Param(param) => describe_param(param),
    }))
}

/// A command as `get_command_descriptions` lists it.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    pub signature: &'a str,
    pub help: &'a str,
    pub module: &'a str,
    /// `r`, `rw`, `rwx`.
    pub permissions: &'a str,
    pub flags: u64,
}

impl<'a> Description<'a> {
    /// Rows of signature, help and permissions, as a daemon of the kind `module` lists them.
    pub fn of_table(
        rows: impl IntoIterator<Item = &'a (&'a str, &'a str, &'a str)>,
        module: &'a str,
        flags: u64,
    ) -> impl Iterator<Item = Description<'a>> {
        let describe = move |&(signature, help, permissions): &(&'a str, &'a str, &'a str)| Description {
            signature,
            help,
            module,
            permissions,
            flags,
        };
        rows.into_iter().map(describe)
    }
}

/// The answer of `get_command_descriptions`: `cmd000`, `cmd001`, …, in this order.
pub fn descriptions<'a>(commands: impl Iterator<Item = Description<'a>>, caller: Features) -> Json {
    let named = commands.enumerate().map(|(number, command)| {
        let row = object! {
            "sig" => describe(command.signature, caller),
            "help" => command.help,
            "module" => command.module,
            "perm" => command.permissions,
            "flags" => command.flags,
        };
        (format!("cmd{number:03}").into(), row)
    });
    Json::Object(named.collect())
}

/// Checks the arguments against the signature. The error is worded as stock words it.
pub fn check(signature: &str, args: &Args) -> Result<(), String> {
    for word in words(signature) {
        let Word::Param(param) = word else { continue };
        let name = param.get("name").unwrap_or_default();
        let Some(value) = args.get(name) else {
            if param.required() && param.get("n").is_none() {
                return Err(format!("missing required parameter: '{name}'"));
            }
            continue;
        };
        check_value(&param, name, value)?;
    }
    Ok(())
}

fn check_value(param: &Param<'_>, name: &str, value: &Value) -> Result<(), String> {
    match (param.get("type").unwrap_or_default(), value) {
        ("CephChoices", value) => {
            let strings = param.get("strings").unwrap_or_default();
            for text in value.texts() {
                if !strings.split('|').any(|choice| choice == text) {
                    return Err(format!("'{text}' not belong to '{strings}'"));
                }
            }
            Ok(())
        }
        ("CephInt" | "CephFloat", Value::List(items)) if param.get("n").is_some() => {
            items.iter().try_for_each(|item| check_number(param, name, item))
        }
        ("CephInt" | "CephFloat", value) => check_number(param, name, value),
        _ => Ok(()),
    }
}

fn check_number(param: &Param<'_>, name: &str, value: &Value) -> Result<(), String> {
    let Some(number) = value.number() else {
        return Err(format!("bad value for '{name}'"));
    };
    let Some(range) = param.get("range") else { return Ok(()) };
    let bounds: Vec<f64> = range.split('|').filter_map(|b| b.parse().ok()).collect();
    let low = bounds.first().copied().unwrap_or(f64::MIN);
    let high = bounds.get(1).copied().unwrap_or(f64::MAX);
    if number < low || number > high {
        let list = range.replace('|', ",");
        return Err(format!("'{number}' out of range: [{list}]"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL_RM: &str = "osd pool rm name=pool,type=CephPoolname name=sure,type=CephBool,req=false";

    #[test]
    fn a_signature_names_its_command() {
        assert_eq!(prefix(POOL_RM), "osd pool rm");
        assert_eq!(prefix("status"), "status");
    }

    #[test]
    fn newer_callers_get_booleans_older_ones_strings() {
        let old = describe(POOL_RM, features::PACIFIC).compact();
        assert_eq!(
            old,
            r#"["osd","pool","rm",{"name":"pool","type":"CephPoolname"},{"name":"sure","req":"false","type":"CephBool"}]"#
        );
        let new = describe("a -- name=x,type=CephInt,range=0|9", features::TENTACLE).compact();
        assert_eq!(new, r#"["a",{"name":"x","positional":false,"range":"0|9","type":"CephInt"}]"#);
        assert!(describe(POOL_RM, features::TENTACLE).compact().contains(r#""req":false"#));
    }

    #[test]
    fn arguments_are_checked_against_it() {
        let sig = "x name=a,type=CephInt,range=1|5 name=b,type=CephChoices,strings=p|q,req=false";
        let check = |json: &str| check(sig, &Args::parse(json).unwrap());
        assert_eq!(check(r#"{"prefix":"x","a":3,"b":"q"}"#), Ok(()));
        assert_eq!(check(r#"{"prefix":"x"}"#), Err("missing required parameter: 'a'".into()));
        assert_eq!(check(r#"{"prefix":"x","a":9}"#), Err("'9' out of range: [1,5]".into()));
        assert_eq!(check(r#"{"prefix":"x","a":2,"b":"z"}"#), Err("'z' not belong to 'p|q'".into()));
        assert_eq!(check(r#"{"prefix":"x","a":[2]}"#), Err("bad value for 'a'".into()));
    }

    #[test]
    fn each_value_of_a_list_is_checked() {
        let sig = "x name=a,type=CephFloat,range=0.0,n=N";
        let check = |json: &str| super::check(sig, &Args::parse(json).unwrap());
        assert_eq!(check(r#"{"prefix":"x","a":[0.25,1]}"#), Ok(()));
        assert_eq!(check(r#"{"prefix":"x","a":[0.25,-1]}"#), Err("'-1' out of range: [0.0]".into()));
        assert_eq!(check(r#"{"prefix":"x","a":[0.25,"b"]}"#), Err("bad value for 'a'".into()));
    }
}
