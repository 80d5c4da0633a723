//! Commands on block images: the host has a client of the cluster and machines of their own for them. It works while this manager is
//! the active one.

use super::asked::Caller;
use super::{Effect, Fx, Manager};
use crate::caps::{Access, Request};
use crate::commands::IMAGES_MODULE;
use command::{Answer, Args, ImageSettings, TaskEvent};
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use wire::types::{EntityAddrVec, PerfQueries, PerfReports};

/// The name of the host's client in beacons, as that of a stock manager's module.
pub(super) const CLIENT_NAME: &str = "rbd_support";

/// A caller's permission: `(pool, namespace)` to true where it may act.
#[derive(Clone)]
pub struct May(pub Arc<dyn Fn(&str, &str) -> bool + Send + Sync>);

impl fmt::Debug for May {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("May")
    }
}

#[derive(Clone, Debug)]
pub enum ImagesOrder {
    /// True: begin, this manager is the active one. False: end.
    SetActive(bool),
    /// The options have changed.
    Settings(ImageSettings),
    /// An OSD's counts for metric queries of [`ImagesNews::Queries`].
    Counted(PerfReports),
    /// Its answer is [`super::Input::ImagesAnswer`].
    Command { number: u64, text: String, may: May },
}

/// News of the host's work on block images.
#[derive(Clone, Debug)]
pub enum ImagesNews {
    /// A client begins its work, without tasks so far. Its addresses follow.
    Began,
    /// The addresses of the client, as OSDs and monitors see it. They are fenced when this manager fails.
    Client(EntityAddrVec),
    Task(TaskEvent),
    /// The metric queries that OSDs are to serve from now on.
    Queries(PerfQueries),
}

/// Commands that the host has not answered.
#[derive(Default)]
pub(super) struct Images {
    last_number: u64,
    waiting: BTreeMap<u64, Caller>,
    /// Those that the host knows.
    settings: Option<ImageSettings>,
    queries: PerfQueries,
    /// Of the host's client, once it has a connection.
    pub(super) addrs: Option<EntityAddrVec>,
}

impl Images {
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|_, caller| caller.conn != conn);
    }
}

impl Manager {
    pub(super) fn set_active(&mut self, is_active: bool, fx: Fx<'_>) {
        if std::mem::replace(&mut self.is_active, is_active) != is_active {
            fx.push(Effect::Images(ImagesOrder::SetActive(is_active)));
            self.images.addrs = None;
            self.set_queries(PerfQueries::new(), fx);
            self.progress.forget_tasks();
        }
    }

    pub(super) fn on_images_news(&mut self, now: Time, news: ImagesNews, fx: Fx<'_>) {
        // The last words of a client whose manager is no longer active.
        if !self.is_active {
            return;
        }
        match news {
            ImagesNews::Queries(queries) => self.set_queries(queries, fx),
            ImagesNews::Began => {
                self.images.addrs = None;
                self.set_queries(PerfQueries::new(), fx);
                self.progress.forget_tasks();
            }
            // At once: from now on the client may have locks and watches.
            ImagesNews::Client(addrs) if self.images.addrs.as_ref() != Some(&addrs) => {
                self.images.addrs = Some(addrs);
                self.send_beacon(now, fx);
            }
            ImagesNews::Client(_) => {}
            ImagesNews::Task(mut task) => {
                task.refs.insert("origin".to_owned(), CLIENT_NAME.to_owned());
                self.progress.on_task(self.clock.at(now), task);
                self.note_news(now);
            }
        }
    }

    pub(super) fn follow_images_options(&mut self, fx: Fx<'_>) {
        let options = &self.options;
        let settings = ImageSettings {
            trash_purge_schedule: options.trash_purge_schedule.clone(),
            mirror_snapshot_schedule: options.mirror_snapshot_schedule.clone(),
            mirror_snapshots_at_once: options.mirror_snapshots_at_once,
            mirror_snapshots_max: options.mirror_snapshots_max,
            report_period: Duration::from_secs(options.report_period_s.max(1).into()),
        };
        if self.images.settings.as_ref() != Some(&settings) {
            self.images.settings = Some(settings.clone());
            fx.push(Effect::Images(ImagesOrder::Settings(settings)));
        }
    }

