//! `MPing`: nothing but its header; any daemon accepts it.

use super::{Header, MessageBody, Outgoing, Payload};
use codec::DecodeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MPing;

impl MessageBody for MPing {
    const TYPE: u16 = 2;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, _: &mut Outgoing) {}

    fn decode(_: &Header, _: &Payload) -> Result<MPing, DecodeError> {
        Ok(MPing)
    }
}
