//! The flags noup, nodown, noin and noout of one OSD: set for the cluster, for a CRUSH bucket above the OSD, for its
//! device class, or for the OSD itself.

use wire::types::osd_map::MapFlags;
use wire::types::{OsdMap, OsdState};

/// A change of an OSD's state that a flag holds back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Up,
    Down,
    In,
    Out,
}

impl Hold {
    /// In the order in which stock lists them.
    pub const ALL: [Hold; 4] = [Hold::Up, Hold::Down, Hold::In, Hold::Out];

    pub fn flag_name(self) -> &'static str {
        match self {
            Hold::Up => "noup",
            Hold::Down => "nodown",
            Hold::In => "noin",
            Hold::Out => "noout",
        }
    }

    /// The bit of an OSD, a CRUSH bucket or a device class.
    pub fn state_bit(self) -> u32 {
        match self {
            Hold::Up => OsdState::NOUP,
            Hold::Down => OsdState::NODOWN,
            Hold::In => OsdState::NOIN,
            Hold::Out => OsdState::NOOUT,
        }
    }

    fn cluster_flag(self) -> u32 {
        match self {
            Hold::Up => MapFlags::NOUP,
            Hold::Down => MapFlags::NODOWN,
            Hold::In => MapFlags::NOIN,
            Hold::Out => MapFlags::NOOUT,
        }
    }
}

/// True if a flag holds this change back for the OSD.
pub(crate) fn holds(map: &OsdMap, osd: i32, hold: Hold) -> bool {
    map.flags.has(hold.cluster_flag()) || local_flags(map, osd) & hold.state_bit() != 0
}

/// Flags of the OSD, of the buckets above it and of its device class.
fn local_flags(map: &OsdMap, osd: i32) -> u32 {
    let mut flags = map.osd(osd).map_or(0, |row| row.state.0);
    if !map.crush_node_flags.is_empty() {
        let ancestors = crate::crush::ancestors(&map.crush, osd);
        flags |= ancestors.iter().filter_map(|id| map.crush_node_flags.get(id)).fold(0, |all, set| all | set);
    }
    let class = map.crush.item_classes.get(&osd);
    flags | class.and_then(|class| map.device_class_flags.get(class)).copied().unwrap_or(0)
}
