//! Operations on an object's attributes.

use super::execution::Execution;
use super::handler::{Handler, OpOutcome, OpOutput, done};
use super::reads::{AllAttrsRead, AttrRead};
use super::{ATTR_PREFIX, INFO_ATTR, Limits, stored_attr};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Features, Reader, Rope, Writer};
use std::cmp::Ordering;
use store::Change;
use wire::types::{OsdOp, op_value};

/// Attributes are named as they are stored, prefix included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetAttr(Bytes);

impl Handler for GetAttr {
    type Reads = AttrRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(GetAttr(NameAndValue::of(op)?.name))
    }

    fn reads(&self, _: &Limits) -> AttrRead {
        AttrRead(self.0.clone())
    }

    fn execute(&self, list: &mut Execution<'_>, value: Result<Bytes, Errno>) -> OpOutcome {
        list.count_read(value.as_ref().map_or(0, Bytes::len));
        Ok(Rope::from(value?).into())
    }
}

/// `map<string, blob>` of the client's own attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetAttrs;

impl Handler for GetAttrs {
    type Reads = AllAttrsRead;

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(GetAttrs)
    }

    fn reads(&self, _: &Limits) -> AllAttrsRead {
        AllAttrsRead
    }

    fn execute(&self, list: &mut Execution<'_>, attrs: Result<Vec<(Bytes, Bytes)>, Errno>) -> OpOutcome {
        let mut attrs = attrs?;
        attrs.retain(|(name, _)| name.starts_with(ATTR_PREFIX) && *name != INFO_ATTR);
        let mut w = Writer::new(Features::NONE);
        w.count(attrs.len());
        for (name, value) in &attrs {
            w.blob(&name[ATTR_PREFIX.len()..]);
            w.blob(value);
        }
        list.count_read(w.len());
        Ok(Rope::from(w.into_vec()).into())
    }
}

/// A missing attribute compares as empty, or as 0; a missing object is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareAttr {
    name: Bytes,
    /// `op_value::CMP_*`.
    op: u8,
    against: Operand,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operand {
    Text(Bytes),
    Number(u64),
    /// A mode that does not exist: refused after the attribute was found.
    Unknown,
}

impl Handler for CompareAttr {
    type Reads = AttrRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let params = op.params.xattr();
        let NameAndValue { name, rest } = NameAndValue::of(op)?;
        let mut r = Reader::new(rest);
        let against = match params.cmp_mode {
            op_value::CMP_MODE_STRING => Operand::Text(copied(r.take("value", params.value_len as usize)?)),
            op_value::CMP_MODE_U64 => Operand::Number(r.u64()?),
            _ => Operand::Unknown,
        };
        Ok(CompareAttr { name, op: params.cmp_op, against })
    }

    fn reads(&self, _: &Limits) -> AttrRead {
        AttrRead(self.name.clone())
    }

    fn execute(&self, list: &mut Execution<'_>, value: Result<Bytes, Errno>) -> OpOutcome {
        let value = match value {
            Err(Errno::NODATA) => Bytes::new(),
            other => other?,
        };
        list.count_read(value.len());
        // The operand of the request is on the left.
        let holds = match &self.against {
            Operand::Text(want) => compares(self.op, want[..].cmp(&value[..])),
            Operand::Number(want) => compares(self.op, want.cmp(&leading_number(&value)?)),
            Operand::Unknown => None,
        };
        match holds {
            // Not 0: clients of Ceph see a comparison that holds as 1.
            Some(true) => Ok(OpOutput { result: 1, output: Rope::new() }),
            Some(false) => Err(Errno::CANCELED.into()),
            None => Err(Errno::INVAL.into()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAttr {
    name: Bytes,
    value: Bytes,
}

impl Handler for SetAttr {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let NameAndValue { name, rest } = NameAndValue::of(op)?;
        let value = Reader::new(rest).take("value", op.params.xattr().value_len as usize)?;
        Ok(SetAttr { name, value: copied(value) })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let SetAttr { name, value } = self.clone();
        if list.limits.max_attr_size > 0 && value.len() > list.limits.max_attr_size {
            return Err(Errno::FBIG.into());
        }
        if name.len() - ATTR_PREFIX.len() > list.limits.max_attr_name_len {
            return Err(Errno::NAMETOOLONG.into());
        }
        list.ensure_exists();
        list.changes.push(Change::SetAttr { object: list.id.clone(), name, value });
        list.stats.writes += 1;
        done()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveAttr(Bytes);

impl Handler for RemoveAttr {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(RemoveAttr(NameAndValue::of(op)?.name))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.must_exist()?;
        list.changes.push(Change::RemoveAttr { object: list.id.clone(), name: self.0.clone() });
        list.stats.writes += 1;
        done()
    }
}

/// An input that begins with an attribute's name.
struct NameAndValue<'a> {
    /// As it is stored; copied out of the message.
    name: Bytes,
    rest: &'a [u8],
}

impl NameAndValue<'_> {
    fn of(op: &OsdOp) -> Result<NameAndValue<'_>, Errno> {
        let len = op.params.xattr().name_len as usize;
        let (name, rest) = op.input.split_at_checked(len).ok_or(Errno::INVAL)?;
        Ok(NameAndValue { name: stored_attr(name), rest })
    }
}

/// Small values are copied out of the message, so that keeping one does not keep the other.
fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// True if a comparison with that outcome satisfies the operator; `None` for an unknown operator.
fn compares(op: u8, ordering: Ordering) -> Option<bool> {
    Some(match op {
        op_value::CMP_EQ => ordering.is_eq(),
        op_value::CMP_NE => ordering.is_ne(),
        op_value::CMP_GT => ordering.is_gt(),
        op_value::CMP_GTE => ordering.is_ge(),
        op_value::CMP_LT => ordering.is_lt(),
        op_value::CMP_LTE => ordering.is_le(),
        _ => return None,
    })
}

/// An attribute holds a number as decimal text; what follows the digits does not matter.
fn leading_number(value: &[u8]) -> Result<u64, Errno> {
    if value.is_empty() {
        return Ok(0);
    }
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let text = std::str::from_utf8(&value[..digits]).expect("digits are text");
    text.parse().map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::super::Operation;
    use super::*;
    use wire::types::OpCode;

    #[test]
    fn attribute_name_longer_than_input_is_refused() {
        let mut op = OsdOp::xattr(OpCode::SETXATTR, "name", b"value");
        let Operation::SetAttr(SetAttr { name, value }) = Operation::decode(&op) else { panic!("a set") };
        assert_eq!((&name[..], &value[..]), (&b"_name"[..], &b"value"[..]));
        op.input = op.input.slice(..6);
        assert_eq!(Operation::decode(&op), Operation::Refused(Errno::INVAL));
        op.input = op.input.slice(..3);
        assert_eq!(Operation::decode(&op), Operation::Refused(Errno::INVAL));
    }

    #[test]
    fn numbers_are_decimal_text() {
        assert_eq!(leading_number(b""), Ok(0));
        assert_eq!(leading_number(b"42"), Ok(42));
        assert_eq!(leading_number(b"42x"), Ok(42));
        assert_eq!(leading_number(b"x42"), Err(Errno::INVAL));
        assert_eq!(leading_number(b"99999999999999999999"), Err(Errno::INVAL));
    }

    #[test]
    fn an_unknown_operator_is_neither_true_nor_false() {
        assert_eq!(compares(0, Ordering::Equal), None);
        assert_eq!(compares(op_value::CMP_LTE, Ordering::Equal), Some(true));
        assert_eq!(compares(op_value::CMP_NE, Ordering::Equal), Some(false));
    }
}
