//! One operation of a request (`ceph_osd_op`, `OSDOp`): its code, its parameters, and its bytes in or out.
//!
//! ```text
//! 0      2       6                            34            38
//! | code | flags | parameters, by code (28 B) | payload len |
//! ```
//! The payload itself rides in the message's data segment, one operation's after another's.

use super::{Eversion, OpCode, OpFlags, SnapId, UTime};
use bytes::Bytes;
use codec::{DecodeError, Reader, Rope, Writer};

/// The encoded length of an operation without its payload.
pub const OP_LEN: usize = 38;
const PARAMS_LEN: usize = 28;

/// The parameters of an operation as they came: what they mean depends on the code, and the methods below read
/// them one way or another. Kept raw because a request is decoded once and each field read at most once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OpParams(pub [u8; PARAMS_LEN]);

/// A byte range (`read`, `write`, `zero`, `truncate`, `append`, `cmpext`, …).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
}

/// An attribute's name and value are the first `name_len` and the next `value_len` bytes of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XattrParams {
    pub name_len: u32,
    pub value_len: u32,
    pub cmp_op: u8,
    pub cmp_mode: u8,
}

/// A class call: class name, method name and argument follow one another in the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallParams {
    pub class_len: u8,
    pub method_len: u8,
    pub argc: u8,
    pub input_len: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PglsParams {
    pub count: u64,
    /// The map epoch in which the client began to list.
    pub start_epoch: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WatchParams {
    pub cookie: u64,
    pub version: u64,
    /// `op_value::WATCH_*`.
    pub op: u8,
    pub generation: u32,
    /// Seconds; 0 asks for the OSD's default.
    pub timeout_s: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyFromParams {
    pub snap: SnapId,
    pub source_version: u64,
    pub flags: u8,
    pub source_fadvise: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocHint {
    pub object_size: u64,
    pub write_size: u64,
    pub flags: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteSameParams {
    pub offset: u64,
    pub len: u64,
    pub data_len: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChecksumParams {
    pub offset: u64,
    pub len: u64,
    /// 0: one chunk over the whole range.
    pub chunk_size: u32,
    /// `op_value::CHECKSUM_*`.
    pub kind: u8,
}

impl OpParams {
    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    pub fn extent(&self) -> Extent {
        Extent {
            offset: self.u64(0),
            len: self.u64(8),
            truncate_size: self.u64(16),
            truncate_seq: self.u32(24),
        }
    }

    pub fn xattr(&self) -> XattrParams {
        XattrParams {
            name_len: self.u32(0),
            value_len: self.u32(4),
            cmp_op: self.u8(8),
            cmp_mode: self.u8(9),
        }
    }

    pub fn call(&self) -> CallParams {
        CallParams { class_len: self.u8(0), method_len: self.u8(1), argc: self.u8(2), input_len: self.u32(3) }
    }

    pub fn pgls(&self) -> PglsParams {
        PglsParams { count: self.u64(0), start_epoch: self.u32(8) }
    }

    /// Of `rollback`.
    pub fn snap(&self) -> SnapId {
        SnapId(self.u64(0))
    }

    pub fn watch(&self) -> WatchParams {
        WatchParams {
            cookie: self.u64(0),
            version: self.u64(8),
            op: self.u8(16),
            generation: self.u32(17),
            timeout_s: self.u32(21),
        }
    }

    /// Of `notify`: the notifier's cookie. (`notify-ack` carries everything in its input.)
    pub fn notify_cookie(&self) -> u64 {
        self.u64(0)
    }

    /// Of `assert-version`: the user version that the object must have.
    pub fn assert_version(&self) -> u64 {
        self.u64(8)
    }

    pub fn copy_get_max(&self) -> u64 {
        self.u64(0)
    }

    pub fn copy_from(&self) -> CopyFromParams {
        CopyFromParams {
            snap: SnapId(self.u64(0)),
            source_version: self.u64(8),
            flags: self.u8(16),
            source_fadvise: self.u32(17),
        }
    }

    pub fn alloc_hint(&self) -> AllocHint {
        AllocHint { object_size: self.u64(0), write_size: self.u64(8), flags: self.u32(16) }
    }

    pub fn write_same(&self) -> WriteSameParams {
        WriteSameParams { offset: self.u64(0), len: self.u64(8), data_len: self.u64(16) }
    }

    pub fn checksum(&self) -> ChecksumParams {
        ChecksumParams { offset: self.u64(0), len: self.u64(8), chunk_size: self.u32(16), kind: self.u8(20) }
    }

    pub fn hit_set_stamp(&self) -> UTime {
        UTime { sec: self.u32(0), nsec: self.u32(4) }
    }
}

/// Lays parameters out; what is not written stays zero, as Ceph's clients leave it.
#[derive(Default)]
struct Fill {
    out: [u8; PARAMS_LEN],
    at: usize,
}

impl Fill {
    fn put(mut self, bytes: &[u8]) -> Fill {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn u8(self, v: u8) -> Fill {
        self.put(&[v])
    }

    fn u32(self, v: u32) -> Fill {
        self.put(&v.to_le_bytes())
    }

    fn u64(self, v: u64) -> Fill {
        self.put(&v.to_le_bytes())
    }

    fn done(self) -> OpParams {
        OpParams(self.out)
    }
}

macro_rules! into_params {
    ($($t:ty: |$v:ident| $fill:expr;)*) => {$(
        impl From<$t> for OpParams {
            fn from($v: $t) -> OpParams { $fill.done() }
        }
    )*};
}

into_params! {
    Extent: |v| Fill::default().u64(v.offset).u64(v.len).u64(v.truncate_size).u32(v.truncate_seq);
    XattrParams: |v| Fill::default().u32(v.name_len).u32(v.value_len).u8(v.cmp_op).u8(v.cmp_mode);
    CallParams: |v| Fill::default().u8(v.class_len).u8(v.method_len).u8(v.argc).u32(v.input_len);
    PglsParams: |v| Fill::default().u64(v.count).u32(v.start_epoch);
    SnapId: |v| Fill::default().u64(v.0);
    WatchParams: |v| Fill::default().u64(v.cookie).u64(v.version).u8(v.op).u32(v.generation).u32(v.timeout_s);
    CopyFromParams: |v| Fill::default().u64(v.snap.0).u64(v.source_version).u8(v.flags).u32(v.source_fadvise);
    AllocHint: |v| Fill::default().u64(v.object_size).u64(v.write_size).u32(v.flags);
    WriteSameParams: |v| Fill::default().u64(v.offset).u64(v.len).u64(v.data_len);
    ChecksumParams: |v| Fill::default().u64(v.offset).u64(v.len).u32(v.chunk_size).u8(v.kind);
}

impl std::fmt::Debug for OpParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// An operation as a client asks for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OsdOp {
    pub code: OpCode,
    pub flags: OpFlags,
    pub params: OpParams,
    /// A slice of the message's data segment, which it keeps alive.
    pub input: Bytes,
    /// Its checksum, where the message told it; see [`codec::Rope::sum`].
    pub input_sum: Option<u32>,
}

impl OsdOp {
    pub fn new(code: OpCode, params: impl Into<OpParams>, input: Bytes) -> OsdOp {
        OsdOp { code, flags: OpFlags::NONE, params: params.into(), input, input_sum: None }
    }

    /// An operation that has no parameters.
    pub fn bare(code: OpCode) -> OsdOp {
        OsdOp {
            code,
            flags: OpFlags::NONE,
            params: OpParams::default(),
            input: Bytes::new(),
            input_sum: None,
        }
    }

    /// On a byte range.
    pub fn extent(code: OpCode, offset: u64, len: u64, input: Bytes) -> OsdOp {
        OsdOp::new(code, Extent { offset, len, ..Extent::default() }, input)
    }

    /// On one attribute; `value` is empty for a read or a removal.
    pub fn xattr(code: OpCode, name: impl AsRef<[u8]>, value: &[u8]) -> OsdOp {
        let name = name.as_ref();
        let params = XattrParams {
            name_len: name.len() as u32,
            value_len: value.len() as u32,
            ..XattrParams::default()
        };
        OsdOp::new(code, params, [name, value].concat().into())
    }

    /// A call of an object class's method. Names longer than 255 bytes cannot be said and give `None`.
    pub fn call(class: &str, method: &str, argument: &[u8]) -> Option<OsdOp> {
        let params = CallParams {
            class_len: u8::try_from(class.len()).ok()?,
            method_len: u8::try_from(method.len()).ok()?,
            argc: 0,
            input_len: u32::try_from(argument.len()).ok()?,
        };
        let input = [class.as_bytes(), method.as_bytes(), argument].concat();
        Some(OsdOp::new(OpCode::CALL, params, input.into()))
    }

    pub(crate) fn encode_head(&self, w: &mut Writer) {
        encode_op(w, self.code, self.flags, &self.params, self.input.len());
    }
}

/// Result of one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OsdOpResult {
    pub code: OpCode,
    pub flags: OpFlags,
    pub params: OpParams,
    /// 0, a negative errno, or a positive count where the operation returns one.
    pub result: i32,
    pub output: Rope,
}

impl OsdOpResult {
    /// The operation came out as `result` with `output`; its code and parameters are echoed, as Ceph does.
    pub fn of(op: &OsdOp, result: i32, output: Rope) -> OsdOpResult {
        OsdOpResult { code: op.code, flags: op.flags, params: op.params, result, output }
    }

    pub(crate) fn encode_head(&self, w: &mut Writer) {
        encode_op(w, self.code, self.flags, &self.params, self.output.len());
    }
}

fn encode_op(w: &mut Writer, code: OpCode, flags: OpFlags, params: &OpParams, payload_len: usize) {
    w.u16(code.0);
    w.u32(flags.0);
    w.raw(&params.0);
    w.count(payload_len);
}

/// An operation before its payload is cut from the data segment.
pub(crate) struct OpHead {
    pub code: OpCode,
    pub flags: OpFlags,
    pub params: OpParams,
    pub payload_len: usize,
}

impl OpHead {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<OpHead, DecodeError> {
        let raw = r.take("ceph_osd_op", OP_LEN)?;
        let u32_at = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("four bytes"));
        Ok(OpHead {
            code: OpCode(u16::from_le_bytes([raw[0], raw[1]])),
            flags: OpFlags(u32_at(2)),
            params: OpParams(raw[6..34].try_into().expect("28 bytes")),
            payload_len: u32_at(34) as usize,
        })
    }
}

/// Cuts payloads from a message's data segment, each a slice of the same memory.
pub(crate) struct PayloadCutter<'a> {
    data: &'a Bytes,
    at: usize,
}

impl<'a> PayloadCutter<'a> {
    pub(crate) fn new(data: &'a Bytes) -> PayloadCutter<'a> {
        PayloadCutter { data, at: 0 }
    }

    pub(crate) fn cut(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let remaining = self.data.len() - self.at;
        if len > remaining {
            return Err(DecodeError::Truncated {
                what: "operation payload",
                needed: len,
                remaining,
                offset: self.at,
            });
        }
        let start = self.at;
        self.at += len;
        Ok(self.data.slice(start..self.at))
    }
}

/// Versions of a reply, with those for clients older than the user version; see [`super::super::messages::MOSDOpReply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplyVersions {
    /// Version for clients from before user versions: [`Eversion`] of the last write, its counter replaced by the user
    /// version when there is one.
    pub legacy: Eversion,
    /// The PG log's version of this write; zero for a read.
    pub replay: Eversion,
    /// Result of `rados_get_last_version`.
    pub user: u64,
}

impl ReplyVersions {
    /// Of a write that happened at `at`, or of a read that saw it.
    pub fn new(at: Eversion, user: u64) -> ReplyVersions {
        let version = if user != 0 { user } else { at.version };
        ReplyVersions { legacy: Eversion { epoch: at.epoch, version }, replay: at, user }
    }

    /// Of a request that changed nothing because it failed.
    pub fn failed(at: Eversion, user: u64) -> ReplyVersions {
        ReplyVersions { legacy: at, replay: Eversion::ZERO, user }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_read_back_what_was_laid_out() {
        let e = Extent { offset: 1, len: 2, truncate_size: 3, truncate_seq: 4 };
        assert_eq!(OpParams::from(e).extent(), e);
        let x = XattrParams { name_len: 1, value_len: 2, cmp_op: 3, cmp_mode: 4 };
        assert_eq!(OpParams::from(x).xattr(), x);
        let c = CallParams { class_len: 1, method_len: 2, argc: 3, input_len: 4 };
        assert_eq!(OpParams::from(c).call(), c);
        let p = PglsParams { count: 1, start_epoch: 2 };
        assert_eq!(OpParams::from(p).pgls(), p);
        let w = WatchParams { cookie: 1, version: 2, op: 3, generation: 4, timeout_s: 5 };
        assert_eq!(OpParams::from(w).watch(), w);
        let f = CopyFromParams { snap: SnapId(1), source_version: 2, flags: 3, source_fadvise: 4 };
        assert_eq!(OpParams::from(f).copy_from(), f);
        let h = AllocHint { object_size: 1, write_size: 2, flags: 3 };
        assert_eq!(OpParams::from(h).alloc_hint(), h);
        let s = WriteSameParams { offset: 1, len: 2, data_len: 3 };
        assert_eq!(OpParams::from(s).write_same(), s);
        let k = ChecksumParams { offset: 1, len: 2, chunk_size: 3, kind: 4 };
        assert_eq!(OpParams::from(k).checksum(), k);
        assert_eq!(OpParams::from(SnapId(7)).snap(), SnapId(7));
    }

    #[test]
    fn payloads_are_slices_of_one_memory_and_never_past_its_end() {
        let data = Bytes::from_static(b"abcdef");
        let mut cutter = PayloadCutter::new(&data);
        let first = cutter.cut(2).unwrap();
        let second = cutter.cut(4).unwrap();
        assert_eq!((&first[..], &second[..]), (&b"ab"[..], &b"cdef"[..]));
        assert_eq!(second.as_ptr(), data[2..].as_ptr());
        assert!(cutter.cut(0).unwrap().is_empty());
        assert!(matches!(cutter.cut(1), Err(DecodeError::Truncated { needed: 1, remaining: 0, .. })));
    }
}
