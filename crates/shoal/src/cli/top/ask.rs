//! The questions of one refresh: commands that stock has, and the answers of monitors, manager and some OSDs.
//!
//! ```text
//! monitors   status, df; health detail unless healthy; osd tree if the manager does not answer
//! manager    osd df tree, osd perf, osd pool stats; progress json while something progresses
//! OSDs       a few in turn: dump_ops_in_flight, perf dump process. Those that health names as slow come first
//! ```
//!
//! A daemon that refuses or stays silent is left alone for a while, so that it is not asked in vain each time.

use client_host::{Access, ClientHost, Receiver, Refusal};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer that takes longer is missing from the screen.
const PATIENCE: Duration = Duration::from_secs(4);
/// Rest for an OSD that did not answer.
const REST: Duration = Duration::from_secs(30);
/// An OSD that did not tell its processor time may be another release later.
const PROCESS_REST: Duration = Duration::from_secs(60);

/// The answers of one refresh; `None` where there was none.
#[derive(Debug, Default)]
pub struct Answers {
    pub status: Option<Value>,
    pub health_detail: Option<Value>,
    pub df: Option<Value>,
    pub osd_df: Option<Value>,
    pub osd_tree: Option<Value>,
    pub osd_perf: Option<Value>,
    pub pool_stats: Option<Value>,
    pub progress: Option<Value>,
    /// Of the OSDs that were asked this time.
    pub osds: BTreeMap<i32, OsdAnswers>,
    /// Seconds since 1970 at the time of asking.
    pub now: f64,
    /// The reason why `status` is missing.
    pub problem: Option<String>,
}

/// The answers of one OSD.
#[derive(Debug, Default)]
pub struct OsdAnswers {
    pub ops_in_flight: Option<Value>,
    /// Group `process` of the counters.
    pub process: Option<Value>,
}

pub struct Asker {
    host: ClientHost,
    /// The last OSD that was asked in turn.
    last_osd: i32,
    /// OSDs that did not tell their processor time, as those of stock, and when.
    without_process: BTreeMap<i32, Instant>,
    resting: BTreeMap<i32, Instant>,
}

impl Asker {
    /// Needs a tokio runtime around it.
    pub async fn connect(access: &Access) -> anyhow::Result<Asker> {
        let mut host = ClientHost::new(access)?;
        host.connect(CONNECT_TIMEOUT).await?;
        let (without_process, resting) = (BTreeMap::new(), BTreeMap::new());
        Ok(Asker { host, last_osd: -1, without_process, resting })
    }

    /// Asks everything once, and at most `osds_max` OSDs.
    pub async fn refresh(&mut self, osds_max: usize) -> Answers {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let (monitor, manager) = (Receiver::Monitor, Receiver::Manager);
        let first = [
            (monitor, json!({"prefix": "status", "format": "json"})),
            (monitor, json!({"prefix": "df", "format": "json"})),
            (manager, json!({"prefix": "osd df", "output_method": "tree", "format": "json"})),
            (manager, json!({"prefix": "osd perf", "format": "json"})),
            (manager, json!({"prefix": "osd pool stats", "format": "json"})),
        ];
        let [status, df, osd_df, osd_perf, pool_stats] = self.ask(first).await;
        let problem = status.as_ref().err().map(ToString::to_string);
        let mut answers = Answers {
            status: status.ok(),
            df: df.ok(),
            osd_df: osd_df.ok(),
            osd_perf: osd_perf.ok(),
            pool_stats: pool_stats.ok(),
            now,
            problem,
            ..Answers::default()
        };
        // Without a monitor there is nobody else to ask.
        if let Some(status) = answers.status.take() {
            self.follow_map(&status);
            self.ask_more(&status, &mut answers).await;
            self.ask_osds(&status, &mut answers, osds_max).await;
            answers.status = Some(status);
        }
        answers
    }

    /// The client's OSDMap says which OSDs can be told something.
    fn follow_map(&mut self, status: &Value) {
        let epoch = status["osdmap"]["epoch"].as_u64().or(status["osdmap"]["osdmap"]["epoch"].as_u64());
        if let Some(epoch) = epoch.and_then(|epoch| u32::try_from(epoch).ok()) {
            self.host.with(|(client, now, fx)| client.want_map(now, epoch, fx));
        }
    }

    async fn ask_more(&mut self, status: &Value, answers: &mut Answers) {
        let is_healthy = status["health"]["status"] == "HEALTH_OK";
        let progresses = status["progress_events"].as_object().is_some_and(|events| !events.is_empty());
        if !is_healthy {
            let detail = json!({"prefix": "health", "detail": "detail", "format": "json"});
            let [detail] = self.ask([(Receiver::Monitor, detail)]).await;
            answers.health_detail = detail.ok();
        }
        if answers.osd_df.is_none() {
            let [tree] =
                self.ask([(Receiver::Monitor, json!({"prefix": "osd tree", "format": "json"}))]).await;
            answers.osd_tree = tree.ok();
        }
        if progresses {
            let [progress] = self.ask([(Receiver::Manager, json!({"prefix": "progress json"}))]).await;
            answers.progress = progress.ok();
        }
    }

