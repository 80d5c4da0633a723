//! An operation on one object, and the builders of its list of steps.

use bytes::Bytes;
use codec::{Features, Writer};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::OsdOps;
use wire::types::osd_op::{AllocHint, Extent, XattrParams};
use wire::types::{Name, OpCode, OpFlags, OpParams, OsdFlags, OsdOp, PoolId, SnapId};

/// The name of an object: pool, namespace, key and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectRef {
    pub pool: PoolId,
    pub namespace: Name,
    /// Places the object instead of its name; empty for most.
    pub key: Name,
    pub name: Name,
}

impl ObjectRef {
    pub fn new(pool: PoolId, name: impl Into<Name>) -> ObjectRef {
        ObjectRef { pool, namespace: Name::EMPTY, key: Name::EMPTY, name: name.into() }
    }

    pub fn in_namespace(self, namespace: impl Into<Name>) -> ObjectRef {
        ObjectRef { namespace: namespace.into(), ..self }
    }

    pub fn with_key(self, key: impl Into<Name>) -> ObjectRef {
        ObjectRef { key: key.into(), ..self }
    }
}

/// Steps on one object, done together or not at all.
#[derive(Clone, PartialEq, Debug)]
pub struct Operation {
    pub object: ObjectRef,
    /// The PG itself, for operations without an object (listings): a seed, which then is the object's hash.
    pub pg_seed: Option<u32>,
    pub ops: OsdOps,
    /// `READ` or `WRITE`, and other flags of the caller.
    pub flags: OsdFlags,
    /// A read's version: the live object, or a snapshot of it.
    pub snap: SnapId,
    /// A write's snapshot context: its sequence and its snapshots, newest first.
    pub snap_seq: SnapId,
    pub snaps: Vec<SnapId>,
    /// Give up after this long. A write that timed out may have happened.
    pub timeout: Option<Duration>,
}

impl Operation {
    pub fn read(object: ObjectRef, steps: ReadOps) -> Operation {
        Operation::new(object, steps.0, OsdFlags::READ)
    }

    pub fn write(object: ObjectRef, steps: WriteOps) -> Operation {
        // A write that also looks (a guard, a class call) must not pass reads that were sent before it.
        let reads = steps.0.iter().any(|op| op.code.reads() || op.code == OpCode::CALL);
        let flags = if reads { OsdFlags::WRITE | OsdFlags::READ } else { OsdFlags::WRITE };
        Operation::new(object, steps.0, flags)
    }

    pub(crate) fn new(object: ObjectRef, ops: OsdOps, flags: OsdFlags) -> Operation {
        Operation {
            object,
            pg_seed: None,
            ops,
            flags,
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            timeout: None,
        }
    }

    pub fn with_timeout(self, timeout: Duration) -> Operation {
        Operation { timeout: Some(timeout), ..self }
    }

    pub fn with_flags(self, flags: OsdFlags) -> Operation {
        Operation { flags: self.flags | flags, ..self }
    }

    pub fn at_snap(self, snap: SnapId) -> Operation {
        Operation { snap, ..self }
    }

    pub fn with_snap_context(self, snap_seq: SnapId, snaps: Vec<SnapId>) -> Operation {
        Operation { snap_seq, snaps, ..self }
    }

    pub fn writes(&self) -> bool {
        self.flags.contains(OsdFlags::WRITE)
    }
}

/// Steps that change nothing. Each answers in its place of the reply; see [`crate::reply`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReadOps(OsdOps);

/// Steps that change the object.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WriteOps(OsdOps);

fn encoded(fill: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    fill(&mut w);
    w.into_bytes()
}

