//! Values of the monitors' database that fit their option and would still keep this daemon from starting.
//!
//! The table of options refuses what no daemon can read. Whether authentication options agree, a directory exists or
//! an address is one of this host's is known here only. Such a value from the database gives way to the next layer, so
//! that one `ceph config set` cannot keep a whole cluster down. From `ceph.conf` or the command line it is an error.

use crate::cluster::layout::parse_addr;
use crate::config::{NetworkOptions, OsdStartOptions, ProcessOptions, SessionOptions};
use crate::host::{addresses, identity};
use anyhow::{Context, ensure};
use command::options::{Daemon, Layers, find};
use rustix::fs::{Access, access};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// A condition of a start: the options that it depends on, and its test.
type Check = (&'static [&'static str], fn(&Layers) -> anyhow::Result<()>);

const CHECKS: &[Check] = &[
    (&["auth_client_required", "auth_cluster_required", "auth_service_required"], |layers| {
        identity::uses_cephx(&SessionOptions::read(layers)).map(drop)
    }),
    (&["admin_socket"], |layers| has_directory(ProcessOptions::read(layers).admin_socket)),
    (&["log_file"], |layers| has_directory(ProcessOptions::read(layers).log_file)),
    (&["pid_file"], |layers| has_directory(ProcessOptions::read(layers).pid_file)),
    (&["metrics_addr"], |layers| can_listen(ProcessOptions::read(layers).metrics_addr)),
    (&["public_addr"], |layers| {
        let is_osd = layers.identity().daemon() == Some(Daemon::Osd);
        let bind_addr = is_osd.then(|| OsdStartOptions::read(layers).bind_addr).flatten();
        can_listen(ProcessOptions::read(layers).public_addr.filter(|_| bind_addr.is_none()))
    }),
    (&["cluster_addr"], |layers| {
        let addr = addresses::cluster_addr(&NetworkOptions::read(layers))?;
        can_listen(addr.map(|(ip, port)| SocketAddr::new(ip, port).to_string()))
    }),
    (&["cluster_network"], |layers| {
        addresses::own_address("cluster_network", &NetworkOptions::read(layers).cluster).map(drop)
    }),
    (&["public_network"], |layers| {
        addresses::own_address("public_network", &NetworkOptions::read(layers).public).map(drop)
    }),
];

/// Leaves out the database's values that the daemon cannot start with. Returns a line about each.
pub fn drop_unusable(layers: &mut Layers) -> Vec<String> {
    let mut lines = Vec::new();
    for (names, check) in CHECKS {
        // A value of another source fails where it is used, with that place's error.
        let matters = |name: &str| {
            let acts = find(name).is_some_and(|row| layers.acts_on(row).is_some());
            acts && layers.is_from_monitors(name)
        };
        if !names.iter().any(|name| matters(name)) {
            continue;
        }
        if let Err(why) = check(layers) {
            for name in *names {
                let dropped = layers.drop_monitor_value(name);
                lines.extend(dropped.map(|value| format!("{name} = {value} is not used: {why:#}")));
            }
        }
    }
    lines
}

fn has_directory(path: Option<PathBuf>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(!path.is_dir(), "{} is a directory", path.display());
    let directory = parent.display();
    ensure!(parent.is_dir(), "there is no directory {directory}");
    access(parent, Access::WRITE_OK).with_context(|| format!("cannot write to {directory}"))
}

fn can_listen(addr: Option<String>) -> anyhow::Result<()> {
    let Some(addr) = addr.as_deref().map(parse_addr).transpose()? else { return Ok(()) };
    TcpListener::bind(addr).map(drop).with_context(|| format!("cannot listen on {addr}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::options::{Identity, Source};

    fn osd(stored: &[(&str, &str)], file: &[(&str, &str)]) -> Layers {
        let mut layers = Layers::new(Identity::named("osd.0"));
        layers.fill(Source::File, file.iter().copied());
        let stored = stored.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(layers.set_monitor(&stored.collect()), []);
        layers
    }

    #[test]
    fn unusable_values_of_the_database_give_way() {
        let mut layers = osd(
            &[
                ("auth_client_required", "none"),
                ("log_file", "/no/such/directory/log"),
                ("metrics_addr", "203.0.113.7:9283"),
                ("pid_file", "/proc/1/pid"),
                ("public_addr", "203.0.113.7:6800"),
            ],
            &[],
        );
        let lines = drop_unusable(&mut layers);
        assert!(lines[0].starts_with("auth_client_required = none is not used: auth_cluster_required, "));
        assert_eq!(
            lines[1],
            "log_file = /no/such/directory/log is not used: there is no directory /no/such/directory"
        );
        assert!(lines[3].starts_with("metrics_addr = 203.0.113.7:9283 is not used: cannot listen on 203"));
        assert_eq!(lines.len(), 5);
        assert_eq!(layers.report().values.len(), 0);
        assert!(identity::uses_cephx(&SessionOptions::read(&layers)).unwrap());
    }

    #[test]
    fn values_that_the_daemon_does_not_act_on_stay() {
        let mut layers = Layers::new(Identity::named("mgr.a"));
        layers.set_monitor(&[("pid_file".to_owned(), "/no/such/directory/pid".to_owned())].into());
        assert_eq!(drop_unusable(&mut layers), Vec::<String>::new());
    }

    #[test]
    fn usable_values_of_the_database_stay() {
        let none = ["auth_client_required", "auth_cluster_required", "auth_service_required"];
        let mut layers = osd(&none.map(|name| (name, "none")), &[]);
        assert_eq!(drop_unusable(&mut layers), Vec::<String>::new());
        assert!(!identity::uses_cephx(&SessionOptions::read(&layers)).unwrap());
    }

    #[test]
    fn unusable_values_of_the_file_stay_errors() {
        let mut layers = osd(&[("log_file", "/tmp/log")], &[("log_file", "/no/such/directory/log")]);
        assert_eq!(drop_unusable(&mut layers), Vec::<String>::new());
        assert_eq!(ProcessOptions::read(&layers).log_file, Some("/no/such/directory/log".into()));
    }
}
