//! The terms of a join token, and a host that joined, as the log and the state hold them.

use codec::{Decode, Encode};
use wire::types::{UTime, Uuid};

/// Uses of a token that are remembered with host and time. The number of all uses is kept beside them.
const USES_MAX: usize = 64;

/// The terms of a join token. Its key is that of the entity `client.join-ID`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Token {
    pub created: UTime,
    pub expires: UTime,
    /// New hosts that may still join with it. `None`: any number.
    pub uses_left: Option<u32>,
    /// A host that joins with it may get a monitor, and with it the keys that can do everything.
    pub mons: bool,
    pub used: u32,
    /// The newest uses, oldest first.
    pub uses: Vec<TokenUse>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TokenUse {
    pub host: String,
    pub at: UTime,
}

impl Token {
    /// The token after a new host has joined with it.
    pub fn after_use(&self, host: &str, at: UTime) -> Token {
        let mut token = self.clone();
        token.uses_left = token.uses_left.map(|left| left.saturating_sub(1));
        token.used += 1;
        token.uses.push(TokenUse { host: host.to_owned(), at });
        let excess = token.uses.len().saturating_sub(USES_MAX);
        token.uses.drain(..excess);
        token
    }
}

/// A host that joined. Its OSDs are those below the CRUSH bucket of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Host {
    /// Drawn by the host's directory: a repeated join is recognized by it.
    pub id: Uuid,
    /// The address that its daemons listen on.
    pub addr: String,
    /// It runs a monitor and a manager under its own name.
    pub monitor: bool,
    pub joined: UTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_all_uses_and_remembers_the_newest() {
        let mut token = Token { uses_left: Some(70), ..Token::default() };
        for n in 0..70 {
            token = token.after_use(&format!("h{n}"), UTime { sec: n, nsec: 0 });
        }
        assert_eq!((token.uses_left, token.used, token.uses.len()), (Some(0), 70, USES_MAX));
        assert_eq!(token.uses[0].host, "h6");
        let unlimited = Token::default().after_use("h", UTime::ZERO);
        assert_eq!((unlimited.uses_left, unlimited.used), (None, 1));
    }
}