    /// Tells every OSD when the queries have changed.
    fn set_queries(&mut self, queries: PerfQueries, fx: Fx<'_>) {
        if self.images.queries == queries {
            return;
        }
        self.images.queries = queries;
        let osds: Vec<ConnId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.daemon.is_some() && peer.peer.identity.osd().is_some())
            .map(|(conn, _)| *conn)
            .collect();
        osds.into_iter().for_each(|conn| self.configure(conn, fx));
    }

    fn is_osd(&self, conn: ConnId) -> bool {
        self.peers.get(&conn).is_some_and(|peer| peer.peer.identity.osd().is_some())
    }

    /// The metric queries for a peer.
    pub(super) fn queries_for(&self, conn: ConnId) -> PerfQueries {
        if self.is_osd(conn) { self.images.queries.clone() } else { PerfQueries::new() }
    }

    /// An OSD's counts. Those for a query that has ended are dropped.
    pub(super) fn on_counted(&mut self, conn: ConnId, reports: &PerfReports, fx: Fx<'_>) {
        let is_osd = self.is_osd(conn);
        let known = reports.iter().filter(|(query, _)| is_osd && self.images.queries.contains_key(*query));
        let known: PerfReports = known.map(|(query, report)| (query.clone(), report.clone())).collect();
        if !known.is_empty() {
            fx.push(Effect::Images(ImagesOrder::Counted(known)));
        }
    }

    pub(super) fn ask_images(&mut self, caller: Caller, text: String, fx: Fx<'_>) {
        let Some(reporter) = self.peers.get(&caller.conn) else { return };
        let (caps, peer) = (reporter.caps.clone(), reporter.peer.socket.socket.map(|socket| socket.ip()));
        // What the command may do at all is settled. A module asks for pools without the command's name.
        let prefix = Args::parse(&text).ok().and_then(|args| args.text("prefix")).unwrap_or_default();
        let is_change = prefix.contains(" add ") || prefix.ends_with(" add") || prefix.ends_with(" remove");
        let access = Access { read: !is_change, write: is_change, execute: false };
        let may = move |pool: &str, namespace: &str| {
            let args =
                [("pool".to_owned(), pool.to_owned()), ("namespace".to_owned(), namespace.to_owned())].into();
            caps.allow(&Request { service: "", module: IMAGES_MODULE, prefix: "", args: &args, access, peer })
        };
        self.images.last_number += 1;
        let number = self.images.last_number;
        self.images.waiting.insert(number, caller);
        fx.push(Effect::Images(ImagesOrder::Command { number, text, may: May(Arc::new(may)) }));
    }

    pub(super) fn on_images_answer(&mut self, number: u64, answer: Answer, fx: Fx<'_>) {
        // The client may have gone meanwhile.
        if let Some(caller) = self.images.waiting.remove(&number) {
            fx.push(caller.reply(answer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::asked::tests::{CLIENT, answers, command_with, served};
    use super::*;
    use crate::caps::Caps;
    use command::{TaskState, errno};
    use machine::Effects;
    use machine::net::NetEffect;
    use wire::messages::{Body, MMgrOpen, MMgrReport};
    use wire::types::{
        EntityAddr, MetricReport, PerfCounterKind, PerfKeyPart, PerfQuery, PerfReport, ShortList,
    };

    fn ask(manager: &mut Manager, text: &str) -> (Vec<(u64, May)>, Vec<Answer>) {
        let effects = command_with(manager, text, b"");
        let order = |effect: &Effect| match effect {
            Effect::Images(ImagesOrder::Command { number, may, .. }) => Some((*number, may.clone())),
            _ => None,
        };
        (effects.iter().filter_map(order).collect(), answers(effects))
    }

    const LIST: &str = r#"{"prefix":"rbd task list"}"#;
    const ADD: &str = r#"{"prefix":"rbd task add remove","image_spec":"vms/a"}"#;

    #[test]
    fn command_on_images_is_answered_by_the_host() {
        let mut manager = served();
        let (orders, told) = ask(&mut manager, LIST);
        let [(number, may)] = &orders[..] else { panic!("{orders:?}") };
        assert!(told.is_empty() && (may.0)("any", ""));
        let mut fx = Effects::new();
        manager.on_images_answer(*number, Answer::body("[]"), &mut fx);
        assert_eq!(answers(fx.take()), [Answer::body("[]")]);
        manager.on_images_answer(*number, Answer::body("[]"), &mut fx);
        assert!(fx.is_empty(), "answered once");
    }

    #[test]
    fn answer_for_client_that_left_is_dropped() {
        let mut manager = served();
        let (orders, _) = ask(&mut manager, LIST);
        manager.on_peer_gone(CLIENT);
        let mut fx = Effects::new();
        manager.on_images_answer(orders[0].0, Answer::body("[]"), &mut fx);
        assert!(fx.is_empty());
    }

    #[test]
    fn profile_of_one_pool_covers_that_pool_alone() {
        let mut manager = served();
        let limit = |manager: &mut Manager, caps: &str| {
            manager.peers.get_mut(&CLIENT).unwrap().caps = Caps::parse(caps).unwrap();
        };
        limit(&mut manager, "profile rbd pool=vms");
        let (orders, _) = ask(&mut manager, ADD);
        assert!((orders[0].1.0)("vms", "ns") && !(orders[0].1.0)("other", ""));
        limit(&mut manager, "profile rbd-read-only");
        assert_eq!(ask(&mut manager, LIST).0.len(), 1);
        assert_eq!(ask(&mut manager, ADD).1[0].result, -errno::EACCES);
        limit(&mut manager, "allow service osd rw");
        assert_eq!(ask(&mut manager, LIST).1[0].result, -errno::EACCES);
    }

    fn task() -> ImagesNews {
        let state = TaskState::UnderWay(0.5);
        ImagesNews::Task(TaskEvent { id: "t".into(), message: "m".into(), refs: BTreeMap::new(), state })
    }

    #[test]
    fn client_is_in_beacons_while_manager_is_active() {
        let mut manager = served();
        let mut fx = Effects::new();
        let client = |nonce| EntityAddrVec::one(EntityAddr { nonce, ..EntityAddr::default() });
        let named = |manager: &Manager| {
            let beacon = manager.beacon();
            (beacon.client_names, beacon.client_addrs)
        };
        let none = (vec![], vec![]);
        manager.on_images_news(Time(5), ImagesNews::Client(client(7)), &mut fx);
        assert_eq!(named(&manager), none, "it is not active");
        manager.set_active(true, &mut fx);
        for nonce in [7, 8] {
            manager.on_images_news(Time(5), ImagesNews::Began, &mut fx);
            assert_eq!(named(&manager), none);
            manager.on_images_news(Time(5), ImagesNews::Client(client(nonce)), &mut fx);
            assert_eq!(named(&manager), (vec!["rbd_support".to_owned()], vec![client(nonce)]));
        }
        manager.set_active(false, &mut fx);
        assert_eq!(named(&manager), none);
    }

    fn query(pool: u32) -> PerfQuery {
        let part = PerfKeyPart::new(PerfKeyPart::POOL_ID, format!("^({pool})$"));
        PerfQuery { key: ShortList(vec![part]), counters: ShortList(vec![PerfCounterKind::READ_OPS]) }
    }

    /// The number of queries that each session is told.
    fn told(fx: &mut Effects<Effect>) -> Vec<(ConnId, usize)> {
        let told = fx.take().into_iter().filter_map(|effect| match effect {
            Effect::Net(NetEffect::Send { conn, message }) => match message.body {
                Body::MMgrConfigure(configure) => Some((conn, configure.queries.len())),
                _ => None,
            },
            _ => None,
        });
        told.collect()
    }

    #[test]
    fn osds_follow_the_queries_of_the_active_manager() {
        let mut manager = served();
        let mut fx = Effects::new();
        let (osd, late) = (ConnId::accepted(2), ConnId::accepted(3));
        manager.peers.get_mut(&osd).unwrap().daemon = Some("osd.0".into());
        let news = || ImagesNews::Queries([(query(1), Default::default())].into());
        manager.on_images_news(Time(5), news(), &mut fx);
        assert_eq!(told(&mut fx), [], "it is not active");
        manager.set_active(true, &mut fx);
        fx.take();
        for expected in [&[(osd, 1)][..], &[]] {
            manager.on_images_news(Time(5), news(), &mut fx);
            assert_eq!(told(&mut fx), expected);
        }
        let open = |name: &str| MMgrOpen { daemon_name: name.into(), ..MMgrOpen::default() };
        manager.on_open(Time(6), late, &open("1"), &mut fx);
        assert_eq!(told(&mut fx), [(late, 1)]);
        manager.on_images_news(Time(7), ImagesNews::Began, &mut fx);
        assert_eq!(told(&mut fx), [(osd, 0), (late, 0)], "the host's new client has asked for nothing");
        manager.on_images_news(Time(8), news(), &mut fx);
        fx.take();
        manager.set_active(false, &mut fx);
        assert_eq!(told(&mut fx), [(osd, 0), (late, 0)]);
    }

    #[test]
    fn counts_of_osds_reach_the_host() {
        let mut manager = served();
        let mut fx = Effects::new();
        let osd = ConnId::accepted(2);
        manager.set_active(true, &mut fx);
        manager.on_images_news(
            Time(5),
            ImagesNews::Queries([(query(1), Default::default())].into()),
            &mut fx,
        );
        fx.take();
        let mut report = |conn| {
            let reports: PerfReports = [1, 2].map(|pool| (query(pool), PerfReport::default())).into();
            let metrics = Some(MetricReport::Osd(reports));
            manager.peers.get_mut(&conn).unwrap().daemon = Some("osd.0".into());
            manager.on_report(Time(6), conn, &MMgrReport { metrics, ..MMgrReport::default() }, &mut fx);
            let counted = fx.take().into_iter().filter_map(|effect| match effect {
                Effect::Images(ImagesOrder::Counted(reports)) => {
                    Some(reports.into_keys().collect::<Vec<_>>())
                }
                _ => None,
            });
            counted.collect::<Vec<_>>()
        };
        assert_eq!(report(osd), [vec![query(1)]], "nobody asked for the other one");
        assert!(report(CLIENT).is_empty(), "counts are those of OSDs");
    }

    #[test]
    fn tasks_are_in_progress_until_manager_is_not_active() {
        let mut manager = served();
        let mut fx = Effects::new();
        let json = r#"{"prefix":"progress json"}"#;
        let events = |manager: &mut Manager| {
            let answers = answers(command_with(manager, json, b""));
            String::from_utf8_lossy(&answers[0].body).matches(r#""origin": "rbd_support""#).count()
        };
        manager.on_images_news(Time(5), task(), &mut fx);
        assert_eq!(events(&mut manager), 0, "it is not active");
        manager.set_active(true, &mut fx);
        manager.on_images_news(Time(5), task(), &mut fx);
        assert!(events(&mut manager) == 1 && manager.digest_at.is_some());
        manager.set_active(false, &mut fx);
        assert_eq!(events(&mut manager), 0);
    }

    #[test]
    fn host_follows_whether_the_manager_is_active() {
        let mut manager = served();
        let mut fx = Effects::new();
        for (is_active, orders) in [(true, 1), (true, 0), (false, 1), (false, 0)] {
            manager.set_active(is_active, &mut fx);
            assert_eq!(fx.take().len(), orders, "{is_active}");
        }
    }
}
