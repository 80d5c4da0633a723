//! Every operation: its codes, and the handler that decodes and executes it. One row each.
//!
//! A new operation is a row here, its [`Handler`] in the file of its kind, and its code with its name in
//! `wire/src/types/op_code.rs`. A code without a row does not compile; a code that stands in two rows does not either.

use super::handler::{Handler, OpAccess, OpOutcome};
use super::{Execution, Limits, attrs, calls, checksum, copying, data, hints, omap, tmap, watching};
use crate::classes::Method;
use crate::errno::Errno;
use store::Query;
use wire::types::{OpCode, OsdOp, SnapId};

macro_rules! operations {
    (
        handlers { $($variant:ident($handler:ty): $($code:ident)|+;)+ }
        listings { $($listing:ident)+ }
        $(refused with $errno:ident { $($refused:ident)+ })+
    ) => {
        /// One operation of a client's list, decoded.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Operation {
            $($variant($handler),)+
            /// It lists a PG's objects, which is not about one object: the shard does it.
            Listing,
            /// It fails when its turn has come.
            Refused(Errno),
        }

        impl Operation {
            #[deny(unreachable_patterns)]
            pub fn decode(op: &OsdOp) -> Operation {
                let decoded = match op.code {
                    $($(OpCode::$code)|+ => <$handler>::decode(op).map(Operation::$variant),)+
                    $(OpCode::$listing)|+ => Ok(Operation::Listing),
                    $($(OpCode::$refused)|+ => Err(Errno::$errno),)+
                    _ => Err(Errno::OPNOTSUPP),
                };
                decoded.unwrap_or_else(Operation::Refused)
            }

            /// Appends what it reads of the object before the list is executed.
            pub fn push_queries(&self, limits: &Limits, out: &mut Vec<Query>) {
                use super::reads::Reads as _;
                match self {
                    $(Operation::$variant(handler) => handler.reads(limits).push(out),)+
                    Operation::Listing | Operation::Refused(_) => {}
                }
            }

            pub(super) fn execute(&self, list: &mut Execution<'_>) -> OpOutcome {
                match self {
                    $(Operation::$variant(handler) => {
                        let found = list.take_found::<<$handler as Handler>::Reads>();
                        handler.execute(list, found)
                    })+
                    Operation::Listing => Err(Errno::OPNOTSUPP.into()),
                    Operation::Refused(errno) => Err((*errno).into()),
                }
            }

            /// Access to the object, without that of a class's method.
            pub fn access(&self, code: OpCode) -> OpAccess {
                match self {
                    $(Operation::$variant(handler) => handler.access(code),)+
                    Operation::Listing | Operation::Refused(_) => OpAccess::of(code),
                }
            }

            /// True if the object's user version advances.
            pub(super) fn is_user_visible(&self, code: OpCode) -> bool {
                let visible = match self {
                    $(Operation::$variant(_) => <$handler as Handler>::USER_VISIBLE,)+
                    Operation::Listing | Operation::Refused(_) => true,
                };
                visible && code.writes() && !code.is_cache()
            }
        }

        const fn has_row(code: OpCode) -> bool {
            matches!(code, $($(OpCode::$code)|+)|+ | $(OpCode::$listing)|+ | $($(OpCode::$refused)|+)|+)
        }
    };
}

