//! Proven identity: the name that a peer's key stands for, and the one function that grants a daemon's privileges.
//!
//! A peer names itself three times. HELLO carries its kind and IDENT its number; neither is proved. The cephx
//! ticket carries the name of the key, sealed by a monitor. [`Proof::identify`] compares them when a session
//! begins and yields an [`Identity`], or refuses the session:
//!
//! | HELLO says | the key must be | the number in IDENT must be | the peer acts as |
//! |---|---|---|---|
//! | client | any | absent (0 or less), or the ticket's global id | a client |
//! | osd | `osd.N` | N | that OSD |
//! | mon, mgr, mds | one of the same kind | anything (a rank or a global id; the key does not say it) | that daemon |
//!
//! A tool may use a daemon's key and call itself a client (`ceph --name osd.3`). It acts as a client then.
//!
//! With `auth none` nothing is proved. The name in the authorization payload, which is a claim too, then takes the place
//! of the ticket's; see [`Method::None`].

use bytes::Bytes;
use std::fmt;
use thiserror::Error;
use wire::types::{AuthName, EntityKind, EntityName};

/// The name by which a peer calls itself, for log lines and listings. It proves nothing, so it can be printed but not
/// compared: privileges come from [`Identity::daemon`].
#[derive(Clone, Copy)]
pub struct ClaimedName(EntityName);

impl ClaimedName {
    pub fn new(name: EntityName) -> ClaimedName {
        ClaimedName(name)
    }
}

impl fmt::Display for ClaimedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ClaimedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The method by which a peer was authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Cephx,
    /// `auth none`: the peer's own word is taken for its name, and it may do everything.
    None,
}

/// The result of authentication, before the peer has sent its IDENT.
#[derive(Clone, Debug)]
pub struct Proof {
    pub method: Method,
    /// The name that the key is under: `client.admin`, `osd.3`, `mon.`.
    pub name: AuthName,
    pub global_id: u64,
    /// Capabilities for this service as the ticket carries them: an encoded string.
    pub caps: Bytes,
    /// The ticket grants every capability.
    pub allow_all: bool,
}

/// A peer whose claimed name goes beyond its key.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Impostor {
    #[error("{name} calls itself a daemon of kind {claimed:?}, which its key is not")]
    Kind { name: AuthName, claimed: EntityKind },
    #[error("{name} calls itself {claimed}, which is another daemon's name")]
    Daemon { name: AuthName, claimed: EntityName },
    #[error(
        "{name} calls itself {claimed}, and its global id is {global_id}: a client that has lost its global id must be restarted"
    )]
    Client { name: AuthName, claimed: EntityName, global_id: u64 },
}

impl Proof {
    /// A ticket in this name, with capabilities as an administrator writes them.
    pub fn cephx(name: AuthName, global_id: u64, caps: &str) -> Proof {
        let caps = wire::cephx::AuthCaps::from_text(caps).caps;
        Proof { method: Method::Cephx, name, global_id, caps, allow_all: false }
    }

    /// With `auth none`: what the peer says of itself.
    pub fn none(name: AuthName, global_id: u64) -> Proof {
        Proof { method: Method::None, name, global_id, caps: Bytes::new(), allow_all: true }
    }

    /// The kind that a peer acts as which claims `claimed` in its HELLO.
    pub fn role(&self, claimed: EntityKind) -> Result<EntityKind, Impostor> {
        if claimed == EntityKind::CLIENT || claimed == self.name.kind {
            return Ok(claimed);
        }
        Err(Impostor::Kind { name: self.name.clone(), claimed })
    }

    /// The peer's identity, once it has given its whole name. See the module's table.
    pub fn identify(self, claimed: EntityName) -> Result<Identity, Impostor> {
        let role = self.role(claimed.kind)?;
        let number_fits = match role {
            EntityKind::CLIENT => claimed.num <= 0 || claimed.num as u64 == self.global_id,
            EntityKind::OSD => osd_number(&self.name.id).map(i64::from) == Some(claimed.num),
            _ => true,
        };
        match (number_fits, role) {
            (true, _) => Ok(Identity { role, proof: self }),
            (false, EntityKind::CLIENT) => {
                Err(Impostor::Client { name: self.name, claimed, global_id: self.global_id })
            }
            (false, _) => Err(Impostor::Daemon { name: self.name, claimed }),
        }
    }
}

