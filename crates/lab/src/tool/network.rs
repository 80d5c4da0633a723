//! The lab's own probe of a network over TCP: round trips of small messages, one at a time, and
//! streams at full rate; and iperf3, if it is installed here and serves there.
//!
//! The other end is a [`Server`]: a thread here, or one of `shoal lab agent --serve PORT` on another host. A
//! connection begins with 16 bytes, little-endian: what is to be done (0: send back, 1: read on and say after each
//! second of the reader how much came), and the size of a message.

use super::process::{run, stopped};
use crate::load::{Recorder, Start};
use crate::matrix::{Spec, Tool};
use crate::results::record::{Measured, Second};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Default port of the other end.
pub const PORT: u16 = 7373;
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// The other end; it ends when this goes away.
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub fn start(address: impl ToSocketAddrs) -> anyhow::Result<Server> {
        let listener = TcpListener::bind(address).context("a port for the network probe")?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        std::thread::Builder::new().name("net-probe".into()).spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // What goes wrong with one connection ends that connection; the near end tells.
                std::thread::spawn(move || drop(serve(socket)));
            }
        })?;
        Ok(Server { address, stop })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listener.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_millis(200)));
    }
}

fn serve(mut socket: TcpStream) -> anyhow::Result<()> {
    socket.set_nodelay(true)?;
    let mut hello = [0; 16];
    socket.read_exact(&mut hello)?;
    let number = |at: usize| u64::from_le_bytes(hello[at..at + 8].try_into().expect("eight bytes"));
    let (kind, bytes) = (number(0), number(8));
    ensure!((1..=MESSAGE_BYTES_MAX).contains(&bytes), "a message of {bytes} bytes");
    let mut message = vec![0; bytes as usize];
    match kind {
        0 => loop {
            socket.read_exact(&mut message)?;
            socket.write_all(&message)?;
        },
        1 => {
            let (mut got, mut told, mut began) = (0u64, 0u64, Instant::now());
            loop {
                let n = socket.read(&mut message)?;
                got += n as u64;
                if n == 0 || began.elapsed() >= Duration::from_millis(100) {
                    socket.write_all(&(got - told).to_le_bytes())?;
                    (told, began) = (got, Instant::now());
                }
                if n == 0 {
                    return Ok(());
                }
            }
        }
        other => bail!("request {other} of the network probe is unknown"),
    }
}

/// Measures as the spec says. `begin` is called when the other end has answered.
pub fn measure(
    spec: &Spec,
    begin: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<(Measured, Vec<(String, Vec<u8>)>)> {
    if spec.tool == Tool::Iperf3 {
        return iperf3(spec, begin);
    }
    let _here;
    let address = match &spec.to {
        Some(to) => find(to)?,
        None => {
            let server = Server::start("127.0.0.1:0")?;
            let address = server.address();
            _here = server;
            address
        }
    };
    let measured = match spec.tool {
        Tool::TcpPing => ping(spec, address, begin),
        _ => streams(spec, address, begin),
    };
    Ok((measured?, Vec::new()))
}

/// `HOST` or `HOST:PORT`.
fn find(to: &str) -> anyhow::Result<SocketAddr> {
    let found = if to.contains(':') { to.to_socket_addrs() } else { (to, PORT).to_socket_addrs() };
    found.with_context(|| format!("{to} is no host"))?.next().with_context(|| format!("{to} has no address"))
}

fn connect(address: SocketAddr, kind: u64, bytes: u64) -> anyhow::Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| {
        format!(
            "{address} does not answer: on that host run `shoal lab agent --serve {}` while this measures",
            address.port()
        )
    })?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(&kind.to_le_bytes())?;
    socket.write_all(&bytes.to_le_bytes())?;
    Ok(socket)
}

