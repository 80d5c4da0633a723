//! Trivial maps: an object's bytes as a sorted table of keys and values, which is older than omaps. Images of format 1 keep
//! their directory in one.
//!
//! ```text
//! header (u32 length, bytes) | number of keys, u32 | key, value (u32 length, bytes each), ascending by key
//! ```

use super::Limits;
use super::execution::Execution;
use super::handler::{Handler, OpOutcome};
use super::reads::DataRead;
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Features, Reader, Rope, Writer};
use std::collections::BTreeMap;
use wire::types::OsdOp;

/// Longer maps are refused with EFBIG: each change decodes the whole map.
const MAP_BYTES_MAX: usize = 4 << 20;

/// Changes a map by a list of commands. An object that is not there is an empty map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update(Vec<Command>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    Header(Bytes),
    Set(Bytes, Bytes),
    /// Fails with EEXIST where the key is there.
    Create(Bytes, Bytes),
    /// Fails with ENOENT where it is not.
    Remove(Bytes),
    RemoveIfThere(Bytes),
}

impl Handler for Update {
    type Reads = DataRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        if op.input.len() > MAP_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut r = Reader::new(&op.input);
        let mut commands = Vec::new();
        while !r.is_empty() {
            commands.push(match r.u8()? {
                b'h' => Command::Header(bytes_of(&mut r)?),
                b's' => Command::Set(bytes_of(&mut r)?, bytes_of(&mut r)?),
                b'c' => Command::Create(bytes_of(&mut r)?, bytes_of(&mut r)?),
                b'r' => Command::Remove(bytes_of(&mut r)?),
                b'R' => Command::RemoveIfThere(bytes_of(&mut r)?),
                _ => return Err(Errno::INVAL),
            });
        }
        Ok(Update(commands))
    }

    fn reads(&self, _: &Limits) -> DataRead {
        DataRead { offset: 0, len: MAP_BYTES_MAX as u64 + 1 }
    }

    fn execute(&self, list: &mut Execution<'_>, data: Rope) -> OpOutcome {
        let mut map = Map::decode(&data.to_bytes())?;
        list.count_read(data.len());
        for command in &self.0 {
            map.apply(command)?;
        }
        list.write_full(map.encode().into())
    }
}

/// Replaces a map. Its keys are put into order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put(Map);

impl Handler for Put {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Put(Map::decode(&op.input)?))
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.write_full(self.0.encode().into())
    }
}

fn bytes_of(r: &mut Reader<'_>) -> Result<Bytes, Errno> {
    Ok(Bytes::copy_from_slice(r.blob()?))
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Map {
    header: Bytes,
    keys: BTreeMap<Bytes, Bytes>,
}

impl Map {
    /// No bytes at all are an empty map.
    fn decode(data: &Bytes) -> Result<Map, Errno> {
        let mut map = Map::default();
        if data.is_empty() {
            return Ok(map);
        }
        if data.len() > MAP_BYTES_MAX {
            return Err(Errno::FBIG);
        }
        let mut r = Reader::new(data);
        map.header = bytes_of(&mut r)?;
        for _ in 0..r.u32()? {
            map.keys.insert(bytes_of(&mut r)?, bytes_of(&mut r)?);
        }
        Ok(map)
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new(Features::NONE);
        w.blob(&self.header);
        w.count(self.keys.len());
        for (key, value) in &self.keys {
            w.blob(key);
            w.blob(value);
        }
        w.into_vec()
    }

    fn apply(&mut self, command: &Command) -> Result<(), Errno> {
        match command {
            Command::Header(header) => self.header = header.clone(),
            Command::Create(key, _) if self.keys.contains_key(key) => return Err(Errno::EXIST),
            Command::Set(key, value) | Command::Create(key, value) => {
                self.keys.insert(key.clone(), value.clone());
            }
            Command::Remove(key) => drop(self.keys.remove(key).ok_or(Errno::NOENT)?),
            Command::RemoveIfThere(key) => drop(self.keys.remove(key)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::OpCode;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn map_has_stocks_bytes() {
        let mut map = Map::decode(&Bytes::new()).unwrap();
        map.apply(&Command::Set(bytes("b"), bytes("22"))).unwrap();
        map.apply(&Command::Set(bytes("a"), bytes(""))).unwrap();
        map.apply(&Command::Header(bytes("h"))).unwrap();
        let encoded = map.encode();
        assert_eq!(encoded, b"\x01\0\0\0h\x02\0\0\0\x01\0\0\0a\0\0\0\0\x01\0\0\0b\x02\0\0\x0022");
        assert_eq!(Map::decode(&encoded.into()).unwrap(), map);
    }

    #[test]
    fn create_and_remove_look_at_the_key() {
        let mut map = Map::default();
        map.apply(&Command::Create(bytes("a"), bytes("1"))).unwrap();
        assert_eq!(map.apply(&Command::Create(bytes("a"), bytes("2"))), Err(Errno::EXIST));
        assert_eq!(map.apply(&Command::Remove(bytes("b"))), Err(Errno::NOENT));
        map.apply(&Command::RemoveIfThere(bytes("b"))).unwrap();
        map.apply(&Command::Remove(bytes("a"))).unwrap();
        assert_eq!(map, Map::default());
    }

    #[test]
    fn torn_map_is_refused() {
        assert!(Map::decode(&bytes("\x09\0\0\0h")).is_err());
        assert!(Map::decode(&bytes("\0\0\0\0\u{7f}\0\0\0")).is_err());
    }

    #[test]
    fn commands_decode_and_unknown_ones_are_refused() {
        let op = |input: &'static str| OsdOp { input: bytes(input), ..OsdOp::bare(OpCode::TMAPUP) };
        let set = Update::decode(&op("s\x01\0\0\0a\x01\0\0\0x")).unwrap();
        assert_eq!(set, Update(vec![Command::Set(bytes("a"), bytes("x"))]));
        assert_eq!(Update::decode(&op("q")), Err(Errno::INVAL));
        assert!(Update::decode(&op("s\x01\0\0\0a")).is_err());
    }
}