/// A peer's proven name, the kind of entity it acts as, and its capabilities.
#[derive(Clone, Debug)]
pub struct Identity {
    role: EntityKind,
    proof: Proof,
}

impl Identity {
    /// A peer that has proved nothing yet. It acts as no daemon and has no capabilities.
    pub fn unknown() -> Identity {
        let proof = Proof {
            method: Method::Cephx,
            name: AuthName::default(),
            global_id: 0,
            caps: Bytes::new(),
            allow_all: false,
        };
        Identity { role: EntityKind(0), proof }
    }

    /// A service that we called and that opened our ticket: it holds the secrets of its kind. The number of the daemon is
    /// not proved; the caller knows it from the map in which it found the address.
    pub fn of_service(kind: EntityKind) -> Identity {
        let proof = Proof { name: AuthName::new(kind, ""), ..Identity::unknown().proof };
        Identity { role: kind, proof }
    }

    /// The id under which this peer may act as a daemon of `kind`: `Some("3")` for the OSD that holds the key of `osd.3`.
    /// `None` for everybody else. This is the only place where a daemon's privileges are granted.
    ///
    /// With `auth none` it answers by what the peer claimed: [`Proof::identify`] had nothing else to go by.
    pub fn daemon(&self, kind: EntityKind) -> Option<&str> {
        let is_daemon = kind != EntityKind::CLIENT && kind != EntityKind(0);
        (is_daemon && self.role == kind && self.proof.name.kind == kind).then_some(&self.proof.name.id)
    }

    /// The number of the OSD that this peer may speak for.
    pub fn osd(&self) -> Option<i32> {
        osd_number(self.daemon(EntityKind::OSD)?)
    }

    /// True for a daemon of any kind, false for a client.
    pub fn is_daemon(&self) -> bool {
        self.daemon(self.role).is_some()
    }

    /// The kind that it acts as. `EntityKind(0)` while nothing is proved.
    pub fn role(&self) -> EntityKind {
        self.role
    }

    /// The name that its key is under.
    pub fn name(&self) -> &AuthName {
        &self.proof.name
    }

    pub fn global_id(&self) -> u64 {
        self.proof.global_id
    }

    /// The name that requests, watches and locks carry (`entity_name_t`): `client.4123` by the global id, `osd.3` by the key.
    /// Daemons whose key has no number go by their global id too.
    pub fn entity(&self) -> EntityName {
        let number = match self.osd() {
            Some(osd) => osd.into(),
            None => self.proof.global_id as i64,
        };
        EntityName::new(self.role, number)
    }

    /// The capabilities that its ticket carries for this service.
    pub fn capabilities(&self) -> Capabilities {
        if self.proof.allow_all {
            return Capabilities::Everything;
        }
        // Bytes that are no text grant nothing.
        Capabilities::Text(codec::Reader::new(&self.proof.caps).string().unwrap_or_default())
    }

    /// `auth none`: the name is the peer's own word.
    pub fn is_unproved(&self) -> bool {
        self.proof.method == Method::None
    }

    /// Nothing is proved yet.
    pub fn is_unknown(&self) -> bool {
        self.role == EntityKind(0)
    }

    /// True if two sessions belong to one peer. A service that was called is known by its kind only.
    pub fn is_same_peer(&self, other: &Identity) -> bool {
        let is_service = |identity: &Identity| identity.is_daemon() && identity.proof.name.id.is_empty();
        let same_name = self.proof.name == other.proof.name || is_service(self) || is_service(other);
        // Many clients share a key; the global id tells them apart.
        let same_client = self.role != EntityKind::CLIENT || self.global_id() == other.global_id();
        self.role == other.role && same_name && same_client
    }
}

/// The number that an OSD's name stands for. Only its decimal form does: `osd.03` is another key than `osd.3`.
fn osd_number(id: &str) -> Option<i32> {
    let is_decimal = id.bytes().all(|byte| byte.is_ascii_digit()) && (id == "0" || !id.starts_with('0'));
    id.parse().ok().filter(|_| is_decimal)
}

