//! Start and end of a daemon's reactors.

use crate::counters::Counters;
use crate::mail::Mailbox;
use crate::reactor::{Reactor, WAKE};
use crate::role::Role;
use machine::{ConnId, CoreId, Random};
use messenger::Config;
use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Options {
    /// At most [`ConnId::CORES_MAX`].
    pub cores: u16,
    /// Core 0 accepts on these. The caller has bound them.
    pub listeners: Vec<TcpListener>,
    /// Configuration of sessions; each core fills in its own number.
    pub session: Config,
    /// Longest polling before sleep, for a single client; zero disables it.
    pub idle_poll: Duration,
    /// Seed from the operating system; each core gets its own random stream.
    pub seed: [u8; 32],
    /// Prefix of thread names.
    pub name: String,
}

/// The running reactors of a daemon.
pub struct Reactors<H> {
    mailboxes: Vec<Mailbox<H>>,
    counters: Vec<Arc<Counters>>,
    /// Each returns true if it ended cleanly.
    threads: Vec<JoinHandle<bool>>,
}

impl<H: Send + 'static> Reactors<H> {
    /// Starts a thread for each core. `make_role` runs on each of them, with the mailboxes of all.
    pub fn start<R: Role<Hop = H>>(
        options: Options,
        make_role: impl Fn(CoreId, &[Mailbox<H>]) -> R + Send + Sync + 'static,
    ) -> io::Result<Reactors<H>> {
        Reactors::try_start(options, move |core, mailboxes| Ok::<R, Infallible>(make_role(core, mailboxes)))
    }

    /// Like [`Reactors::start`], for roles whose construction may fail: the error is logged, and all cores end.
    pub fn try_start<R: Role<Hop = H>, E: Display>(
        options: Options,
        make_role: impl Fn(CoreId, &[Mailbox<H>]) -> Result<R, E> + Send + Sync + 'static,
    ) -> io::Result<Reactors<H>> {
        raise_file_limit();
        let cores = options.cores.clamp(1, ConnId::CORES_MAX);
        let mut random = Random::from_seed(options.seed);
        let mut polls = Vec::new();
        let mut mailboxes = Vec::new();
        for _ in 0..cores {
            let poll = mio::Poll::new()?;
            mailboxes.push(Mailbox::new(mio::Waker::new(poll.registry(), WAKE)?));
            polls.push(poll);
        }
        let make_role = Arc::new(make_role);
        let mut listeners = Some(options.listeners);
        let idle_poll = options.idle_poll;
        // One for all cores: a time from one core means the same on another.
        let started = Instant::now();
        let (mut counters, mut threads) = (Vec::new(), Vec::new());
        for (core, poll) in polls.into_iter().enumerate() {
            let core = CoreId(core as u16);
            let config = Config { core, core_count: cores, ..options.session.clone() };
            let (mailboxes, make_role) = (mailboxes.clone(), make_role.clone());
            let (listeners, random) = (listeners.take().unwrap_or_default(), random.fork());
            let count = Arc::new(Counters::default());
            counters.push(count.clone());
            let thread = std::thread::Builder::new().name(format!("{}-{}", options.name, core.0));
            threads.push(thread.spawn(move || {
                let run = || {
                    let role = make_role(core, &mailboxes).map_err(|error| format!("{error:#}"))?;
                    let all = mailboxes.clone();
                    Reactor::new(poll, listeners, config, random, role, all, count, idle_poll, started)
                        .and_then(|mut reactor| reactor.run())
                        .map_err(|error| error.to_string())
                };
                let caught = catch_unwind(AssertUnwindSafe(run));
                let outcome: Result<(), String> = caught.unwrap_or_else(|_| Err("it panicked".into()));
                if let Err(error) = &outcome {
                    tracing::error!("core {}: {error}", core.0);
                    mailboxes.iter().for_each(Mailbox::stop);
                }
                outcome.is_ok()
            })?);
        }
        Ok(Reactors { mailboxes, counters, threads })
    }

    pub fn mailboxes(&self) -> &[Mailbox<H>] {
        &self.mailboxes
    }

    /// Counters by core.
    pub fn counters(&self) -> &[Arc<Counters>] {
        &self.counters
    }

    pub fn stop(&self) {
        self.mailboxes.iter().for_each(Mailbox::stop);
    }

    /// Waits for every core to end. Returns false if one of them failed or panicked.
    pub fn join(self) -> bool {
        let mut all_well = true;
        for thread in self.threads {
            all_well &= thread.join().unwrap_or(false);
        }
        all_well
    }
}

/// Raises the limit on open files to the maximum that the system allows, and returns it: each connection is one.
pub fn raise_file_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls are given a pointer to a local of the right type.
    #[allow(unsafe_code, reason = "the limit has no safe name")]
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
            tracing::warn!("cannot raise the limit on open files: connections beyond it are refused");
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}
