//! `MOSDOp`: a client's operation list on one object (or PG).
//!
//! The hottest decode of all. It allocates the object's name, and beyond two operations the list; payloads are
//! slices of the message's data segment.

use super::{Header, MOSDOpReply, MessageBody, Outgoing, Payload};
use crate::features;
use crate::types::osd_op::{OpHead, PayloadCutter};
use crate::types::{
    EntityName, Epoch, HObject, Name, ObjectLocator, OsdFlags, OsdOp, ReplyVersions, ReqId, SnapId, SpgId,
    UTime,
};
use codec::{DecodeError, Reader, Rope};
use smallvec::SmallVec;

pub type OsdOps = SmallVec<[OsdOp; 2]>;

#[derive(Clone, Debug, PartialEq)]
pub struct MOSDOp {
    /// The PG that the client computed with its map.
    pub pg: SpgId,
    pub epoch: Epoch,
    pub flags: OsdFlags,
    /// As written: blank (but for the incarnation) unless the sender acts for somebody else. See [`MOSDOp::reqid`].
    pub explicit_reqid: ReqId,
    pub client_incarnation: u32,
    /// The client's wall time, which a write gives the object.
    pub mtime: UTime,
    /// The object of the operations; its snapshot is [`SnapId::HEAD`] for a write. Nameless for PG operations.
    pub object: HObject,
    pub ops: OsdOps,
    /// The snapshot context of a write: its sequence, and the snapshots it knows, newest first.
    pub snap_seq: SnapId,
    pub snaps: Vec<SnapId>,
    /// 0: first attempt; -1: unknown.
    pub retry_attempt: i32,
    /// The client's own feature bits, where a proxy in between has others.
    pub features: u64,
}

/// A reserved place of a tracing library that stock builds do not use: three zero `i64`.
pub(super) const BLKIN_TRACE_LEN: usize = 24;

impl MOSDOp {
    /// Client and number of the request, by which a resent write is recognised. `source` and `tid` are the session's
    /// peer and the message's own.
    pub fn reqid(&self, source: EntityName, tid: u64) -> ReqId {
        let ReqId { name, tid: explicit_tid, incarnation } = self.explicit_reqid;
        if name != BLANK_NAME || explicit_tid != 0 {
            return self.explicit_reqid;
        }
        ReqId { name: source, tid, incarnation }
    }

    /// Bytes that the reads among the operations ask for. A whole object, whose size is unknown here, counts with the
    /// default size; no read counts more than the usual maximum of an object.
    pub fn asked_len(&self) -> usize {
        const OBJECT_LEN: u64 = 4 << 20;
        const LEN_MAX: u64 = 128 << 20;
        let len = |op: &OsdOp| match op.params.extent().len {
            _ if !op.code.returns_data() => 0,
            0 => OBJECT_LEN,
            len => len.min(LEN_MAX),
        };
        self.ops.iter().map(len).sum::<u64>().min(LEN_MAX) as usize
    }

    /// A reply without any operation's outcome.
    pub fn reply(&self, result: i32, epoch: Epoch, kind: OsdFlags) -> MOSDOpReply {
        MOSDOpReply {
            object: self.object.name.clone(),
            pg: self.pg.pg,
            flags: self.reply_flags(kind),
            result,
            epoch,
            ops: SmallVec::new(),
            retry_attempt: self.retry_attempt,
            versions: ReplyVersions::default(),
            redirect: None,
            data_offset: 0,
        }
    }

    /// The request's flags with what it *wanted* replaced by what the reply *is*.
    pub fn reply_flags(&self, kind: OsdFlags) -> OsdFlags {
        self.flags & !(OsdFlags::ONDISK | OsdFlags::ONNVRAM | OsdFlags::ACK) | kind
    }
}

const BLANK_NAME: EntityName = EntityName::new(crate::types::EntityKind(0), 0);

impl MessageBody for MOSDOp {
    const TYPE: u16 = 42;
    const VERSION: u16 = 9;
    const COMPAT: u16 = 3;

    /// Version 9 adds an OpenTelemetry context in front; 8 is for peers before Squid.
    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        let with_otel = w.features().has(features::SERVER_SQUID);
        out.version = if with_otel { 9 } else { 8 };

        w.put(&self.pg);
        w.u32(self.object.hash);
        w.u32(self.epoch);
        w.u32(self.flags.0);
        w.put(&self.explicit_reqid);
        w.raw(&[0; BLKIN_TRACE_LEN]);
        if with_otel {
            w.envelope(1, 1, |w| w.bool(false));
        }

        w.u32(self.client_incarnation);
        w.put(&self.mtime);
        // A nameless object is a place in the pool: the locator then carries the hash and not the key.
        let o = &self.object;
        match o.name.is_empty() {
            true => ObjectLocator::encode_parts(w, o.pool, &Name::EMPTY, &o.namespace, o.hash as i64),
            false => ObjectLocator::encode_parts(w, o.pool, &o.key, &o.namespace, -1),
        }
        w.put(&o.name);
        w.u16(u16::try_from(self.ops.len()).expect("a request has few operations"));
        self.ops.iter().for_each(|op| op.encode_head(w));
        w.put(&o.snap);
        w.put(&self.snap_seq);
        w.put(&self.snaps);
        w.i32(self.retry_attempt);
        w.u64(self.features);

        self.ops.iter().for_each(|op| out.data.append(Rope::summed(op.input.clone(), op.input_sum)));
    }

    fn decode(header: &Header, payload: &Payload) -> Result<MOSDOp, DecodeError> {
        if header.version < 8 {
            return Err(DecodeError::TooOld { what: "MOSDOp", version: header.version as u8 });
        }
        let mut r = Reader::new(&payload.front);
        let r = &mut r;
        let pg: SpgId = r.get()?;
        let hash = r.u32()?;
        let epoch = r.u32()?;
        let flags = OsdFlags(r.u32()?);
        let explicit_reqid = r.get()?;
        r.skip(BLKIN_TRACE_LEN)?;
        if header.version >= 9 {
            // Whatever its version: nothing of it is used.
            r.envelope("jspan_context", u8::MAX, |_, _| Ok(()))?;
        }

        let client_incarnation = r.u32()?;
        let mtime = r.get()?;
        let locator: ObjectLocator = r.get()?;
        let name: Name = r.get()?;
        let ops = decode_ops(r, payload)?;
        let snap = r.get()?;
        Ok(MOSDOp {
            pg,
            epoch,
            flags,
            explicit_reqid,
            client_incarnation,
            mtime,
            object: HObject {
                pool: pg.pg.pool,
                hash,
                snap,
                namespace: locator.namespace,
                // Ceph keeps a key only where it differs from the name, so that both spellings are one object.
                key: if locator.key == name { Name::EMPTY } else { locator.key },
                name,
                max: false,
            },
            ops,
            snap_seq: r.get()?,
            snaps: r.get()?,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }
}

fn decode_ops(r: &mut Reader<'_>, payload: &Payload) -> Result<OsdOps, DecodeError> {
    let count = r.u16()? as usize;
    let mut cutter = PayloadCutter::new(&payload.data);
    // Not reserved by the count, which nothing has borne out yet; beyond two it grows as operations arrive.
    let mut ops = OsdOps::new();
    for _ in 0..count {
        let OpHead { code, flags, params, payload_len } = OpHead::decode(r)?;
        let input = cutter.cut(payload_len)?;
        let is_whole = input.len() == payload.data.len();
        ops.push(OsdOp { code, flags, params, input, input_sum: payload.data_sum.filter(|_| is_whole) });
    }
    Ok(ops)
}
