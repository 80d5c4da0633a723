//! Disks, cards, and the ways to them: slots, NUMA nodes, MTU, round trips, and disks that differ from their peers.

use super::Finding;
use super::Severity::{Bad, Good, Unknown, Warning};
use super::inventory::{Device, HostInventory};
use super::probe::Probes;
use crate::judge::stats::median;
use std::collections::BTreeMap;

/// Tolerated distance of a disk from the median of its peers.
const PEER_SPREAD: f64 = 0.15;

pub fn all(host: &HostInventory, probes: &Probes) -> Vec<Finding> {
    let mut out = vec![slots(host), numa(host), mtu(host)];
    out.extend(
        [pings(probes), streams(host, probes), sync_writes(probes), peers(probes)].into_iter().flatten(),
    );
    out
}

fn real_devices(f: &HostInventory) -> impl Iterator<Item = &Device> {
    f.disks.iter().chain(&f.cards)
}

pub fn slots(f: &HostInventory) -> Finding {
    let why = "a fast device in a slow slot is a slow device, and nothing else tells";
    let slow: Vec<String> = real_devices(f)
        .filter_map(|d| Some((d, d.link?)))
        .filter(|(_, l)| l.speed < l.speed_max || l.width < l.width_max)
        .map(|(d, l)| {
            format!("{}: {} GT/s x{} of {} GT/s x{}", d.name, l.speed, l.width, l.speed_max, l.width_max)
        })
        .collect();
    let (severity, measured) = match (real_devices(f).any(|d| d.link.is_some()), slow.is_empty()) {
        (false, _) => (Unknown, "no device shows a PCIe link".to_owned()),
        (_, true) => (Good, "every link runs as fast and as wide as its device can".to_owned()),
        _ => (Bad, slow.join("; ")),
    };
    Finding::new(
        "pcie",
        severity,
        measured,
        "what the device can do",
        why,
        "another slot or riser; the board's manual tells which slots are wide, and firmware which generation is allowed",
    )
}

pub fn numa(f: &HostInventory) -> Finding {
    let why = "data that crosses between sockets pays for it twice";
    let node = |d: &Device| d.numa_node.filter(|n| *n >= 0);
    let of_cards: Vec<i64> = f.cards.iter().filter_map(node).collect();
    let away: Vec<&str> = f
        .disks
        .iter()
        .filter(|d| node(d).is_some_and(|n| !of_cards.contains(&n)))
        .map(|d| d.name.as_str())
        .collect();
    let (severity, measured) = match (f.numa_nodes, of_cards.is_empty(), away.is_empty()) {
        (0 | 1, ..) => (Good, "one NUMA node".to_owned()),
        (_, true, _) => (Unknown, "no card tells its node".to_owned()),
        (_, _, true) => (Good, "disks and cards share their nodes".to_owned()),
        _ => (Warning, format!("on another node than any network card: {}", away.join(", "))),
    };
    Finding::new(
        "numa",
        severity,
        measured,
        "disk, card and OSD on one node",
        why,
        "move a card to the other socket's slot, or pin OSDs to their disk's node",
    )
}

pub fn mtu(f: &HostInventory) -> Finding {
    let why =
        "larger frames help large transfers; hosts that differ lose frames. Measure: it is not always better";
    let fast: Vec<&Device> = f.cards.iter().filter(|c| c.speed_mbit.is_some_and(|s| s >= 10_000)).collect();
    let mut sizes: Vec<u64> = fast.iter().filter_map(|c| c.mtu).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (severity, measured) = match sizes.as_slice() {
        [] => (Unknown, "no card of 10 Gbit/s or more is up".to_owned()),
        [one] => (Good, one.to_string()),
        several => (Warning, format!("differs between cards: {several:?}")),
    };
    Finding::new(
        "mtu",
        severity,
        measured,
        "the same everywhere, switch included",
        why,
        "ip link set DEVICE mtu 9000 on every host and the switch, or 1500 on all",
    )
}