fn ping(
    spec: &Spec,
    address: SocketAddr,
    begin: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    let mut socket = connect(address, 0, spec.op_bytes)?;
    let mut message = vec![7; spec.op_bytes as usize];
    // The first one finds routes and wakes the other end.
    socket.write_all(&message)?;
    socket.read_exact(&mut message).context("the other end does not send back")?;
    begin()?;
    let ns = |s: f64| (s * 1e9) as u64;
    let mut recorder = Recorder::new(ns(spec.ramp_s), ns(spec.ramp_s + spec.seconds))?;
    let (began, mut ticket) = (Instant::now(), 0);
    loop {
        let intended_ns = began.elapsed().as_nanos() as u64;
        if intended_ns >= recorder.end_ns() {
            return Ok(recorder.measured());
        }
        ensure!(!stopped(), "interrupted");
        socket.write_all(&message).context("the connection to the other end broke")?;
        socket.read_exact(&mut message).context("the other end does not send back")?;
        ticket += 1;
        let start = Start { ticket, object: 0, block: 0, read: false, bytes: spec.op_bytes, intended_ns };
        recorder.done(began.elapsed().as_nanos() as u64, &start, 0);
        if spec.think_us > 0 {
            std::thread::sleep(Duration::from_micros(spec.think_us));
        }
    }
}

/// A few small messages to an agent and back, one at a time, each in milliseconds.
pub fn round_trips_ms(to: &str, count: usize) -> anyhow::Result<Vec<f64>> {
    let mut message = [7; 64];
    let mut socket = connect(find(to)?, 0, message.len() as u64)?;
    let mut one = || -> anyhow::Result<f64> {
        let began = Instant::now();
        socket.write_all(&message)?;
        socket.read_exact(&mut message).context("the other end does not send back")?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    // The first one finds routes and wakes the other end.
    one()?;
    (0..count).map(|_| one()).collect()
}

/// Each client is a stream. Bytes count when they arrive at the other end, not when the kernel takes them here.
fn streams(
    spec: &Spec,
    address: SocketAddr,
    begin: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    let sockets = (0..spec.clients)
        .map(|_| connect(address, 1, MESSAGE_BYTES_MAX))
        .collect::<anyhow::Result<Vec<_>>>()?;
    begin()?;
    let began = Instant::now();
    let all_s = spec.ramp_s + spec.seconds;
    let whole_seconds = all_s.ceil() as usize;
    let arrived: Vec<AtomicU64> = (0..=whole_seconds).map(|_| AtomicU64::new(0)).collect();
    let counted = AtomicU64::new(0);
    let one = |socket: &TcpStream| -> anyhow::Result<()> {
        let mut reader = socket.try_clone()?;
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let mut count = [0; 8];
                // The other end tells each tenth of a second, until it has seen our end.
                while reader.read_exact(&mut count).is_ok() {
                    let (bytes, at_s) = (u64::from_le_bytes(count), began.elapsed().as_secs_f64());
                    arrived[(at_s as usize).min(whole_seconds)].fetch_add(bytes, Ordering::Relaxed);
                    if at_s >= spec.ramp_s && at_s < all_s {
                        counted.fetch_add(bytes, Ordering::Relaxed);
                    }
                }
            });
            let (mut writer, chunk) = (socket, vec![7; 128 << 10]);
            let mut sent = Ok(());
            while sent.is_ok() && began.elapsed().as_secs_f64() < all_s && !stopped() {
                sent = writer.write_all(&chunk);
            }
            drop(writer.shutdown(std::net::Shutdown::Write));
            drop(counting.join());
            sent.context("a stream to the other end broke")
        })
    };
    let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = sockets.iter().map(|socket| scope.spawn(|| one(socket))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| bail!("a stream's thread ended"))).collect()
    });
    results.into_iter().collect::<anyhow::Result<()>>()?;
    ensure!(!stopped(), "interrupted");
    let bytes_per_s = counted.load(Ordering::Relaxed) as f64 / spec.seconds;
    // An operation is a mebibyte: a rate in operations would mean nothing else.
    let ops = |bytes: f64| bytes / (1 << 20) as f64;
    Ok(Measured {
        ops: ops(bytes_per_s * spec.seconds),
        seconds: spec.seconds,
        ops_per_s: ops(bytes_per_s),
        bytes_per_s,
        series: (0..all_s as usize)
            .map(|n| Second {
                at_s: n as f64 + 1.0,
                ops: ops(arrived[n].load(Ordering::Relaxed) as f64),
                ..Second::default()
            })
            .collect(),
        ..Measured::default()
    })
}

