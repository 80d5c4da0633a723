//! The side thread: admin socket, metrics page, signals and memory target of one daemon, away from its reactors.

use super::admin_commands::{self, Command, Common};
use super::admin_socket::{self, Reply, Request};
use super::memory;
use super::metrics;
use anyhow::Context;
use command::perf::{self, Counter};
use command::restart::Checked;
use rustix::fs::Mode;
use rustix::process::umask;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

pub type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A Unix socket's path is at most this long (`sun_path`).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The time after which a caller is told that the role does not answer.
const ROLE_PATIENCE: Duration = Duration::from_secs(30);

/// The longest wait for answers on the admin socket before a restart.
const ANSWERS_PATIENCE: Duration = Duration::from_secs(1);
const ANSWERS_POLL: Duration = Duration::from_millis(5);

/// A query of the side thread to the daemon's role. Called on the side thread; the answer comes from a reactor.
pub trait Role: Send + Sync + 'static {
    /// The role's own commands, sorted.
    fn commands(&self) -> &'static [Command];
    fn call(&self, request: Request) -> Answer<Reply>;
    fn counters(&self) -> Answer<Vec<Counter>>;
    /// The part of the metrics page besides the daemon's own counters.
    fn more_metrics(&self) -> Answer<String> {
        Box::pin(std::future::ready(String::new()))
    }
    /// So much memory may its parts take from now on.
    fn set_budgets(&self, _: memory::Budgets) {}

    /// Bytes that the allocator may keep for the next use: all below the target where speed counts.
    fn spare_memory_max(&self) -> u64 {
        u64::MAX
    }
    /// The installed program was run for its version, as the role asked. If it runs, [`Role::stop`] follows.
    fn on_restart_checked(&self, checked: Checked);
    /// SIGTERM or SIGINT came, or `restarts`, a checked restart: stop cleanly. Called once, on a thread of a runtime.
    fn stop(&self, restarts: bool);
}

pub struct Side {
    name: String,
    socket: Option<PathBuf>,
    metrics: Option<SocketAddr>,
    common: Arc<Common>,
    role: Arc<dyn Role>,
    is_stopping: AtomicBool,
    /// Commands on the admin socket whose answers are not written yet.
    answering: AtomicUsize,
}

impl Side {
    pub fn new(
        name: String,
        socket: Option<PathBuf>,
        metrics: Option<SocketAddr>,
        common: Arc<Common>,
        role: Arc<dyn Role>,
    ) -> Side {
        Side {
            name,
            socket,
            metrics,
            common,
            role,
            is_stopping: AtomicBool::new(false),
            answering: AtomicUsize::new(0),
        }
    }

    /// Binds what is to be bound, so that its errors come here, and serves in a thread of its own for as long as
    /// the process lives.
    pub fn spawn(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (admin, http, signals) = runtime.block_on(async {
            let admin = self.socket.as_deref().map(bind_admin_socket).transpose()?;
            let http = match self.metrics {
                Some(addr) => {
                    Some(TcpListener::bind(addr).await.with_context(|| format!("metrics_addr {addr}"))?)
                }
                None => None,
            };
            let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
            let [term, int, hup] = signals.map(signal);
            anyhow::Ok((admin, http, [term?, int?, hup?]))
        })?;
        let side = Arc::new(self);
        std::thread::Builder::new().name("side".into()).spawn(move || {
            runtime.block_on(async {
                if let Some(listener) = admin {
                    tokio::spawn(serve_admin(side.clone(), listener));
                }
                if let Some(listener) = http {
                    tokio::spawn(serve_metrics(side.clone(), listener));
                }
                tokio::spawn(keep_to_memory_target(side.clone()));
                tokio::spawn(restart_when_asked(side.clone()));
                let [mut term, mut int, mut hup] = signals;
                loop {
                    tokio::select! {
                        _ = term.recv() => {}
                        _ = int.recv() => {}
                        _ = hup.recv() => {
                            side.common.log.reopen();
                            continue;
                        }
                    }
                    tracing::info!("asked to stop");
                    side.stop(false);
                }
            })
        })?;
        Ok(())
    }
}

fn bind_admin_socket(path: &Path) -> anyhow::Result<UnixListener> {
    use std::os::unix::ffi::OsStrExt;
    let len = path.as_os_str().as_bytes().len();
    anyhow::ensure!(
        len <= SOCKET_PATH_BYTES_MAX,
        "{}: a socket's path may have {SOCKET_PATH_BYTES_MAX} bytes and this has {len}: choose a shorter directory",
        path.display()
    );
    // The data directory's lock says that no other process serves it, so what is there is a leftover.
    let _ = std::fs::remove_file(path);
    // A socket is made with the modes that the umask leaves. Were it changed afterwards, others could connect in between.
    // The umask is the whole process's, but nothing suffers from it: whatever else is made now is private too.
    let before = umask(Mode::RWXG | Mode::RWXO);
    let listener = UnixListener::bind(path);
    umask(before);
    listener.with_context(|| format!("cannot bind {}", path.display()))
}

