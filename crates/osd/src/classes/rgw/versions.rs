//! Versioned objects. An instance has an entry of its own and one in the order of listings; the logical head (OLH)
//! names the current one. Its log holds what the gateway has still to do to the head object.
//!
//! Epochs count up from 2. An object from before its bucket was versioned becomes the instance without an id, of epoch 1.

use super::index_log::{log_change, object_entry};
use super::keys::{instance_key, list_key, olh_key};
use super::stored::{
    open_header, read_key_entry, remove_entry, write_entry, write_header, write_header_if_logged,
};
use super::{MethodCall, MethodResult, MethodStop, read_omap};
use crate::classes::omap;
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::cls::rgw::{
    BILOG_VERSIONED, BucketHeader, ClearOlhOp, DirEntry, EntryMeta, EntryVersion, FLAG_CURRENT,
    FLAG_DELETE_MARKER, FLAG_VER, FLAG_VER_MARKER, IndexLogEntry, LinkOlhOp, MODIFY_LINK_OLH,
    MODIFY_LINK_OLH_MARKER, MODIFY_UNLINK_INSTANCE, OLH_LINK, OLH_REMOVE_INSTANCE, OLH_UNLINK, ObjectKey,
    OlhEntry, OlhLogEntry, ReadOlhLogOp, ReadOlhLogReply, TrimOlhLogOp, UnlinkInstanceOp,
};
use wire::types::{Name, UTime};

/// Epoch of an object from before versioning.
const PLAIN_EPOCH: u64 = 1;
/// Epochs of a log that one call returns.
const LOG_MAX: usize = 1000;

/// An instance's entry on its way through a change.
struct Instance {
    key: ObjectKey,
    /// Where the entry was read, or would be.
    idx: Bytes,
    entry: DirEntry,
    exists: bool,
}

impl Instance {
    /// A key without an instance is that of the object's delete marker, if it has one and it is asked for.
    fn read(call: &mut MethodCall<'_>, key: &ObjectKey, with_marker: bool) -> Result<Instance, MethodStop> {
        let (idx, stored) = read_key_entry(call, key, with_marker && key.instance.is_empty())?;
        let exists = stored.is_some();
        Ok(Instance { key: key.clone(), idx, entry: stored.unwrap_or_default(), exists })
    }

    /// `ENOENT` for one that is not there.
    fn existing(call: &mut MethodCall<'_>, key: &ObjectKey) -> Result<Instance, MethodStop> {
        let instance = Instance::read(call, key, true)?;
        if instance.exists { Ok(instance) } else { Err(Errno::NOENT.into()) }
    }

    fn become_delete_marker(&mut self, meta: EntryMeta) {
        self.entry.key = self.key.clone();
        self.entry.flags = FLAG_DELETE_MARKER;
        self.entry.meta = meta;
        self.entry.tag = "delete-marker".into();
    }

    fn unlink_list_entry(
        &self,
        call: &mut MethodCall<'_>,
        header: &mut BucketHeader,
    ) -> Result<(), MethodStop> {
        remove_entry(call, &list_key(&self.entry), &self.entry.key, header)
    }

    fn unlink(&self, call: &mut MethodCall<'_>, header: &mut BucketHeader) -> Result<(), MethodStop> {
        remove_entry(call, &self.idx, &self.key, header)
    }

    /// Writes both entries.
    fn write_both(&mut self, call: &mut MethodCall<'_>, header: &mut BucketHeader) -> Result<(), MethodStop> {
        let is_bare_marker = self.entry.is_delete_marker() && self.entry.key.instance.is_empty();
        self.idx = instance_key(&self.key, is_bare_marker);
        write_entry(call, &self.idx, &self.entry, header)?;
        let listed = list_key(&self.entry);
        if listed != self.idx { write_entry(call, &listed, &self.entry, header) } else { Ok(()) }
    }

    /// Gives it its place in the order of instances.
    fn place(
        &mut self,
        call: &mut MethodCall<'_>,
        epoch: u64,
        is_current: bool,
        header: &mut BucketHeader,
    ) -> Result<(), MethodStop> {
        if self.entry.versioned_epoch > 0 {
            self.unlink_list_entry(call, header)?;
        }
        self.entry.flags |= FLAG_VER;
        if is_current {
            self.entry.flags |= FLAG_CURRENT;
        }
        self.entry.versioned_epoch = epoch;
        self.write_both(call, header)
    }

