//! A client's request in one line, as Ceph's logs and `dump_ops_in_flight` show it.

use crate::messages::MOSDOp;
use crate::types::{Name, OpCode, OpFlags, OsdOp, ReqId, op_value};
use std::fmt::{self, Display, Formatter};

/// `osd_op(client.4127.0:18980 2.2 2:4ae4a449:::object:head [write 0~4096] snapc 0=[] ondisk+write e12)`
pub struct Request<'a> {
    pub reqid: ReqId,
    pub message: &'a MOSDOp,
}

impl Display for Request<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let m = self.message;
        write!(f, "osd_op({} {} {} [", self.reqid, m.pg, m.object)?;
        for (i, op) in m.ops.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { "," } else { "" }, Operation(op))?;
        }
        let snaps: Vec<String> = m.snaps.iter().map(|snap| format!("{:x}", snap.0)).collect();
        write!(f, "] snapc {:x}=[{}]", m.snap_seq.0, snaps.join(","))?;
        if m.retry_attempt > 0 {
            write!(f, " RETRY={}", m.retry_attempt)?;
        }
        write!(f, " {} e{})", m.flags, m.epoch)
    }
}

/// One operation with its parameters: `write 0~4096`, `getxattr name`, `call lock.lock`.
pub struct Operation<'a>(pub &'a OsdOp);

impl Display for Operation<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let OsdOp { code, flags, params, input, .. } = self.0;
        write!(f, "{code}")?;
        // Names in front of the input, as far as the input goes.
        let name = |from: usize, len: usize| {
            Name::from(input.get(from..).map_or(&[][..], |rest| &rest[..len.min(rest.len())]))
        };
        match *code {
            OpCode::READ
            | OpCode::SPARSE_READ
            | OpCode::SYNC_READ
            | OpCode::WRITE
            | OpCode::WRITEFULL
            | OpCode::ZERO
            | OpCode::APPEND
            | OpCode::MAPEXT
            | OpCode::CMPEXT => {
                let extent = params.extent();
                write!(f, " {}~{}", extent.offset, extent.len)?;
                if extent.truncate_seq != 0 {
                    write!(f, " [{}@{}]", extent.truncate_seq, extent.truncate_size as i64)?;
                }
                if *flags != OpFlags::NONE {
                    write!(f, " [{flags}]")?;
                }
                Ok(())
            }
            OpCode::ASSERT_VER => write!(f, " v{}", params.assert_version()),
            OpCode::TRUNCATE => write!(f, " {}", params.extent().offset),
            OpCode::TRIMTRUNC => {
                write!(f, " {}@{}", params.extent().truncate_seq, params.extent().truncate_size as i64)
            }
            OpCode::ROLLBACK => write!(f, " {:?}", params.snap()),
            OpCode::WATCH => {
                let watch = params.watch();
                let kind = match watch.op {
                    op_value::WATCH_UNWATCH => "unwatch",
                    op_value::WATCH_LEGACY => "legacy_watch",
                    op_value::WATCH_WATCH => "watch",
                    op_value::WATCH_RECONNECT => "reconnect",
                    op_value::WATCH_PING => "ping",
                    _ => "???",
                };
                write!(f, " {kind} cookie {}", watch.cookie)?;
                if watch.generation > 0 { write!(f, " gen {}", watch.generation) } else { Ok(()) }
            }
            OpCode::NOTIFY => write!(f, " cookie {}", params.notify_cookie()),
            OpCode::COPY_GET => write!(f, " max {}", params.copy_get_max()),
            OpCode::COPY_FROM => write!(f, " ver {}", params.copy_from().source_version),
            OpCode::SETALLOCHINT => {
                let hint = params.alloc_hint();
                write!(f, " object_size {} write_size {}", hint.object_size, hint.write_size)
            }
            OpCode::CALL => {
                let call = params.call();
                let (class_len, method_len) = (call.class_len as usize, call.method_len as usize);
                write!(f, " {}.{}", name(0, class_len), name(class_len, method_len))
            }
            OpCode::PGLS | OpCode::PGLS_FILTER | OpCode::PGNLS | OpCode::PGNLS_FILTER => {
                write!(f, " start_epoch {}", params.pgls().start_epoch)
            }
            _ if code.is_attr() => {
                let attr = params.xattr();
                if attr.name_len > 0 && !input.is_empty() {
                    write!(f, " {}", name(0, attr.name_len as usize))?;
                }
                if attr.value_len > 0 {
                    write!(f, " ({})", attr.value_len)?;
                }
                match *code {
                    OpCode::CMPXATTR => write!(f, " op {} mode {}", attr.cmp_op, attr.cmp_mode),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::OsdOps;
    use crate::types::osd_op::AllocHint;
    use crate::types::{EntityKind, EntityName, HObject, OsdFlags, PgId, SnapId, UTime};
    use bytes::Bytes;

    /// As a stock OSD described the same request.
    #[test]
    fn request_is_described_as_stock_describes_it() {
        let hint = AllocHint { object_size: 4096, write_size: 4096, flags: 0 };
        let ops = [
            OsdOp::new(OpCode::SETALLOCHINT, hint, Bytes::new()),
            OsdOp::extent(OpCode::WRITE, 0, 4096, Bytes::new()),
        ];
        let hash = 0x4ae4_a449_u32.reverse_bits();
        let reqid = ReqId { name: EntityName::new(EntityKind::CLIENT, 4127), tid: 18980, incarnation: 0 };
        let message = MOSDOp {
            pg: PgId { pool: 2, seed: 2 }.into(),
            epoch: 12,
            flags: OsdFlags::ONDISK | OsdFlags::WRITE | OsdFlags::KNOWN_REDIR,
            explicit_reqid: reqid,
            client_incarnation: 0,
            mtime: UTime::ZERO,
            object: HObject {
                pool: 2,
                hash,
                snap: SnapId::HEAD,
                name: "benchmark_data_vm_18701_object18979".into(),
                ..HObject::min()
            },
            ops: OsdOps::from_iter(ops),
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        };
        assert_eq!(
            Request { reqid, message: &message }.to_string(),
            "osd_op(client.4127.0:18980 2.2 2:4ae4a449:::benchmark_data_vm_18701_object18979:head \
             [set-alloc-hint object_size 4096 write_size 4096,write 0~4096] snapc 0=[] \
             ondisk+write+known_if_redirected e12)"
        );
    }

    #[test]
    fn names_are_shown_as_far_as_the_input_goes() {
        let attr = OsdOp::xattr(OpCode::SETXATTR, b"a\xff", b"value");
        assert_eq!(Operation(&attr).to_string(), "setxattr a%ff (5)");
        let call = OsdOp::call("lock", "get_info", b"x").unwrap();
        assert_eq!(Operation(&call).to_string(), "call lock.get_info");
        let short = OsdOp { input: call.input.slice(..6), ..call };
        assert_eq!(Operation(&short).to_string(), "call lock.ge");
        assert_eq!(Operation(&OsdOp::bare(OpCode(0x1fff))).to_string(), "op 0x1fff");
    }
}