async fn keep_to_memory_target(side: Arc<Side>) {
    let mut keeper = memory::Keeper::new(side.role.spare_memory_max());
    let mut ticks = tokio::time::interval(memory::LOOK_EVERY);
    loop {
        ticks.tick().await;
        let live = side.common.live();
        if let Some(budgets) = keeper.look(live.memory_target, live.message_cap) {
            side.role.set_budgets(budgets);
        }
    }
}

async fn restart_when_asked(side: Arc<Side>) {
    loop {
        side.common.restart.asked().await;
        let common = side.common.clone();
        match tokio::task::spawn_blocking(move || common.restart.check_program()).await {
            Ok(Ok(version)) => {
                tracing::info!("asked to start again, as {version}");
                side.role.on_restart_checked(Ok(()));
                side.finish_answers().await;
                side.stop(true);
            }
            Ok(Err(error)) => side.refuse_restart(format!("{error:#}")),
            Err(error) => side.refuse_restart(error.to_string()),
        }
    }
}

async fn serve_admin(side: Arc<Side>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(answer_one(side.clone(), stream));
            }
            Err(error) => {
                tracing::warn!("admin socket: {error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer_one(side: Arc<Side>, mut stream: UnixStream) {
    let Some(text) = admin_socket::read_request(&mut stream).await else { return };
    side.answering.fetch_add(1, Ordering::AcqRel);
    let (reply, format) = match Request::parse(&text) {
        Ok(request) => {
            let format = request.arg("format").unwrap_or_default();
            (side.answer(request).await, format)
        }
        Err(reply) => (reply, String::new()),
    };
    if let Err(error) = admin_socket::write_answer(&mut stream, &reply.render(&format)).await {
        tracing::debug!("admin socket: {error}");
    }
    side.answering.fetch_sub(1, Ordering::AcqRel);
}

impl Side {
    /// Lets commands on the admin socket have their answers: the process that writes them is about to end.
    async fn finish_answers(&self) {
        let all_written = async {
            while self.answering.load(Ordering::Acquire) > 0 {
                tokio::time::sleep(ANSWERS_POLL).await;
            }
        };
        if tokio::time::timeout(ANSWERS_PATIENCE, all_written).await.is_err() {
            tracing::debug!("a command on the admin socket has no answer before the restart");
        }
    }

    fn refuse_restart(&self, why: String) {
        tracing::error!("no restart: {why}");
        self.role.on_restart_checked(Err(why));
    }

    /// The last word counts: a daemon that is to end does not start again, even if a restart had begun.
    fn stop(&self, restarts: bool) {
        let is_first = !self.is_stopping.swap(true, Ordering::AcqRel);
        if is_first || !restarts {
            self.common.restart.set_due(restarts);
        }
        if is_first {
            self.role.stop(restarts);
        }
    }

    /// The role's counters and the process's.
    async fn counters(&self) -> Vec<Counter> {
        let mut counters = self.role.counters().await;
        counters.extend(memory::counters(self.common.live().memory_target));
        counters
    }

    async fn metrics_page(&self) -> String {
        let own = perf::prometheus(&self.counters().await, &self.name);
        self.role.more_metrics().await + &own
    }

    async fn answer(&self, request: Request) -> Reply {
        if let Some(reply) = admin_commands::answer(&self.common, self.role.commands(), &request) {
            return reply;
        }
        let role = async {
            if request.prefix.starts_with("perf")
                && let Some(reply) = admin_commands::answer_perf(&self.counters().await, &request)
            {
                return reply;
            }
            if admin_commands::is_of_role(self.role.commands(), &request.prefix) {
                self.role.call(request).await
            } else {
                Reply::Error(libc::EINVAL, format!("unknown command prefix {}", request.prefix))
            }
        };
        match tokio::time::timeout(ROLE_PATIENCE, role).await {
            Ok(reply) => reply,
            Err(_) => Reply::Error(libc::ETIMEDOUT, "the daemon does not answer".into()),
        }
    }
}

async fn serve_metrics(side: Arc<Side>, listener: TcpListener) {
    let page_side = side.clone();
    let page = Arc::new(move || {
        let side = page_side.clone();
        async move { side.metrics_page().await }
    });
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(metrics::serve(stream, page.clone()));
            }
            Err(error) => {
                tracing::warn!("metrics: {error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}
