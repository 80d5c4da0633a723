//! The OSD's types against values that Ceph encoded: all decode; those of the version that shoal writes come out
//! byte for byte again, the rest decode again to the same value.

use super::cls::{lock, refcount, version};
use super::*;
use codec::{Decode, Encode, Features};
use std::fmt::Debug;

/// From which release on shoal writes the very bytes: the first that has the newest version of the type. (A SnapSet
/// also listed snapshots until Squid, in a place that is empty now.)
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum ExactSince {
    Pacific,
    Reef,
    Tentacle,
}

fn check<T: Decode + Encode + PartialEq + Debug>(name: &str, exact_since: ExactSince) {
    let releases = [
        ("16.2", ExactSince::Pacific),
        ("18.2", ExactSince::Reef),
        ("19.2", ExactSince::Reef),
        ("20.3", ExactSince::Tentacle),
    ];
    for (release, at) in releases {
        let Some(values) = crate::corpus::values(release, name) else {
            eprintln!("{name}: no corpus of {release}, skipped");
            continue;
        };
        assert!(!values.is_empty(), "{release} has no {name}");
        for (file, bytes) in values {
            let value: T =
                codec::decode_exact(&bytes).unwrap_or_else(|e| panic!("{release} {name} {file}: {e}"));
            let again = value.to_vec(Features::ALL);
            if at >= exact_since {
                assert!(bytes == again, "{release} {name} {file}: {value:?}\n{bytes:02x?}\n{again:02x?}");
            } else {
                assert_eq!(codec::decode_exact::<T>(&again), Ok(value), "{release} {name} {file}");
            }
        }
    }
}

macro_rules! corpus {
    ($($test:ident: $ty:ty = $name:literal since $release:ident;)*) => {$(
        #[test]
        fn $test() {
            check::<$ty>($name, ExactSince::$release);
        }
    )*};
}

corpus! {
    object_info: ObjectInfo = "object_info_t" since Tentacle;
    object_manifest: ObjectManifest = "object_manifest_t" since Pacific;
    chunk_info: ChunkInfo = "chunk_info_t" since Pacific;
    watch_info: WatchInfo = "watch_info_t" since Pacific;
    watch_item: WatchItem = "watch_item_t" since Pacific;
    watcher_list: WatcherList = "obj_list_watch_response_t" since Pacific;
    snap_set: SnapSet = "SnapSet" since Tentacle;
    clone_info: CloneInfo = "clone_info" since Pacific;
    snap_list: SnapList = "obj_list_snap_response_t" since Pacific;
    log_entry: PgLogEntry = "pg_log_entry_t" since Tentacle;
    log_dup: PgLogDup = "pg_log_dup_t" since Pacific;
    op_return: OpReturn = "pg_log_op_return_item_t" since Pacific;
    mod_desc: ModDesc = "ObjectModDesc" since Pacific;
    clean_regions: CleanRegions = "ObjectCleanRegions" since Pacific;
    list_page: ListPage = "pg_nls_response_t" since Pacific;
    legacy_list_page: LegacyListPage = "pg_ls_response_t" since Pacific;
    locator: ObjectLocator = "object_locator_t" since Pacific;
    redirect: RequestRedirect = "request_redirect_t" since Pacific;
    reqid: ReqId = "osd_reqid_t" since Pacific;
    hobject: HObject = "hobject_t" since Pacific;
    pg: PgId = "pg_t" since Pacific;
    spg: SpgId = "spg_t" since Pacific;
    eversion: Eversion = "eversion_t" since Pacific;
    lock_op: lock::LockOp = "cls_lock_lock_op" since Pacific;
    unlock_op: lock::UnlockOp = "cls_lock_unlock_op" since Pacific;
    break_op: lock::BreakOp = "cls_lock_break_op" since Pacific;
    get_info_op: lock::GetInfoOp = "cls_lock_get_info_op" since Pacific;
    get_info_reply: lock::LockInfo = "cls_lock_get_info_reply" since Pacific;
    list_locks_reply: lock::ListLocksReply = "cls_lock_list_locks_reply" since Pacific;
    assert_op: lock::AssertOp = "cls_lock_assert_op" since Pacific;
    set_cookie_op: lock::SetCookieOp = "cls_lock_set_cookie_op" since Pacific;
    lock_info: lock::LockInfo = "rados::cls::lock::lock_info_t" since Pacific;
    locker_id: lock::LockerId = "rados::cls::lock::locker_id_t" since Pacific;
    locker_info: lock::LockerInfo = "rados::cls::lock::locker_info_t" since Pacific;
    refcount_get_op: refcount::TagOp = "cls_refcount_get_op" since Pacific;
    refcount_put_op: refcount::TagOp = "cls_refcount_put_op" since Pacific;
    refcount_set_op: refcount::SetOp = "cls_refcount_set_op" since Pacific;
    refcount_read_op: refcount::ReadOp = "cls_refcount_read_op" since Pacific;
    refcount_read_ret: refcount::ReadReply = "cls_refcount_read_ret" since Pacific;
    obj_refcount: refcount::Refcount = "obj_refcount" since Pacific;
    obj_version: version::ObjVersion = "obj_version" since Pacific;
    obj_version_cond: version::VersionCond = "obj_version_cond" since Pacific;
    version_set_op: version::VersionBox = "cls_version_set_op" since Pacific;
    version_read_ret: version::VersionBox = "cls_version_read_ret" since Pacific;
    version_inc_op: version::CondsOp = "cls_version_inc_op" since Pacific;
    version_check_op: version::CondsOp = "cls_version_check_op" since Pacific;
}
