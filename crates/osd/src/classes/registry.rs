//! Every method of every class: one table.

use super::{
    MethodCall, MethodStop, cas, cephfs, cmpomap, fifo, hello, journal, lock, log, numops, otp, queue, rbd,
    refcount, rgw, rgw_gc, sem_set, timeindex, two_phase_queue, user, version,
};
use crate::errno::Errno;

/// One method. Without `reads` it may not read the object, without `writes` not change it: trying is `EIO`.
#[derive(Debug)]
pub struct Method {
    pub class: &'static str,
    pub name: &'static str,
    pub reads: bool,
    pub writes: bool,
    /// One run; returns the call's result.
    pub(super) run: fn(&mut MethodCall<'_>) -> Result<i32, MethodStop>,
}

impl PartialEq for Method {
    fn eq(&self, o: &Method) -> bool {
        (self.class, self.name) == (o.class, o.name)
    }
}

impl Eq for Method {}

impl Method {
    /// True if every client with the right to execute may call the class (`osd_class_default_list`); others need
    /// a capability that names them.
    pub fn allowed_by_default(&self) -> bool {
        DEFAULT_CLASSES.contains(&self.class)
    }
}

const DEFAULT_CLASSES: &[&str] = &[
    "2pc_queue",
    "cas",
    "cephfs",
    "cmpomap",
    "fifo",
    "hello",
    "journal",
    "lock",
    "log",
    "numops",
    "otp",
    "queue",
    "rbd",
    "refcount",
    "rgw",
    "rgw_gc",
    "sem_set",
    "timeindex",
    "user",
    "version",
];

/// `EPERM` for a class that no OSD may load (`osd_class_load_list`, the same list by default); `EOPNOTSUPP` for one
/// that is not here, and for a method that it does not have.
pub fn find(class: &[u8], method: &[u8]) -> Result<&'static Method, Errno> {
    if !DEFAULT_CLASSES.iter().any(|c| c.as_bytes() == class) {
        return Err(Errno::PERM);
    }
    let of_class = CLASSES.iter().find(|methods| methods[0].class.as_bytes() == class).unwrap_or(&NONE);
    of_class.iter().find(|m| m.name.as_bytes() == method).ok_or(Errno::OPNOTSUPP)
}

const NONE: &[Method] = &[];

/// All methods of all classes.
pub(super) fn methods() -> impl Iterator<Item = &'static Method> {
    CLASSES.iter().copied().flatten()
}

macro_rules! methods {
    ($($class:literal { $($name:literal: $access:ident => $run:path,)* })*) => {
        /// The methods of each class.
        const CLASSES: &[&[Method]] = &[$(&[$(Method {
            class: $class,
            name: $name,
            reads: methods!(@reads $access),
            writes: methods!(@writes $access),
            run: $run,
        },)*],)*];
    };
    (@reads RD) => { true };
    (@reads WR) => { false };
    (@reads RW) => { true };
    (@writes RD) => { false };
    (@writes WR) => { true };
    (@writes RW) => { true };
}

