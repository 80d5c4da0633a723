//! `device …`: the disks below the daemons' data, by the identities that the daemons told at their start.
//!
//! Stock's manager answers these. Here the monitor does, which keeps what daemons told. A disk without an identity is not
//! listed, as on stock: nobody could recognise it in another slot.

use super::{Answer, Command, Ctx, Outcome, commands};
use command::errno::ENOENT;
use command::{Json, object};
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::text::{Align, Table};

pub(super) const COMMANDS: &[Command] = commands! {
    "device ls", "Show devices", "mgr", "r", ls;
    "device info name=devid,type=CephString", "Show information about a device", "mgr", "r", info;
    "device ls-by-daemon name=who,type=CephString", "Show devices associated with a daemon", "mgr", "r", ls_by_daemon;
    "device ls-by-host name=host,type=CephString", "Show devices on a host", "mgr", "r", ls_by_host;
};

/// A disk: where it is, and whose data is on it.
#[derive(Default)]
struct Device {
    places: Vec<Place>,
    daemons: Vec<String>,
}

#[derive(PartialEq, Eq)]
struct Place {
    host: String,
    name: String,
    path: String,
}

impl Device {
    fn json(&self, id: &str) -> Json {
        let places = self.places.iter().map(|place| {
            object! { "host" => place.host.as_str(), "dev" => place.name.as_str(), "path" => place.path.as_str() }
        });
        object! {
            "devid" => id,
            "location" => Json::array(places),
            "daemons" => Json::array(self.daemons.iter().map(String::as_str)),
        }
    }
}

/// `NAME=VALUE,…` by name.
fn pairs<'a>(fields: &'a BTreeMap<String, String>, field: &str) -> BTreeMap<&'a str, &'a str> {
    fields
        .get(field)
        .into_iter()
        .flat_map(|text| text.split(','))
        .filter_map(|pair| pair.split_once('='))
        .collect()
}

/// Every daemon with what it told.
fn daemons<'a>(ctx: &'a Ctx<'_>) -> impl Iterator<Item = (String, &'a BTreeMap<String, String>)> {
    let mons = ctx.state.mon_metadata.iter().map(|(name, fields)| (format!("mon.{name}"), fields));
    let osds = ctx.state.osd.metadata.iter().map(|(osd, fields)| (format!("osd.{osd}"), fields));
    mons.chain(osds)
}

/// Devices by identity.
fn devices(ctx: &Ctx<'_>) -> BTreeMap<String, Device> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    for (daemon, fields) in daemons(ctx) {
        let paths = pairs(fields, "device_paths");
        for (name, id) in pairs(fields, "device_ids") {
            if id.is_empty() {
                continue;
            }
            let device = devices.entry(id.to_owned()).or_default();
            let place = Place {
                host: fields.get("hostname").cloned().unwrap_or_default(),
                name: name.to_owned(),
                path: paths.get(name).copied().unwrap_or_default().to_owned(),
            };
            if !device.places.contains(&place) {
                device.places.push(place);
            }
            device.daemons.push(daemon.clone());
        }
    }
    devices
}

fn table(headings: &[&'static str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::default();
    for heading in headings {
        table.column(*heading, Align::Left);
    }
    for row in rows {
        table.row(row);
    }
    table.to_string()
}

fn show(
    ctx: &Ctx<'_>,
    devices: &BTreeMap<String, Device>,
    headings: &[&'static str],
    row: impl Fn(&str, &Device) -> Vec<String>,
) -> Answer {
    let json = || Json::array(devices.iter().map(|(id, device)| device.json(id)));
    ctx.show(json, || table(headings, devices.iter().map(|(id, device)| row(id, device))))
}

fn places(device: &Device, separator: &str) -> String {
    let places: Vec<String> =
        device.places.iter().map(|place| format!("{}:{}", place.host, place.name)).collect();
    places.join(separator)
}

fn ls(ctx: &mut Ctx<'_>) -> Outcome {
    let headings = ["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"];
    Ok(show(ctx, &devices(ctx), &headings, |id, device| {
        vec![id.to_owned(), places(device, " "), device.daemons.join(" "), String::new(), String::new()]
    }))
}

fn info(ctx: &mut Ctx<'_>) -> Outcome {
    let id = ctx.args.required("devid")?;
    let devices = devices(ctx);
    let device = devices.get(&id).ok_or_else(|| Answer::error(ENOENT, format!("device {id} not found")))?;
    let plain = || {
        let mut text = format!("device {id}\n");
        for place in &device.places {
            let _ = writeln!(text, "attachment {} {} {}", place.host, place.name, place.path);
        }
        for daemon in &device.daemons {
            let _ = writeln!(text, "daemons {daemon}");
        }
        text
    };
    Ok(ctx.show(|| device.json(&id), plain))
}

fn ls_by_daemon(ctx: &mut Ctx<'_>) -> Outcome {
    let who = ctx.args.required("who")?;
    if !daemons(ctx).any(|(name, _)| name == who) {
        return Err(Answer::error(ENOENT, format!("daemon {who} not found")));
    }
    let mut devices = devices(ctx);
    devices.retain(|_, device| device.daemons.contains(&who));
    let headings = ["DEVICE", "HOST:DEV", "EXPECTED FAILURE"];
    Ok(show(ctx, &devices, &headings, |id, device| vec![id.to_owned(), places(device, " "), String::new()]))
}

fn ls_by_host(ctx: &mut Ctx<'_>) -> Outcome {
    let host = ctx.args.required("host")?;
    let mut devices = devices(ctx);
    devices.retain(|_, device| device.places.iter().any(|place| place.host == host));
    let headings = ["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"];
    Ok(show(ctx, &devices, &headings, |id, device| {
        let names = device.places.iter().filter(|place| place.host == host).map(|place| place.name.as_str());
        vec![id.to_owned(), names.collect::<Vec<_>>().join(" "), device.daemons.join(" "), String::new()]
    }))
}
