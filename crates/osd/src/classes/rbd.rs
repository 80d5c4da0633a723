//! Block images. So far only the question with which clients find out whether the class is there at all.

use super::{Call, Stop};
use codec::{Encode, Features};

/// Every feature that an image can have (`RBD_FEATURES_ALL`): layering to dirty-cache.
const FEATURES_ALL: u64 = (1 << 12) - 1;

pub(super) fn get_all_features(call: &mut Call<'_>) -> Result<i32, Stop> {
    call.reply(FEATURES_ALL.to_vec(Features::NONE));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use crate::classes::testing::{Object, decode};

    #[test]
    fn the_features_are_one_number() {
        let reply = Object::existing().call_bare("rbd", "get_all_features").unwrap();
        assert_eq!(decode::<u64>(&reply), 0xfff);
    }
}
