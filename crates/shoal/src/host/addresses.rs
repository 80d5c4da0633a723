//! The addresses of an OSD: one for clients and monitors, and one for other OSDs where those have a network of their own.

use super::identity;
use crate::config::{NetworkOptions, OsdStartOptions, ProcessOptions};
use anyhow::{Context, bail, ensure};
use command::options::{Layers, value};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;

/// Sockets that listen, and what peers are told of them.
pub struct Listening {
    pub listeners: Vec<TcpListener>,
    /// For clients, monitors and managers.
    pub public: SocketAddr,
    /// For other OSDs. The same as `public` if they have no network of their own.
    pub cluster: SocketAddr,
}

impl Listening {
    /// Listens where the options of the OSD `who` say.
    pub fn start(who: &str, layers: &Layers) -> anyhow::Result<Listening> {
        let networks = NetworkOptions::read(layers);
        let ports = port_range(&networks)?;
        let (public_addr, bind_addr) =
            (ProcessOptions::read(layers).public_addr, OsdStartOptions::read(layers).bind_addr);
        // An OSD with an address of its own needs none of a network.
        let from_network = match public_addr {
            None => own_address("public_network", &networks.public)?,
            Some(_) => None,
        };
        let (listener, public) = match (public_addr, from_network) {
            (None, Some(ip)) => listen_on_free_port(ip, &ports)?,
            (public_addr, _) => {
                let public = identity::address(who, "public_addr", public_addr.as_deref())?;
                let bind = match &bind_addr {
                    Some(addr) => identity::address(who, "bind_addr", Some(addr))?,
                    None => public,
                };
                (identity::listen(bind)?, public)
            }
        };
        let mut listening = Listening { listeners: vec![listener], public, cluster: public };
        let cluster = match cluster_addr(&networks)? {
            Some(addr) => Some(addr),
            None => own_address("cluster_network", &networks.cluster)?.map(|ip| (ip, 0)),
        };
        let is_apart = |(ip, port): &(IpAddr, u16)| *ip != public.ip() || ![0, public.port()].contains(port);
        if let Some((ip, port)) = cluster.filter(is_apart) {
            let (listener, addr) = match port {
                0 => listen_on_free_port(ip, &ports)?,
                port => (identity::listen((ip, port).into())?, (ip, port).into()),
            };
            listening.listeners.push(listener);
            listening.cluster = addr;
        }
        Ok(listening)
    }
}

/// `cluster_addr`, with port 0 if it names none.
pub fn cluster_addr(options: &NetworkOptions) -> anyhow::Result<Option<(IpAddr, u16)>> {
    match options.cluster_addr.as_deref().map(str::trim) {
        None | Some("" | "-") => Ok(None),
        Some(text) => {
            let addr = value::address(text);
            addr.map(Some)
                .with_context(|| format!("cluster_addr = {text} is no address: expected IP or IP:PORT"))
        }
    }
}

/// The address that this host has in the first of the networks that `option` lists. `None`: it lists none.
pub fn own_address(option: &str, text: &str) -> anyhow::Result<Option<IpAddr>> {
    let networks = value::networks(text)
        .with_context(|| format!("{option} = {text} is no list of networks such as 10.1.0.0/16"))?;
    if networks.is_empty() {
        return Ok(None);
    }
    let interfaces = if_addrs::get_if_addrs().context("this host's addresses cannot be listed")?;
    let own: Vec<IpAddr> = interfaces.iter().map(if_addrs::Interface::ip).collect();
    match first_within(&own, &networks) {
        Some(ip) => Ok(Some(ip)),
        None => bail!(
            "{option} = {text}, and this host has no address there; it has {}. Correct the option, or set the address itself \
             with {}",
            own.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
            option.replace("network", "addr")
        ),
    }
}

fn first_within(own: &[IpAddr], networks: &[IpNet]) -> Option<IpAddr> {
    networks.iter().find_map(|network| own.iter().copied().find(|ip| network.contains(ip)))
}

