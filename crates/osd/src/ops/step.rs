//! What one operation of a client's list asks for, parsed once.
//!
//! An operation whose input does not parse is still a step ([`Step::Refused`]): it fails in its turn, after the
//! operations before it have had their say, as Ceph's clients expect.

use super::stored_attr;
use crate::classes::{self, Method};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Decode, DecodeError, Reader, Rope};
use wire::types::osd_op::{AllocHint, ChecksumParams, CopyFromParams, Extent};
use wire::types::{Name, ObjectLocator, OpCode, OpFlags, OsdOp, SnapId, op_value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Read(Extent),
    SparseRead(Extent),
    /// Which parts of the range are stored, without the bytes.
    MapExtents(Extent),
    CompareExtent {
        extent: Extent,
        expected: Bytes,
    },
    Checksum {
        params: ChecksumParams,
        /// Little-endian seed: 4 bytes, 8 for xxhash64. `None` when the input is too short.
        seed: Option<u64>,
    },
    Stat,
    /// Attributes are named as they are stored, prefix included.
    GetAttr(Bytes),
    GetAttrs,
    CompareAttr {
        name: Bytes,
        op: u8,
        against: AttrOperand,
    },
    AssertVersion(u64),
    ListWatchers,
    ListSnaps,
    IsDirty,
    Notify {
        cookie: u64,
        /// 0: the OSD's default.
        timeout_s: u32,
        payload: Bytes,
    },
    NotifyAck {
        notify_id: u64,
        /// Old clients do not say which of their watches acknowledges.
        cookie: Option<u64>,
        reply: Bytes,
    },
    OmapKeys {
        after: Bytes,
        max: u64,
    },
    OmapValues {
        after: Bytes,
        max: u64,
        prefix: Bytes,
    },
    OmapHeader,
    OmapByKeys(Vec<Bytes>),
    OmapCompare(Vec<OmapAssertion>),

    Write {
        extent: Extent,
        data: Rope,
    },
    WriteFull(Rope),
    WriteSame {
        offset: u64,
        len: u64,
        pattern: Bytes,
    },
    Append(Rope),
    Zero(Extent),
    Create {
        exclusive: bool,
    },
    Truncate(Extent),
    Delete,
    SetAttr {
        name: Bytes,
        value: Bytes,
    },
    RemoveAttr(Bytes),
    OmapSet(Vec<(Bytes, Bytes)>),
    OmapSetHeader(Bytes),
    OmapClear,
    OmapRemove(Vec<Bytes>),
    OmapRemoveRange {
        from: Bytes,
        to: Bytes,
    },
    AllocHint(AllocHint),
    StartSync,
    Undirty,
    Watch {
        kind: WatchKind,
        cookie: u64,
        timeout_s: u32,
    },
    Rollback(SnapId),
    CopyFrom(Box<CopyFrom>),
    Call(Box<Call>),
    Refused(Errno),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttrOperand {
    Text(Bytes),
    Number(u64),
    /// A mode that does not exist: refused after the attribute was found.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmapAssertion {
    pub key: Bytes,
    pub value: Bytes,
    /// `op_value::CMP_*`.
    pub op: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    Unwatch,
    /// `pings`: the client promises to ping, and is dropped when it does not.
    Watch {
        pings: bool,
    },
    Reconnect,
    Ping,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFrom {
    pub source: Name,
    pub locator: ObjectLocator,
    pub params: CopyFromParams,
    pub truncate: Option<(u32, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: &'static Method,
    /// What the client gives it: a slice of the message.
    pub argument: Bytes,
}

/// `CEPH_OSD_COPY_FROM_FLAG_*`: all that exist, and the one that adds a truncation to the input.
const COPY_FROM_FLAGS: u8 = 0x3f;
const COPY_FROM_TRUNCATE: u8 = 0x20;

impl Step {
    pub fn parse(op: &OsdOp) -> Step {
        parse(op).unwrap_or_else(Step::Refused)
    }
}

impl From<DecodeError> for Errno {
    /// An input that cannot be read is an invalid argument.
    fn from(_: DecodeError) -> Errno {
        Errno::INVAL
    }
}

fn summed(op: &OsdOp) -> Rope {
    Rope::summed(op.input.clone(), op.input_sum)
}

fn parse(op: &OsdOp) -> Result<Step, Errno> {
    let input = &op.input;
    let mut r = Reader::new(input);
    let r = &mut r;
    Ok(match op.code {
        OpCode::READ | OpCode::SYNC_READ => Step::Read(extent_of(op)),
        OpCode::SPARSE_READ => Step::SparseRead(extent_of(op)),
        OpCode::MAPEXT => Step::MapExtents(extent_of(op)),
        OpCode::CMPEXT => Step::CompareExtent { extent: extent_of(op), expected: input.clone() },
        OpCode::CHECKSUM => {
            let params = op.params.checksum();
            let seed = match params.kind {
                op_value::CHECKSUM_XXHASH64 => r.u64(),
                _ => r.u32().map(u64::from),
            };
            Step::Checksum { params, seed: seed.ok() }
        }
        OpCode::STAT => Step::Stat,
        OpCode::GETXATTR => Step::GetAttr(attr_name(op)?),
        OpCode::GETXATTRS => Step::GetAttrs,
        OpCode::CMPXATTR => {
            let params = op.params.xattr();
            let name = attr_name(op)?;
            r.skip(params.name_len as usize)?;
            let against = match params.cmp_mode {
                op_value::CMP_MODE_STRING => {
                    AttrOperand::Text(copied(r.take("value", params.value_len as usize)?))
                }
                op_value::CMP_MODE_U64 => AttrOperand::Number(r.u64()?),
                _ => AttrOperand::Unknown,
            };
            Step::CompareAttr { name, op: params.cmp_op, against }
        }
        OpCode::ASSERT_VER => Step::AssertVersion(op.params.assert_version()),
        OpCode::LIST_WATCHERS => Step::ListWatchers,
        OpCode::LIST_SNAPS => Step::ListSnaps,
        OpCode::ISDIRTY => Step::IsDirty,
        OpCode::NOTIFY => {
            // An input that cannot be read means the default time-out and no payload.
            let parsed = notify_input(r);
            let (timeout_s, payload) = parsed.unwrap_or((0, Bytes::new()));
            Step::Notify { cookie: op.params.notify_cookie(), timeout_s, payload }
        }
        OpCode::NOTIFY_ACK => match notify_ack_input(r) {
            Ok((notify_id, cookie, reply)) => Step::NotifyAck { notify_id, cookie: Some(cookie), reply },
            // The oldest clients put the notification's id where the cookie goes.
            Err(_) => {
                Step::NotifyAck { notify_id: op.params.watch().cookie, cookie: None, reply: Bytes::new() }
            }
        },
        OpCode::OMAPGETKEYS => Step::OmapKeys { after: r.get()?, max: r.u64()? },
        OpCode::OMAPGETVALS => Step::OmapValues { after: r.get()?, max: r.u64()?, prefix: r.get()? },
        OpCode::OMAPGETHEADER => Step::OmapHeader,
        OpCode::OMAPGETVALSBYKEYS => Step::OmapByKeys(r.get()?),
        OpCode::OMAP_CMP => Step::OmapCompare(r.get()?),

        OpCode::WRITE => {
            let extent = extent_of(op);
            exact_payload(extent.len, input)?;
            Step::Write { extent, data: summed(op) }
        }
        OpCode::WRITEFULL => {
            exact_payload(extent_of(op).len, input)?;
            Step::WriteFull(summed(op))
        }
        OpCode::WRITESAME => {
            let p = op.params.write_same();
            if p.len != 0 {
                exact_payload(p.data_len, input)?;
                if p.data_len == 0 || !p.len.is_multiple_of(p.data_len) {
                    return Err(Errno::INVAL);
                }
            }
            Step::WriteSame { offset: p.offset, len: p.len, pattern: input.clone() }
        }
        OpCode::APPEND => {
            exact_payload(extent_of(op).len, input)?;
            Step::Append(summed(op))
        }
        OpCode::ZERO => Step::Zero(extent_of(op)),
        OpCode::CREATE => {
            if !input.is_empty() {
                // A category: a feature that is gone, whose name must still be readable.
                r.bytes()?;
            }
            Step::Create { exclusive: op.flags.contains(OpFlags::EXCL) }
        }
        OpCode::TRUNCATE => Step::Truncate(extent_of(op)),
        OpCode::TRIMTRUNC => {
            let extent = extent_of(op);
            Step::Truncate(Extent { offset: extent.truncate_size, ..extent })
        }
        OpCode::DELETE => Step::Delete,
        OpCode::SETXATTR => {
            let params = op.params.xattr();
            let name = attr_name(op)?;
            r.skip(params.name_len as usize)?;
            Step::SetAttr { name, value: copied(r.take("value", params.value_len as usize)?) }
        }
        OpCode::RMXATTR => Step::RemoveAttr(attr_name(op)?),
        OpCode::OMAPSETVALS => Step::OmapSet(r.get()?),
        OpCode::OMAPSETHEADER => Step::OmapSetHeader(copied(input)),
        OpCode::OMAPCLEAR => Step::OmapClear,
        OpCode::OMAPRMKEYS => Step::OmapRemove(r.get()?),
        OpCode::OMAPRMKEYRANGE => Step::OmapRemoveRange { from: r.get()?, to: r.get()? },
        OpCode::SETALLOCHINT => Step::AllocHint(op.params.alloc_hint()),
        OpCode::STARTSYNC => Step::StartSync,
        OpCode::UNDIRTY => Step::Undirty,
        OpCode::WATCH => {
            let p = op.params.watch();
            let kind = match p.op {
                op_value::WATCH_UNWATCH => WatchKind::Unwatch,
                op_value::WATCH_LEGACY => WatchKind::Watch { pings: false },
                op_value::WATCH_WATCH => WatchKind::Watch { pings: true },
                op_value::WATCH_RECONNECT => WatchKind::Reconnect,
                op_value::WATCH_PING => WatchKind::Ping,
                _ => WatchKind::Unknown,
            };
            Step::Watch { kind, cookie: p.cookie, timeout_s: p.timeout_s }
        }
        OpCode::ROLLBACK => Step::Rollback(op.params.snap()),
        OpCode::COPY_FROM | OpCode::COPY_FROM2 => {
            let params = op.params.copy_from();
            let second = op.code == OpCode::COPY_FROM2;
            if second && params.flags & !COPY_FROM_FLAGS != 0 {
                return Err(Errno::INVAL);
            }
            let (source, locator) = (r.get()?, r.get()?);
            let truncate = match second && params.flags & COPY_FROM_TRUNCATE != 0 {
                true => Some((r.u32()?, r.u64()?)),
                false => None,
            };
            Step::CopyFrom(Box::new(CopyFrom { source, locator, params, truncate }))
        }
        OpCode::CALL => Step::Call(Box::new(call_of(op)?)),
        // Cache tiering and manifests need pools that shoal refuses to make.
        OpCode::CACHE_FLUSH | OpCode::CACHE_EVICT | OpCode::CACHE_TRY_FLUSH => Step::Refused(Errno::INVAL),
        OpCode::CACHE_PIN | OpCode::CACHE_UNPIN => Step::Refused(Errno::INVAL),
        _ => Step::Refused(Errno::OPNOTSUPP),
    })
}

/// A method of a class, and its argument: the input is the two names and the argument.
fn call_of(op: &OsdOp) -> Result<Call, Errno> {
    let p = op.params.call();
    let mut r = Reader::new(&op.input);
    let class = r.take("class", p.class_len as usize)?;
    let method = r.take("method", p.method_len as usize)?;
    let argument = op.input.slice_ref(r.take("argument", p.input_len as usize)?);
    Ok(Call { method: classes::find(class, method)?, argument })
}

/// The range, with Ceph's oldest way of saying "no truncation" made plain.
fn extent_of(op: &OsdOp) -> Extent {
    let extent = op.params.extent();
    if extent.truncate_seq == 1 && extent.truncate_size == u64::MAX {
        return Extent { truncate_seq: 0, truncate_size: 0, ..extent };
    }
    extent
}

fn exact_payload(promised: u64, input: &Bytes) -> Result<(), Errno> {
    if promised == input.len() as u64 { Ok(()) } else { Err(Errno::INVAL) }
}

/// Copied out of the message, as [`copied`] does.
fn attr_name(op: &OsdOp) -> Result<Bytes, Errno> {
    let len = op.params.xattr().name_len as usize;
    Ok(stored_attr(op.input.get(..len).ok_or(Errno::INVAL)?))
}

/// Small values are copied out of the message, so that keeping one does not keep the other.
fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn notify_input(r: &mut Reader<'_>) -> Result<(u32, Bytes), DecodeError> {
    let _version = r.u32()?;
    Ok((r.u32()?, r.get()?))
}

fn notify_ack_input(r: &mut Reader<'_>) -> Result<(u64, u64, Bytes), DecodeError> {
    let (notify_id, cookie) = (r.u64()?, r.u64()?);
    let reply = if r.is_empty() { Bytes::new() } else { r.get()? };
    Ok((notify_id, cookie, reply))
}

impl Decode for OmapAssertion {
    const MIN_LEN: usize = 12;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(OmapAssertion { key: r.get()?, value: r.get()?, op: r.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Writer;

    #[test]
    fn a_write_must_bring_as_many_bytes_as_it_says() {
        let whole = OsdOp::extent(OpCode::WRITE, 5, 3, Bytes::from_static(b"abc"));
        assert!(matches!(Step::parse(&whole), Step::Write { extent: Extent { offset: 5, .. }, .. }));
        let short = OsdOp::extent(OpCode::WRITE, 5, 4, Bytes::from_static(b"abc"));
        assert_eq!(Step::parse(&short), Step::Refused(Errno::INVAL));
    }

    #[test]
    fn an_attribute_name_longer_than_the_input_is_refused() {
        let mut op = OsdOp::xattr(OpCode::SETXATTR, "name", b"value");
        let Step::SetAttr { name, value } = Step::parse(&op) else { panic!("a set") };
        assert_eq!((&*name, &value[..]), (&b"_name"[..], &b"value"[..]));
        op.input = op.input.slice(..6);
        assert_eq!(Step::parse(&op), Step::Refused(Errno::INVAL));
    }

    #[test]
    fn an_unreadable_notify_falls_back_to_the_defaults() {
        let mut op = OsdOp::bare(OpCode::NOTIFY);
        op.input = Bytes::from_static(&[1, 2]);
        assert!(matches!(Step::parse(&op), Step::Notify { timeout_s: 0, .. }));
    }

    #[test]
    fn an_omap_comparison_reads_key_value_and_operator() {
        let mut w = Writer::new(codec::Features::ALL);
        w.count(1);
        w.string("key");
        w.blob(b"value");
        w.i32(1);
        let mut op = OsdOp::bare(OpCode::OMAP_CMP);
        op.input = w.into_bytes();
        let want = OmapAssertion { key: "key".into(), value: "value".into(), op: 1 };
        assert_eq!(Step::parse(&op), Step::OmapCompare(vec![want]));
    }
}
