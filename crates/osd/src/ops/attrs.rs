//! Steps on an object's attributes.

use super::execution::{Execution, StepResult};
use super::step::AttrOperand;
use super::{ATTR_PREFIX, INFO_ATTR};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Features, Rope, Writer};
use std::cmp::Ordering;
use store::{Answer, Change};
use wire::types::op_value;

impl Execution<'_> {
    fn attr_answer(&mut self) -> Result<Bytes, Errno> {
        match self.answer() {
            Some(Answer::Attr(value)) => value.ok_or(Errno::NODATA),
            Some(_) => unreachable!("the plan asked for an attribute"),
            // Even when the list itself has made the object: it looks at what was there before.
            None => Err(Errno::NOENT),
        }
    }

    pub(super) fn get_attr(&mut self) -> StepResult {
        let value = self.attr_answer();
        self.count_read(value.as_ref().map_or(0, Bytes::len));
        Ok(value?.into())
    }

    /// `map<string, blob>` of the client's own attributes.
    pub(super) fn get_attrs(&mut self) -> StepResult {
        let mut attrs = match self.answer() {
            Some(Answer::Attrs(attrs)) => attrs,
            Some(_) => unreachable!("the plan asked for attributes"),
            None => return Err(Errno::NOENT.into()),
        };
        attrs.retain(|(name, _)| name.starts_with(ATTR_PREFIX) && *name != INFO_ATTR);
        let mut w = Writer::new(Features::NONE);
        w.count(attrs.len());
        for (name, value) in &attrs {
            w.blob(&name[ATTR_PREFIX.len()..]);
            w.blob(value);
        }
        self.count_read(w.len());
        Ok(w.into_vec().into())
    }

    /// A missing attribute compares as empty, or as 0; a missing object is an error.
    pub(super) fn compare_attr(&mut self, op: u8, against: &AttrOperand) -> StepResult {
        let value = match self.attr_answer() {
            Err(Errno::NODATA) => Bytes::new(),
            other => other?,
        };
        self.count_read(value.len());
        // The operand of the request is on the left.
        let holds = match against {
            AttrOperand::Text(want) => compares(op, want[..].cmp(&value[..])),
            AttrOperand::Number(want) => compares(op, want.cmp(&leading_number(&value)?)),
            AttrOperand::Unknown => None,
        };
        match holds {
            Some(true) => Ok(Rope::new()),
            Some(false) => Err(Errno::CANCELED.into()),
            None => Err(Errno::INVAL.into()),
        }
    }

    pub(super) fn set_attr(&mut self, name: &Bytes, value: &Bytes) -> StepResult {
        if self.limits.max_attr_size > 0 && value.len() > self.limits.max_attr_size {
            return Err(Errno::FBIG.into());
        }
        if name.len() - ATTR_PREFIX.len() > self.limits.max_attr_name_len {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.ensure_exists();
        let (object, name, value) = (self.id.clone(), name.clone(), value.clone());
        self.changes.push(Change::SetAttr { object, name, value });
        self.stats.writes += 1;
        Ok(Rope::new())
    }

    pub(super) fn remove_attr(&mut self, name: &Bytes) -> StepResult {
        self.must_exist()?;
        self.changes.push(Change::RemoveAttr { object: self.id.clone(), name: name.clone() });
        self.stats.writes += 1;
        Ok(Rope::new())
    }
}

/// Whether a comparison with that outcome satisfies the operator; `None` for an operator that does not exist.
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
    use super::*;

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
