//! Journals of block images: the header's sets, clients and tags, and appending to a journal's objects.
//!
//! A tag is an epoch of the journal; a class of tags is a history that no other history mixes with. A tag is expired
//! when no connected client needs it and a newer one of its class is in use by all.

use super::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use codec::Decode;
use std::collections::BTreeMap;
use wire::types::Name;
use wire::types::cls::journal::{CLIENT_DISCONNECTED, JournalClient, JournalTag, ObjectSetPosition};

type MethodResult = Result<i32, MethodStop>;

const ORDER: &str = "order";
const SPLAY_WIDTH: &str = "splay_width";
const POOL_ID: &str = "pool_id";
const MINIMUM_SET: &str = "minimum_set";
const ACTIVE_SET: &str = "active_set";
const NEXT_TAG: &str = "next_tag_tid";
const NEXT_CLASS: &str = "next_tag_class";
const CLIENT_PREFIX: &str = "client_";
const TAG_PREFIX: &str = "tag_";

/// Class of a tag that begins a new one.
const CLASS_NEW: u64 = u64::MAX;

fn tag_key(id: u64) -> String {
    format!("{TAG_PREFIX}{id:016x}")
}

/// `ENOENT` without the key, `EINVAL` when it is damaged.
fn stored<T: Decode>(call: &mut MethodCall<'_>, key: impl AsRef<[u8]>) -> Result<T, MethodStop> {
    call.omap_must(key).map_err(|stop| match stop {
        MethodStop::Failed(Errno::IO) => Errno::INVAL.into(),
        other => other,
    })
}

fn finish_with_stored<T: Decode + codec::Encode>(call: &mut MethodCall<'_>, key: &str) -> MethodResult {
    let value: T = stored(call, key)?;
    call.finish_with(&value)
}

pub(super) fn create(call: &mut MethodCall<'_>) -> MethodResult {
    let (order, splay_width, pool): (u8, u8, i64) = call.argument()?;
    if call.omap_value(&Bytes::from_static(ORDER.as_bytes()))?.is_some() {
        return Err(Errno::EXIST.into());
    }
    call.set_omap(ORDER, &order)?;
    call.set_omap(SPLAY_WIDTH, &splay_width)?;
    call.set_omap(POOL_ID, &pool)?;
    for key in [ACTIVE_SET, MINIMUM_SET, NEXT_TAG, NEXT_CLASS] {
        call.set_omap(key, &0u64)?;
    }
    Ok(0)
}

pub(super) fn get_order(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored::<u8>(call, ORDER)
}

pub(super) fn get_splay_width(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored::<u8>(call, SPLAY_WIDTH)
}

pub(super) fn get_pool_id(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored::<i64>(call, POOL_ID)
}

pub(super) fn get_minimum_set(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored::<u64>(call, MINIMUM_SET)
}

pub(super) fn get_active_set(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored::<u64>(call, ACTIVE_SET)
}

pub(super) fn get_next_tag_tid(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored::<u64>(call, NEXT_TAG)
}

/// `EINVAL` above the active set, `ESTALE` below the present one.
pub(super) fn set_minimum_set(call: &mut MethodCall<'_>) -> MethodResult {
    let set: u64 = call.argument()?;
    if stored::<u64>(call, ACTIVE_SET)? < set {
        return Err(Errno::INVAL.into());
    }
    advance(call, MINIMUM_SET, set)
}

/// `EINVAL` below the minimum set, `ESTALE` below the present one.
pub(super) fn set_active_set(call: &mut MethodCall<'_>) -> MethodResult {
    let set: u64 = call.argument()?;
    if stored::<u64>(call, MINIMUM_SET)? > set {
        return Err(Errno::INVAL.into());
    }
    advance(call, ACTIVE_SET, set)
}