macro_rules! steps {
    ($builder:ident) => {
        impl $builder {
            pub fn new() -> $builder {
                $builder::default()
            }

            /// Any step, as it goes over the wire.
            pub fn op(mut self, op: OsdOp) -> $builder {
                self.0.push(op);
                self
            }

            /// Flags for the step added last.
            pub fn with_op_flags(mut self, flags: OpFlags) -> $builder {
                if let Some(op) = self.0.last_mut() {
                    op.flags |= flags;
                }
                self
            }

            pub fn ops(&self) -> &[OsdOp] {
                &self.0
            }

            /// Fail with `-ERANGE` or `-EOVERFLOW` unless the object has this version.
            pub fn assert_version(self, version: u64) -> $builder {
                let mut params = [0; 28];
                params[8..16].copy_from_slice(&version.to_le_bytes());
                self.op(OsdOp::new(OpCode::ASSERT_VER, OpParams(params), Bytes::new()))
            }

            /// Fail with `-ENOENT` unless the object exists.
            pub fn assert_exists(self) -> $builder {
                self.op(OsdOp::bare(OpCode::STAT))
            }

            /// Fail unless the bytes at `offset` are these.
            pub fn compare_extent(self, offset: u64, data: Bytes) -> $builder {
                let len = data.len() as u64;
                self.op(OsdOp::extent(OpCode::CMPEXT, offset, len, data))
            }

            /// Fail with `-ECANCELED` unless the attribute compares so (`op_value::CMP_*`, `CMP_MODE_*`).
            pub fn compare_xattr(
                self,
                name: impl AsRef<[u8]>,
                cmp_op: u8,
                cmp_mode: u8,
                value: &[u8],
            ) -> $builder {
                let name = name.as_ref();
                let params = XattrParams {
                    name_len: name.len() as u32,
                    value_len: value.len() as u32,
                    cmp_op,
                    cmp_mode,
                };
                self.op(OsdOp::new(OpCode::CMPXATTR, params, [name, value].concat().into()))
            }

            /// Fail with `-ECANCELED` unless each key's value compares so.
            pub fn compare_omap(self, assertions: &BTreeMap<Bytes, (Bytes, i32)>) -> $builder {
                self.op(OsdOp::new(OpCode::OMAP_CMP, OpParams::default(), encoded(|w| w.put(assertions))))
            }

            /// Call an object class. Names longer than 255 bytes cannot be said and make a call that fails.
            pub fn exec(self, class: &str, method: &str, argument: &[u8]) -> $builder {
                self.op(OsdOp::call(class, method, argument).unwrap_or_else(|| OsdOp::bare(OpCode::CALL)))
            }
        }
    };
}

steps!(ReadOps);
steps!(WriteOps);

impl ReadOps {
    /// `len` 0 reads to the end.
    pub fn read(self, offset: u64, len: u64) -> ReadOps {
        self.op(OsdOp::extent(OpCode::READ, offset, len, Bytes::new()))
    }

    pub fn sparse_read(self, offset: u64, len: u64) -> ReadOps {
        self.op(OsdOp::extent(OpCode::SPARSE_READ, offset, len, Bytes::new()))
    }

    pub fn stat(self) -> ReadOps {
        self.op(OsdOp::bare(OpCode::STAT))
    }

    pub fn get_xattr(self, name: impl AsRef<[u8]>) -> ReadOps {
        self.op(OsdOp::xattr(OpCode::GETXATTR, name, &[]))
    }

    pub fn get_xattrs(self) -> ReadOps {
        self.op(OsdOp::bare(OpCode::GETXATTRS))
    }

    /// Keys greater than `after`, at most `max`.
    pub fn omap_keys(self, after: &[u8], max: u64) -> ReadOps {
        let input = encoded(|w| {
            w.blob(after);
            w.u64(max);
        });
        self.op(OsdOp::new(OpCode::OMAPGETKEYS, OpParams::default(), input))
    }

    /// Entries with keys greater than `after` that start with `prefix`, at most `max`.
    pub fn omap_entries(self, after: &[u8], prefix: &[u8], max: u64) -> ReadOps {
        let input = encoded(|w| {
            w.blob(after);
            w.u64(max);
            w.blob(prefix);
        });
        self.op(OsdOp::new(OpCode::OMAPGETVALS, OpParams::default(), input))
    }

