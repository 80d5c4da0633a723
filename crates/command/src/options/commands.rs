//! The commands about options that every daemon answers, over `ceph tell` and over its admin socket:
//! `config show|get|set|unset|diff|help` and `injectargs`. Outputs and errors are stock's
//! (`src/common/ceph_context.cc`, `config.cc`); where an option does not act at once, the answer says so.

use super::layers::{Layers, Refused};
use super::table::{self, Actors, Definition, When, normal_name};
use crate::errno::{EINVAL, ENOENT, EPERM};
use crate::signature;
use crate::{Answer, Args, Json, object};

/// Signature, help, permissions.
pub const COMMANDS: &[(&str, &str, &str)] = &[
    ("config diff", "dump diff of current config and default config", "r"),
    (
        "config diff get name=var,type=CephString",
        "dump diff get <field>: dump diff of current and default config setting <field>",
        "r",
    ),
    ("config get name=var,type=CephString", "config get <field>: get the config value", "r"),
    ("config help name=var,type=CephString,req=false", "get config setting schema and descriptions", "r"),
    (
        "config set name=var,type=CephString name=val,type=CephString,n=N",
        "config set <field> <val> [<val> ...]: set a config variable",
        "rw",
    ),
    ("config show", "dump current config settings", "r"),
    ("config unset name=var,type=CephString", "config unset <field>: unset a config variable", "rw"),
    (
        "injectargs name=injected_args,type=CephString,n=N",
        "inject configuration arguments into running daemon",
        "rw",
    ),
];

/// The signature of the command of [`COMMANDS`] with this name.
fn signature_of(prefix: &str) -> Option<&'static str> {
    COMMANDS.iter().map(|(signature, ..)| *signature).find(|own| signature::prefix(own) == prefix)
}

/// True for the name of a command of [`COMMANDS`].
pub fn has(prefix: &str) -> bool {
    signature_of(prefix).is_some()
}

/// Answers a command of [`COMMANDS`]; `None` for any other.
pub fn answer(layers: &mut Layers, prefix: &str, args: &Args) -> Option<Answer> {
    if let Err(why) = signature::check(signature_of(prefix)?, args) {
        return Some(Answer::invalid(why));
    }
    let var = || args.text("var").unwrap_or_default();
    let json = |json: Json| Answer::json(args.format(), &json);
    Some(match prefix {
        "config show" => json(show(layers)),
        "config get" => match get(layers, &var()) {
            Ok(found) => json(found),
            Err(answer) => answer,
        },
        "config set" => set(layers, &var(), &args.texts("val").join(" "), args),
        "config unset" => unset(layers, &var(), args),
        "config diff" => json(diff(layers, None)),
        "config diff get" => json(diff(layers, Some(&var()))),
        "config help" => match args.text("var") {
            None => {
                json(Json::Object(vec![("options".into(), Json::array(table::all().iter().map(describe)))]))
            }
            Some(name) => match table::find(&normal_name(&name)) {
                Some(row) => json(object! { "option" => describe(row) }),
                None => Answer::error(ENOENT, format!("Setting not found: '{name}'")),
            },
        },
        "injectargs" => inject(layers, &args.texts("injected_args").join(" "), args),
        _ => return None,
    })
}

fn show(layers: &Layers) -> Json {
    let identity = layers.identity();
    let mut out = object! { "name" => identity.name.as_str(), "cluster" => identity.cluster.as_str() };
    for row in table::all() {
        out.push(row.name, layers.value(row).0.to_string());
    }
    out
}

fn get(layers: &Layers, name: &str) -> Result<Json, Answer> {
    let missing = || Answer::error(ENOENT, format!("error getting '{name}': (2) No such file or directory"));
    let row = table::find(&normal_name(name)).ok_or_else(missing)?;
    let mut out = object! {};
    out.push(name.to_owned(), layers.value(row).0.to_string());
    Ok(out)
}

/// Each option that some layer sets: its value in each layer, and the one that holds.
fn diff(layers: &Layers, only: Option<&str>) -> Json {
    let only = only.map(normal_name);
    let mut out = object! {};
    for (row, values) in layers.differing() {
        if only.as_ref().is_some_and(|name| name != row.name) {
            continue;
        }
        let mut entry = object! {};
        for (source, value) in values {
            entry.push(source.name(), row.json(value));
        }
        entry.push("final", row.json(&layers.value(row).0));
        out.push(row.name, entry);
    }
    object! { "diff" => out }
}