fn port_range(options: &NetworkOptions) -> anyhow::Result<RangeInclusive<u16>> {
    let port = |name: &str, number: i64| {
        u16::try_from(number).with_context(|| format!("{name} = {number} is no port"))
    };
    let first = port("ms_bind_port_min", options.port_min)?;
    let last = port("ms_bind_port_max", options.port_max)?;
    ensure!(0 < first && first <= last, "ms_bind_port_min = {first} to ms_bind_port_max = {last}: no port");
    Ok(first..=last)
}

fn listen_on_free_port(ip: IpAddr, ports: &RangeInclusive<u16>) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let mut last_error = None;
    for port in ports.clone() {
        match TcpListener::bind((ip, port)) {
            Ok(listener) => return Ok((listener, (ip, port).into())),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => last_error = Some(error),
            Err(error) => return Err(error).with_context(|| format!("cannot listen on {ip}")),
        }
    }
    let error = last_error.context("the range of ports is not empty")?;
    let (first, last) = (ports.start(), ports.end());
    Err(error).with_context(|| {
        format!("all ports of {ip} from ms_bind_port_min = {first} to ms_bind_port_max = {last} are in use")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::options::{Identity, Source};

    fn layers(options: &[(&str, &str)]) -> Layers {
        let mut layers = Layers::new(Identity::named("osd.0"));
        layers.fill(Source::File, options.iter().copied());
        layers
    }

    fn start(options: &[(&str, &str)]) -> anyhow::Result<Listening> {
        Listening::start("osd.0", &layers(options))
    }

    #[test]
    fn first_network_with_an_address_counts() {
        let own: Vec<IpAddr> =
            ["127.0.0.1", "10.0.0.5", "fd00::5", "10.1.0.5"].map(|ip| ip.parse().unwrap()).into();
        let found = |text| first_within(&own, &value::networks(text).unwrap()).map(|ip| ip.to_string());
        assert_eq!(found("10.1.0.0/16").as_deref(), Some("10.1.0.5"));
        assert_eq!(found("192.0.2.0/24, 10.0.0.0/8").as_deref(), Some("10.0.0.5"));
        assert_eq!(found("fd00::/8").as_deref(), Some("fd00::5"));
        assert_eq!(found("192.0.2.0/24"), None);
    }

    #[test]
    fn cluster_network_has_a_socket_of_its_own() {
        let one = start(&[("public_network", "127.0.0.0/8")]).unwrap();
        assert_eq!((one.listeners.len(), one.public), (1, one.cluster));
        assert!((6800..=7568).contains(&one.public.port()));

        let two = start(&[("public_network", "127.0.0.0/8"), ("cluster_addr", "127.0.0.2")]).unwrap();
        assert_eq!((two.listeners.len(), two.cluster.ip().to_string().as_str()), (2, "127.0.0.2"));
        assert_eq!(two.listeners[1].local_addr().unwrap(), two.cluster);
        assert_ne!(two.public, one.public, "the port is in use");

        let same = start(&[("public_network", "127.0.0.0/8"), ("cluster_network", "127.0.0.0/8")]).unwrap();
        assert_eq!((same.listeners.len(), same.public), (1, same.cluster), "one network is one socket");
    }

    #[test]
    fn unusable_networks_are_refused_with_the_option() {
        let refusal =
            |options: &[(&str, &str)]| format!("{:#}", start(options).err().expect("this cannot start"));
        assert!(refusal(&[]).contains("public_addr is not set for osd.0"));
        let public = ("public_network", "127.0.0.0/8");
        let away = refusal(&[public, ("cluster_network", "203.0.113.0/24")]);
        assert!(away.contains("203.0.113.0/24") && away.contains("127.0.0.1"), "{away}");
        assert!(refusal(&[public, ("cluster_addr", "v1:127.0.0.1:6800")]).contains("is no address"));
        let ports = [public, ("ms_bind_port_min", "70000"), ("ms_bind_port_max", "70001")];
        assert!(refusal(&ports).contains("ms_bind_port_min = 70000"));

        let taken = TcpListener::bind("127.0.0.3:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let full = [
            public,
            ("cluster_addr", "127.0.0.3"),
            ("ms_bind_port_min", port.as_str()),
            ("ms_bind_port_max", port.as_str()),
        ];
        assert!(refusal(&full).contains("are in use"), "{}", refusal(&full));
    }
}
