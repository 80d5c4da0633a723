//! Every method of every class: one table.

use super::{MethodCall, MethodStop, hello, lock, numops, rbd, refcount, version};
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
    METHODS
        .iter()
        .find(|m| m.class.as_bytes() == class && m.name.as_bytes() == method)
        .ok_or(Errno::OPNOTSUPP)
}

macro_rules! methods {
    ($($class:ident { $($name:ident: $access:ident => $run:path,)* })*) => {
        pub(super) const METHODS: &[Method] = &[$($(Method {
            class: stringify!($class),
            name: stringify!($name),
            reads: methods!(@reads $access),
            writes: methods!(@writes $access),
            run: $run,
        },)*)*];
    };
    (@reads RD) => { true };
    (@reads WR) => { false };
    (@reads RW) => { true };
    (@writes RD) => { false };
    (@writes WR) => { true };
    (@writes RW) => { true };
}

methods! {
    hello {
        say_hello: RD => hello::say_hello,
        record_hello: WR => hello::record_hello,
        write_return_data: WR => hello::write_return_data,
        writes_dont_return_data: WR => hello::write_return_data,
        write_too_much_return_data: WR => hello::write_too_much_return_data,
        replay: RD => hello::replay,
        turn_it_to_11: RW => hello::turn_it_to_11,
        bad_reader: WR => hello::bad_reader,
        bad_writer: RD => hello::bad_writer,
    }
    lock {
        lock: RW => lock::lock,
        unlock: RW => lock::unlock,
        break_lock: RW => lock::break_lock,
        get_info: RD => lock::get_info,
        list_locks: RD => lock::list_locks,
        assert_locked: RD => lock::assert_locked,
        set_cookie: RW => lock::set_cookie,
    }
    numops {
        add: RW => numops::add,
        mul: RW => numops::mul,
    }
    rbd {
        get_all_features: RD => rbd::get_all_features,
        get_id: RD => rbd::get_id,
    }
    refcount {
        get: RW => refcount::get,
        put: RW => refcount::put,
        set: RW => refcount::set,
        read: RD => refcount::read,
    }
    version {
        set: RW => version::set,
        inc: RW => version::inc,
        inc_conds: RW => version::inc,
        read: RD => version::read,
        check_conds: RD => version::check,
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
        assert_eq!(find(b"rgw", b"get").unwrap_err(), Errno::OPNOTSUPP);
        assert_eq!(find(b"nothing", b"get").unwrap_err(), Errno::PERM);
        assert_eq!(find(b"\xff", b"get").unwrap_err(), Errno::PERM);
    }
}