/// Note after a value that was set and does not act at once; empty when it acts.
fn note(layers: &Layers, row: &Definition) -> &'static str {
    match layers.acts_on(row) {
        Some(When::Live) => "",
        Some(When::Start | When::Creation) => "(not observed, change may require restart) ",
        None => "(stored, not acted on by this daemon) ",
    }
}

fn changed(layers: &Layers, row: &'static Definition) -> String {
    format!("{} = '{}' {}", row.name, layers.value(row).0, note(layers, row))
}

fn refusal(why: &Refused) -> (i32, &'static str) {
    match why {
        Refused::NoSuchOption => (ENOENT, "No such file or directory"),
        Refused::NotWhileRunning => (EPERM, "Operation not permitted"),
        Refused::Unfit(unfit) if unfit.errno == crate::errno::ERANGE => {
            (unfit.errno, "Numerical result out of range")
        }
        Refused::Unfit(_) => (EINVAL, "Invalid argument"),
    }
}

fn set(layers: &mut Layers, name: &str, text: &str, args: &Args) -> Answer {
    match layers.set_override(name, text) {
        Ok(row) => {
            let body = object! { "success" => changed(layers, row) };
            let warning = row.warning(&layers.identity().name).unwrap_or_default();
            Answer::json(args.format(), &body).with_status(warning)
        }
        Err(why) => {
            let (errno, what) = refusal(&why);
            let mut status = format!("error setting '{name}' to '{text}': ({errno}) {what}");
            if let Refused::Unfit(unfit) = why {
                status.push_str(&format!(": {unfit}"));
            }
            Answer::error(errno, status)
        }
    }
}

fn unset(layers: &mut Layers, name: &str, args: &Args) -> Answer {
    match layers.unset_override(name) {
        Ok(row) => {
            let status = row.map(|row| changed(layers, row)).unwrap_or_default();
            Answer::json(args.format(), &object! {}).with_status(status)
        }
        Err(_) => Answer::error(EINVAL, format!("error unsetting '{name}': (22) Invalid argument")),
    }
}

/// `--name value --other=value --flag --no-flag …`.
fn inject(layers: &mut Layers, text: &str, args: &Args) -> Answer {
    let mut words = text.split(' ').filter(|word| !word.is_empty()).peekable();
    let (mut done, mut left) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        let (name, given) = match word.strip_prefix("--").map(|rest| rest.split_once('=').ok_or(rest)) {
            Some(Ok((name, value))) => (normal_name(name), Some(value.to_owned())),
            Some(Err(name)) => (normal_name(name), None),
            None => {
                left.push(word);
                continue;
            }
        };
        let is_switch = |name: &str| table::find(name).is_some_and(|row| row.type_name == "bool");
        let (name, value) = match given {
            Some(value) => (name, value),
            None => match name.strip_prefix("no_").filter(|rest| is_switch(rest)) {
                Some(rest) => (rest.to_owned(), "false".into()),
                None if is_switch(&name) => (name, "true".into()),
                None => {
                    let value = words.next_if(|next| !next.starts_with("--")).unwrap_or_default().to_owned();
                    (name, value)
                }
            },
        };
        match layers.set_override(&name, &value) {
            Ok(row) => done.push(row),
            Err(Refused::NoSuchOption) => left.push(word),
            Err(why) => {
                let reason = match &why {
                    Refused::Unfit(unfit) => unfit.to_string(),
                    _ => format!("Configuration option '{name}' may not be modified at runtime"),
                };
                let status =
                    format!("Parse error setting {name} to '{value}' using injectargs ({reason}).\n");
                return Answer::error(refusal(&why).0, status);
            }
        }
    }
    if !left.is_empty() {
        return Answer::invalid(format!(" failed to parse arguments: {}\n", left.join(",")));
    }
    // As stock lists them: by name.
    done.sort_unstable_by_key(|row| row.name);
    let status: String = done.into_iter().map(|row| changed(layers, row)).collect();
    Answer::json(args.format(), &object! {}).with_status(status)
}

