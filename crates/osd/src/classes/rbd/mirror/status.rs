//! The status of mirrored images, as each site reports it. A status is up while the client that wrote it watches.
//!
//! The key of the local site's status has the image's global id; the key of another site's status also has the site's
//! uuid. Listings read the statuses of all their images in batches, and a summary reads each table once.

use super::images;
use crate::classes::rbd::{MethodResult, ignore_missing};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use wire::types::cls::rbd::{
    DIRECTION_RX, DIRECTION_RX_TX, DIRECTION_TX, IMAGE_ENABLED, MirrorImage, MirrorPeer, MirrorSiteStatus,
    MirrorStatus, STATUS_ERROR, STATUS_UNKNOWN, StatusOrigin, StoredSiteStatus,
};
use wire::types::{EntityInst, EntityName, Name};

const LOCAL_PREFIX: &str = "status_global_";
const REMOTE_PREFIX: &str = "remote_status_global_";
/// Sites that are considered for one image.
const SITES_MAX: usize = 64;
/// Images whose statuses are read in one wait.
const BATCH: usize = 128;

/// Clients that watch the object; the protocol of an address does not matter.
struct Watchers(BTreeSet<(EntityName, u32, Option<SocketAddr>)>);

impl Watchers {
    fn of(call: &MethodCall<'_>) -> Watchers {
        let identity = |(key, watch): (&(u64, EntityName), &wire::types::WatchInfo)| {
            (key.1, watch.addr.nonce, watch.addr.socket)
        };
        Watchers(call.context.watchers.iter().map(identity).collect())
    }

    fn contain(&self, StatusOrigin(origin): &StatusOrigin) -> bool {
        self.0.contains(&(origin.name, origin.addr.nonce, origin.addr.socket))
    }

    /// A stored status for a reader.
    fn present(&self, value: &[u8], mirror_uuid: &[u8]) -> Result<MirrorSiteStatus, MethodStop> {
        let StoredSiteStatus { origin, status } = omap::stored(value)?;
        Ok(MirrorSiteStatus { up: self.contain(&origin), mirror_uuid: mirror_uuid.into(), ..status })
    }
}

fn local_key(global: &[u8]) -> Bytes {
    omap::key(LOCAL_PREFIX, global)
}

fn remote_prefix(global: &[u8]) -> Bytes {
    [REMOTE_PREFIX.as_bytes(), global, b"_"].concat().into()
}

/// Statuses of one image: the local site's, then those of other sites.
fn sites_of(
    watchers: &Watchers,
    global: &[u8],
    local: Option<&Bytes>,
    remote: &[(Bytes, Bytes)],
) -> Result<Vec<MirrorSiteStatus>, MethodStop> {
    let mut sites = Vec::new();
    if let Some(value) = local {
        sites.push(watchers.present(value, b"")?);
    }
    let prefix = remote_prefix(global);
    for (key, value) in remote {
        sites.push(watchers.present(value, &key[prefix.len()..])?);
    }
    Ok(sites)
}

/// Statuses of several images, in the order of the images. An error stands for a damaged status.
fn statuses(
    call: &mut MethodCall<'_>,
    globals: &[Name],
) -> Result<Vec<Result<Vec<MirrorSiteStatus>, MethodStop>>, MethodStop> {
    let watchers = Watchers::of(call);
    let mut out = Vec::with_capacity(globals.len());
    for batch in globals.chunks(BATCH) {
        let local = call.omap_values(batch.iter().map(|global| local_key(global)).collect())?;
        let prefixes: Vec<Bytes> = batch.iter().map(|global| remote_prefix(global)).collect();
        let remote = call.omap_pages(&prefixes, SITES_MAX)?;
        for (global, remote) in batch.iter().zip(&remote) {
            let key = local_key(global);
            let local = local.iter().find(|(stored, _)| *stored == key).map(|(_, value)| value);
            out.push(sites_of(&watchers, global, local, remote));
        }
    }
    Ok(out)
}

