//! `MOSDOpReply`: what became of a [`super::MOSDOp`].

use super::osd_op::BLKIN_TRACE_LEN;
use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::osd_op::{OpHead, PayloadCutter};
use crate::types::{Epoch, Name, OsdFlags, OsdOpResult, PgId, ReplyVersions, RequestRedirect};
use codec::{DecodeError, Reader};
use smallvec::SmallVec;

pub type OsdOpResults = SmallVec<[OsdOpResult; 2]>;

#[derive(Clone, Debug, PartialEq)]
pub struct MOSDOpReply {
    pub object: Name,
    pub pg: PgId,
    /// The request's, and `ONDISK` when what it wrote is durable.
    pub flags: OsdFlags,
    /// 0, a negative errno, or with `RETURNVEC` a positive value.
    pub result: i32,
    /// The OSD's map.
    pub epoch: Epoch,
    /// One for each operation of the request, in order; or none.
    pub ops: OsdOpResults,
    pub retry_attempt: i32,
    pub versions: ReplyVersions,
    pub redirect: Option<RequestRedirect>,
    /// Where the data would start modulo a page in the object: a receiver may align its buffer by it.
    pub data_offset: u16,
}

impl MessageBody for MOSDOpReply {
    const TYPE: u16 = 43;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.put(&self.object);
        w.put(&self.pg);
        w.i64(self.flags.0 as i64);
        w.i32(self.result);
        w.put(&self.versions.legacy);
        w.u32(self.epoch);
        w.count(self.ops.len());
        self.ops.iter().for_each(|op| op.encode_head(w));
        w.i32(self.retry_attempt);
        self.ops.iter().for_each(|op| w.i32(op.result));
        w.put(&self.versions.replay);
        w.u64(self.versions.user);
        w.put(&self.redirect);
        w.raw(&[0; BLKIN_TRACE_LEN]);

        self.ops.iter().for_each(|op| out.data.append(op.output.clone()));
        out.data_offset = self.data_offset;
    }

    fn decode(header: &Header, payload: &Payload) -> Result<MOSDOpReply, DecodeError> {
        if header.version < 7 {
            return Err(DecodeError::TooOld { what: "MOSDOpReply", version: header.version as u8 });
        }
        let mut r = Reader::new(&payload.front);
        let r = &mut r;
        let object = r.get()?;
        let pg = r.get()?;
        let flags = OsdFlags(r.i64()? as u32);
        let result = r.i32()?;
        let legacy = r.get()?;
        let epoch = r.u32()?;
        let mut ops = decode_ops(r, payload)?;
        let retry_attempt = r.i32()?;
        for op in &mut ops {
            op.result = r.i32()?;
        }
        let versions = ReplyVersions { legacy, replay: r.get()?, user: r.u64()? };
        let redirect = r.get()?;
        if header.version >= 8 {
            r.skip(BLKIN_TRACE_LEN)?;
        }
        Ok(MOSDOpReply {
            object,
            pg,
            flags,
            result,
            epoch,
            ops,
            retry_attempt,
            versions,
            redirect,
            data_offset: 0,
        })
    }
}

fn decode_ops(r: &mut Reader<'_>, payload: &Payload) -> Result<OsdOpResults, DecodeError> {
    let count = r.count("operations", crate::types::osd_op::OP_LEN)?;
    let mut cutter = PayloadCutter::new(&payload.data);
    let mut ops = OsdOpResults::new();
    for _ in 0..count {
        let OpHead { code, flags, params, payload_len } = OpHead::decode(r)?;
        let output = cutter.cut(payload_len)?.into();
        ops.push(OsdOpResult { code, flags, params, result: 0, output });
    }
    Ok(ops)
}