methods! {
    "2pc_queue" {
        "2pc_queue_init": RW => two_phase_queue::two_phase_queue_init,
        "2pc_queue_get_capacity": RD => two_phase_queue::two_phase_queue_get_capacity,
        "2pc_queue_get_topic_stats": RD => two_phase_queue::two_phase_queue_get_topic_stats,
        "2pc_queue_reserve": RW => two_phase_queue::two_phase_queue_reserve,
        "2pc_queue_commit": RW => two_phase_queue::two_phase_queue_commit,
        "2pc_queue_abort": RW => two_phase_queue::two_phase_queue_abort,
        "2pc_queue_list_reservations": RD => two_phase_queue::two_phase_queue_list_reservations,
        "2pc_queue_list_entries": RD => two_phase_queue::two_phase_queue_list_entries,
        "2pc_queue_remove_entries": RW => two_phase_queue::two_phase_queue_remove_entries,
        "2pc_queue_expire_reservations": RW => two_phase_queue::two_phase_queue_expire_reservations,
    }
    "cas" {
        "chunk_create_or_get_ref": RW => cas::chunk_create_or_get_ref,
        "chunk_get_ref": RW => cas::chunk_get_ref,
        "chunk_put_ref": RW => cas::chunk_put_ref,
        "references_chunk": RD => cas::references_chunk,
    }
    "cephfs" {
        "accumulate_inode_metadata": RW => cephfs::accumulate_inode_metadata,
    }
    "cmpomap" {
        "cmp_vals": RD => cmpomap::cmp_vals,
        "cmp_set_vals": RW => cmpomap::cmp_set_vals,
        "cmp_rm_keys": RW => cmpomap::cmp_rm_keys,
    }
    "fifo" {
        "create_meta": RW => fifo::head::create_meta,
        "get_meta": RD => fifo::head::get_meta,
        "update_meta": RW => fifo::head::update_meta,
        "init_part": RW => fifo::part::init_part,
        "push_part": RW => fifo::part::push_part,
        "trim_part": RW => fifo::part::trim_part,
        "part_list": RD => fifo::part::part_list,
        "get_part_info": RD => fifo::part::get_part_info,
    }
    "hello" {
        "say_hello": RD => hello::say_hello,
        "record_hello": WR => hello::record_hello,
        "write_return_data": WR => hello::write_return_data,
        "writes_dont_return_data": WR => hello::write_return_data,
        "write_too_much_return_data": WR => hello::write_too_much_return_data,
        "replay": RD => hello::replay,
        "turn_it_to_11": RW => hello::turn_it_to_11,
        "bad_reader": WR => hello::bad_reader,
        "bad_writer": RD => hello::bad_writer,
    }
    "journal" {
        "create": RW => journal::create,
        "get_order": RD => journal::get_order,
        "get_splay_width": RD => journal::get_splay_width,
        "get_pool_id": RD => journal::get_pool_id,
        "get_minimum_set": RD => journal::get_minimum_set,
        "set_minimum_set": RW => journal::set_minimum_set,
        "get_active_set": RD => journal::get_active_set,
        "set_active_set": RW => journal::set_active_set,
        "get_client": RD => journal::get_client,
        "client_register": RW => journal::client_register,
        "client_update_data": RW => journal::client_update_data,
        "client_update_state": RW => journal::client_update_state,
        "client_unregister": RW => journal::client_unregister,
        "client_commit": RW => journal::client_commit,
        "client_list": RD => journal::client_list,
        "get_next_tag_tid": RD => journal::get_next_tag_tid,
        "get_tag": RD => journal::get_tag,
        "tag_create": RW => journal::tag_create,
        "tag_list": RD => journal::tag_list,
        "guard_append": RW => journal::guard_append,
        "append": RW => journal::append,
    }
    "lock" {
        "lock": RW => lock::lock,
        "unlock": RW => lock::unlock,
        "break_lock": RW => lock::break_lock,
        "get_info": RD => lock::get_info,
        "list_locks": RD => lock::list_locks,
        "assert_locked": RD => lock::assert_locked,
        "set_cookie": RW => lock::set_cookie,
    }
    "log" {
        "add": RW => log::add,
        "list": RD => log::list,
        "trim": RW => log::trim,
        "info": RD => log::info,
    }
    "numops" {
        "add": RW => numops::add,
        "mul": RW => numops::mul,
    }
    "otp" {
        "otp_set": RW => otp::otp_set,
        "otp_get": RD => otp::otp_get,
        "otp_check": RW => otp::otp_check,
        "otp_get_result": RD => otp::otp_get_result,
        "otp_remove": RW => otp::otp_remove,
        "get_current_time": RD => otp::get_current_time,
    }
    "queue" {
        "queue_init": RW => queue::queue_init,
        "queue_get_capacity": RD => queue::queue_get_capacity,
        "queue_enqueue": RW => queue::queue_enqueue,
        "queue_list_entries": RD => queue::queue_list_entries,
        "queue_remove_entries": RW => queue::queue_remove_entries,
    }
    "rbd" {
        "create": RW => rbd::header::create,
        "get_features": RD => rbd::header::get_features,
        "set_features": RW => rbd::header::set_features,
        "get_size": RD => rbd::header::get_size,
        "set_size": RW => rbd::header::set_size,
        "get_snapcontext": RD => rbd::snapshot::get_snapcontext,
        "get_object_prefix": RD => rbd::header::get_object_prefix,
        "get_data_pool": RD => rbd::header::get_data_pool,
        "get_snapshot_name": RD => rbd::snapshot::get_snapshot_name,
        "get_snapshot_timestamp": RD => rbd::snapshot::get_snapshot_timestamp,
        "snapshot_get": RD => rbd::snapshot::snapshot_get,
        "snapshot_add": RW => rbd::snapshot::snapshot_add,
        "snapshot_remove": RW => rbd::snapshot::snapshot_remove,
        "snapshot_rename": RW => rbd::snapshot::snapshot_rename,
        "snapshot_trash_add": RW => rbd::snapshot::snapshot_trash_add,
        "get_all_features": RD => rbd::header::get_all_features,
        "get_parent": RD => rbd::parent::get_parent,
        "set_parent": RW => rbd::parent::set_parent,
        "remove_parent": RW => rbd::parent::remove_parent,
        "parent_get": RD => rbd::parent::parent_get,
        "parent_overlap_get": RD => rbd::parent::parent_overlap_get,
        "parent_attach": RW => rbd::parent::parent_attach,
        "parent_detach": RW => rbd::parent::parent_detach,
        "set_protection_status": RW => rbd::snapshot::set_protection_status,
        "get_protection_status": RD => rbd::snapshot::get_protection_status,
        "get_stripe_unit_count": RD => rbd::header::get_stripe_unit_count,
        "set_stripe_unit_count": RW => rbd::header::set_stripe_unit_count,
        "get_create_timestamp": RD => rbd::header::get_create_timestamp,
        "get_access_timestamp": RD => rbd::header::get_access_timestamp,
        "get_modify_timestamp": RD => rbd::header::get_modify_timestamp,
        "get_flags": RD => rbd::header::get_flags,
        "set_flags": RW => rbd::header::set_flags,
        "op_features_get": RD => rbd::header::op_features_get,
        "op_features_set": RW => rbd::header::op_features_set,
        "metadata_list": RD => rbd::metadata::metadata_list,
        "metadata_set": RW => rbd::metadata::metadata_set,
        "metadata_remove": RW => rbd::metadata::metadata_remove,
        "metadata_get": RD => rbd::metadata::metadata_get,
        "snapshot_get_limit": RD => rbd::snapshot::snapshot_get_limit,
        "snapshot_set_limit": RW => rbd::snapshot::snapshot_set_limit,
        "child_attach": RW => rbd::children::child_attach,
        "child_detach": RW => rbd::children::child_detach,
        "children_list": RD => rbd::children::children_list,
        "migration_set": RW => rbd::migration::migration_set,
        "migration_set_state": RW => rbd::migration::migration_set_state,
        "migration_get": RD => rbd::migration::migration_get,
        "migration_remove": RW => rbd::migration::migration_remove,
        "set_modify_timestamp": RW => rbd::header::set_modify_timestamp,
        "set_access_timestamp": RW => rbd::header::set_access_timestamp,
        "add_child": RW => rbd::children::add_child,
        "remove_child": RW => rbd::children::remove_child,
        "get_children": RD => rbd::children::get_children,
        "get_id": RD => rbd::directory::get_id,
        "set_id": RW => rbd::directory::set_id,
        "dir_get_id": RD => rbd::directory::dir_get_id,
        "dir_get_name": RD => rbd::directory::dir_get_name,
        "dir_list": RD => rbd::directory::dir_list,
        "dir_add_image": RW => rbd::directory::dir_add_image,
        "dir_remove_image": RW => rbd::directory::dir_remove_image,
        "dir_rename_image": RW => rbd::directory::dir_rename_image,
        "dir_state_assert": RD => rbd::directory::dir_state_assert,
        "dir_state_set": RW => rbd::directory::dir_state_set,
        "object_map_load": RD => rbd::object_map::object_map_load,
        "object_map_save": RW => rbd::object_map::object_map_save,
        "object_map_resize": RW => rbd::object_map::object_map_resize,
        "object_map_update": RW => rbd::object_map::object_map_update,
        "object_map_snap_add": RW => rbd::object_map::object_map_snap_add,
        "object_map_snap_remove": RW => rbd::object_map::object_map_snap_remove,
        "snap_list": RD => rbd::old_format::snap_list,
        "snap_add": RW => rbd::old_format::snap_add,
        "snap_remove": RW => rbd::old_format::snap_remove,
        "snap_rename": RW => rbd::old_format::snap_rename,
        "mirror_uuid_get": RD => rbd::mirror::mirror_uuid_get,
        "mirror_uuid_set": RW => rbd::mirror::mirror_uuid_set,
        "mirror_mode_get": RD => rbd::mirror::mirror_mode_get,
        "mirror_mode_set": RW => rbd::mirror::mirror_mode_set,
        "mirror_remote_namespace_get": RD => rbd::mirror::mirror_remote_namespace_get,
        "mirror_remote_namespace_set": RW => rbd::mirror::mirror_remote_namespace_set,
        "mirror_peer_ping": RW => rbd::mirror::peers::mirror_peer_ping,
        "mirror_peer_list": RD => rbd::mirror::peers::mirror_peer_list,
        "mirror_peer_add": RW => rbd::mirror::peers::mirror_peer_add,
        "mirror_peer_remove": RW => rbd::mirror::peers::mirror_peer_remove,
        "mirror_peer_set_client": RW => rbd::mirror::peers::mirror_peer_set_client,
        "mirror_peer_set_cluster": RW => rbd::mirror::peers::mirror_peer_set_cluster,
        "mirror_peer_set_direction": RW => rbd::mirror::peers::mirror_peer_set_direction,
        "mirror_image_list": RD => rbd::mirror::images::mirror_image_list,
        "mirror_image_get_image_id": RD => rbd::mirror::images::mirror_image_get_image_id,
        "mirror_image_get": RD => rbd::mirror::images::mirror_image_get,
        "mirror_image_set": RW => rbd::mirror::images::mirror_image_set,
        "mirror_image_remove": RW => rbd::mirror::images::mirror_image_remove,
        "mirror_image_status_set": RW => rbd::mirror::status::mirror_image_status_set,
        "mirror_image_status_remove": RW => rbd::mirror::status::mirror_image_status_remove,
        "mirror_image_status_get": RD => rbd::mirror::status::mirror_image_status_get,
        "mirror_image_status_list": RD => rbd::mirror::status::mirror_image_status_list,
        "mirror_image_status_get_summary": RD => rbd::mirror::status::mirror_image_status_get_summary,
        "mirror_image_status_remove_down": RW => rbd::mirror::status::mirror_image_status_remove_down,
        "mirror_image_instance_get": RD => rbd::mirror::status::mirror_image_instance_get,
        "mirror_image_instance_list": RD => rbd::mirror::status::mirror_image_instance_list,
        "mirror_instances_list": RD => rbd::mirror::instances::mirror_instances_list,
        "mirror_instances_add": RW => rbd::mirror::instances::mirror_instances_add,
        "mirror_instances_remove": RW => rbd::mirror::instances::mirror_instances_remove,
        "mirror_image_map_list": RD => rbd::mirror::image_map::mirror_image_map_list,
        "mirror_image_map_update": WR => rbd::mirror::image_map::mirror_image_map_update,
        "mirror_image_map_remove": WR => rbd::mirror::image_map::mirror_image_map_remove,
        "mirror_image_snapshot_unlink_peer": RW => rbd::mirror::snapshots::mirror_image_snapshot_unlink_peer,
        "mirror_image_snapshot_set_copy_progress": RW => rbd::mirror::snapshots::mirror_image_snapshot_set_copy_progress,
        "group_dir_list": RD => rbd::group::group_dir_list,
        "group_dir_add": RW => rbd::group::group_dir_add,
        "group_dir_remove": RW => rbd::group::group_dir_remove,
        "group_dir_rename": RW => rbd::group::group_dir_rename,
        "group_image_remove": RW => rbd::group::group_image_remove,
        "group_image_list": RD => rbd::group::group_image_list,
        "group_image_set": RW => rbd::group::group_image_set,
        "image_group_add": RW => rbd::group::image_group_add,
        "image_group_remove": RW => rbd::group::image_group_remove,
        "image_group_get": RD => rbd::group::image_group_get,
        "group_snap_set": RW => rbd::group_snapshot::group_snap_set,
        "group_snap_remove": RW => rbd::group_snapshot::group_snap_remove,
        "group_snap_get_by_id": RD => rbd::group_snapshot::group_snap_get_by_id,
        "group_snap_list": RD => rbd::group_snapshot::group_snap_list,
        "group_snap_list_order": RD => rbd::group_snapshot::group_snap_list_order,
        "trash_add": RW => rbd::trash::trash_add,
        "trash_remove": RW => rbd::trash::trash_remove,
        "trash_list": RD => rbd::trash::trash_list,
        "trash_get": RD => rbd::trash::trash_get,
        "trash_state_set": RW => rbd::trash::trash_state_set,
        "namespace_add": RW => rbd::namespaces::namespace_add,
        "namespace_remove": RW => rbd::namespaces::namespace_remove,
        "namespace_list": RD => rbd::namespaces::namespace_list,
        "copyup": RW => rbd::data::copyup,
        "sparse_copyup": RW => rbd::data::sparse_copyup,
        "assert_snapc_seq": RW => rbd::data::assert_snapc_seq,
        "sparsify": RW => rbd::data::sparsify,
    }
    "refcount" {
        "get": RW => refcount::get,
        "put": RW => refcount::put,
        "set": RW => refcount::set,
        "read": RD => refcount::read,
    }
    "rgw" {
        "bucket_init_index": RW => rgw::index::bucket_init_index,
        "bucket_init_index2": RW => rgw::index::bucket_init_index,
        "bucket_set_tag_timeout": RW => rgw::index::bucket_set_tag_timeout,
        "bucket_list": RD => rgw::listing::bucket_list,
        "bucket_check_index": RD => rgw::index::bucket_check_index,
        "bucket_rebuild_index": RW => rgw::index::bucket_rebuild_index,
        "bucket_update_stats": RW => rgw::index::bucket_update_stats,
        "bucket_prepare_op": RW => rgw::index::bucket_prepare_op,
        "bucket_complete_op": RW => rgw::index::bucket_complete_op,
        "bucket_link_olh": RW => rgw::versions::bucket_link_olh,
        "bucket_unlink_instance": RW => rgw::versions::bucket_unlink_instance,
        "bucket_read_olh_log": RD => rgw::versions::bucket_read_olh_log,
        "bucket_trim_olh_log": RW => rgw::versions::bucket_trim_olh_log,
        "bucket_clear_olh": RW => rgw::versions::bucket_clear_olh,
        "obj_remove": RW => rgw::object::obj_remove,
        "obj_store_pg_ver": WR => rgw::object::obj_store_pg_ver,
        "obj_check_attrs_prefix": RD => rgw::object::obj_check_attrs_prefix,
        "obj_check_mtime": RD => rgw::object::obj_check_mtime,
        "bi_get": RD => rgw::entries::bi_get,
        "bi_put": RW => rgw::entries::bi_put,
        "bi_put_entries": RW => rgw::entries::bi_put_entries,
        "bi_list": RD => rgw::entries::bi_list,
        "reshard_log_trim": RW => rgw::entries::reshard_log_trim,
        "bi_log_list": RD => rgw::index_log::bi_log_list,
        "bi_log_trim": RW => rgw::index_log::bi_log_trim,
        "dir_suggest_changes": RW => rgw::suggest::dir_suggest_changes,
        "bi_log_resync": RW => rgw::index_log::bi_log_resync,
        "bi_log_stop": RW => rgw::index_log::bi_log_stop,
        "user_usage_log_add": RW => rgw::usage::user_usage_log_add,
        "user_usage_log_read": RD => rgw::usage::user_usage_log_read,
        "user_usage_log_trim": RW => rgw::usage::user_usage_log_trim,
        "usage_log_clear": WR => rgw::usage::usage_log_clear,
        "gc_set_entry": RW => rgw::garbage::gc_set_entry,
        "gc_defer_entry": RW => rgw::garbage::gc_defer_entry,
        "gc_list": RD => rgw::garbage::gc_list,
        "gc_remove": RW => rgw::garbage::gc_remove,
        "lc_get_entry": RD => rgw::lifecycle::lc_get_entry,
        "lc_set_entry": RW => rgw::lifecycle::lc_set_entry,
        "lc_rm_entry": RW => rgw::lifecycle::lc_rm_entry,
        "lc_get_next_entry": RD => rgw::lifecycle::lc_get_next_entry,
        "lc_put_head": RW => rgw::lifecycle::lc_put_head,
        "lc_get_head": RD => rgw::lifecycle::lc_get_head,
        "lc_list_entries": RD => rgw::lifecycle::lc_list_entries,
        "mp_upload_part_info_update": RW => rgw::upload::mp_upload_part_info_update,
        "reshard_add": RW => rgw::reshard::reshard_add,
        "reshard_list": RD => rgw::reshard::reshard_list,
        "reshard_get": RD => rgw::reshard::reshard_get,
        "reshard_remove": RW => rgw::reshard::reshard_remove,
        "set_bucket_resharding": RW => rgw::reshard::set_bucket_resharding,
        "clear_bucket_resharding": RW => rgw::reshard::clear_bucket_resharding,
        "guard_bucket_resharding": RD => rgw::reshard::guard_bucket_resharding,
        "get_bucket_resharding": RD => rgw::reshard::get_bucket_resharding,
    }
    "rgw_gc" {
        "rgw_gc_queue_init": RW => rgw_gc::rgw_gc_queue_init,
        "rgw_gc_queue_enqueue": RW => rgw_gc::rgw_gc_queue_enqueue,
        "rgw_gc_queue_list_entries": RD => rgw_gc::rgw_gc_queue_list_entries,
        "rgw_gc_queue_remove_entries": RW => rgw_gc::rgw_gc_queue_remove_entries,
        "rgw_gc_queue_update_entry": RW => rgw_gc::rgw_gc_queue_update_entry,
    }
    "sem_set" {
        "increment": RW => sem_set::increment,
        "decrement": RW => sem_set::decrement,
        "reset": RW => sem_set::reset,
        "list": RD => sem_set::list,
    }
    "timeindex" {
        "add": RW => timeindex::add,
        "list": RD => timeindex::list,
        "trim": RW => timeindex::trim,
    }
    "user" {
        "set_buckets_info": RW => user::set_buckets_info,
        "complete_stats_sync": RW => user::complete_stats_sync,
        "remove_bucket": RW => user::remove_bucket,
        "list_buckets": RD => user::list_buckets,
        "get_header": RD => user::get_header,
        "reset_user_stats": RW => user::reset_user_stats,
        "reset_user_stats2": RW => user::reset_user_stats2,
        "account_resource_add": RW => user::account_resource_add,
        "account_resource_get": RD => user::account_resource_get,
        "account_resource_rm": RW => user::account_resource_rm,
        "account_resource_list": RD => user::account_resource_list,
    }
    "version" {
        "set": RW => version::set,
        "inc": RW => version::inc,
        "inc_conds": RW => version::inc,
        "read": RD => version::read,
        "check_conds": RD => version::check,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_found_by_class_and_name() {
        let m = find(b"lock", b"get_info").unwrap();
        assert_eq!((m.class, m.name, m.reads, m.writes), ("lock", "get_info", true, false));
        assert!(m.allowed_by_default());
        assert_eq!(find(b"lock", b"get").unwrap_err(), Errno::OPNOTSUPP);
        assert_eq!(find(b"rgw", b"nothing").unwrap_err(), Errno::OPNOTSUPP);
        assert_eq!(find(b"nothing", b"get").unwrap_err(), Errno::PERM);
        assert_eq!(find(b"\xff", b"get").unwrap_err(), Errno::PERM);
    }
}
