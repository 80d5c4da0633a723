//! The manager's order to an OSD: scrub or repair these placement groups.

use super::plain::plain_message;
use crate::types::{Epoch, SpgId, Uuid};

plain_message! {
    /// To the primary of the groups.
    MOSDScrub2 = 121, version 1, compat 1 {
        fsid: Uuid,
        epoch: Epoch,
        pgs: Vec<SpgId>,
        is_repair: bool,
        is_deep: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Message;
    use crate::types::PgId;

    /// `MOSDScrub2.h`: fsid, epoch, vector of `spg_t`, two booleans.
    #[test]
    fn order_to_scrub_has_stocks_bytes() {
        let pgs = vec![PgId { pool: 2, seed: 0x1f }.into()];
        let order = MOSDScrub2 { fsid: Uuid([7; 16]), epoch: 9, pgs, is_repair: false, is_deep: true };
        let (header, out) = Message::new(order).encode(crate::features::SUPPORTED);
        assert_eq!((header.kind, header.version, header.compat), (121, 1, 1));
        let mut expected = vec![7; 16];
        expected.extend([9, 0, 0, 0, 1, 0, 0, 0]);
        expected.extend([1, 1, 18, 0, 0, 0]);
        expected.extend([1, 2, 0, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
        expected.extend([0, 1]);
        assert_eq!(out.front.as_slice(), expected);
    }
}
