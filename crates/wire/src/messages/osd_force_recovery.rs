//! The manager's order to an OSD: recover or backfill these placement groups before all others.

use super::plain::plain_message;
use crate::types::{SpgId, Uuid};

plain_message! {
    /// To the primary of the groups. Version 1, of releases before Mimic, had groups without a shard.
    MOSDForceRecovery = 151, version 2, compat 2 {
        fsid: Uuid,
        pgs: Vec<SpgId>,
        /// [`MOSDForceRecovery::RECOVERY`] or [`MOSDForceRecovery::BACKFILL`], perhaps with
        /// [`MOSDForceRecovery::CANCEL`].
        options: u8,
    }
}

impl MOSDForceRecovery {
    pub const RECOVERY: u8 = 1;
    pub const BACKFILL: u8 = 2;
    /// Give the groups their usual priority again.
    pub const CANCEL: u8 = 4;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Body, Message};
    use crate::types::PgId;

    /// `MOSDForceRecovery.h`, version 2: fsid, vector of `spg_t`, one byte.
    #[test]
    fn order_has_stocks_bytes() {
        let order = MOSDForceRecovery {
            fsid: Uuid([7; 16]),
            pgs: vec![PgId { pool: 2, seed: 0x1f }.into()],
            options: MOSDForceRecovery::BACKFILL | MOSDForceRecovery::CANCEL,
        };
        let (header, out) = Message::new(order.clone()).encode(crate::features::SUPPORTED);
        assert_eq!((header.kind, header.version, header.compat), (151, 2, 2));
        let mut expected = vec![7; 16];
        expected.extend([1, 0, 0, 0]);
        // spg_t: an envelope around pg_t and the shard.
        expected.extend([1, 1, 18, 0, 0, 0]);
        expected.extend([1, 2, 0, 0, 0, 0, 0, 0, 0, 0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
        expected.push(6);
        assert_eq!(out.front.as_slice(), expected);
        assert!(matches!(&Message::new(order).body, Body::MOSDForceRecovery(m) if m.pgs.len() == 1));
    }
}