pub fn pings(p: &Probes) -> Vec<Finding> {
    let why = "a write waits for two round trips, one to the primary and one to its peers; nine of ten slow clusters \
               are slow here";
    let one = |ping: &super::probe::Ping| {
        let mid = median(&ping.round_trips_ms);
        let worst = ping.round_trips_ms.iter().copied().fold(0.0, f64::max);
        let mut sorted = ping.round_trips_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let p95 = sorted.get(sorted.len() * 95 / 100).copied().unwrap_or(0.0);
        let lost = ping.sent.saturating_sub(ping.round_trips_ms.len());
        let severity = match (ping.round_trips_ms.is_empty() || lost * 20 > ping.sent, mid) {
            (true, _) => Bad,
            (_, ms) if ms > 0.15 => Bad,
            (_, ms) if ms > 0.08 => Warning,
            _ => Good,
        };
        let measured = match ping.round_trips_ms.is_empty() {
            true => format!("{} does not answer", ping.host),
            false => format!(
                "{}: median {mid:.3} ms, 95th percentile {p95:.3}, worst {worst:.3}, {lost} of {} lost",
                ping.host, ping.sent
            ),
        };
        Finding::new(
            "ping",
            severity,
            measured,
            "0.05 to 0.07 ms",
            why,
            "idle states and governor first; then fewer switches in between, faster links, interrupt coalescing off",
        )
    };
    p.pings.iter().map(one).collect()
}

pub fn streams(f: &HostInventory, p: &Probes) -> Vec<Finding> {
    let why = "one TCP stream fills about 40 Gbit/s; four show what the link can do";
    let link = f.cards.iter().filter_map(|c| c.speed_mbit).max().map(|s| s as f64 / 1e3).filter(|s| *s > 0.0);
    let one = |(host, streams, gbit): &(String, u32, f64)| {
        let wanted = link.map(|l| (l * 0.8).min(f64::from(*streams) * 35.0));
        let severity = match wanted {
            None => Unknown,
            Some(wanted) if *gbit >= wanted => Good,
            Some(_) => Warning,
        };
        let expected = wanted.map_or("unknown link rate".into(), |w| format!("{w:.0} Gbit/s and more"));
        Finding::new(
            "tcp",
            severity,
            format!("{host}: {gbit:.1} Gbit/s with {streams} streams"),
            expected,
            why,
            "socket buffers, MTU, interrupt affinity to the card's NUMA node",
        )
    };
    p.streams.iter().map(one).collect()
}

pub fn sync_writes(p: &Probes) -> Vec<Finding> {
    let why = "an OSD's log is written like this; a disk without power-loss protection waits for its flash";
    let single = p.disks.iter().filter(|d| d.jobs == 1);
    let one = |d: &super::probe::Disk| {
        let at = |jobs| {
            p.disks.iter().find(|o| o.path == d.path && o.jobs == jobs).map_or(0.0, |o| o.writes_per_s)
        };
        let severity = match d.writes_per_s {
            r if r < 1000.0 => Bad,
            r if r < 10_000.0 => Warning,
            _ => Good,
        };
        let measured = format!(
            "{}: {:.0} a second with 1 job, {:.0} with 4, {:.0} with 16",
            d.path.display(),
            d.writes_per_s,
            at(4),
            at(16)
        );
        Finding::new(
            "sync-writes",
            severity,
            measured,
            "10 thousand and more with 1 job (good NVMe: 60 to 90)",
            why,
            "drives with power-loss protection; firmware and power settings of the drive",
        )
    };
    single.map(one).collect()
}

/// Disks of one model are compared with their median, either way: an outlier that looks fast may be the only one that is
/// right, or one that does not flush.
pub fn peers(p: &Probes) -> Vec<Finding> {
    let mut models: BTreeMap<&str, Vec<&super::probe::Disk>> = BTreeMap::new();
    for disk in p.disks.iter().filter(|d| d.jobs == 1) {
        models.entry(&disk.model).or_default().push(disk);
    }
    models
        .into_iter()
        .filter(|(_, disks)| disks.len() >= 3)
        .map(|(model, disks)| one_model(model, &disks))
        .collect()
}

fn one_model(model: &str, disks: &[&super::probe::Disk]) -> Finding {
    let mid = median(&disks.iter().map(|d| d.writes_per_s).collect::<Vec<f64>>());
    let off = |d: &super::probe::Disk| d.writes_per_s / mid - 1.0;
    let out: Vec<String> = disks
        .iter()
        .filter(|d| off(d).abs() > PEER_SPREAD)
        .map(|d| format!("{} {:+.0} %", d.path.display(), off(d) * 100.0))
        .collect();
    let model = if model.is_empty() { String::new() } else { format!(" ({model})") };
    let (severity, measured) = match out.is_empty() {
        true => (
            Good,
            format!("{} disks within {:.0} % of their median{model}", disks.len(), PEER_SPREAD * 100.0),
        ),
        false => (Bad, format!("{}{model}", out.join("; "))),
    };
    Finding::new(
        "peers",
        severity,
        measured,
        "alike",
        "one slow disk slows every PG it serves; one that is far too fast may not keep what it promised",
        "compare firmware, slot, wear (smartctl) and temperature of the disks named",
    )
}