/// Ignored for an image that is not mirrored.
pub fn mirror_image_status_set(call: &mut MethodCall<'_>) -> MethodResult {
    let (global, status): (Name, MirrorSiteStatus) = call.argument()?;
    let image = match images::image_id(call, &global)? {
        Some(id) => images::stored_image(call, &id)?,
        None => None,
    };
    if image.is_none_or(|image| image.state != IMAGE_ENABLED) {
        return Ok(0);
    }
    let key = match status.is_local() {
        true => local_key(&global),
        false => [&remote_prefix(&global)[..], &status.mirror_uuid].concat().into(),
    };
    // The site is in the key.
    let status =
        MirrorSiteStatus { mirror_uuid: Name::EMPTY, up: false, last_update: call.context.now, ..status };
    let stored = StoredSiteStatus { origin: StatusOrigin::of(call.origin()), status };
    let value = codec::Encode::to_vec(&stored, call.context.features);
    call.set_omap_value(&key, &value)?;
    Ok(0)
}

/// Removes the image's status of each site.
pub(super) fn remove_all(call: &mut MethodCall<'_>, global: &Name) -> Result<(), MethodStop> {
    let remote = call.omap_pages(&[remote_prefix(global)], SITES_MAX)?;
    let mut keys: Vec<Bytes> = remote.into_iter().flatten().map(|(key, _)| key).collect();
    keys.push(local_key(global));
    ignore_missing(call.remove_omap_keys(&keys))
}

pub fn mirror_image_status_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let global: Name = call.argument()?;
    remove_all(call, &global)?;
    Ok(0)
}

pub fn mirror_image_status_get(call: &mut MethodCall<'_>) -> MethodResult {
    let global: Name = call.argument()?;
    let sites = statuses(call, &[global])?.remove(0)?;
    if sites.is_empty() {
        return Err(Errno::NOENT.into());
    }
    call.finish_with(&MirrorStatus { sites })
}

/// Images, and the statuses of those that have any.
pub fn mirror_image_status_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let images = images::list(call, &after, max)?;
    let globals: Vec<Name> = images.iter().map(|(_, image)| image.global_id.clone()).collect();
    let found = statuses(call, &globals)?.into_iter().zip(&images).filter_map(|(sites, (id, _))| {
        let sites = sites.ok().filter(|sites| !sites.is_empty())?;
        Some((id.clone(), MirrorStatus { sites }))
    });
    let found: Vec<(Bytes, MirrorStatus)> = found.collect();
    call.finish_with(&(images, found))
}

/// Number of images in each state, over all sites that matter to the pool's peers.
pub fn mirror_image_status_get_summary(call: &mut MethodCall<'_>) -> MethodResult {
    let peers = call.parse(|r| if r.is_empty() { Ok(Vec::new()) } else { r.get::<Vec<MirrorPeer>>() })?;
    let (direction, sending) = directions(&peers);
    let watchers = Watchers::of(call);
    let images = call.omap_scan(images::PREFIX)?;
    let local: BTreeMap<Bytes, Bytes> = call.omap_scan(LOCAL_PREFIX)?.into_iter().collect();
    let remote: BTreeMap<Bytes, Bytes> = call.omap_scan(REMOTE_PREFIX)?.into_iter().collect();
    let mut states: BTreeMap<u8, i32> = BTreeMap::new();
    for (_, value) in images {
        let MirrorImage { global_id, .. } = omap::stored(&value)?;
        let prefix = remote_prefix(&global_id);
        let own = remote.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let own: Vec<_> = own.take(SITES_MAX).map(|(key, value)| (key.clone(), value.clone())).collect();
        let sites = sites_of(&watchers, &global_id, local.get(&local_key(&global_id)), &own)?;
        *states.entry(summary_state(direction, &sending, &sites)).or_default() += 1;
    }
    call.finish_with(&states)
}

/// Direction over all peers, and the uuids of those that are sent to.
fn directions(peers: &[MirrorPeer]) -> (u8, BTreeSet<&Name>) {
    let mut direction = peers.first().map_or(DIRECTION_RX, |p| p.direction);
    let mut sending = BTreeSet::new();
    for peer in peers.iter().filter(|p| p.direction != DIRECTION_RX) {
        sending.insert(&peer.mirror_uuid);
        if peer.direction != direction {
            direction = DIRECTION_RX_TX;
        }
    }
    (direction, sending)
}