    async fn ask_osds(&mut self, status: &Value, answers: &mut Answers, osds_max: usize) {
        self.resting.retain(|_, since| since.elapsed() < REST);
        self.without_process.retain(|_, since| since.elapsed() < PROCESS_REST);
        let tree = answers.osd_df.as_ref().or(answers.osd_tree.as_ref());
        let up: Vec<i32> = tree.map(osds_up).unwrap_or_default();
        let up: Vec<i32> = up.into_iter().filter(|osd| !self.resting.contains_key(osd)).collect();
        let chosen = choose(&up, &slow_osds(status), &mut self.last_osd, osds_max);
        let mut questions = Vec::new();
        for osd in &chosen {
            questions.push((*osd, json!({"prefix": "dump_ops_in_flight", "format": "json"})));
            if !self.without_process.contains_key(osd) {
                questions.push((*osd, json!({"prefix": "perf dump", "logger": "process", "format": "json"})));
            }
        }
        let commands: Vec<(Receiver, String)> =
            questions.iter().map(|(osd, command)| (Receiver::Osd(*osd), command.to_string())).collect();
        let outcomes = self.host.ask_each(&commands, PATIENCE).await;
        for ((osd, command), outcome) in questions.iter().zip(outcomes) {
            let outcome = outcome.map(|bytes| parse(&bytes));
            let row = answers.osds.entry(*osd).or_default();
            match (command["prefix"].as_str(), outcome) {
                (Some("perf dump"), Ok(Some(dump))) if dump["process"].is_object() => {
                    row.process = Some(dump["process"].clone());
                }
                (Some("perf dump"), Ok(_) | Err(Refusal::Error(..))) => {
                    self.without_process.insert(*osd, Instant::now());
                }
                (_, Ok(dump)) => row.ops_in_flight = dump,
                (_, Err(_)) => {
                    self.resting.insert(*osd, Instant::now());
                }
            }
        }
    }

    async fn ask<const N: usize>(
        &mut self,
        questions: [(Receiver, Value); N],
    ) -> [Result<Value, Refusal>; N] {
        let commands = questions.map(|(to, command)| (to, command.to_string()));
        let mut outcomes = self.host.ask_each(&commands, PATIENCE).await.into_iter();
        std::array::from_fn(|_| {
            let outcome = outcomes.next().unwrap_or_else(|| Err(Refusal::Silence("no answer".into())));
            outcome.and_then(|bytes| {
                parse(&bytes).ok_or_else(|| Refusal::Silence("the answer is not JSON".into()))
            })
        })
    }
}

/// Stock's managers write `nan` and `inf` where a cluster has no space yet; JSON has no such numbers.
fn parse(bytes: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Some(value);
    }
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    for word in ["-nan", "nan", "-inf", "inf"] {
        text = text.replace(&format!(":{word}"), ":0").replace(&format!(": {word}"), ": 0");
    }
    serde_json::from_str(&text).ok()
}

/// Numbers of the OSDs that are up, in ascending order. The tree lists an OSD under each root that has it.
fn osds_up(tree: &Value) -> Vec<i32> {
    let rows = ["nodes", "stray"].into_iter().flat_map(|list| tree[list].as_array().into_iter().flatten());
    let is_up = |row: &&Value| row["type"] == "osd" && row["status"] == "up";
    let numbers = rows.filter(is_up).filter_map(|row| i32::try_from(row["id"].as_i64()?).ok());
    numbers.collect::<BTreeSet<i32>>().into_iter().collect()
}

/// Numbers of the OSDs that SLOW_OPS names: `…, daemons [osd.3,osd.7] have slow ops.`
fn slow_osds(status: &Value) -> Vec<i32> {
    let message = status["health"]["checks"]["SLOW_OPS"]["summary"]["message"].as_str().unwrap_or("");
    let words = message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    words.filter_map(|word| word.strip_prefix("osd.")?.parse().ok()).collect()
}

/// At most half from `slow`, the others in turn from the one after `last` on.
fn choose(up: &[i32], slow: &[i32], last: &mut i32, max: usize) -> Vec<i32> {
    let mut chosen: Vec<i32> = slow.iter().copied().filter(|osd| up.contains(osd)).take(max / 2).collect();
    let after = up.partition_point(|osd| *osd <= *last);
    for osd in up[after..].iter().chain(&up[..after]) {
        if chosen.len() >= max {
            break;
        }
        if !chosen.contains(osd) {
            chosen.push(*osd);
            *last = *osd;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osds_take_turns_and_slow_ones_come_first() {
        let (up, mut last) = ([0, 1, 3, 4, 9], -1);
        assert_eq!(choose(&up, &[], &mut last, 2), [0, 1]);
        assert_eq!(choose(&up, &[9, 7], &mut last, 2), [9, 3]);
        assert_eq!(choose(&up, &[], &mut last, 4), [4, 9, 0, 1]);
        assert_eq!(choose(&up, &[], &mut last, 8), [3, 4, 9, 0, 1], "each is asked once");
        assert_eq!(choose(&[], &[1], &mut last, 8), [0i32; 0]);
    }

    #[test]
    fn slow_osds_are_read_from_health() {
        let message =
            "2 slow ops, oldest one blocked for 33 sec, daemons [osd.3,osd.12,mon.a] have slow ops.";
        let status = json!({"health": {"checks": {"SLOW_OPS": {"summary": {"message": message}}}}});
        assert_eq!(slow_osds(&status), [3, 12]);
        assert_eq!(slow_osds(&json!({})), [0i32; 0]);
    }

    #[test]
    fn numbers_that_json_lacks_become_zero() {
        let text = br#"{"utilization":-nan,"var": inf,"name":"nan"}"#;
        assert_eq!(parse(text), Some(json!({"utilization": 0, "var": 0, "name": "nan"})));
        assert_eq!(parse(b"no json"), None);
    }
}
