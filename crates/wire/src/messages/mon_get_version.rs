//! Versions of a map that the monitor has (`MMonGetVersion`, `MMonGetVersionReply`).

use super::plain::plain_message;

plain_message! {
    MMonGetVersion = 19, version 1, compat 1 {
        /// Comes back in the reply; the header's tid is not used for this pair.
        handle: u64,
        /// A map's name as in a subscription.
        what: String,
    }
}

plain_message! {
    MMonGetVersionReply = 20, version 2, compat 2 {
        handle: u64,
        version: u64,
        #[since(2)]
        oldest_version: u64,
    }
}