fn advance(call: &mut MethodCall<'_>, key: &str, set: u64) -> MethodResult {
    let present: u64 = stored(call, key)?;
    if set < present {
        return Err(Errno::STALE.into());
    }
    if set > present {
        call.set_omap(key, &set)?;
    }
    Ok(0)
}

/// Also the client with an empty id, whose key is the prefix alone: the image's own client in every journal of librbd.
fn all_clients(call: &mut MethodCall<'_>) -> Result<Vec<JournalClient>, MethodStop> {
    call.omap_scan_with_prefix(CLIENT_PREFIX)?.iter().map(|(_, value)| omap::stored(value)).collect()
}

fn all_tags(call: &mut MethodCall<'_>) -> Result<Vec<JournalTag>, MethodStop> {
    call.omap_scan(TAG_PREFIX)?.iter().map(|(_, value)| omap::stored(value)).collect()
}

fn write_client(call: &mut MethodCall<'_>, client: &JournalClient) -> MethodResult {
    call.set_omap(omap::key(CLIENT_PREFIX, &client.id), client)?;
    Ok(0)
}

fn stored_client(call: &mut MethodCall<'_>, id: &Name) -> Result<JournalClient, MethodStop> {
    stored(call, omap::key(CLIENT_PREFIX, id))
}

pub(super) fn get_client(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    let client = stored_client(call, &id)?;
    call.finish_with(&client)
}

/// A new client begins where the slowest one is.
pub(super) fn client_register(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, data): (Name, Bytes) = call.argument()?;
    stored::<u8>(call, ORDER)?;
    if call.omap_value(&omap::key(CLIENT_PREFIX, &id))?.is_some() {
        return Err(Errno::EXIST.into());
    }
    let positions: Vec<ObjectSetPosition> = all_clients(call)?.into_iter().map(|c| c.committed).collect();
    let order = |set: &ObjectSetPosition| set.objects.first().map(|first| (first.tag, first.entry));
    // `None`, for a client that has committed nothing, is the least.
    let committed = positions.into_iter().min_by_key(order).unwrap_or_default();
    write_client(call, &JournalClient { id, data, committed, state: 0 })
}

pub(super) fn client_update_data(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, data): (Name, Bytes) = call.argument()?;
    let client = stored_client(call, &id)?;
    write_client(call, &JournalClient { data, ..client })
}

pub(super) fn client_update_state(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, state): (Name, u8) = call.argument()?;
    let client = stored_client(call, &id)?;
    write_client(call, &JournalClient { state, ..client })
}

pub(super) fn client_unregister(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    let key = omap::key(CLIENT_PREFIX, &id);
    call.omap_value(&key)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.remove_omap_key(key)?;
    expire_tags(call, Some(&id))?;
    Ok(0)
}

pub(super) fn client_commit(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, committed): (Name, ObjectSetPosition) = call.argument()?;
    if committed.objects.len() > usize::from(stored::<u8>(call, SPLAY_WIDTH)?) {
        return Err(Errno::INVAL.into());
    }
    let client = stored_client(call, &id)?;
    if client.committed == committed {
        return Ok(0);
    }
    write_client(call, &JournalClient { committed, ..client })
}

pub(super) fn client_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let after = if after.is_empty() { Bytes::new() } else { omap::key(CLIENT_PREFIX, after) };
    let (entries, _) = call.omap_list(&after, CLIENT_PREFIX, omap::reply_max(max), true)?;
    let clients = entries.iter().map(|(_, value)| omap::stored::<JournalClient>(value));
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    call.finish_with(&clients)
}

pub(super) fn get_tag(call: &mut MethodCall<'_>) -> MethodResult {
    let id: u64 = call.argument()?;
    let tag: JournalTag = stored(call, tag_key(id))?;
    call.finish_with(&tag)
}

