//! An administrator: creates the OSDs and the pools, sends the commands of the [table of faults](crate::faults), and
//! undoes them at the end: shares of OSDs, sizes of pools. From then on it asks for the status of the cluster.

use super::{Keys, Monitors, OsdNode, Seat, mon_session_config};
use crate::check::settled::StatusSight;
use crate::cluster::{ClusterConfig, PoolConfig, Racks, pool_name};
use crate::faults::{Command, set_pool};
use crate::node::{Death, Node};
use bytes::Bytes;
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use mon_client::{Effect, Event, Input, MonSession, RequestId};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::messages::{Body, MMonCommand, PaxosHeader};
use wire::types::{EntityAddrVec, EntityKind, EntityName, OsdId, Uuid};

/// Asked again and again once the last fault has struck.
const STATUS: &str = r#"{"prefix":"status","format":"json"}"#;
/// Asked until all OSDs are in, before a pool of shards is made: the first boot of another OSD would change their positions.
const OSD_STAT: &str = r#"{"prefix":"osd stat","format":"json"}"#;
const RACK_RULE: &str =
    r#"{"prefix":"osd crush rule create-replicated","name":"byrack","root":"default","type":"rack"}"#;
const STATUS_PAUSE: Duration = Duration::from_secs(2);
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

pub struct AdminNode {
    index: usize,
    life: u32,
    monitors: Monitors,
    random: Random,
    keys: Option<Rc<Keys>>,
    cluster: ClusterConfig,
    statuses: Vec<StatusSight>,
    /// Pools whose PGs may merge, by place.
    shrinking: BTreeSet<usize>,
    /// Pools that the autoscaler may have, by place.
    scaled: BTreeSet<usize>,
    /// The last command that the monitor refused.
    refusal: String,
    session: Option<MonSession>,
    /// The pools exist.
    is_ready: bool,
    todo: VecDeque<String>,
    asked: Option<RequestId>,
    next_at: Time,
}

impl AdminNode {
    pub fn new(seat: Seat, cluster: ClusterConfig) -> AdminNode {
        AdminNode::of_racks(seat, cluster, None)
    }