/// A pool that only receives looks at itself, one that only sends at the others. An error wins, then the least state.
fn summary_state(direction: u8, sending: &BTreeSet<&Name>, sites: &[MirrorSiteStatus]) -> u8 {
    let mut state = None;
    if matches!(direction, DIRECTION_RX | DIRECTION_RX_TX) {
        state = sites.iter().find(|s| s.is_local() && s.up).map(|s| s.state);
    }
    let mut silent = 0;
    if matches!(direction, DIRECTION_TX | DIRECTION_RX_TX) {
        silent = sending.len();
        for site in sites.iter().filter(|s| !s.is_local()) {
            silent = silent.saturating_sub(usize::from(sending.contains(&site.mirror_uuid)));
            let current = if site.up { site.state } else { STATUS_UNKNOWN };
            state = match state {
                _ if site.state == STATUS_ERROR => Some(STATUS_ERROR),
                None => Some(current),
                Some(STATUS_ERROR) => Some(STATUS_ERROR),
                Some(least) => Some(least.min(current)),
            };
        }
    }
    state.filter(|_| silent == 0).unwrap_or(STATUS_UNKNOWN)
}

/// Removes each status whose writer no longer watches.
pub fn mirror_image_status_remove_down(call: &mut MethodCall<'_>) -> MethodResult {
    let watchers = Watchers::of(call);
    let mut stale = Vec::new();
    for prefix in [LOCAL_PREFIX, REMOTE_PREFIX] {
        for (key, value) in call.omap_scan(prefix)? {
            let origin: StatusOrigin = omap::stored(&value)?;
            if !watchers.contain(&origin) {
                stale.push(key);
            }
        }
    }
    if !stale.is_empty() {
        call.remove_omap_keys(&stale)?;
    }
    Ok(0)
}

/// The client that replays an image here; `None` when it does not watch.
fn instance(watchers: &Watchers, value: &[u8]) -> Result<Option<EntityInst>, MethodStop> {
    let StoredSiteStatus { origin, .. } = omap::stored(value)?;
    Ok(watchers.contain(&origin).then_some(origin.0))
}

/// `ESTALE` when the client that wrote the status no longer watches.
pub fn mirror_image_instance_get(call: &mut MethodCall<'_>) -> MethodResult {
    let global: Name = call.argument()?;
    let value = call.omap_value(&local_key(&global))?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    let instance = instance(&Watchers::of(call), &value)?.ok_or(MethodStop::Failed(Errno::STALE))?;
    call.finish_with(&instance)
}