fn iperf3(
    spec: &Spec,
    begin: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<(Measured, Vec<(String, Vec<u8>)>)> {
    // At the end of this it is stopped.
    struct Serving(std::process::Child);
    impl Drop for Serving {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
    let (host, port) = match spec.to.as_deref().map(|to| to.split_once(':').unwrap_or((to, "5201"))) {
        Some((host, port)) => (host.to_owned(), port.to_owned()),
        None => ("127.0.0.1".to_owned(), TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string()),
    };
    let _serving = match spec.to {
        Some(_) => None,
        None => {
            let mut server = Command::new("iperf3");
            server.args(["-s", "-1", "-p", &port]).stdout(std::process::Stdio::null());
            let child = server.spawn().context("iperf3 cannot be started: is it installed?")?;
            std::thread::sleep(Duration::from_millis(300));
            Some(Serving(child))
        }
    };
    begin()?;
    let mut command = Command::new("iperf3");
    command.args(["-c", &host, "-p", &port, "-J", "-P", &spec.clients.to_string()]);
    command.args(["-t", &format!("{}", spec.seconds.ceil()), "-O", &format!("{}", spec.ramp_s.ceil())]);
    let output = run(command, Duration::from_secs_f64(spec.seconds + spec.ramp_s + 30.0))?.output;
    let measured = parse_iperf3(&output, spec.ramp_s.ceil())?;
    Ok((measured, vec![("iperf3.json".into(), output.into_bytes())]))
}

fn parse_iperf3(output: &str, ramp_s: f64) -> anyhow::Result<Measured> {
    let report: Value = serde_json::from_str(output).context("iperf3's JSON")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let sum = &report["end"]["sum_received"];
    let bits = sum["bits_per_second"].as_f64().context("iperf3 printed no sum")?;
    let ops = |bits: f64| bits / 8.0 / (1 << 20) as f64;
    let series = report["intervals"].as_array().into_iter().flatten().filter_map(|interval| {
        let at_s =
            interval["sum"]["end"].as_f64()? + if interval["sum"]["omitted"] == true { 0.0 } else { ramp_s };
        Some(Second { at_s, ops: ops(interval["sum"]["bits_per_second"].as_f64()?), ..Second::default() })
    });
    let seconds = sum["seconds"].as_f64().unwrap_or(0.0);
    Ok(Measured {
        ops: ops(bits) * seconds,
        seconds,
        ops_per_s: ops(bits),
        bytes_per_s: bits / 8.0,
        series: series.collect(),
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_streams_over_loopback() {
        let spec = Spec { tool: Tool::TcpPing, op_bytes: 64, seconds: 0.4, ..Spec::default() };
        let mut began = 0;
        let mut begin = || {
            began += 1;
            Ok(())
        };
        let (ping, _) = measure(&spec, &mut begin).unwrap();
        assert!(ping.ops > 100.0 && ping.latency.p50_us.unwrap() > 1.0, "{ping:?}");
        assert!(ping.latency.p50_us <= ping.latency.p99_us);
        let spec = Spec { tool: Tool::TcpStream, clients: 4, seconds: 1.0, ..spec };
        let (stream, _) = measure(&spec, &mut begin).unwrap();
        assert!(stream.bytes_per_s > 10e6, "{stream:?}");
        assert_eq!(began, 2);
    }

    #[test]
    fn missing_agent_names_the_command_to_start() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let spec = Spec { tool: Tool::TcpPing, to: Some(free.to_string()), ..Spec::default() };
        let told = format!("{:#}", measure(&spec, &mut || Ok(())).unwrap_err());
        assert!(told.contains("shoal lab agent --serve"), "{told}");
    }

    #[test]
    fn iperf3_output_is_parsed() {
        let report = serde_json::json!({
            "intervals": [{"sum": {"end": 1.0, "bits_per_second": 8388608.0, "omitted": false}}],
            "end": {"sum_received": {"bits_per_second": 16777216.0, "seconds": 2.0}}});
        let measured = parse_iperf3(&report.to_string(), 1.0).unwrap();
        assert_eq!((measured.ops_per_s, measured.bytes_per_s, measured.ops), (2.0, 2097152.0, 4.0));
        assert_eq!((measured.series[0].at_s, measured.series[0].ops), (2.0, 1.0));
        assert!(
            parse_iperf3("{\"error\": \"unable to connect\"}", 0.0)
                .unwrap_err()
                .to_string()
                .contains("unable")
        );
    }
}