operations! {
    handlers {
        Read(data::Read): READ | SYNC_READ | TMAPGET;
        SparseRead(data::SparseRead): SPARSE_READ;
        MapExtents(data::MapExtents): MAPEXT;
        CompareExtent(data::CompareExtent): CMPEXT;
        Stat(data::Stat): STAT;
        Checksum(checksum::Checksum): CHECKSUM;
        GetAttr(attrs::GetAttr): GETXATTR;
        GetAttrs(attrs::GetAttrs): GETXATTRS;
        CompareAttr(attrs::CompareAttr): CMPXATTR;
        AssertVersion(hints::AssertVersion): ASSERT_VER;
        IsDirty(hints::IsDirty): ISDIRTY;
        ListWatchers(watching::ListWatchers): LIST_WATCHERS;
        ListSnaps(hints::ListSnaps): LIST_SNAPS;
        CopyGet(Box<copying::CopyGet>): COPY_GET;
        Notify(watching::Notify): NOTIFY;
        NotifyAck(watching::AckNotify): NOTIFY_ACK;
        OmapKeys(omap::ListKeys): OMAPGETKEYS;
        OmapValues(omap::ListValues): OMAPGETVALS;
        OmapHeader(omap::GetHeader): OMAPGETHEADER;
        OmapByKeys(omap::GetByKeys): OMAPGETVALSBYKEYS;
        OmapCompare(omap::Compare): OMAP_CMP;

        Write(data::Write): WRITE;
        WriteFull(data::WriteFull): WRITEFULL;
        WriteSame(data::WriteSame): WRITESAME;
        Append(data::Append): APPEND;
        Zero(data::Zero): ZERO;
        Create(data::Create): CREATE;
        Truncate(data::Truncate): TRUNCATE | TRIMTRUNC;
        Delete(data::Delete): DELETE;
        SetAttr(attrs::SetAttr): SETXATTR;
        RemoveAttr(attrs::RemoveAttr): RMXATTR;
        TmapUpdate(tmap::Update): TMAPUP;
        TmapPut(tmap::Put): TMAPPUT;
        OmapSet(omap::Set): OMAPSETVALS;
        OmapSetHeader(omap::SetHeader): OMAPSETHEADER;
        OmapClear(omap::Clear): OMAPCLEAR;
        OmapRemove(omap::Remove): OMAPRMKEYS;
        OmapRemoveRange(omap::RemoveRange): OMAPRMKEYRANGE;
        AllocHint(hints::SetAllocHint): SETALLOCHINT;
        StartSync(hints::StartSync): STARTSYNC;
        Undirty(hints::Undirty): UNDIRTY;
        Watch(watching::Watch): WATCH;
        Rollback(copying::Rollback): ROLLBACK;
        CopyFrom(Box<copying::CopyFrom>): COPY_FROM | COPY_FROM2;
        Call(Box<calls::ClassCall>): CALL;
    }
    listings { PGLS PGLS_FILTER PGNLS PGNLS_FILTER PG_HITSET_LS PG_HITSET_GET SCRUBLS }
    // They need cache tiers, which shoal's pools do not have; a stock OSD says the same of a pool that is no tier.
    refused with INVAL { CACHE_FLUSH CACHE_EVICT CACHE_TRY_FLUSH CACHE_PIN CACHE_UNPIN }
    refused with OPNOTSUPP {
        // Manifests: not here yet.
        SET_REDIRECT SET_CHUNK TIER_PROMOTE UNSET_MANIFEST TIER_FLUSH TIER_EVICT
        // A stock OSD has a code for them and nothing behind it.
        MASKTRUNC SETTRUNC TMAP2OMAP SETXATTRS RESETXATTRS
        PULL PUSH BALANCEREADS UNBALANCEREADS SCRUB SCRUB_RESERVE SCRUB_UNRESERVE SCRUB_MAP
    }
}

/// Each code that has a name has a row.
const _: () = {
    let mut i = 0;
    while i < OpCode::ALL.len() {
        assert!(has_row(OpCode::ALL[i]), "an operation's code has no row in this table");
        i += 1;
    }
};

impl Operation {
    /// The snapshot that a rollback goes back to.
    pub fn rollback(&self) -> Option<SnapId> {
        match self {
            Operation::Rollback(rollback) => Some(rollback.snap()),
            _ => None,
        }
    }

    /// The copy of another object that it makes.
    pub fn copy_from(&self) -> Option<&copying::CopyFrom> {
        match self {
            Operation::CopyFrom(copy) => Some(copy),
            _ => None,
        }
    }

