//! Other hosts that take part in a run, and the way to reach them.

/// Hosts that make the load (each the whole of a point's `clients`), or that are only watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherHosts {
    /// As ssh takes them: `HOST` or `USER@HOST`.
    pub hosts: Vec<String>,
    /// The program that reaches a host, with its options. The host and a command line follow.
    pub ssh: Vec<String>,
    /// Path of shoal's binary there.
    pub shoal: String,
}

impl OtherHosts {
    pub fn new(hosts: Vec<String>) -> Result<OtherHosts, String> {
        // What begins with a dash would be an option of ssh.
        let is_host = |host: &String| {
            !host.is_empty()
                && !host.starts_with('-')
                && host.chars().all(|c| c.is_ascii_alphanumeric() || "@.-_:[]%".contains(c))
        };
        if hosts.is_empty() {
            return Err("hosts are missing: `hosts: [a, b]`".into());
        }
        if let Some(wrong) = hosts.iter().find(|host| !is_host(host)) {
            return Err(format!("{wrong} is no host"));
        }
        let options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5"];
        let ssh = std::iter::once("ssh").chain(options).map(str::to_owned).collect();
        Ok(OtherHosts { hosts, ssh, shoal: "shoal".into() })
    }
}