    /// The next older instance of the object.
    fn next_older(&self, call: &mut MethodCall<'_>) -> Result<Option<ObjectKey>, MethodStop> {
        let (stored, _) = read_omap(call, &list_key(&self.entry), &self.key.name, 1)?;
        let Some((_, value)) = stored.last() else { return Ok(None) };
        let next: DirEntry = omap::stored(value)?;
        Ok((next.key.name == self.key.name).then_some(next.key))
    }
}

/// The logical head on its way through a change.
struct Head {
    idx: Bytes,
    entry: OlhEntry,
    exists: bool,
}

impl Head {
    fn read(call: &mut MethodCall<'_>, name: &Name) -> Result<Head, MethodStop> {
        let idx = olh_key(name);
        let stored = call.omap_as(&idx)?;
        Ok(Head { idx, exists: stored.is_some(), entry: stored.unwrap_or_default() })
    }

    /// Takes the epoch of another zone, or the next one. False if the head is newer.
    fn start_change(&mut self, epoch: u64) -> bool {
        match epoch {
            0 if self.entry.epoch == 0 => self.entry.epoch = PLAIN_EPOCH + 1,
            0 => self.entry.epoch = self.entry.epoch.wrapping_add(1),
            epoch if epoch < self.entry.epoch => return false,
            epoch => self.entry.epoch = epoch,
        }
        true
    }

    fn point_to(&mut self, key: &ObjectKey, delete_marker: bool) {
        self.entry.key = key.clone();
        self.entry.delete_marker = delete_marker;
    }

    fn log(&mut self, op: u8, op_tag: &Name, key: &ObjectKey, delete_marker: bool, epoch: u64) {
        let epoch = if epoch == 0 { self.entry.epoch } else { epoch };
        let step = OlhLogEntry { epoch, op, op_tag: op_tag.clone(), key: key.clone(), delete_marker };
        self.entry.pending_log.entry(self.entry.epoch).or_default().push(step);
    }

    fn write(&self, call: &mut MethodCall<'_>, header: &mut BucketHeader) -> Result<(), MethodStop> {
        write_entry(call, &self.idx, &self.entry, header)
    }
}

fn bare(name: &Name) -> ObjectKey {
    ObjectKey { name: name.clone(), instance: Name::EMPTY }
}

/// Makes an object from before versioning an instance, and leaves a placeholder under its plain key.
fn convert_plain(
    call: &mut MethodCall<'_>,
    name: &Name,
    is_demoted: bool,
    instance_only: bool,
    header: &mut BucketHeader,
) -> Result<(), MethodStop> {
    let key = bare(name);
    if let (_, Some(mut entry)) = read_key_entry(call, &key, false)? {
        entry.versioned_epoch = PLAIN_EPOCH;
        entry.flags |= FLAG_VER;
        if is_demoted {
            entry.flags &= !FLAG_CURRENT;
        }
        write_entry(call, &instance_key(&key, false), &entry, header)?;
        if !instance_only {
            write_entry(call, &list_key(&entry), &entry, header)?;
        }
    }
    let placeholder = DirEntry { key, flags: FLAG_VER_MARKER, ..DirEntry::default() };
    write_entry(call, &Bytes::copy_from_slice(name), &placeholder, header)
}

/// True if the instance is as new as the time or newer, in seconds unless nanoseconds count.
fn is_modified_since(mtime: UTime, since: UTime, high_precision: bool) -> bool {
    let cut = |time: UTime| if high_precision { time } else { UTime { nsec: 0, ..time } };
    cut(mtime) >= cut(since)
}