/// The option as `config help` shows it, in JSON.
pub fn describe(row: &'static Definition) -> Json {
    let bound = |text: &str| match row.parse_value(text) {
        Ok(value) if !text.is_empty() => row.json(&value),
        _ => "".into(),
    };
    let mut out = object! {
        "name" => row.name,
        "type" => row.type_name,
        "level" => row.level,
        "desc" => row.description,
        "long_desc" => effect(row),
        "default" => row.json(row.default()),
        "daemon_default" => "",
        "tags" => Json::Array(vec![]),
        "services" => Json::array(row.services()),
        "see_also" => Json::Array(vec![]),
    };
    if row.choices().next().is_some() {
        out.push("enum_values", Json::array(row.choices()));
    }
    out.push("min", bound(row.min));
    out.push("max", bound(row.max));
    out.push("can_update_at_runtime", row.can_update_at_runtime());
    out.push("flags", Json::array(row.flags()));
    out
}

/// The same for people.
pub fn describe_plain(row: &'static Definition) -> String {
    let mut out = format!("{} - {}\n  ({}, {})\n", row.name, row.description, row.type_name, row.level);
    let mut line = |text: String| out.push_str(&format!("  {text}\n"));
    line(format!("Default: {}", row.default()));
    if !(row.min.is_empty() && row.max.is_empty()) {
        line(format!("Minimum: {}", row.min));
        line(format!("Maximum: {}", row.max));
    }
    if row.choices().next().is_some() {
        line(format!("Possible values:  {}", row.choices().collect::<Vec<_>>().join(" ")));
    }
    line(format!("Can update at runtime: {}", row.can_update_at_runtime()));
    if row.services().next().is_some() {
        line(format!("Services: [{}]", row.services().collect::<Vec<_>>().join(",")));
    }
    out.push_str(&format!("\n{}\n", effect(row)));
    out
}