/// Images whose status is up, with the clients that replay them.
pub fn mirror_image_instance_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let wanted = omap::reply_max(max);
    let watchers = Watchers::of(call);
    let (mut found, mut after, mut visited) = (Vec::new(), after, 0);
    while found.len() < wanted && visited < omap::SCAN_MAX {
        let images = images::list(call, &after, BATCH as u64)?;
        let Some((last, _)) = images.last() else { break };
        after = Name::from(&last[..]);
        visited += images.len();
        let keys = images.iter().map(|(_, image)| local_key(&image.global_id)).collect();
        let values: BTreeMap<Bytes, Bytes> = call.omap_values(keys)?.into_iter().collect();
        for (id, image) in images {
            let value = values.get(&local_key(&image.global_id));
            let instance = value.and_then(|value| instance(&watchers, value).ok().flatten());
            found.extend(instance.map(|instance| (id, instance)));
        }
    }
    found.truncate(wanted);
    call.finish_with(&found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    const REPLAYING: u8 = 4;

    fn mirrored(images: &[&str]) -> Object {
        let mut o = Object::missing();
        for id in images {
            let image = MirrorImage { global_id: format!("g{id}").into(), state: IMAGE_ENABLED, mode: 0 };
            o.call("rbd", "mirror_image_set", &(id.to_string(), image)).unwrap();
        }
        o
    }

    fn report(o: &mut Object, global: &str, site: &str, state: u8) {
        let status = MirrorSiteStatus { mirror_uuid: site.into(), state, ..MirrorSiteStatus::default() };
        o.call("rbd", "mirror_image_status_set", &(global.to_string(), status)).unwrap();
    }

    fn get(o: &mut Object, global: &str) -> Result<MirrorStatus, Errno> {
        o.call("rbd", "mirror_image_status_get", &global.to_string()).map(|reply| decode(&reply))
    }

    #[test]
    fn status_is_up_while_its_writer_watches() {
        let mut o = mirrored(&["1"]);
        report(&mut o, "nothing", "", REPLAYING);
        assert_eq!(get(&mut o, "nothing"), Err(Errno::NOENT));
        report(&mut o, "g1", "", REPLAYING);
        report(&mut o, "g1", "site", STATUS_ERROR);
        let states = |status: MirrorStatus| {
            status.sites.into_iter().map(|s| (s.mirror_uuid, s.state, s.up)).collect::<Vec<_>>()
        };
        let with = |up| vec![("".into(), REPLAYING, up), ("site".into(), STATUS_ERROR, up)];
        assert_eq!(states(get(&mut o, "g1").unwrap()), with(false));
        o.watch(1);
        assert_eq!(states(get(&mut o, "g1").unwrap()), with(true));
        o.call("rbd", "mirror_image_status_remove", &"g1".to_string()).unwrap();
        assert_eq!(get(&mut o, "g1"), Err(Errno::NOENT));
        report(&mut o, "g1", "", REPLAYING);
        report(&mut o, "g1", "site", STATUS_ERROR);
        o.call_bare("rbd", "mirror_image_status_remove_down").unwrap();
        assert_eq!(get(&mut o, "g1").unwrap().sites.len(), 2);
        o.unwatch(1);
        o.call_bare("rbd", "mirror_image_status_remove_down").unwrap();
        assert_eq!(get(&mut o, "g1"), Err(Errno::NOENT));
    }

    #[test]
    fn instances_are_those_that_watch() {
        let mut o = mirrored(&["1", "2", "3"]);
        o.watch(1);
        report(&mut o, "g1", "", REPLAYING);
        report(&mut o, "g3", "", REPLAYING);
        let instance =
            |o: &mut Object, global: &str| o.call("rbd", "mirror_image_instance_get", &global.to_string());
        assert!(instance(&mut o, "g1").is_ok());
        assert_eq!(instance(&mut o, "g2"), Err(Errno::NOENT));
        let listed = o.call("rbd", "mirror_image_instance_list", &(String::new(), 9u64)).unwrap();
        let listed: Vec<(Name, EntityInst)> = decode(&listed);
        assert_eq!(listed.iter().map(|e| &e.0[..]).collect::<Vec<_>>(), [b"1", b"3"]);
        o.unwatch(1);
        assert_eq!(instance(&mut o, "g1"), Err(Errno::STALE));
    }

    #[test]
    fn listing_has_all_images_and_known_statuses() {
        let ids: Vec<String> = (0..300).map(|i| format!("{i:03}")).collect();
        let mut o = mirrored(&ids.iter().map(|id| &id[..]).collect::<Vec<_>>());
        report(&mut o, "g007", "", REPLAYING);
        report(&mut o, "g207", "site", REPLAYING);
        type Listing = (BTreeMap<Name, MirrorImage>, BTreeMap<Name, MirrorStatus>);
        let reply = o.call("rbd", "mirror_image_status_list", &(String::new(), 1000u64)).unwrap();
        let (images, found): Listing = decode(&reply);
        assert_eq!((images.len(), found.len()), (300, 2));
    }

    #[test]
    fn summary_takes_error_before_least_state() {
        let mut o = mirrored(&["1", "2", "3"]);
        o.watch(1);
        report(&mut o, "g1", "", REPLAYING);
        report(&mut o, "g2", "", STATUS_ERROR);
        let states = |reply: Bytes| decode::<BTreeMap<u8, i32>>(&reply).into_iter().collect::<Vec<_>>();
        let here = states(o.call_bare("rbd", "mirror_image_status_get_summary").unwrap());
        assert_eq!(here, [(STATUS_UNKNOWN, 1), (STATUS_ERROR, 1), (REPLAYING, 1)]);
        let peer =
            MirrorPeer { direction: DIRECTION_RX_TX, mirror_uuid: "site".into(), ..MirrorPeer::default() };
        report(&mut o, "g1", "site", REPLAYING);
        let both = states(o.call("rbd", "mirror_image_status_get_summary", &vec![peer]).unwrap());
        assert_eq!(both, [(STATUS_UNKNOWN, 2), (REPLAYING, 1)], "the site said nothing of g2 and g3");
    }
}
