//! A plan of the balancer: its commands, and the map that they lead to.

use command::{Json, object};
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::types::{OsdMap, PgId};

/// Upmaps or primaries, and the cluster that they were made for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub mode: &'static str,
    /// Empty: all.
    pub pools: Vec<String>,
    pub epoch: u32,
    pub crush_version: u32,
    /// Pairs of OSDs, from and to; none: the PG's exception ends.
    pub upmaps: BTreeMap<PgId, Vec<(i32, i32)>>,
    /// Primaries; none: the PG's exception ends.
    pub primaries: BTreeMap<PgId, Option<i32>>,
}

impl Plan {
    pub fn applied_to(&self, map: &OsdMap) -> OsdMap {
        let mut next = map.clone();
        placement::balance::apply(&self.upmaps, &mut next);
        placement::balance::apply_primaries(&self.primaries, &mut next);
        next
    }

    fn ended(&self) -> impl Iterator<Item = &PgId> {
        self.upmaps.iter().filter(|(_, items)| items.is_empty()).map(|(pg, _)| pg)
    }

    fn made(&self) -> impl Iterator<Item = (&PgId, &Vec<(i32, i32)>)> {
        self.upmaps.iter().filter(|(_, items)| !items.is_empty())
    }

    /// As a person types them, with the state of the cluster before.
    pub fn commands_text(&self) -> String {
        let mut text = format!(
            "# starting osdmap epoch {}\n# starting crush version {}\n# mode {}\n",
            self.epoch, self.crush_version, self.mode
        );
        for pg in self.ended() {
            let _ = writeln!(text, "ceph osd rm-pg-upmap-items {pg}");
        }
        for (pg, items) in self.made() {
            let osds: Vec<String> = items.iter().map(|(from, to)| format!("{from} {to}")).collect();
            let _ = writeln!(text, "ceph osd pg-upmap-items {pg} {}", osds.join(" "));
        }
        for (pg, primary) in &self.primaries {
            let _ = match primary {
                Some(osd) => writeln!(text, "ceph osd pg-upmap-primary {pg} {osd}"),
                None => writeln!(text, "ceph osd rm-pg-upmap-primary {pg}"),
            };
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// As the monitors take them.
    pub fn commands(&self) -> Vec<Json> {
        let ended = self.ended().map(|pg| {
            object! { "prefix" => "osd rm-pg-upmap-items", "pgid" => pg.to_string() }
        });
        let made = self.made().map(|(pg, items)| {
            let osds = items.iter().flat_map(|(from, to)| [i64::from(*from), i64::from(*to)]);
            object! { "prefix" => "osd pg-upmap-items", "pgid" => pg.to_string(), "id" => Json::array(osds) }
        });
        let primaries = self.primaries.iter().map(|(pg, primary)| match primary {
            Some(osd) => {
                let osd = format!("osd.{osd}");
                object! { "prefix" => "osd pg-upmap-primary", "pgid" => pg.to_string(), "id" => osd }
            }
            None => object! { "prefix" => "osd rm-pg-upmap-primary", "pgid" => pg.to_string() },
        });
        made.chain(ended).chain(primaries).collect()
    }

    pub fn json(&self) -> Json {
        let made = self.made().map(|(pg, items)| {
            let mappings = items.iter().map(|(from, to)| object! { "from" => *from, "to" => *to });
            object! { "pgid" => pg.to_string(), "mappings" => Json::array(mappings) }
        });
        let new_primaries = self.primaries.iter().filter_map(|(pg, primary)| {
            Some(object! { "pgid" => pg.to_string(), "primary_osd" => (*primary)? })
        });
        let old_primaries = self.primaries.iter().filter(|(_, primary)| primary.is_none());
        object! {
            "epoch" => self.epoch + 1,
            "new_pg_upmap_items" => Json::array(made),
            "old_pg_upmap_items" => Json::array(self.ended().map(PgId::to_string)),
            "new_pg_upmap_primaries" => Json::array(new_primaries),
            "old_pg_upmap_primaries" => Json::array(old_primaries.map(|(pg, _)| pg.to_string())),
        }
    }
}