    /// The class method that it calls.
    pub fn method(&self) -> Option<&'static Method> {
        match self {
            Operation::Call(call) => Some(call.method),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use codec::Features;

    /// Inputs that decode for one operation or another: nothing, text, and several lengths of zeroes.
    fn inputs() -> Vec<Bytes> {
        let zeroes = [0, 4, 8, 12, 16, 40].map(|len| Bytes::from(vec![0; len]));
        zeroes.into_iter().chain([Bytes::from_static(b"\x01\x00\x00\x00kvvvvvvvvv")]).collect()
    }

    #[test]
    fn every_code_executes_on_any_object_without_panic() {
        use super::super::{CallEnvironment, ListStatus, Snapshots};
        use wire::types::{EntityAddr, EntityKind, EntityName, HObject, ObjectInfo, UTime};
        let (limits, id) = (Limits::default(), store::ObjectId::from(HObject::min()));
        let client = (EntityName::new(EntityKind::CLIENT, 1), EntityAddr::default(), Features::ALL);
        let info = ObjectInfo::new(HObject::min());
        let unknown = [OpCode(0x12ff), OpCode(0x22ff), OpCode(0)];
        for code in OpCode::ALL.iter().copied().chain(unknown) {
            for input in inputs() {
                let op = OsdOp { input, ..OsdOp::bare(code) };
                let operation = Operation::decode(&op);
                for before in [None, Some(&info)] {
                    let mut queries = Vec::new();
                    operation.push_queries(&limits, &mut queries);
                    let answers = queries.iter().map(empty_answer).collect();
                    let environment =
                        CallEnvironment { now: UTime::ZERO, seed: 0, pg_user_version: 0, known: &[] };
                    let snapshots = Snapshots::default();
                    let list = Execution::new(
                        &limits,
                        &id,
                        client,
                        1,
                        &|_, _| false,
                        environment,
                        snapshots,
                        before,
                        answers,
                        &[],
                    );
                    match list.run(std::slice::from_ref(&op), std::slice::from_ref(&operation)) {
                        ListStatus::Done(outcome) => assert_eq!(outcome.results.len(), 1, "{code}"),
                        ListStatus::NeedsReads(_) => assert_eq!(code, OpCode::CALL),
                        ListStatus::NeedsCopy(_) => assert!(operation.copy_from().is_some(), "{code}"),
                    }
                }
            }
        }
    }

    fn empty_answer(query: &Query) -> store::Answer {
        use store::Answer;
        match query {
            Query::Stat => Answer::Stat { size: 0 },
            Query::Data { .. } => Answer::Data(codec::Rope::new()),
            Query::Extents { .. } => Answer::Extents(Vec::new()),
            Query::Attr { .. } => Answer::Attr(None),
            Query::Attrs => Answer::Attrs(Vec::new()),
            Query::OmapHeader => Answer::OmapHeader(Bytes::new()),
            Query::OmapList { .. } => Answer::OmapList { entries: Vec::new(), more: false },
            Query::OmapGet { .. } => Answer::OmapGet(Vec::new()),
            Query::List { .. } | Query::LogList { .. } => unreachable!("no operation on an object lists"),
        }
    }

    #[test]
    fn unknown_code_is_not_supported() {
        assert_eq!(Operation::decode(&OsdOp::bare(OpCode(0x12ff))), Operation::Refused(Errno::OPNOTSUPP));
        assert_eq!(Operation::decode(&OsdOp::bare(OpCode::TMAP2OMAP)), Operation::Refused(Errno::OPNOTSUPP));
        assert_eq!(Operation::decode(&OsdOp::bare(OpCode::CACHE_PIN)), Operation::Refused(Errno::INVAL));
    }

    #[test]
    fn user_version_advances_with_writes_that_users_see() {
        let visible = |code| Operation::decode(&OsdOp::bare(code)).is_user_visible(code);
        assert!(visible(OpCode::WRITEFULL) && visible(OpCode::DELETE) && visible(OpCode::OMAPCLEAR));
        assert!(!visible(OpCode::WATCH) && !visible(OpCode::UNDIRTY) && !visible(OpCode::READ));
        assert!(!visible(OpCode::CACHE_EVICT));
        const { assert!(!<copying::CopyFrom as Handler>::USER_VISIBLE) };
    }
}