/// `ESTALE` unless the id is the next one, `EINVAL` for a class that does not exist.
pub(super) fn tag_create(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, class, data): (u64, u64, Bytes) = call.argument()?;
    if call.omap_value(&tag_key(id).into())?.is_some() {
        return Err(Errno::EXIST.into());
    }
    if id != stored::<u64>(call, NEXT_TAG)? {
        return Err(Errno::STALE.into());
    }
    let next_class: u64 = stored(call, NEXT_CLASS)?;
    let class = match class {
        CLASS_NEW => {
            call.set_omap(NEXT_CLASS, &next_class.wrapping_add(1))?;
            next_class
        }
        class if class >= next_class => return Err(Errno::INVAL.into()),
        class => class,
    };
    expire_tags(call, None)?;
    call.set_omap(NEXT_TAG, &id.wrapping_add(1))?;
    call.set_omap(tag_key(id), &JournalTag { id, class, data })?;
    Ok(0)
}

/// For each class its newest tag that is not newer than `oldest` in use, or the first one after that.
fn oldest_tags(tags: &[JournalTag], oldest: u64) -> BTreeMap<u64, u64> {
    let mut by_class = BTreeMap::new();
    for tag in tags {
        by_class.insert(tag.class, tag.id);
        if tag.id >= oldest {
            break;
        }
    }
    by_class
}

/// Removes tags that no client needs. `leaving` is not asked; a client that has committed nothing needs all.
fn expire_tags(call: &mut MethodCall<'_>, leaving: Option<&Name>) -> Result<(), MethodStop> {
    let mut oldest = None;
    for client in all_clients(call)? {
        if leaving == Some(&client.id) || client.state == CLIENT_DISCONNECTED {
            continue;
        }
        let Some(needed) = client.committed.objects.iter().map(|o| o.tag).min() else { return Ok(()) };
        oldest = Some(oldest.map_or(needed, |oldest: u64| oldest.min(needed)));
    }
    let Some(oldest) = oldest else { return Ok(()) };
    let tags = all_tags(call)?;
    let kept = oldest_tags(&tags, oldest);
    let is_expired = |tag: &&JournalTag| kept.get(&tag.class).is_some_and(|kept| tag.id < *kept);
    let expired = tags.iter().take_while(|tag| tag.id < oldest).filter(is_expired);
    let keys: Vec<Bytes> = expired.map(|tag| tag_key(tag.id).into()).collect();
    if keys.is_empty() { Ok(()) } else { call.remove_omap_keys(&keys) }
}

/// Tags after `after` (0: all) that the client still needs, of one class if that is given.
pub(super) fn tag_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max, client, class) =
        call.parse(|r| Ok((r.u64()?, r.u64()?, r.get::<Name>()?, r.get::<Option<u64>>()?)))?;
    let client = stored_client(call, &client)?;
    let tags = all_tags(call)?;
    let oldest = client.committed.objects.iter().map(|o| o.tag).min();
    let kept = oldest.map_or_else(BTreeMap::new, |oldest| oldest_tags(&tags, oldest));
    let is_wanted = |tag: &JournalTag| {
        (after == 0 || tag.id > after)
            && kept.get(&tag.class).is_none_or(|kept| tag.id >= *kept)
            && class.is_none_or(|class| class == tag.class)
    };
    let found: Vec<JournalTag> = tags.into_iter().filter(is_wanted).take(omap::reply_max(max)).collect();
    call.finish_with(&found)
}

/// `EOVERFLOW` for an object that has reached its size.
fn room(call: &MethodCall<'_>, soft_max: u64) -> Result<(), MethodStop> {
    let is_full = call.exists() && call.context.size >= soft_max;
    if is_full { Err(Errno::OVERFLOW.into()) } else { Ok(()) }
}

pub(super) fn guard_append(call: &mut MethodCall<'_>) -> MethodResult {
    let soft_max: u64 = call.argument()?;
    room(call, soft_max)?;
    Ok(0)
}

