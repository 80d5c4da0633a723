//! `config show` and `config show-with-defaults`: the options of a running daemon and where each comes from.
//! As `DaemonServer::_handle_command` of stock's manager prints them.

use super::View;
use command::options::{Source, normal_name};
use command::{Answer, Args, Json, errno, object};
use std::collections::BTreeMap;
use wire::text::{Align, Table};

pub(super) fn show(view: &View<'_>, args: &Args) -> Answer {
    let who = args.text("who").unwrap_or_default();
    let Some(config) = view.configs.get(&who) else { return unknown(&who) };
    let values = &config.reported.values;
    if let Some(key) = args.text("key") {
        let key = normal_name(&key);
        let value = values.get(&key).and_then(|levels| levels.values().next_back());
        return match value.or_else(|| config.defaults.get(&key)) {
            Some(value) => Answer::body(format!("{value}\n")),
            None => Answer::error(errno::ENOENT, ""),
        };
    }
    let is_ignored = |name: &str| config.reported.ignored.contains_key(name);
    let rows = values.iter().filter(|(_, levels)| !levels.is_empty());
    shown(rows.map(|(name, levels)| Row { name, levels, is_ignored: is_ignored(name) }).collect(), args)
}

pub(super) fn show_with_defaults(view: &View<'_>, args: &Args) -> Answer {
    let who = args.text("who").unwrap_or_default();
    let Some(config) = view.configs.get(&who) else { return unknown(&who) };
    let defaults: BTreeMap<&String, BTreeMap<i32, String>> = config
        .defaults
        .iter()
        .map(|(name, value)| (name, BTreeMap::from([(Source::Default as i32, value.clone())])))
        .collect();
    let rows = defaults.iter().map(|(name, default)| {
        let set = config.reported.values.get(*name).filter(|levels| !levels.is_empty());
        let is_ignored = config.reported.ignored.contains_key(*name);
        Row { name, levels: set.unwrap_or(default), is_ignored }
    });
    shown(rows.collect(), args)
}

fn unknown(who: &str) -> Answer {
    Answer::error(errno::ENOENT, format!("no config state for daemon {who}"))
}

struct Row<'a> {
    name: &'a str,
    /// By strength, the value that holds last; never empty.
    levels: &'a BTreeMap<i32, String>,
    /// The monitors' database has a value that the daemon does not use.
    is_ignored: bool,
}

impl Row<'_> {
    fn holds(&self) -> (&str, &'static str) {
        let (level, value) = self.levels.last_key_value().expect("a row has a value");
        (value, Source::name_of(*level))
    }

    /// Weaker layers that also set the option.
    fn overridden(&self) -> impl DoubleEndedIterator<Item = (&'static str, &str)> {
        let weaker = self.levels.len() - 1;
        self.levels.iter().take(weaker).map(|(level, value)| (Source::name_of(*level), value.as_str()))
    }
}

fn shown(rows: Vec<Row<'_>>, args: &Args) -> Answer {
    if args.format().is_plain() {
        let mut table = Table::default();
        for heading in ["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"] {
            table.column(heading, Align::Left);
        }
        for row in rows {
            let (value, source) = row.holds();
            // The strongest first; one that says the same as the value that holds, in parentheses.
            let overridden = row.overridden().rev().map(|(name, weaker)| match weaker == value {
                true => format!("({name}[{weaker}])"),
                false => format!("{name}[{weaker}]"),
            });
            let overridden = overridden.collect::<Vec<_>>().join(",");
            let ignores = if row.is_ignored { "mon" } else { "" };
            let cells = [row.name, value, source, &overridden, ignores];
            table.row(cells.map(str::to_owned));
        }
        return Answer::body(table.to_string());
    }
    let rows = rows.iter().map(|row| {
        let (value, source) = row.holds();
        let mut out = object! { "name" => row.name, "value" => value, "source" => source };
        if row.levels.len() > 1 {
            let weaker =
                row.overridden().map(|(source, value)| object! { "source" => source, "value" => value });
            out.push("overrides", Json::array(weaker));
        }
        if row.is_ignored {
            out.push("ignores", "mon");
        }
        out
    });
    Answer::json(args.format(), &Json::array(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PgMap;
    use crate::configs::Configs;
    use crate::progress::ProgressEvents;
    use command::options::{Identity, Layers};
    use machine::Random;
    use wire::types::{UTime, Uuid};

    fn ask(command: &str, run: fn(&View<'_>, &Args) -> Answer) -> Answer {
        let mut layers = Layers::new(Identity::named("osd.0"));
        layers.run();
        layers.fill(Source::File, [("osd_memory_target", "2G"), ("debug_osd", "1/1")]);
        let mon = [("debug_osd", "1"), ("osd_memory_target", "3G"), ("shoal_cores", "4")];
        layers.set_monitor(&mon.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        layers.set_override("osd_heartbeat_grace", "26").unwrap();
        let mut configs = Configs::default();
        configs.set_own("osd.0", &layers);
        let view = View {
            now: UTime::ZERO,
            fsid: Uuid::default(),
            pg_map: &PgMap::default(),
            configs: &configs,
            progress: &ProgressEvents::new(Random::from_number(1)),
            crashes: &Default::default(),
            balancer: &crate::balancer::Balancer::default(),
            services: &Default::default(),
            osd_rates: &|_| Default::default(),
            connected: &Default::default(),
            input: b"",
        };
        run(&view, &Args::parse(command).unwrap())
    }

    fn text(answer: &Answer) -> String {
        String::from_utf8(answer.body.to_vec()).unwrap()
    }

    #[test]
    fn config_show_names_source_overridden_and_ignored() {
        let plain = text(&ask(r#"{"who":"osd.0"}"#, show));
        let lines: Vec<Vec<&str>> = plain.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"]);
        assert!(lines.contains(&vec!["debug_osd", "1/1", "file", "(mon[1/1])"]), "{plain}");
        assert!(lines.contains(&vec!["osd_heartbeat_grace", "26", "override"]), "{plain}");
        assert!(
            lines.contains(&vec!["osd_memory_target", "2147483648", "file", "mon[3221225472]"]),
            "{plain}"
        );
        assert!(lines.contains(&vec!["shoal_cores", "1", "default", "mon"]), "{plain}");
        let json = text(&ask(r#"{"who":"osd.0","format":"json"}"#, show));
        assert!(json.contains(
            r#"{"name":"osd_memory_target","value":"2147483648","source":"file","overrides":[{"source":"mon","value":"3221225472"}]}"#
        ), "{json}");
    }

    #[test]
    fn config_show_of_one_option_falls_back_to_the_default() {
        assert_eq!(text(&ask(r#"{"who":"osd.0","key":"osd heartbeat grace"}"#, show)), "26\n");
        assert_eq!(text(&ask(r#"{"who":"osd.0","key":"osd_heartbeat_interval"}"#, show)), "6\n");
        assert_eq!(ask(r#"{"who":"osd.0","key":"nope"}"#, show).result, -errno::ENOENT);
        let absent = ask(r#"{"who":"osd.9"}"#, show);
        assert_eq!(
            (absent.result, absent.status.as_str()),
            (-errno::ENOENT, "no config state for daemon osd.9")
        );
    }

    #[test]
    fn show_with_defaults_lists_every_option() {
        let plain = text(&ask(r#"{"who":"osd.0"}"#, show_with_defaults));
        assert_eq!(plain.lines().count(), 1 + command::options::table::all().len());
        assert!(plain.contains("osd_heartbeat_interval"));
    }
}
