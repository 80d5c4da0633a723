//! Subscriptions to maps, each with the next version wanted.

use std::collections::BTreeMap;
use wire::messages::{MMonSubscribe, Message, SubscribeItem};

pub(super) struct Subscriptions {
    wanted: BTreeMap<String, Wanted>,
}

struct Wanted {
    item: SubscribeItem,
    /// Told to the monitor that we are connected to.
    sent: bool,
}

impl Subscriptions {
    /// The MonMap is always wanted: it says whom to call next, and which cluster this is.
    pub(super) fn new() -> Subscriptions {
        let mut out = Subscriptions { wanted: BTreeMap::new() };
        out.want("monmap", 0, false);
        out
    }

    pub(super) fn want(&mut self, what: &str, start: u64, once: bool) {
        let flags = if once { SubscribeItem::ONETIME } else { 0 };
        let item = SubscribeItem { start, flags };
        match self.wanted.get_mut(what) {
            // A lasting subscription that starts no later already covers a one-time one.
            Some(old) if once && !old.item.is_onetime() && old.item.start <= start.max(1) => old.sent = false,
            Some(old) if old.item == item => {}
            _ => {
                self.wanted.insert(what.into(), Wanted { item, sent: false });
            }
        }
    }

    pub(super) fn got(&mut self, what: &str, version: u64) {
        let Some(wanted) = self.wanted.get_mut(what) else { return };
        if wanted.item.start > version {
            return;
        }
        if wanted.item.is_onetime() {
            self.wanted.remove(what);
        } else {
            wanted.item.start = version + 1;
        }
    }

    pub(super) fn drop(&mut self, what: &str) {
        self.wanted.remove(what);
    }

    /// Subscriptions that the monitor does not know yet.
    pub(super) fn changed(&mut self, hostname: &str) -> Option<Message> {
        let mut what = BTreeMap::new();
        for (name, wanted) in self.wanted.iter_mut().filter(|(_, w)| !w.sent) {
            wanted.sent = true;
            what.insert(name.clone(), wanted.item);
        }
        (!what.is_empty()).then(|| Message::new(MMonSubscribe { what, hostname: hostname.into() }))
    }

    /// Everything, for a monitor that we have just met.
    pub(super) fn all(&mut self, hostname: &str) -> Message {
        self.wanted.values_mut().for_each(|w| w.sent = true);
        let what = self.wanted.iter().map(|(name, w)| (name.clone(), w.item)).collect();
        Message::new(MMonSubscribe { what, hostname: hostname.into() })
    }
}