/// One sentence that names the daemons that act on the option.
fn effect(row: &Definition) -> String {
    match row.acts.is_empty() {
        true => "Stored and shown, but shoal does not act on it.".into(),
        false => format!("Acted on by {}, since shoal {}.", Actors(&row.acts), row.since),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Identity;
    use super::*;

    fn osd() -> Layers {
        let mut layers = Layers::new(Identity::named("osd.0"));
        layers.run();
        layers
    }

    fn ask(layers: &mut Layers, command: &str) -> Answer {
        let args = Args::parse(command).unwrap();
        answer(layers, &args.text("prefix").unwrap(), &args).unwrap()
    }

    fn set(layers: &mut Layers, name: &str, value: &str) -> Answer {
        let command =
            format!(r#"{{"prefix":"config set","var":"{name}","val":["{value}"],"format":"json"}}"#);
        ask(layers, &command)
    }

    fn inject(layers: &mut Layers, text: &str) -> Answer {
        let command = format!(r#"{{"prefix":"injectargs","injected_args":["{text}"],"format":"json"}}"#);
        ask(layers, &command)
    }

    fn body(answer: &Answer) -> &str {
        std::str::from_utf8(&answer.body).unwrap()
    }

    #[test]
    fn arguments_are_checked_against_the_signature() {
        let missing = ask(&mut osd(), r#"{"prefix":"config get"}"#);
        assert_eq!((missing.result, missing.status.as_str()), (-EINVAL, "missing required parameter: 'var'"));
        assert!(has("config diff get") && !has("config") && !has("config get name"));
    }

    #[test]
    fn config_set_answers_as_stock_and_warns() {
        let mut layers = osd();
        let live = set(&mut layers, "osd_heartbeat_grace", "30");
        assert_eq!((live.result, live.status.as_str()), (0, ""));
        assert_eq!(body(&live), r#"{"success":"osd_heartbeat_grace = '30' "}"#);
        let stored = set(&mut layers, "osd_recovery_max_active_hdd", "3");
        assert_eq!(stored.result, 0);
        assert_eq!(stored.status, "osd_recovery_max_active_hdd is stored, but shoal does not act on it");
        let unfit = set(&mut layers, "osd_recovery_max_active_hdd", "banana");
        assert_eq!(unfit.result, -EINVAL);
        assert!(
            unfit.status.starts_with(
                "error setting 'osd_recovery_max_active_hdd' to 'banana': (22) Invalid argument"
            )
        );
        let start = set(&mut layers, "osd_objectstore", "memstore");
        assert_eq!(
            (start.result, start.status.as_str()),
            (-EPERM, "error setting 'osd_objectstore' to 'memstore': (1) Operation not permitted")
        );
        let missing = set(&mut layers, "no_such", "1");
        assert_eq!(
            (missing.result, missing.status.as_str()),
            (-ENOENT, "error setting 'no_such' to '1': (2) No such file or directory")
        );
    }

    #[test]
    fn config_unset_names_the_value_that_holds_again() {
        let mut layers = osd();
        set(&mut layers, "osd_heartbeat_grace", "30");
        let unset = |layers: &mut Layers, name: &str| {
            ask(layers, &format!(r#"{{"prefix":"config unset","var":"{name}","format":"json"}}"#))
        };
        let first = unset(&mut layers, "osd_heartbeat_grace");
        assert_eq!((body(&first), first.status.as_str()), ("{}", "osd_heartbeat_grace = '20' "));
        assert_eq!(unset(&mut layers, "osd_heartbeat_grace").status, "");
        assert_eq!(unset(&mut layers, "no_such").result, -EINVAL);
    }

    #[test]
    fn injectargs_takes_every_form_of_argument() {
        let mut layers = osd();
        let two = inject(&mut layers, "--osd-recovery-max-active-hdd 9 --osd_heartbeat_grace=30");
        assert_eq!(two.result, 0);
        assert_eq!(
            two.status,
            "osd_heartbeat_grace = '30' osd_recovery_max_active_hdd = '9' (stored, not acted on by this daemon) "
        );
        assert_eq!(inject(&mut layers, "--no-shoal-balance-pgs").status, "shoal_balance_pgs = 'false' ");
        assert_eq!(inject(&mut layers, "--shoal_balance_pgs").status, "shoal_balance_pgs = 'true' ");
        assert_eq!(inject(&mut layers, "").result, 0);
        assert_eq!(inject(&mut layers, "nonsense").status, " failed to parse arguments: nonsense\n");
        assert_eq!(inject(&mut layers, "--no_such=3").result, -EINVAL);
        let unfit = inject(&mut layers, "--osd_recovery_max_active_hdd=banana");
        assert_eq!(
            unfit.status,
            "Parse error setting osd_recovery_max_active_hdd to 'banana' using injectargs \
            (strict_si_cast: unit prefix not recognized).\n"
        );
        assert_eq!(inject(&mut layers, "--osd_objectstore=memstore").result, -EPERM);
    }

    #[test]
    fn config_diff_shows_every_layer() {
        let mut layers = osd();
        layers.set_monitor(&[("osd_heartbeat_grace".to_owned(), "25".to_owned())].into());
        set(&mut layers, "osd_heartbeat_grace", "30");
        set(&mut layers, "osd_memory_target", "1G");
        let all = ask(&mut layers, r#"{"prefix":"config diff","format":"json"}"#);
        assert_eq!(
            body(&all),
            concat!(
                r#"{"diff":{"osd_heartbeat_grace":{"default":20,"mon":25,"override":30,"final":30},"#,
                r#""osd_memory_target":{"default":"4294967296","override":"1073741824","final":"1073741824"}}}"#
            )
        );
        let one =
            ask(&mut layers, r#"{"prefix":"config diff get","var":"osd_memory_target","format":"json"}"#);
        assert!(!body(&one).contains("grace") && body(&one).contains("osd_memory_target"));
    }

    #[test]
    fn config_help_says_who_acts() {
        let help = |name: &str| describe_plain(table::find(name).unwrap());
        assert!(help("osd_recovery_max_active_hdd").contains("shoal does not act on it"));
        assert!(
            help("osd_heartbeat_grace")
                .contains("Acted on by mon (live), mgr (live), osd (live), since shoal 0.1.")
        );
        let json = describe(table::find("osd_pool_default_size").unwrap()).compact();
        assert!(json.contains(r#""min":0,"max":10"#), "{json}");
    }
}
