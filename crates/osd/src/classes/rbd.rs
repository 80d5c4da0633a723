//! Block images. So far only the questions with which clients find out whether the class is there at all.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Encode, Features, Reader};
use wire::types::Name;

/// Every feature that an image can have (`RBD_FEATURES_ALL`): layering to dirty-cache.
const FEATURES_ALL: u64 = (1 << 12) - 1;

pub(super) fn get_all_features(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    call.reply(FEATURES_ALL.to_vec(Features::NONE));
    Ok(0)
}

/// An image's id: the one string that its `rbd_id.NAME` object holds.
pub(super) fn get_id(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    if call.context.size == 0 {
        return Err(Errno::NOENT.into());
    }
    let bytes = call.data(0, call.context.size)?.to_bytes();
    let id = Reader::new(&bytes).get::<Name>().map_err(|_| Errno::IO)?;
    call.reply(id.to_vec(Features::NONE));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use crate::classes::testing::{Object, decode};
    use crate::errno::Errno;
    use codec::{Encode, Features};

    #[test]
    fn the_features_are_one_number() {
        let reply = Object::existing().call_bare("rbd", "get_all_features").unwrap();
        assert_eq!(decode::<u64>(&reply), 0xfff);
    }

    #[test]
    fn an_id_is_what_the_object_holds() {
        let mut o = Object::existing();
        assert_eq!(o.call_bare("rbd", "get_id"), Err(Errno::NOENT));
        o.put_data(&"1234".to_string().to_vec(Features::NONE));
        assert_eq!(decode::<String>(&o.call_bare("rbd", "get_id").unwrap()), "1234");
        o.put_data(b"not a string");
        assert_eq!(o.call_bare("rbd", "get_id"), Err(Errno::IO));
    }
}
