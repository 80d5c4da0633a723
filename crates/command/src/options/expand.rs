//! Variables in values: `$name`, `$id`, `$type`, `$cluster`, `$pid`, `$host`, and the names of other options.

use super::table::{Daemon, normal_name};

/// The process that reads the configuration.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `osd.3`, `client.admin`.
    pub name: String,
    pub cluster: String,
    pub host: String,
    pub pid: u32,
}

impl Identity {
    /// A process whose host and number do not matter: a machine in a test or a simulation.
    pub fn named(name: &str) -> Identity {
        Identity { name: name.into(), cluster: "ceph".into(), host: String::new(), pid: 0 }
    }

    /// The part before the first dot: `osd`.
    pub fn kind(&self) -> &str {
        self.name.split_once('.').map_or(self.name.as_str(), |(kind, _)| kind)
    }

    pub fn daemon(&self) -> Option<Daemon> {
        Daemon::parse(self.kind())
    }

    /// The part after the first dot: `3`.
    pub fn id(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, id)| id)
    }
}

/// Options may name one another; a loop stops here and what is left stays as written.
const DEPTH_MAX: usize = 10;

/// `value` with every `$word` and `${word}` replaced; an unknown word stays as it is, as Ceph leaves it.
pub fn expand(value: &str, who: &Identity, other: &dyn Fn(&str) -> Option<String>) -> String {
    expand_at(value, who, other, 0)
}

fn expand_at(value: &str, who: &Identity, other: &dyn Fn(&str) -> Option<String>, depth: usize) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (word, tail) = match after.strip_prefix('{') {
            Some(braced) => match braced.split_once('}') {
                Some(parts) => parts,
                None => ("", after),
            },
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                after.split_at(end)
            }
        };
        let found = match word {
            "" => None,
            "name" => Some(who.name.clone()),
            "type" => Some(who.kind().to_owned()),
            "id" => Some(who.id().to_owned()),
            "cluster" => Some(who.cluster.clone()),
            "host" => Some(who.host.clone()),
            "pid" => Some(who.pid.to_string()),
            _ if depth < DEPTH_MAX => {
                other(&normal_name(word)).map(|value| expand_at(&value, who, other, depth + 1))
            }
            _ => None,
        };
        match found {
            Some(text) => out.push_str(&text),
            None => out.push_str(&rest[at..rest.len() - tail.len()]),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osd() -> Identity {
        Identity { name: "osd.3".into(), cluster: "ceph".into(), host: "hull".into(), pid: 77 }
    }

    #[test]
    fn unknown_words_stay_as_written() {
        let none = |_: &str| None;
        assert_eq!(expand("/run/$cluster-$name.$pid.asok", &osd(), &none), "/run/ceph-osd.3.77.asok");
        assert_eq!(expand("${type}_${id} on $host", &osd(), &none), "osd_3 on hull");
        assert_eq!(expand("$5 and $who ${open", &osd(), &none), "$5 and $who ${open");
    }

    #[test]
    fn options_name_one_another_up_to_a_depth() {
        let other = |word: &str| match word {
            "run_dir" => Some("/run/$cluster".to_owned()),
            "loop" => Some("$loop".to_owned()),
            _ => None,
        };
        assert_eq!(expand("$run_dir/x", &osd(), &other), "/run/ceph/x");
        assert_eq!(expand("$loop", &osd(), &other), "$loop");
    }
}