/// Makes an instance the current one, or adds a delete marker. `ECANCELED` if the head's tag is another one.
pub fn bucket_link_olh(call: &mut MethodCall<'_>) -> MethodResult {
    let op: LinkOlhOp = call.argument()?;
    let mut header = open_header(call)?;
    let mut instance = Instance::read(call, &op.key, op.delete_marker)?;
    if !instance.exists && !op.delete_marker {
        return Err(Errno::NOENT.into());
    }
    let is_guarded = op.unmodified_since != UTime::ZERO;
    let mtime = instance.entry.meta.mtime;
    if instance.exists && is_guarded && is_modified_since(mtime, op.unmodified_since, op.high_precision_time)
    {
        return Ok(0);
    }
    // An object and its delete marker may both be without an id. They have entries of their own, and one list entry.
    let is_removing = if op.key.instance.is_empty() {
        let other = Instance::read(call, &op.key, !op.delete_marker)?;
        if other.exists && other.entry.is_delete_marker() != op.delete_marker {
            other.unlink_list_entry(call, &mut header)?;
        }
        let is_removing = other.exists && !other.entry.is_delete_marker() && op.delete_marker;
        if !is_removing {
            other.unlink(call, &mut header)?;
        }
        is_removing
    } else {
        instance.exists && !instance.entry.is_delete_marker() && op.delete_marker
    };
    if op.delete_marker {
        instance.become_delete_marker(op.meta.clone());
    }
    let mut head = Head::read(call, &op.key.name)?;
    let previous_epoch = head.entry.epoch;
    if !head.start_change(op.olh_epoch) {
        instance.place(call, op.olh_epoch, false, &mut header)?;
        return write_header_if_logged(call, &mut header);
    }
    // Of two instances of one epoch the one that sorts first is the current one.
    let is_current = head.entry.epoch > previous_epoch || head.entry.key.instance[..] >= op.key.instance[..];
    if head.exists {
        if op.olh_tag != head.entry.tag {
            if !head.entry.pending_removal {
                return Err(Errno::CANCELED.into());
            }
            // The head is on its way out: this is a new one.
            head.entry.tag = op.olh_tag.clone();
        }
        if is_current && head.entry.exists && head.entry.key != op.key {
            let mut old = Instance::existing(call, &head.entry.key)?;
            old.entry.flags &= !FLAG_CURRENT;
            old.write_both(call, &mut header)?;
        }
        head.entry.pending_removal = false;
    } else {
        let instance_only = op.key.instance.is_empty() && op.delete_marker;
        convert_plain(call, &op.key.name, is_current, instance_only, &mut header)?;
        head.entry.tag = op.olh_tag.clone();
        if op.key.instance.is_empty() {
            instance.entry.versioned_epoch = PLAIN_EPOCH;
        }
    }
    head.log(OLH_LINK, &op.op_tag, &op.key, op.delete_marker, 0);
    if is_removing {
        head.log(OLH_REMOVE_INSTANCE, &op.op_tag, &op.key, false, 0);
    }
    if is_current {
        head.point_to(&op.key, op.delete_marker);
    }
    head.entry.exists = true;
    head.write(call, &mut header)?;
    let epoch = head.entry.epoch;
    instance.place(call, epoch, is_current, &mut header)?;

    let kind = if op.delete_marker { MODIFY_LINK_OLH_MARKER } else { MODIFY_LINK_OLH };
    let mut log = object_entry(&op.key.name, &op.key.instance, kind, header.ver);
    log.tag = op.op_tag;
    log.zones = op.zones;
    log.bilog_flags = op.bilog_flags;
    log.timestamp = instance.entry.meta.mtime;
    if op.delete_marker {
        log.owner = instance.entry.meta.owner;
        log.owner_display_name = instance.entry.meta.owner_display_name;
    }
    finish(call, op.log_op, log, epoch, header)
}

/// Logs the change, if it is to be, and writes the header.
fn finish(
    call: &mut MethodCall<'_>,
    log_op: bool,
    mut log: IndexLogEntry,
    epoch: u64,
    mut header: BucketHeader,
) -> MethodResult {
    if !log_op || header.sync_stopped {
        return write_header_if_logged(call, &mut header);
    }
    log.ver = EntryVersion { epoch, ..EntryVersion::default() };
    log.bilog_flags |= BILOG_VERSIONED;
    log_change(call, log, &mut header)?;
    write_header(call, &mut header)
}

