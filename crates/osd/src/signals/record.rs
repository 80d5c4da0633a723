//! One operation described: what `dump_ops_in_flight` and `dump_historic_ops` show of it.

use super::stages::OpStamps;
use command::{Json, object};
use machine::Time;
use wire::text::stamp;
use wire::types::{EntityAddr, EntityName, UTime};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpRecord {
    /// See [`wire::text::Request`].
    pub description: String,
    pub client: EntityName,
    pub client_addr: EntityAddr,
    pub tid: u64,
    pub stamps: OpStamps,
    pub progress: Progress,
}

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    WaitsForMap,
    WaitsForPg,
    WaitsForObject,
    Reads,
    Commits,
    /// Its reply was handed to the connection then.
    Replied(Time),
}

impl Progress {
    /// Stock's word for it (`OpRequest::state_string`).
    fn flag_point(self, is_write: bool) -> &'static str {
        match self {
            Progress::WaitsForMap | Progress::WaitsForPg | Progress::WaitsForObject => "delayed",
            Progress::Reads | Progress::Commits => "started",
            Progress::Replied(_) if is_write => "commit sent; apply or cleanup",
            Progress::Replied(_) => "started",
        }
    }
}

/// Converts the machine's time to wall time.
#[derive(Clone, Copy, Debug)]
pub struct WallNow {
    pub now: Time,
    pub wall: UTime,
}

impl WallNow {
    fn at(self, time: Time) -> UTime {
        let ago = self.now.since(time).as_nanos() as u64;
        UTime::from_nanos(self.wall.as_nanos().saturating_sub(ago))
    }
}

impl OpRecord {
    /// Until the reply, or until now.
    pub fn duration(&self, now: Time) -> std::time::Duration {
        let end = if let Progress::Replied(at) = self.progress { at } else { now };
        end.since(self.stamps.received)
    }

    /// True if `text` is the client's address: whole, without nonce, or without port and nonce (as `IP:0/0`).
    pub fn is_from(&self, text: &str) -> bool {
        let addr = self.client_addr;
        let bare = EntityAddr { nonce: 0, ..addr };
        let portless = EntityAddr { socket: addr.socket.map(|s| (s.ip(), 0).into()), ..bare };
        [addr, bare, portless].iter().any(|addr| addr.plain().to_string() == text)
    }

    /// The points that it has reached, with stock's names where stock has them.
    fn events(&self) -> Vec<(&'static str, Time)> {
        let OpStamps { received, admitted, begun, fetched, submitted, durable } = self.stamps;
        let mut events = vec![("initiated", received)];
        match self.progress {
            Progress::WaitsForMap => events.push(("wait for new map", received)),
            Progress::WaitsForPg => events.push(("waiting for peered", received)),
            _ => {}
        }
        let reached = |time: Time| time != Time::ZERO;
        if reached(admitted) {
            events.push(("reached_pg", admitted));
        }
        if self.progress == Progress::WaitsForObject || begun > admitted {
            events.push(("waiting for rw locks", admitted));
        }
        for (name, time) in
            [("started", begun), ("fetched", fetched), ("submitted", submitted), ("op_commit", durable)]
        {
            if reached(time) {
                events.push((name, time));
            }
        }
        if let Progress::Replied(at) = self.progress {
            events.push((if reached(submitted) { "commit_sent" } else { "reply_sent" }, at));
            events.push(("done", at));
        }
        events
    }

    pub fn json(&self, clock: WallNow) -> Json {
        let seconds = |from: Time, to: Time| to.since(from).as_secs_f64();
        let events = self.events();
        let rows = events.iter().enumerate().map(|(i, (name, at))| {
            // Until the next one; the last has the operation's whole time, as with stock.
            let duration = match events.get(i + 1) {
                Some((_, next)) => seconds(*at, *next),
                None => seconds(self.stamps.received, *at),
            };
            object! { "event" => *name, "time" => stamp(clock.at(*at)), "duration" => duration }
        });
        object! {
            "description" => self.description.as_str(),
            "initiated_at" => stamp(clock.at(self.stamps.received)),
            "age" => seconds(self.stamps.received, clock.now),
            "duration" => self.duration(clock.now).as_secs_f64(),
            "type_data" => object! {
                "flag_point" => self.progress.flag_point(self.stamps.submitted != Time::ZERO),
                "client_info" => object! {
                    "client" => self.client.to_string(),
                    "client_addr" => self.client_addr.plain().to_string(),
                    "tid" => self.tid,
                },
                "events" => Json::array(rows),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::EntityKind;

    fn record(stamps: OpStamps, progress: Progress) -> OpRecord {
        OpRecord {
            description: "osd_op(…)".into(),
            client: EntityName::new(EntityKind::CLIENT, 4127),
            client_addr: EntityAddr::msgr2(([127, 0, 0, 1], 0).into(), 9),
            tid: 7,
            stamps,
            progress,
        }
    }

    fn names(record: &OpRecord) -> Vec<&'static str> {
        record.events().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn events_follow_the_operation() {
        let mut stamps = OpStamps { received: Time(1), ..OpStamps::default() };
        assert_eq!(names(&record(stamps, Progress::WaitsForMap)), ["initiated", "wait for new map"]);
        stamps.admitted = Time(2);
        let waits = record(stamps, Progress::WaitsForObject);
        assert_eq!(names(&waits), ["initiated", "reached_pg", "waiting for rw locks"]);
        (stamps.begun, stamps.submitted, stamps.durable) = (Time(3), Time(4), Time(5));
        let done = record(stamps, Progress::Replied(Time(6)));
        let events = ["started", "submitted", "op_commit", "commit_sent", "done"];
        assert_eq!(names(&done)[3..], events);
    }

    #[test]
    fn record_has_stocks_shape() {
        let stamps =
            OpStamps { received: Time(1_000_000_000), admitted: Time(1_000_000_000), ..OpStamps::default() };
        let clock = WallNow { now: Time(3_000_000_000), wall: UTime { sec: 1_700_000_002, nsec: 0 } };
        let json = record(stamps, Progress::Reads).json(clock).compact();
        assert!(
            json.starts_with(
                r#"{"description":"osd_op(…)","initiated_at":"2023-11-14T22:13:20.000000+0000","age":2"#
            ),
            "{json}"
        );
        assert!(json.contains(r#""flag_point":"started","client_info":{"client":"client.4127","client_addr":"127.0.0.1:0/9","tid":7},"events":[{"event":"initiated","#), "{json}");
    }
}