    pub fn omap_get(self, keys: &[Bytes]) -> ReadOps {
        self.op(OsdOp::new(OpCode::OMAPGETVALSBYKEYS, OpParams::default(), encoded(|w| w.put(keys))))
    }

    pub fn omap_header(self) -> ReadOps {
        self.op(OsdOp::bare(OpCode::OMAPGETHEADER))
    }

    pub fn list_watchers(self) -> ReadOps {
        self.op(OsdOp::bare(OpCode::LIST_WATCHERS))
    }
}

impl WriteOps {
    /// Create the object; with `exclusive`, `-EEXIST` when it is there.
    pub fn create(self, exclusive: bool) -> WriteOps {
        let flags = if exclusive { OpFlags::EXCL } else { OpFlags::NONE };
        self.op(OsdOp { flags, ..OsdOp::bare(OpCode::CREATE) })
    }

    pub fn write(self, offset: u64, data: Bytes) -> WriteOps {
        let len = data.len() as u64;
        self.op(OsdOp::extent(OpCode::WRITE, offset, len, data))
    }

    /// Replace the whole contents.
    pub fn write_full(self, data: Bytes) -> WriteOps {
        let len = data.len() as u64;
        self.op(OsdOp::extent(OpCode::WRITEFULL, 0, len, data))
    }

    pub fn append(self, data: Bytes) -> WriteOps {
        let len = data.len() as u64;
        self.op(OsdOp::extent(OpCode::APPEND, 0, len, data))
    }

    pub fn zero(self, offset: u64, len: u64) -> WriteOps {
        self.op(OsdOp::extent(OpCode::ZERO, offset, len, Bytes::new()))
    }

    pub fn truncate(self, size: u64) -> WriteOps {
        self.op(OsdOp::new(OpCode::TRUNCATE, Extent { offset: size, ..Extent::default() }, Bytes::new()))
    }

    pub fn remove(self) -> WriteOps {
        self.op(OsdOp::bare(OpCode::DELETE))
    }

    pub fn set_xattr(self, name: impl AsRef<[u8]>, value: &[u8]) -> WriteOps {
        self.op(OsdOp::xattr(OpCode::SETXATTR, name, value))
    }

    pub fn remove_xattr(self, name: impl AsRef<[u8]>) -> WriteOps {
        self.op(OsdOp::xattr(OpCode::RMXATTR, name, &[]))
    }

    pub fn omap_set(self, entries: &BTreeMap<Bytes, Bytes>) -> WriteOps {
        self.op(OsdOp::new(OpCode::OMAPSETVALS, OpParams::default(), encoded(|w| w.put(entries))))
    }

    pub fn omap_set_header(self, header: Bytes) -> WriteOps {
        self.op(OsdOp::new(OpCode::OMAPSETHEADER, OpParams::default(), header))
    }

    pub fn omap_remove(self, keys: &[Bytes]) -> WriteOps {
        self.op(OsdOp::new(OpCode::OMAPRMKEYS, OpParams::default(), encoded(|w| w.put(keys))))
    }

    /// Keys in `from..to`.
    pub fn omap_remove_range(self, from: &[u8], to: &[u8]) -> WriteOps {
        let input = encoded(|w| {
            w.blob(from);
            w.blob(to);
        });
        self.op(OsdOp::new(OpCode::OMAPRMKEYRANGE, OpParams::default(), input))
    }

    pub fn omap_clear(self) -> WriteOps {
        self.op(OsdOp::bare(OpCode::OMAPCLEAR))
    }

    pub fn alloc_hint(self, object_size: u64, write_size: u64, flags: u32) -> WriteOps {
        let hint = AllocHint { object_size, write_size, flags };
        self.op(OsdOp { flags: OpFlags::FAILOK, ..OsdOp::new(OpCode::SETALLOCHINT, hint, Bytes::new()) })
    }
}