/// Without the padding that stock OSDs add where all clients are Octopus or newer: readers do not need it.
pub(super) fn append(call: &mut MethodCall<'_>) -> MethodResult {
    let (soft_max, data): (u64, Bytes) = call.argument()?;
    room(call, soft_max)?;
    let end = if call.exists() { call.context.size } else { 0 };
    call.write(end, data)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::journal::ObjectPosition;

    fn journal() -> Object {
        let mut o = Object::missing();
        o.call("journal", "create", &(24u8, 4u8, 5i64)).unwrap();
        o
    }

    fn register(o: &mut Object, id: &str) -> Result<Bytes, Errno> {
        o.call("journal", "client_register", &(id.to_string(), Bytes::from_static(b"data")))
    }

    fn at(tag: u64) -> ObjectSetPosition {
        ObjectSetPosition { objects: vec![ObjectPosition { object_number: 1, tag, entry: 9 }] }
    }

    fn commit(o: &mut Object, id: &str, tag: u64) {
        o.call("journal", "client_commit", &(id.to_string(), at(tag))).unwrap();
    }

    fn tag(o: &mut Object, id: u64, class: u64) -> Result<Bytes, Errno> {
        o.call("journal", "tag_create", &(id, class, Bytes::new()))
    }

    fn tags(o: &mut Object, client: &str, class: Option<u64>) -> Vec<u64> {
        let argument = ((0u64, 100u64), (client.to_string(), class));
        let tags: Vec<JournalTag> = decode(&o.call("journal", "tag_list", &argument).unwrap());
        tags.into_iter().map(|tag| tag.id).collect()
    }

    #[test]
    fn header_holds_what_creation_said() {
        let mut o = journal();
        assert_eq!(decode::<u8>(&o.call_bare("journal", "get_order").unwrap()), 24);
        assert_eq!(decode::<u8>(&o.call_bare("journal", "get_splay_width").unwrap()), 4);
        assert_eq!(decode::<i64>(&o.call_bare("journal", "get_pool_id").unwrap()), 5);
        assert_eq!(o.call("journal", "create", &(24u8, 4u8, 5i64)), Err(Errno::EXIST));
        assert_eq!(Object::existing().call_bare("journal", "get_order"), Err(Errno::NOENT));
    }

    #[test]
    fn sets_only_advance() {
        let mut o = journal();
        assert_eq!(o.call("journal", "set_minimum_set", &1u64), Err(Errno::INVAL));
        o.call("journal", "set_active_set", &3u64).unwrap();
        o.call("journal", "set_minimum_set", &2u64).unwrap();
        o.call("journal", "set_minimum_set", &2u64).unwrap();
        assert_eq!(o.call("journal", "set_minimum_set", &1u64), Err(Errno::STALE));
        assert_eq!(o.call("journal", "set_active_set", &1u64), Err(Errno::INVAL));
        assert_eq!(o.call("journal", "set_active_set", &2u64), Err(Errno::STALE));
        assert_eq!(decode::<u64>(&o.call_bare("journal", "get_minimum_set").unwrap()), 2);
        assert_eq!(decode::<u64>(&o.call_bare("journal", "get_active_set").unwrap()), 3);
    }

    #[test]
    fn new_client_begins_at_the_slowest() {
        let mut o = journal();
        register(&mut o, "a").unwrap();
        assert_eq!(register(&mut o, "a"), Err(Errno::EXIST));
        assert_eq!(register(&mut Object::existing(), "a"), Err(Errno::NOENT));
        commit(&mut o, "a", 7);
        register(&mut o, "b").unwrap();
        let client = |o: &mut Object, id: &str| -> JournalClient {
            decode(&o.call("journal", "get_client", &id.to_string()).unwrap())
        };
        assert_eq!(client(&mut o, "b").committed, at(7));
        commit(&mut o, "b", 3);
        register(&mut o, "c").unwrap();
        assert_eq!(client(&mut o, "c").committed, at(3));
        o.call("journal", "client_update_state", &("c".to_string(), 1u8)).unwrap();
        o.call("journal", "client_update_data", &("c".to_string(), Bytes::from_static(b"new"))).unwrap();
        let c = client(&mut o, "c");
        assert_eq!((c.state, &c.data[..]), (1, &b"new"[..]));
        let list: Vec<JournalClient> =
            decode(&o.call("journal", "client_list", &("a".to_string(), 1u64)).unwrap());
        assert_eq!(list.iter().map(|c| &c.id[..]).collect::<Vec<_>>(), [b"b"]);
        let wide = ObjectSetPosition { objects: vec![at(1).objects.remove(0); 5] };
        assert_eq!(o.call("journal", "client_commit", &("a".to_string(), wide)), Err(Errno::INVAL));
    }

    #[test]
    fn client_with_empty_id_counts_among_all() {
        let mut o = journal();
        register(&mut o, "").unwrap();
        for id in 0..3 {
            tag(&mut o, id, if id == 0 { CLASS_NEW } else { 0 }).unwrap();
        }
        commit(&mut o, "", 1);
        register(&mut o, "inspect").unwrap();
        let inspect: JournalClient =
            decode(&o.call("journal", "get_client", &"inspect".to_string()).unwrap());
        assert_eq!(inspect.committed, at(1), "a new client begins where the image's own client is");
        commit(&mut o, "inspect", 2);
        tag(&mut o, 3, 0).unwrap();
        assert_eq!(tags(&mut o, "inspect", None), [2, 3]);
        assert_eq!(tags(&mut o, "", None), [1, 2, 3], "tag 1 stays for the image's own client");
    }

    #[test]
    fn tags_expire_when_all_clients_are_past_them() {
        let mut o = journal();
        register(&mut o, "a").unwrap();
        register(&mut o, "b").unwrap();
        tag(&mut o, 0, CLASS_NEW).unwrap();
        assert_eq!(tag(&mut o, 0, 0), Err(Errno::EXIST));
        assert_eq!(tag(&mut o, 2, 0), Err(Errno::STALE));
        assert_eq!(tag(&mut o, 1, 1), Err(Errno::INVAL));
        tag(&mut o, 1, CLASS_NEW).unwrap();
        tag(&mut o, 2, 0).unwrap();
        tag(&mut o, 3, 0).unwrap();
        assert_eq!(tags(&mut o, "a", None), [0, 1, 2, 3]);
        assert_eq!(tags(&mut o, "a", Some(1)), [1]);
        commit(&mut o, "a", 3);
        assert_eq!(tags(&mut o, "a", None), [1, 3], "class 1 has no newer tag");
        tag(&mut o, 4, 0).unwrap();
        assert_eq!(tags(&mut o, "b", None), [0, 1, 2, 3, 4], "the other client has committed nothing");
        o.call("journal", "client_unregister", &"b".to_string()).unwrap();
        assert_eq!(o.call("journal", "client_unregister", &"b".to_string()), Err(Errno::NOENT));
        let gone = o.call("journal", "get_tag", &2u64);
        assert_eq!((gone, o.call("journal", "get_tag", &1u64).is_ok()), (Err(Errno::NOENT), true));
        assert_eq!(decode::<u64>(&o.call_bare("journal", "get_next_tag_tid").unwrap()), 5);
    }

    #[test]
    fn full_object_takes_no_more() {
        let mut o = Object::missing();
        o.call("journal", "guard_append", &4u64).unwrap();
        for _ in 0..2 {
            o.call("journal", "append", &(4u64, Bytes::from_static(b"abc"))).unwrap();
        }
        assert_eq!(o.data(), "abcabc");
        assert_eq!(o.call("journal", "append", &(6u64, Bytes::new())), Err(Errno::OVERFLOW));
        assert_eq!(o.call("journal", "guard_append", &6u64), Err(Errno::OVERFLOW));
        o.call("journal", "guard_append", &7u64).unwrap();
    }
}