/// Removes an instance. If it is the current one, the next older one becomes that.
pub fn bucket_unlink_instance(call: &mut MethodCall<'_>) -> MethodResult {
    let op: UnlinkInstanceOp = call.argument()?;
    let mut key = op.key.clone();
    if key.instance == "null" {
        key.instance = Name::EMPTY;
    }
    let mut header = open_header(call)?;
    let mut instance = Instance::existing(call, &key)?;
    let mut head = Head::read(call, &key.name)?;
    if !head.exists {
        convert_plain(call, &key.name, true, false, &mut header)?;
        head.point_to(&key, false);
        head.entry.tag = op.olh_tag.clone();
        instance.entry.versioned_epoch = PLAIN_EPOCH;
    }
    if !head.start_change(op.olh_epoch) {
        instance.unlink_list_entry(call, &mut header)?;
        if !instance.entry.is_delete_marker() {
            head.log(OLH_REMOVE_INSTANCE, &op.op_tag, &op.key, false, op.olh_epoch);
            head.write(call, &mut header)?;
        }
        return write_header_if_logged(call, &mut header);
    }
    if head.entry.key == key {
        if let Some(next_key) = instance.next_older(call)? {
            let mut next = Instance::existing(call, &next_key)?;
            next.entry.flags |= FLAG_VER | FLAG_CURRENT;
            next.write_both(call, &mut header)?;
            let is_marker = next.entry.is_delete_marker();
            head.point_to(&next_key, is_marker);
            head.log(OLH_LINK, &op.op_tag, &next_key, is_marker, 0);
        } else {
            // Resharding finds the head's place by the name.
            let nothing = bare(&key.name);
            head.point_to(&nothing, false);
            head.log(OLH_UNLINK, &op.op_tag, &nothing, false, 0);
            head.entry.exists = false;
            head.entry.pending_removal = true;
        }
    }
    if instance.entry.is_delete_marker() {
        // No object stands behind it: its entry goes now.
        instance.unlink(call, &mut header)?;
    } else {
        head.log(OLH_REMOVE_INSTANCE, &op.op_tag, &op.key, false, 0);
    }
    instance.unlink_list_entry(call, &mut header)?;
    head.write(call, &mut header)?;

    let mut log = object_entry(&op.key.name, &op.key.instance, MODIFY_UNLINK_INSTANCE, header.ver);
    log.tag = op.op_tag;
    log.zones = op.zones;
    log.bilog_flags = op.bilog_flags;
    log.timestamp = instance.entry.meta.mtime;
    finish(call, op.log_op, log, head.entry.epoch, header)
}

/// The head of a key without an instance. `EINVAL` for one with; `ECANCELED` if the head's tag is another one.
fn tagged_head(call: &mut MethodCall<'_>, key: &ObjectKey, tag: &Name) -> Result<Head, MethodStop> {
    if !key.instance.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let head = Head::read(call, &key.name)?;
    if head.entry.tag == *tag { Ok(head) } else { Err(Errno::CANCELED.into()) }
}

pub fn bucket_read_olh_log(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ReadOlhLogOp = call.argument()?;
    let mut log = tagged_head(call, &op.olh, &op.olh_tag)?.entry.pending_log;
    if let Some(after) = op.ver_marker.checked_add(1) {
        log = log.split_off(&after);
    } else {
        log.clear();
    }
    let rest = log.keys().nth(LOG_MAX).copied();
    let truncated = rest.is_some();
    if let Some(rest) = rest {
        log.split_off(&rest);
    }
    call.finish_with(&ReadOlhLogReply { log, truncated })
}

pub fn bucket_trim_olh_log(call: &mut MethodCall<'_>) -> MethodResult {
    let op: TrimOlhLogOp = call.argument()?;
    let mut head = tagged_head(call, &op.olh, &op.olh_tag)?;
    head.entry.pending_log.retain(|epoch, _| *epoch > op.ver);
    let mut header = open_header(call)?;
    head.write(call, &mut header)?;
    Ok(0)
}

