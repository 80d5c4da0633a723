//! The tickets and keys that a monitor gives us, and when to ask for new ones.
//!
//! Clocks differ: a ticket says how long it lasts, and that is counted from its arrival by our own clock. It is
//! renewed when a quarter of its life is left, over the open connection, with the AUTH ticket as proof. The AUTH
//! ticket itself comes only with a handshake, so before it ends the session is opened anew (stock's lasts three
//! days). Rotating keys carry wall times, of which only the distance between two is used: that is how long one
//! lasts, and they are asked for four times within it.

use machine::{Random, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::cephx::{
    Authorizer, GET_PRINCIPAL_SESSION_KEY, GET_ROTATING_KEY, Key, METHOD_CEPHX, RequestHeader,
    ResponseHeader, RotatingKeys, ServiceTicket, ServiceTicketRequest, Usage, open_from, read_tickets,
};
use wire::messages::{MAuth, MAuthReply, Message, PaxosHeader};
use wire::types::EntityKind;

/// Timeout after which a request is repeated, and the minimum pause between two.
const RETRY: Duration = Duration::from_secs(5);
/// When a service is asked for again whose ticket the monitor did not give: a name without capabilities for it, or a
/// service that the cluster does not have yet.
const MISSING_RETRY: Duration = Duration::from_secs(300);
/// Bounds of the interval between two requests for rotating keys.
const ROTATING_INTERVAL_MAX: Duration = Duration::from_secs(15 * 60);
const ROTATING_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// See the module.
pub struct Tickets {
    wanted: u32,
    by_service: BTreeMap<u8, Held>,
    /// When tickets may be asked for again.
    ask_at: Time,
    /// When to ask again for those that the monitor did not give.
    missing_at: Time,
    /// When rotating keys are asked for next; `None` where they are not wanted.
    rotating_at: Option<Time>,
}

struct Held {
    ticket: ServiceTicket,
    /// `None`: for ever.
    ends: Option<Ends>,
}

#[derive(Clone, Copy)]
struct Ends {
    renew_at: Time,
    expires_at: Time,
}

pub(super) enum Outcome {
    Nothing,
    Tickets,
    RotatingKeys(RotatingKeys),
}

impl Tickets {
    pub(super) fn new(wanted: u32, rotating_keys: bool) -> Tickets {
        Tickets {
            // Always the monitor's: it is what the handshake is for.
            wanted: wanted | EntityKind::MON.0 as u32,
            by_service: BTreeMap::new(),
            ask_at: Time::ZERO,
            missing_at: Time::ZERO,
            rotating_at: rotating_keys.then_some(Time::ZERO),
        }
    }

    pub(super) fn services(&self) -> u32 {
        self.wanted
    }

    pub(super) fn valid(&self, now: Time, service: EntityKind) -> Option<&ServiceTicket> {
        let held = self.by_service.get(&service.0)?;
        held.ends.is_none_or(|e| now < e.expires_at).then_some(&held.ticket)
    }

    pub(super) fn forget(&mut self, service: EntityKind) {
        self.by_service.remove(&service.0);
    }

    pub(super) fn take(&mut self, now: Time, tickets: Vec<ServiceTicket>) {
        for ticket in tickets {
            let Ok(service) = u8::try_from(ticket.service) else { continue };
            let validity = Duration::from_nanos(ticket.validity.as_nanos());
            let ends = (!validity.is_zero())
                .then(|| Ends { renew_at: now + validity * 3 / 4, expires_at: now + validity });
            self.by_service.insert(service, Held { ticket, ends });
        }
    }

    /// A handshake just brought tickets. Ask for the missing ones and for the rotating keys at once.
    pub(super) fn on_connected(&mut self, now: Time) {
        self.ask_at = now;
        self.missing_at = now;
        if let Some(at) = &mut self.rotating_at {
            *at = now;
        }
    }

    /// Services without a ticket, or with one that ends soon.
    fn due(&self, now: Time) -> u32 {
        let is_due = |service: u8| match self.by_service.get(&service) {
            Some(held) => held.ends.is_some_and(|e| e.renew_at <= now),
            None => self.missing_at <= now,
        };
        (0..8)
            .map(|bit| 1u8 << bit)
            .filter(|s| self.wanted & *s as u32 != 0 && is_due(*s))
            .map(u32::from)
            .sum()
    }

    pub(super) fn must_reconnect(&self, now: Time) -> bool {
        self.auth_ends().is_some_and(|e| e.renew_at <= now)
    }

    fn auth_ends(&self) -> Option<Ends> {
        self.by_service.get(&EntityKind::AUTH.0).and_then(|held| held.ends)
    }

    pub(super) fn next_renewal(&self) -> Option<Time> {
        let service = |bit: u32| self.by_service.get(&(1u8 << bit));
        let tickets =
            (0..8).filter(|bit| self.wanted & (1 << bit) != 0).filter_map(|bit| match service(bit) {
                Some(held) => held.ends.map(|e| e.renew_at.max(self.ask_at)),
                None => Some(self.ask_at.max(self.missing_at)),
            });
        let auth = self.auth_ends().map(|e| e.renew_at);
        tickets.chain(auth).chain(self.rotating_at).min()
    }

    /// The questions that are due.
    pub(super) fn renewals(
        &mut self,
        now: Time,
        global_id: u64,
        monmap_epoch: u32,
        random: &mut Random,
    ) -> Vec<Message> {
        let mut out = Vec::new();
        let mut ask = |payload| {
            let paxos = PaxosHeader::default();
            out.push(Message::new(MAuth { paxos, protocol: METHOD_CEPHX, payload, monmap_epoch }));
        };
        let due = self.due(now);
        if due != 0 && self.ask_at <= now {
            self.ask_at = now + RETRY;
            if let Some(payload) = self.ticket_request(now, global_id, due, random) {
                ask(payload);
            }
        }
        if let Some(at) = self.rotating_at
            && at <= now
        {
            self.rotating_at = Some(now + RETRY);
            let mut w = codec::Writer::new(codec::Features::ALL);
            w.put(&RequestHeader(GET_ROTATING_KEY));
            ask(w.into_bytes());
        }
        out
    }

    fn ticket_request(
        &self,
        now: Time,
        global_id: u64,
        services: u32,
        random: &mut Random,
    ) -> Option<bytes::Bytes> {
        let auth = self.valid(now, EntityKind::AUTH)?.clone();
        let authorizer = Authorizer::new(global_id, auth, random).present(random).ok()?;
        let mut w = codec::Writer::new(codec::Features::ALL);
        w.put(&RequestHeader(GET_PRINCIPAL_SESSION_KEY));
        w.raw(&authorizer);
        w.put(&ServiceTicketRequest(services));
        Some(w.into_bytes())
    }

    /// Take the monitor's answer. One that does not decrypt is ignored, and the request is repeated.
    pub(super) fn on_reply(&mut self, now: Time, reply: &MAuthReply, key: Option<&Key>) -> Outcome {
        if reply.result < 0 {
            return Outcome::Nothing;
        }
        let mut r = codec::Reader::new(&reply.payload);
        let Ok(header) = r.get::<ResponseHeader>() else { return Outcome::Nothing };
        match header.request {
            GET_PRINCIPAL_SESSION_KEY => {
                let Some(auth) = self.by_service.get(&EntityKind::AUTH.0) else { return Outcome::Nothing };
                let Ok(tickets) = read_tickets(&mut r, &auth.ticket.session_key, None) else {
                    return Outcome::Nothing;
                };
                self.missing_at = now + MISSING_RETRY;
                self.take(now, tickets);
                Outcome::Tickets
            }
            GET_ROTATING_KEY => {
                let Some(key) = key else { return Outcome::Nothing };
                let Ok(keys) = open_from::<RotatingKeys>(&mut r, key, Usage::RotatingSecret) else {
                    return Outcome::Nothing;
                };
                if self.rotating_at.is_some() {
                    self.rotating_at = Some(now + rotating_interval(&keys));
                }
                Outcome::RotatingKeys(keys)
            }
            _ => Outcome::Nothing,
        }
    }
}

/// A quarter of what a key lasts: the distance between the ends of the last two.
fn rotating_interval(keys: &RotatingKeys) -> Duration {
    let mut ends = keys.secrets.values().rev().map(|s| s.expires.as_nanos());
    let lasts = match (ends.next(), ends.next()) {
        (Some(last), Some(before)) => Duration::from_nanos(last.saturating_sub(before)),
        _ => ROTATING_INTERVAL_MIN * 4,
    };
    (lasts / 4).clamp(ROTATING_INTERVAL_MIN, ROTATING_INTERVAL_MAX)
}