    /// Without racks the hosts are right below the root, and each OSD has one.
    pub fn of_racks(seat: Seat, cluster: ClusterConfig, racks: Option<Racks>) -> AdminNode {
        let Seat { index, monitors, random, keys, .. } = seat;
        let mut todo = VecDeque::new();
        for osd in 0..cluster.osds {
            let uuid = OsdNode::fsid(OsdId(osd));
            todo.push_back(format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":{osd}}}"#));
            let place = racks.map(|racks| racks.place(osd, cluster.osds));
            let place = place.unwrap_or_else(|| format!(r#""host=host{osd}","root=default""#));
            todo.push_back(format!(
                r#"{{"prefix":"osd crush create-or-move","id":{osd},"weight":1.0,"args":[{place}]}}"#
            ));
        }
        if cluster.pools.iter().any(|pool| pool.is_erasure) {
            todo.push_back(OSD_STAT.to_owned());
        }
        let has_rack_rule = racks.is_some_and(|racks| racks.are_domains);
        if has_rack_rule {
            todo.push_back(RACK_RULE.to_owned());
        }
        for (place, pool) in cluster.pools.iter().enumerate() {
            let PoolConfig { size, min_size, pg_num, is_erasure } = *pool;
            let name = pool_name(place);
            let kind = if is_erasure { r#","pool_type":"erasure""# } else { "" };
            let rule = if has_rack_rule { r#","rule":"byrack""# } else { "" };
            todo.push_back(format!(
                r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":{pg_num},"size":{size}{kind}{rule}}}"#
            ));
            if size > 1 {
                todo.push_back(set_pool(&name, "min_size", min_size.into()));
            }
        }
        AdminNode {
            index,
            life: 0,
            monitors,
            random,
            keys,
            cluster,
            statuses: Vec::new(),
            shrinking: BTreeSet::new(),
            scaled: BTreeSet::new(),
            refusal: String::new(),
            session: None,
            is_ready: false,
            todo,
            asked: None,
            next_at: Time::ZERO,
        }
    }

    fn with(
        &mut self,
        now: Time,
        out: &mut Vec<NetEffect>,
        act: impl FnOnce(&mut MonSession, &mut Effects<Effect>),
    ) {
        let mut effects = Effects::new();
        act(self.session.as_mut().expect("a node that is up has its machine"), &mut effects);
        for effect in effects.take() {
            match effect {
                Effect::Net(effect) => out.push(effect),
                Effect::Event(Event::Answer { id, answer }) if self.asked == Some(id) => {
                    self.asked = None;
                    self.answered(now, answer.ok());
                }
                Effect::Event(_) => {}
            }
        }
    }
}

impl AdminNode {
    fn answered(&mut self, now: Time, answer: Option<Body>) {
        let Some(command) = self.todo.front() else { return };
        let Some(Body::MMonCommandAck(ack)) = answer else {
            self.next_at = now + REFUSED_PAUSE;
            return;
        };
        if command == STATUS {
            self.statuses.extend(StatusSight::parse(now, &ack.output));
            self.todo.rotate_left(1);
            self.next_at = now + STATUS_PAUSE;
            return;
        }
        if command == OSD_STAT && !are_in(&ack.output, self.cluster.osds) {
            self.next_at = now + REFUSED_PAUSE;
            return;
        }
        let is_done = ack.result == 0;
        if !is_done {
            self.refusal = format!("{command} is refused: {} ({})", ack.status, ack.result);
        }
        // The monitor refuses some commands of the faults, such as an upmap to an OSD that the PG has.
        if is_done || self.is_ready {
            self.todo.pop_front();
        }
        self.is_ready |= self.todo.is_empty();
        self.next_at = now + if is_done { Duration::from_millis(1) } else { REFUSED_PAUSE };
    }

    /// Gives every OSD its full share and every pool its own size again. The balancer goes on, and must come to an end by itself.
    fn tidy(&mut self) {
        let scaled = std::mem::take(&mut self.scaled).into_iter();
        self.todo.extend(scaled.flat_map(|pool| Command::AutoscaleOff { pool }.texts()));
        let osds = (0..self.cluster.osds).map(OsdId);
        let shares = osds.flat_map(|osd| [Command::Reweight(osd, 1000), Command::OsdIn(osd)]);
        self.todo.extend(shares.flat_map(Command::texts));
        for (pool, config) in self.cluster.pools.iter().enumerate().filter(|(_, config)| config.size > 1) {
            let PoolConfig { size, min_size, .. } = *config;
            let commands = [Command::PoolSize { pool, size }, Command::PoolMinSize { pool, min_size }];
            self.todo.extend(commands.into_iter().flat_map(Command::texts));
        }
        // The merges end: a run is quiet only without them.
        let pg_num = self.cluster.pg_num_max();
        for place in std::mem::take(&mut self.shrinking) {
            let name = pool_name(place);
            self.todo.extend(["pg_num", "pgp_num"].map(|number| set_pool(&name, number, pg_num)));
        }
    }

    /// A command that sets `pg_num`, or leaves it to the autoscaler, may have PGs merged.
    fn note_shrinking(&mut self, command: &str) {
        let names = |place: &usize| command.contains(&format!(r#""pool":"{}""#, pool_name(*place)));
        let named = (0..self.cluster.pools.len()).filter(names);
        let sets = |field: &str| command.contains(&format!(r#""var":"{field}""#));
        match (sets("pg_num"), sets("pg_autoscale_mode")) {
            (true, _) => self.shrinking.extend(named),
            (_, true) => named.for_each(|place| {
                self.shrinking.insert(place);
                self.scaled.insert(place);
            }),
            (false, false) => {}
        }
    }
}

/// True if an answer to [`OSD_STAT`] shows that so many OSDs are in.
fn are_in(answer: &[u8], osds: i32) -> bool {
    let json: Option<serde_json::Value> = serde_json::from_slice(answer).ok();
    json.is_some_and(|json| json["num_in_osds"] == osds)
}

impl Node for AdminNode {
    fn name(&self) -> EntityName {
        let id = self.session.as_ref().map_or(0, MonSession::global_id);
        EntityName::new(EntityKind::CLIENT, if id > 0 { id as i64 } else { -1 })
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        (self.asked, self.next_at) = (None, now);
        let config = mon_session_config(EntityKind::CLIENT, "admin", &self.monitors, &self.keys, 0);
        self.session = Some(MonSession::new(config, 0, self.random.fork()));
        self.with(now, out, |session, fx| session.start(now, fx));
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.with(now, out, |session, fx| session.step(now, Input::Net(event), fx));
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let session = self.session.as_ref().expect("a node that is up has its machine");
        if session.next_deadline().is_some_and(|at| at <= now) {
            self.with(now, out, |session, fx| session.step(now, Input::Deadline, fx));
        }
        if self.asked.is_none()
            && self.next_at <= now
            && let Some(command) = self.todo.front().cloned()
        {
            let body = MMonCommand {
                paxos: PaxosHeader::default(),
                // The session fills it in.
                fsid: Uuid::default(),
                command: vec![command],
                input: Bytes::new(),
            };
            let mut asked = None;
            self.with(now, out, |session, fx| asked = Some(session.request(now, body, None, fx)));
            self.asked = asked;
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let next = (self.asked.is_none() && !self.todo.is_empty()).then_some(self.next_at);
        Time::earliest(self.session.as_ref()?.next_deadline(), next)
    }

    fn command(&mut self, _now: Time, command: String) {
        if self.is_ready {
            self.note_shrinking(&command);
            self.todo.push_back(command);
        }
    }

    fn has_to_do(&self, command: &str) -> bool {
        self.todo.iter().any(|other| other == command)
    }

    fn calm(&mut self, _now: Time) {
        if self.is_ready {
            self.tidy();
            self.todo.push_back(STATUS.to_owned());
        }
    }

    fn statuses(&self) -> Option<Result<&[StatusSight], &str>> {
        Some(if self.is_ready { Ok(&self.statuses) } else { Err(&self.refusal) })
    }

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        self.session = None;
    }

    fn check(&self) {
        self.session.iter().for_each(Machine::check);
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.session.iter().for_each(|machine| machine.states(see));
    }
}
