//! Proof of a monitor to another: whoever has the key of `mon.` makes a ticket of its own, sealed with that key,
//! as stock's monitors do. It needs neither a quorum nor a state, so a new monitor can be let in.

use machine::Random;
use machine::net::Credentials;
use wire::cephx::{
    AuthCaps, AuthTicket, Key, NewTicket, RotatingKeys, RotatingSecret, ServiceTicket, TicketInfo,
};
use wire::types::{AuthName, EntityKind, UTime};

/// The number of the key of `mon.` among the keys of the monitors' service.
const SECRET_ID: u64 = u64::MAX;

/// Keys with which the other monitors' tickets open.
pub(super) fn service_keys(key: &Key) -> RotatingKeys {
    let secret = RotatingSecret { key: key.clone(), expires: UTime { sec: u32::MAX, nsec: 0 } };
    RotatingKeys { secrets: [(SECRET_ID, secret)].into(), max_version: 0 }
}

/// With the key of `mon.`, or with `None` where the cluster runs without authentication. `None`: the key cannot be used.
pub(super) fn credentials(key: Option<&Key>, now: UTime, random: &mut Random) -> Option<Credentials> {
    let auth_name = AuthName::new(EntityKind::MON, "");
    // Without authentication the number is a claim like the name; zero would ask for one.
    let global_id = 1;
    let Some(key) = key else {
        return Some(Credentials::None { auth_name: auth_name.to_string(), global_id });
    };
    let ticket = AuthTicket {
        name: auth_name.clone(),
        global_id,
        created: now,
        // Each connection has a ticket of its own, and clocks may differ.
        expires: UTime::ZERO,
        caps: AuthCaps::from_text("allow *"),
        flags: 0,
    };
    let session_key = Key::generate(key.usable().ok()?, now, random);
    let new = NewTicket {
        service: EntityKind::MON.0.into(),
        info: TicketInfo { ticket, session_key: session_key.clone() },
        service_secret: key.clone(),
        secret_id: SECRET_ID,
        validity: UTime::ZERO,
    };
    let blob = new.to_blob(random).ok()?.blob;
    let ticket = ServiceTicket {
        service: new.service,
        session_key,
        blob,
        secret_id: SECRET_ID,
        validity: UTime::ZERO,
    };
    Some(Credentials::Ticket { auth_name: auth_name.to_string(), global_id, ticket })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::cephx::{Authorizer, ChallengeOrReply, KeyKind, Verifier};

    /// The conversation of a monitor that calls with `caller`, and one that has `ours`.
    fn is_let_in(caller: &Key, ours: &Key) -> bool {
        let mut random = Random::from_number(3);
        let Some(Credentials::Ticket { global_id, ticket, .. }) =
            credentials(Some(caller), UTime { sec: 9, nsec: 0 }, &mut random)
        else {
            return false;
        };
        let keys = service_keys(ours);
        let service = EntityKind::MON.0.into();
        let verifier = Verifier { service, keys: &keys, now_at_least: UTime { sec: 1 << 30, nsec: 0 } };
        let authorizer = Authorizer::new(global_id, ticket, &mut random);
        let first = authorizer.present(&mut random).unwrap();
        let Ok(ChallengeOrReply::Challenge { number, payload }) =
            verifier.verify(&first, None, &[], &mut random)
        else {
            return false;
        };
        let second = authorizer.answer(&payload, &mut random).unwrap();
        matches!(
            verifier.verify(&second, Some(number), &[], &mut random),
            Ok(ChallengeOrReply::Accepted(verified)) if verified.info.ticket.name.kind == EntityKind::MON
        )
    }

    #[test]
    fn the_key_of_mon_lets_a_monitor_in_and_no_other_key_does() {
        let mut random = Random::from_number(4);
        for kind in [KeyKind::Aes, KeyKind::Aes256k] {
            let mut key = || Key::generate(kind, UTime::ZERO, &mut random);
            let (ours, other) = (key(), key());
            assert!(is_let_in(&ours, &ours));
            assert!(!is_let_in(&other, &ours));
        }
    }

    #[test]
    fn without_authentication_the_name_is_enough() {
        let found = credentials(None, UTime::ZERO, &mut Random::from_number(1));
        let Some(Credentials::None { auth_name, global_id }) = found else { panic!("{found:?}") };
        assert_eq!((auth_name.as_str(), global_id), ("mon.", 1));
    }
}
