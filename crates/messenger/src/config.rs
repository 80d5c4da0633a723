//! Configuration of an endpoint: our name and addresses, rules for peers, and limits.

use codec::Features;
use machine::CoreId;
use machine::net::Policy;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName};

#[derive(Clone, Debug)]
pub struct Config {
    /// Our own name. A client's number is -1 until a monitor has given it one; see
    /// [`super::Endpoint::set_name`].
    pub name: EntityName,
    /// Our own addresses. A client without a listening socket gives one blank msgr2 address with its nonce, and learns its
    /// IP from the first peer.
    pub addrs: EntityAddrVec,
    /// Our addresses in another network (`cluster_network`), if there is one. A peer that calls us there is told these.
    pub second_addrs: Option<EntityAddrVec>,
    pub supported: Features,
    /// Features that a peer must have.
    pub required: Features,
    /// `CEPH_AUTH_*` that peers connecting to us may use, best first.
    pub methods: Vec<u32>,
    pub modes: ModeLists,
    /// Policies of sessions that peers open with us, by the proven kind of the peer.
    pub accept_policies: BTreeMap<EntityKind, Policy>,
    pub accept_policy_default: Policy,
    /// The core of this endpoint, and the number of cores. Core 0 accepts connections and runs handshakes. Lossy sessions
    /// then move to the cores in turn. Lossless ones stay, because a reconnecting peer arrives at core 0.
    pub core: CoreId,
    pub core_count: u16,
    /// The longest message, by the sum of its segments, once a peer is authenticated.
    pub message_len_max: usize,
    /// From the socket's opening to the session's readiness (`ms_connection_ready_timeout`).
    pub handshake_timeout: Duration,
    /// A lossy session without traffic for this long is closed (`ms_connection_idle_timeout`).
    pub idle_timeout: Duration,
    /// A large frame holds its part of the memory budget from its first byte on. In each window of this length its sender
    /// must send `frame_progress_min` bytes of it, or fetch as many of our replies. While other sessions wait for memory,
    /// `frame_progress_min_waited` applies. A slower peer is disconnected, which frees the memory.
    pub frame_window: Duration,
    pub frame_progress_min: u64,
    pub frame_progress_min_waited: u64,
    /// Pause before a lossless session reconnects; doubles with each attempt (`ms_initial_backoff`, `ms_max_backoff`).
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// Backpressure: while more unsent bytes than this are queued for a peer that called us, its socket is not read.
    pub unwritten_len_max: usize,
    /// Memory budget for requests of clients, in bytes: see [`NetEffect::HoldAtMost`](machine::net::NetEffect::HoldAtMost), which changes it.
    pub held_len_max: usize,
}

impl Config {
    /// Stock's defaults.
    pub fn new(name: EntityName, addrs: EntityAddrVec) -> Config {
        Config {
            name,
            addrs,
            second_addrs: None,
            supported: wire::features::SUPPORTED,
            required: Features(wire::features::MSG_ADDR2),
            methods: vec![wire::cephx::METHOD_CEPHX],
            modes: ModeLists::default(),
            accept_policies: BTreeMap::new(),
            accept_policy_default: Policy::Lossy,
            core: CoreId(0),
            core_count: 1,
            message_len_max: 256 << 20,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(900),
            frame_window: Duration::from_secs(20),
            frame_progress_min: 64 << 10,
            frame_progress_min_waited: 1 << 20,
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_secs(15),
            unwritten_len_max: 16 << 20,
            held_len_max: 500 << 20,
        }
    }

    /// Those of our addresses among which a peer that called `target` finds it. `None`: it means somebody else.
    pub(super) fn addrs_with(&self, target: &EntityAddr) -> Option<&EntityAddrVec> {
        let is_meant =
            |a: &EntityAddr| a.is_blank() || (a.socket == target.socket && a.nonce == target.nonce);
        let mut networks = std::iter::once(&self.addrs).chain(&self.second_addrs);
        networks.find(|addrs| addrs.0.iter().any(is_meant))
    }

    pub(super) fn accept_policy(&self, peer: EntityKind) -> Policy {
        self.accept_policies.get(&peer).copied().unwrap_or(self.accept_policy_default)
    }
}

/// Connection modes that are offered and accepted, best first (`ms_*_mode`).
#[derive(Clone, Debug)]
pub struct ModeLists {
    /// Among monitors and managers, and between them and daemons (`ms_mon_cluster_mode`).
    pub mon_cluster: Vec<u32>,
    /// At a monitor or manager, with clients (`ms_mon_service_mode`).
    pub mon_service: Vec<u32>,
    /// At a client, with monitors and managers (`ms_mon_client_mode`).
    pub mon_client: Vec<u32>,
    /// Among daemons (`ms_cluster_mode`).
    pub cluster: Vec<u32>,
    /// At a daemon, with clients (`ms_service_mode`).
    pub service: Vec<u32>,
    /// At a client, with daemons (`ms_client_mode`).
    pub client: Vec<u32>,
}

impl Default for ModeLists {
    fn default() -> ModeLists {
        let secure_first = vec![MODE_SECURE, MODE_CRC];
        let crc_first = vec![MODE_CRC, MODE_SECURE];
        ModeLists {
            mon_cluster: secure_first.clone(),
            mon_service: secure_first.clone(),
            mon_client: secure_first,
            cluster: crc_first.clone(),
            service: crc_first.clone(),
            client: crc_first,
        }
    }
}

impl ModeLists {
    /// The same list everywhere.
    pub fn all(modes: &[u32]) -> ModeLists {
        let list = || modes.to_vec();
        ModeLists {
            mon_cluster: list(),
            mon_service: list(),
            mon_client: list(),
            cluster: list(),
            service: list(),
            client: list(),
        }
    }

    /// The modes that `us` may use with `peer` under `method`. Without keys only crc mode is possible.
    pub(super) fn between(&self, us: EntityKind, peer: EntityKind, method: u32) -> Vec<u32> {
        let is_mon = |k| k == EntityKind::MON || k == EntityKind::MGR;
        let is_daemon = |k| k == EntityKind::OSD || k == EntityKind::MDS;
        let list = match us {
            EntityKind::CLIENT if is_mon(peer) => &self.mon_client,
            EntityKind::CLIENT => &self.client,
            us if is_mon(us) && is_mon(peer) => &self.mon_cluster,
            us if is_mon(us) => &self.mon_service,
            _ if is_mon(peer) => &self.mon_cluster,
            _ if is_daemon(peer) => &self.cluster,
            _ => &self.service,
        };
        let usable = |m: &&u32| method != wire::cephx::METHOD_NONE || **m == MODE_CRC;
        list.iter().filter(usable).copied().collect()
    }
}
