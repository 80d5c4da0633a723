//! The host of the manager's work on block images: a client of the cluster with sockets of its own, on a thread of its own.
//!
//! The thread has a client and a machine while the manager is the active one. Other clients see the client, not the manager, in
//! locks and watches of images, and put it on the blocklist if it dies with a lock.

use crate::host::mgr::Question;
use client_host::{Access, ClientHost};
use command::{Answer, ImageSettings, errno};
use images::{Command, Input, May, Support};
use machine::{Random, Time};
use messenger::ModeLists;
use mgr::{ImagesNews, ImagesOrder};
use runtime::Mailbox;
use runtime::system;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use wire::types::EntityAddrVec;

/// After an error of the client's start.
const START_RETRY: Duration = Duration::from_secs(5);
/// The end of watches is sent within this time when another manager takes over.
const STOP_TIME: Duration = Duration::from_millis(500);

pub struct ImagesConfig {
    /// The manager's own name and key.
    pub access: Access,
    pub modes: ModeLists,
}

/// Starts the thread. It ends when the sender of orders is dropped.
pub fn start(
    config: ImagesConfig,
    manager: Mailbox<Question>,
    random: Random,
) -> std::io::Result<UnboundedSender<ImagesOrder>> {
    let (sender, orders) = unbounded_channel();
    let host = Host { config, manager, random, orders, settings: ImageSettings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("images".into()).spawn(move || runtime.block_on(host.run()))?;
    Ok(sender)
}

struct Host {
    config: ImagesConfig,
    manager: Mailbox<Question>,
    random: Random,
    orders: UnboundedReceiver<ImagesOrder>,
    settings: ImageSettings,
}

/// The end of a client's life.
enum End {
    /// Another manager is active.
    Standby,
    /// The client is on the blocklist, and a new one takes over.
    Fenced,
    /// The manager is gone.
    Stopped,
}

impl Host {
    async fn run(mut self) {
        while let Some(order) = self.orders.recv().await {
            match order {
                ImagesOrder::SetActive(false) | ImagesOrder::Counted(_) => {}
                ImagesOrder::Settings(settings) => self.settings = settings,
                ImagesOrder::Command { number, .. } => self.answer_not_ready(number),
                ImagesOrder::SetActive(true) => loop {
                    match self.serve().await {
                        Ok(End::Standby) => break,
                        Ok(End::Fenced) => tracing::warn!(
                            "block images: this client was on the blocklist; another takes over"
                        ),
                        Ok(End::Stopped) => return,
                        Err(error) => {
                            tracing::warn!(
                                "block images: no client of the cluster can be started: {error:#}"
                            );
                            tokio::time::sleep(START_RETRY).await;
                        }
                    }
                },
            }
        }
    }

    fn answer_not_ready(&self, number: u64) {
        let answer = Answer::error(errno::EAGAIN, "rbd_support module is not ready, try again");
        self.manager.post(Question::ImagesAnswer { number, answer });
    }

    /// One client's life.
    async fn serve(&mut self) -> anyhow::Result<End> {
        let mut host = ClientHost::with_modes(&self.config.access, self.config.modes.clone())?;
        let mut support = Support::new(host.now(), system::wall_clock(), self.random.fork());
        self.tell(ImagesNews::Began);
        let mut addrs_told = 0;
        self.step(&mut host, &mut support, Input::Settings(self.settings.clone()));
        loop {
            if support.is_fenced() {
                return Ok(End::Fenced);
            }
            let an_hour = host.now() + Duration::from_secs(3600);
            let until = support.next_deadline().map_or(an_hour, |at: Time| at.min(an_hour));
            let events = tokio::select! {
                biased;
                order = self.orders.recv() => {
                    match order {
                        None => return Ok(End::Stopped),
                        Some(ImagesOrder::SetActive(true)) => {}
                        Some(ImagesOrder::SetActive(false)) => {
                            stop(&mut host, &mut support).await;
                            return Ok(End::Standby);
                        }
                        Some(ImagesOrder::Settings(settings)) => {
                            self.settings = settings.clone();
                            self.step(&mut host, &mut support, Input::Settings(settings));
                        }
                        Some(ImagesOrder::Counted(reports)) => {
                            self.step(&mut host, &mut support, Input::Counted(reports));
                        }
                        Some(ImagesOrder::Command { number, text, may }) => {
                            let command = Command { number, text, may: May(may.0) };
                            self.step(&mut host, &mut support, Input::Command(command));
                        }
                    }
                    continue;
                }
                events = async { host.turn_until(until).await.collect::<Vec<_>>() } => events,
            };
            if host.own_addrs().len() > addrs_told {
                addrs_told = host.own_addrs().len();
                let addrs = host.own_addrs().iter().copied().collect();
                self.tell(ImagesNews::Client(EntityAddrVec(addrs)));
            }
            for event in events {
                self.step(&mut host, &mut support, Input::Client(event));
            }
            if support.next_deadline().is_some_and(|at| at <= host.now()) {
                self.step(&mut host, &mut support, Input::Deadline);
            }
        }
    }

    fn tell(&self, news: ImagesNews) {
        self.manager.post(Question::ImagesNews(news));
    }

    fn step(&self, host: &mut ClientHost, support: &mut Support, input: Input) {
        let wall = system::wall_clock();
        host.with(|(client, now, fx)| support.step(client, now, wall, input, fx));
        for (number, answer) in support.take_answers() {
            self.manager.post(Question::ImagesAnswer { number, answer });
        }
        for news in support.take_news() {
            self.tell(ImagesNews::Task(news));
        }
        if let Some(queries) = support.take_queries() {
            self.tell(ImagesNews::Queries(queries));
        }
        for text in support.take_warnings() {
            tracing::warn!("{text}");
        }
    }
}

async fn stop(host: &mut ClientHost, support: &mut Support) {
    host.with(|(client, now, fx)| support.stop(client, now, fx));
    let until = host.now() + STOP_TIME;
    while host.now() < until && host.client().in_flight() > 0 {
        host.turn_until(until).await.for_each(drop);
    }
}