/// Capabilities for one service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Capabilities {
    /// `auth none`, or a ticket that says so.
    Everything,
    /// As an administrator writes them: `allow rw pool=data`. Empty: none.
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(name: &str) -> Proof {
        Proof::cephx(name.parse().unwrap(), 4100, "allow r")
    }

    fn claims(key: &str, kind: EntityKind, num: i64) -> Result<Identity, Impostor> {
        proof(key).identify(EntityName::new(kind, num))
    }

    #[test]
    fn client_key_claiming_daemon_is_refused() {
        for kind in [EntityKind::OSD, EntityKind::MON, EntityKind::MGR, EntityKind::MDS, EntityKind(0)] {
            let refused = claims("client.admin", kind, 0).unwrap_err();
            assert!(matches!(refused, Impostor::Kind { .. }), "{refused}");
        }
        assert!(claims("mgr.x", EntityKind::MON, 0).is_err());
        assert!(claims("osd.1", EntityKind::MGR, 0).is_err());
    }

    #[test]
    fn osd_number_must_match_its_key() {
        let osd = claims("osd.3", EntityKind::OSD, 3).unwrap();
        assert_eq!((osd.osd(), osd.daemon(EntityKind::OSD)), (Some(3), Some("3")));
        assert_eq!(osd.entity().to_string(), "osd.3");
        assert!(matches!(claims("osd.3", EntityKind::OSD, 4), Err(Impostor::Daemon { .. })));
        assert!(claims("osd.3", EntityKind::OSD, -1).is_err());
        assert!(claims("osd.bootstrap", EntityKind::OSD, 0).is_err());
    }

    #[test]
    fn osd_number_has_one_written_form() {
        for (key, num) in [("osd.03", 3), ("osd.+3", 3), ("osd.00", 0), ("osd.-1", -1), ("osd.-0", 0)] {
            assert!(matches!(claims(key, EntityKind::OSD, num), Err(Impostor::Daemon { .. })), "{key}");
        }
        for (key, num) in [("osd.0", 0), ("osd.10", 10)] {
            assert_eq!(claims(key, EntityKind::OSD, num).unwrap().osd(), Some(num as i32));
        }
    }

    #[test]
    fn client_number_must_be_its_global_id() {
        for num in [-1, 0, 4100] {
            let client = claims("client.admin", EntityKind::CLIENT, num).unwrap();
            assert_eq!(client.entity().to_string(), "client.4100");
            assert_eq!((client.osd(), client.is_daemon()), (None, false));
        }
        assert!(matches!(claims("client.admin", EntityKind::CLIENT, 4101), Err(Impostor::Client { .. })));
    }

    #[test]
    fn daemon_key_used_by_client_gives_no_daemon_privilege() {
        let tool = claims("osd.3", EntityKind::CLIENT, -1).unwrap();
        assert_eq!((tool.osd(), tool.is_daemon(), tool.role()), (None, false, EntityKind::CLIENT));
        assert_eq!(tool.name().to_string(), "osd.3", "its capabilities are the key's");
    }

    #[test]
    fn unknown_peer_and_called_service_have_no_number() {
        let unknown = Identity::unknown();
        assert!(!unknown.is_daemon());
        assert_eq!(unknown.daemon(EntityKind(0)), None);
        assert_eq!(unknown.daemon(EntityKind::CLIENT), None);
        assert_eq!(unknown.capabilities(), Capabilities::Text(String::new()));
        let service = Identity::of_service(EntityKind::OSD);
        assert_eq!((service.daemon(EntityKind::OSD), service.osd()), (Some(""), None));
        assert!(service.is_same_peer(&claims("osd.3", EntityKind::OSD, 3).unwrap()));
        assert!(!service.is_same_peer(&claims("client.a", EntityKind::CLIENT, -1).unwrap()));
    }

    #[test]
    fn auth_none_takes_the_claimed_name() {
        let claimed = |name: &str, kind, num| {
            Proof::none(name.parse().unwrap(), 7).identify(EntityName::new(kind, num)).unwrap()
        };
        assert_eq!(claimed("osd.2", EntityKind::OSD, 2).osd(), Some(2));
        assert_eq!(claimed("client.a", EntityKind::CLIENT, 7).capabilities(), Capabilities::Everything);
    }

    #[test]
    fn capabilities_that_are_no_text_grant_nothing() {
        let mut garbled = proof("client.a");
        assert_eq!(
            garbled.clone().identify(EntityName::new(EntityKind::CLIENT, -1)).unwrap().capabilities(),
            Capabilities::Text("allow r".into())
        );
        garbled.caps = Bytes::from_static(b"\xff");
        let client = garbled.identify(EntityName::new(EntityKind::CLIENT, -1)).unwrap();
        assert_eq!(client.capabilities(), Capabilities::Text(String::new()));
    }
}