/// Removes the head, and the placeholder of the object.
pub fn bucket_clear_olh(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ClearOlhOp = call.argument()?;
    if !op.key.instance.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let mut header = open_header(call)?;
    let head = tagged_head(call, &op.key, &op.olh_tag)?;
    remove_entry(call, &head.idx, &head.entry.key, &mut header)?;
    let plain = Bytes::copy_from_slice(&op.key.name);
    if let Some(entry) = call.omap_as::<DirEntry>(&plain)?
        && entry.flags & FLAG_VER_MARKER != 0
    {
        remove_entry(call, &plain, &entry.key, &mut header)?;
    }
    Ok(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::classes::rgw::index::tests::{add, complete, completion, header, index, key, stats, stored};
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::rgw::{CompleteOp, ListLogOp, ListLogReply, MODIFY_ADD, MODIFY_DEL, PrepareOp};

    fn instance(name: &str, instance: &str) -> ObjectKey {
        ObjectKey { name: name.into(), instance: instance.into() }
    }

    fn link(o: &mut Object, key: ObjectKey, delete_marker: bool) -> Result<Bytes, Errno> {
        let op = LinkOlhOp {
            key,
            delete_marker,
            olh_tag: "olh".into(),
            op_tag: "op".into(),
            ..LinkOlhOp::default()
        };
        o.call("rgw", "bucket_link_olh", &op)
    }

    /// An instance with its object, as a gateway writes it.
    pub fn put_version(o: &mut Object, name: &str, id: &str, size: u64) {
        let prepared = PrepareOp { tag: "t".into(), key: instance(name, id), ..PrepareOp::default() };
        o.call("rgw", "bucket_prepare_op", &prepared).unwrap();
        let op = CompleteOp { key: instance(name, id), ..completion(name, "t", MODIFY_ADD, 1, size) };
        complete(o, &op).unwrap();
        link(o, instance(name, id), false).unwrap();
    }

    pub fn delete_version(o: &mut Object, name: &str, id: &str) {
        link(o, instance(name, id), true).unwrap();
    }

    fn head(o: &Object, name: &str) -> OlhEntry {
        decode(&o.omap(olh_key(name.as_bytes())).unwrap())
    }

    fn unlink(o: &mut Object, key: ObjectKey) -> Result<Bytes, Errno> {
        let op = UnlinkInstanceOp {
            key,
            op_tag: "op".into(),
            olh_tag: "olh".into(),
            log_op: true,
            ..UnlinkInstanceOp::default()
        };
        o.call("rgw", "bucket_unlink_instance", &op)
    }

    fn entry_of(o: &Object, name: &str, id: &str) -> Option<DirEntry> {
        stored(o, instance_key(&instance(name, id), false))
    }

    fn steps(o: &mut Object, name: &str) -> Vec<(u64, u8, String)> {
        let op = ReadOlhLogOp { olh: key(name), ver_marker: 0, olh_tag: "olh".into() };
        let reply: ReadOlhLogReply = decode(&o.call("rgw", "bucket_read_olh_log", &op).unwrap());
        assert!(!reply.truncated);
        let all = reply.log.into_values().flatten();
        all.map(|step| (step.epoch, step.op, step.key.instance.to_string())).collect()
    }

    #[test]
    fn newest_instance_is_the_current_one() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        put_version(&mut o, "a", "two", 2);
        let (one, two) = (entry_of(&o, "a", "one").unwrap(), entry_of(&o, "a", "two").unwrap());
        assert_eq!((one.flags, one.versioned_epoch), (FLAG_VER, 2));
        assert_eq!((two.flags, two.versioned_epoch), (FLAG_VER | FLAG_CURRENT, 3));
        assert_eq!(stored(&o, list_key(&one)), Some(one));
        assert_eq!(stored(&o, list_key(&two)), Some(two));
        assert_eq!(stored(&o, "a").unwrap().flags, FLAG_VER_MARKER);
        let head = head(&o, "a");
        assert_eq!((head.key, head.epoch, head.exists), (instance("a", "two"), 3, true));
        assert_eq!(steps(&mut o, "a"), [(2, OLH_LINK, "one".into()), (3, OLH_LINK, "two".into())]);
        assert_eq!(stats(&o), (2, 3));
    }

    #[test]
    fn object_from_before_versioning_becomes_an_instance() {
        let mut o = index();
        add(&mut o, "a", 5, false);
        put_version(&mut o, "a", "one", 1);
        let plain = entry_of(&o, "a", "").unwrap();
        assert_eq!((plain.versioned_epoch, plain.flags, plain.meta.size), (1, FLAG_VER, 5));
        assert!(stored(&o, list_key(&plain)).is_some());
        assert_eq!(stored(&o, "a").unwrap().flags, FLAG_VER_MARKER);
        // The next change of the object without an id finds it behind the placeholder.
        complete(&mut o, &completion("a", "", MODIFY_DEL, 99, 0)).unwrap();
        assert_eq!((entry_of(&o, "a", ""), stats(&o)), (None, (1, 1)));
    }

    #[test]
    fn removed_current_instance_hands_over_to_the_older_one() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        put_version(&mut o, "a", "two", 2);
        let two = entry_of(&o, "a", "two").unwrap();
        unlink(&mut o, instance("a", "two")).unwrap();
        assert_eq!(stored(&o, list_key(&two)), None);
        assert!(entry_of(&o, "a", "two").is_some(), "the gateway removes it with the object");
        assert_eq!(entry_of(&o, "a", "one").unwrap().flags, FLAG_VER | FLAG_CURRENT);
        assert_eq!(head(&o, "a").key, instance("a", "one"));
        assert_eq!(
            steps(&mut o, "a")[2..],
            [(4, OLH_LINK, "one".into()), (4, OLH_REMOVE_INSTANCE, "two".into())]
        );
        unlink(&mut o, instance("a", "one")).unwrap();
        let last = head(&o, "a");
        assert_eq!((last.exists, last.pending_removal, last.key), (false, true, key("a")));
        assert_eq!(unlink(&mut o, instance("a", "three")), Err(Errno::NOENT));
        let op = ListLogOp { max: 10, ..ListLogOp::default() };
        let log: ListLogReply = decode(&o.call("rgw", "bi_log_list", &op).unwrap());
        let changes: Vec<_> = log.entries.iter().map(|e| (e.op, e.bilog_flags, e.ver.epoch)).collect();
        assert_eq!(
            changes,
            [(MODIFY_UNLINK_INSTANCE, BILOG_VERSIONED, 4), (MODIFY_UNLINK_INSTANCE, BILOG_VERSIONED, 5)]
        );
    }

    #[test]
    fn delete_marker_hides_the_object_until_it_is_removed() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        delete_version(&mut o, "a", "marker");
        let marker = entry_of(&o, "a", "marker").unwrap();
        assert_eq!(marker.flags, FLAG_DELETE_MARKER | FLAG_VER | FLAG_CURRENT);
        assert_eq!((&marker.tag[..], head(&o, "a").delete_marker), (&b"delete-marker"[..], true));
        delete_version(&mut o, "a", "second");
        unlink(&mut o, instance("a", "second")).unwrap();
        assert_eq!(entry_of(&o, "a", "second"), None);
        unlink(&mut o, instance("a", "marker")).unwrap();
        let head = head(&o, "a");
        assert_eq!((head.key, head.delete_marker), (instance("a", "one"), false));
        assert!(entry_of(&o, "a", "one").unwrap().is_visible());
    }

    #[test]
    fn object_and_marker_without_an_id_replace_each_other() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        put_version(&mut o, "a", "", 2);
        let object = entry_of(&o, "a", "").unwrap();
        delete_version(&mut o, "a", "");
        let marker = stored(&o, instance_key(&key("a"), true)).unwrap();
        assert!(marker.is_delete_marker());
        assert_eq!(stored(&o, list_key(&object)), None, "one of the two is listed");
        assert!(stored(&o, list_key(&marker)).is_some());
        let last = steps(&mut o, "a").pop().unwrap();
        assert_eq!(last, (4, OLH_REMOVE_INSTANCE, String::new()));
        put_version(&mut o, "a", "", 3);
        assert_eq!(stored(&o, instance_key(&key("a"), true)), None);
        assert_eq!(stored(&o, list_key(&marker)), None);
        assert!(entry_of(&o, "a", "").unwrap().is_visible());
    }

    #[test]
    fn older_epoch_of_another_zone_is_not_current() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        put_version(&mut o, "a", "two", 2);
        let prepared = PrepareOp { tag: "t".into(), key: instance("a", "far"), ..PrepareOp::default() };
        o.call("rgw", "bucket_prepare_op", &prepared).unwrap();
        let op = CompleteOp { key: instance("a", "far"), ..completion("a", "t", MODIFY_ADD, 1, 1) };
        complete(&mut o, &op).unwrap();
        let far = LinkOlhOp {
            key: instance("a", "far"),
            olh_tag: "olh".into(),
            olh_epoch: 2,
            ..LinkOlhOp::default()
        };
        o.call("rgw", "bucket_link_olh", &far).unwrap();
        assert_eq!(head(&o, "a").key, instance("a", "two"));
        assert_eq!(entry_of(&o, "a", "far").unwrap().flags, FLAG_VER);
        // The same epoch: the one that sorts first wins.
        let same = LinkOlhOp { olh_epoch: 3, ..far.clone() };
        o.call("rgw", "bucket_link_olh", &same).unwrap();
        assert_eq!(head(&o, "a").key, instance("a", "far"));
        let other = LinkOlhOp { olh_tag: "other".into(), olh_epoch: 9, ..far };
        assert_eq!(o.call("rgw", "bucket_link_olh", &other), Err(Errno::CANCELED));
    }

    #[test]
    fn guarded_link_leaves_a_newer_instance_alone() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        let before = header(&o).ver;
        let link = |o: &mut Object, nsec, high_precision_time| {
            let op = LinkOlhOp {
                key: instance("a", "one"),
                delete_marker: true,
                olh_tag: "olh".into(),
                log_op: true,
                unmodified_since: UTime { sec: 0, nsec },
                high_precision_time,
                ..LinkOlhOp::default()
            };
            o.call("rgw", "bucket_link_olh", &op).unwrap();
            header(o).ver
        };
        assert_eq!(link(&mut o, 5, false), before, "equal in seconds");
        assert_eq!(link(&mut o, 5, true), before + 1);
        assert!(entry_of(&o, "a", "one").unwrap().is_delete_marker());
        let missing = LinkOlhOp { key: instance("x", "one"), ..LinkOlhOp::default() };
        assert_eq!(o.call("rgw", "bucket_link_olh", &missing), Err(Errno::NOENT));
    }

    #[test]
    fn log_is_trimmed_and_the_head_cleared() {
        let mut o = index();
        put_version(&mut o, "a", "one", 1);
        unlink(&mut o, instance("a", "one")).unwrap();
        let trim = TrimOlhLogOp { olh: key("a"), ver: 2, olh_tag: "olh".into() };
        o.call("rgw", "bucket_trim_olh_log", &trim).unwrap();
        assert_eq!(steps(&mut o, "a").iter().map(|step| step.0).collect::<Vec<_>>(), [3, 3]);
        let wrong = TrimOlhLogOp { olh_tag: "x".into(), ..trim.clone() };
        assert_eq!(o.call("rgw", "bucket_trim_olh_log", &wrong), Err(Errno::CANCELED));
        let with_id = TrimOlhLogOp { olh: instance("a", "one"), ..trim };
        assert_eq!(o.call("rgw", "bucket_trim_olh_log", &with_id), Err(Errno::INVAL));
        let read = ReadOlhLogOp { olh: key("a"), ver_marker: 3, olh_tag: "olh".into() };
        let reply: ReadOlhLogReply = decode(&o.call("rgw", "bucket_read_olh_log", &read).unwrap());
        assert!(reply.log.is_empty());
        let wrong = ReadOlhLogOp { olh_tag: "x".into(), ..read };
        assert_eq!(o.call("rgw", "bucket_read_olh_log", &wrong), Err(Errno::CANCELED));

        let clear = |tag: &str| ClearOlhOp { key: key("a"), olh_tag: tag.into() };
        assert_eq!(o.call("rgw", "bucket_clear_olh", &clear("x")), Err(Errno::CANCELED));
        o.call("rgw", "bucket_clear_olh", &clear("olh")).unwrap();
        assert_eq!((o.omap(olh_key(b"a")), o.omap("a")), (None, None));
        // An object that is no placeholder stays.
        add(&mut o, "a", 1, false);
        o.call("rgw", "bucket_clear_olh", &clear("")).unwrap();
        assert!(o.omap("a").is_some());
    }
}
