//! Bytes from someone who wishes us ill, through every decoder: what the fuzz targets and the property tests call.
//!
//! Each function panics when a promise is broken, and only then: no bytes make a decoder or an encoder panic, and
//! what was read and written once comes back from then on as it is.

use super::types;
use crate::features::TENTACLE;
use crate::messages::{self, Body, Header, Message, MonPeerBody, Payload};
use bytes::Bytes;

/// The four bytes that stand for a type in the input of [`decode_type`]: the same however the table grows.
pub fn type_tag(name: &str) -> u32 {
    crc_fast::crc32_iscsi(name.as_bytes())
}

/// The first four bytes choose a type, the rest is the value.
pub fn decode_type(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first_chunk::<4>() else { return };
    let choice = u32::from_le_bytes(*choice);
    let entry = types()
        .iter()
        .find(|entry| type_tag(entry.name) == choice)
        .unwrap_or(&types()[choice as usize % types().len()]);
    let (_spans, printed) = entry.trace(bytes);
    let Ok(once) = entry.reencode(bytes, TENTACLE) else {
        assert!(printed.is_err(), "{}: a trace changes what is read", entry.name);
        return;
    };
    let twice = entry.reencode(&once, TENTACLE);
    assert_eq!(twice.as_ref(), Ok(&once), "{}: {bytes:02x?}", entry.name);
}

/// A message's number, a byte of version, and two lengths that split the rest into middle, data and front.
pub fn decode_message(data: &[u8]) {
    let Some((&[low, high, version, middle_len, data_len], rest)) = data.split_first_chunk::<5>() else {
        return;
    };
    let choice = u16::from_le_bytes([low, high]);
    let known = messages::ALL.iter().find(|(kind, _)| *kind == choice);
    let (kind, name) = *known.unwrap_or(&messages::ALL[usize::from(choice) % messages::ALL.len()]);
    let mut front = Bytes::copy_from_slice(rest);
    let middle = front.split_to(front.len().min(middle_len.into()));
    let data = front.split_to(front.len().min(data_len.into()));
    let version = version.into();
    let header = Header { kind, version, compat: 1, ..Header::default() };
    let Ok(message) = Message::decode(&header, Payload { front, middle, data, data_sum: None }) else {
        return;
    };

    let write = |message: &Message| {
        let (header, out) = message.encode(TENTACLE);
        let payload = Payload {
            front: out.front.into_bytes(),
            middle: out.middle,
            data: out.data.to_bytes(),
            data_sum: None,
        };
        (header, payload)
    };
    let (header, payload) = write(&message);
    let again = Message::decode(&header, payload.clone())
        .unwrap_or_else(|e| panic!("{name}: does not read what it wrote: {e}"));
    assert!(write(&again) == (header, payload), "{name}: {message:?} became {again:?}");
    if let Body::MMonPeer(statement) = message.body
        && let MonPeerBody::Forward { message, .. } | MonPeerBody::Route { message, .. } = statement.body
    {
        // What it says is up to its sender; reading it must do no harm.
        let _ = message.message();
    }
}
