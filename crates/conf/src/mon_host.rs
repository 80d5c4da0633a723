//! The monitors that `mon_host` names.

use anyhow::Context;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use wire::types::{EntityAddr, EntityAddrVec};

const MONITOR_PORT: u16 = 3300;

/// Reads `[v2:A:P,v1:A:P] [v2:…]`, or hosts with or without a port, separated by commas, semicolons or blanks. Names
/// are resolved. Addresses of the old protocol (`v1:`) are left out.
///
/// # Errors
/// The text names no monitor that speaks msgr2, or a name does not resolve.
pub fn parse_mon_host(text: &str) -> anyhow::Result<Vec<EntityAddrVec>> {
    let mut out = Vec::new();
    for item in items(text) {
        if item.starts_with("v1:") {
            continue;
        }
        let plain = item.strip_prefix("v2:").or(item.strip_prefix("any:")).unwrap_or(item);
        let plain = plain.split_once('/').map_or(plain, |(addr, _nonce)| addr);
        let resolve = || -> std::io::Result<Vec<SocketAddr>> {
            if let Ok(addr) = plain.parse() {
                return Ok(vec![addr]);
            }
            match plain.contains(':') && plain.parse::<Ipv6Addr>().is_err() {
                true => plain.to_socket_addrs().map(Iterator::collect),
                false => (plain, MONITOR_PORT).to_socket_addrs().map(Iterator::collect),
            }
        };
        let addrs = resolve().with_context(|| format!("mon_host: {item} is not the address of a host"))?;
        out.extend(addrs.into_iter().map(|addr| EntityAddrVec(vec![EntityAddr::msgr2(addr, 0)])));
    }
    anyhow::ensure!(!out.is_empty(), "mon_host = '{text}' names no monitor that speaks msgr2");
    Ok(out)
}

/// The single addresses. Brackets around a list fall away; those of an IPv6 address stay.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let separators = |c: char| c == ',' || c == ';' || c.is_whitespace();
    text.split(separators).map(unbracketed).filter(|item| !item.is_empty())
}

fn unbracketed(item: &str) -> &str {
    let is_ipv6 = |rest: &str| rest.split(']').next().is_some_and(|addr| addr.parse::<Ipv6Addr>().is_ok());
    let item = item.strip_prefix('[').filter(|rest| !is_ipv6(rest)).unwrap_or(item);
    // The bracket of an IPv6 address closes in front of its port.
    if item.ends_with(']') && item.matches(']').count() > item.matches('[').count() {
        &item[..item.len() - 1]
    } else {
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitors(text: &str) -> Vec<String> {
        parse_mon_host(text).unwrap().iter().map(|a| a.to_string()).collect()
    }

    #[test]
    fn mon_host_takes_every_form_that_stock_takes() {
        let both = "[v2:127.0.0.1:3300,v1:127.0.0.1:6789] [v2:127.0.0.2:3300,v1:127.0.0.2:6789]";
        assert_eq!(monitors(both), ["v2:127.0.0.1:3300/0", "v2:127.0.0.2:3300/0"]);
        assert_eq!(monitors("[v2:1.1.1.1:1], [v2:[::1]:2]"), ["v2:1.1.1.1:1/0", "v2:[::1]:2/0"]);
        assert_eq!(monitors("10.0.0.1, 10.0.0.2:4000"), ["v2:10.0.0.1:3300/0", "v2:10.0.0.2:4000/0"]);
        assert_eq!(monitors("1.2.3.4:3300 v2:1.2.3.5:3300"), ["v2:1.2.3.4:3300/0", "v2:1.2.3.5:3300/0"]);
        assert_eq!(monitors("v2:10.0.0.1:3300/0;::1"), ["v2:10.0.0.1:3300/0", "v2:[::1]:3300/0"]);
        assert_eq!(monitors("[v1:[::2]:6789,v2:[::1]:2]"), ["v2:[::1]:2/0"]);
    }

    #[test]
    fn mon_host_without_a_msgr2_address_is_refused() {
        assert!(parse_mon_host("v1:10.0.0.1:6789").is_err());
        assert!(parse_mon_host("").is_err());
    }
}
