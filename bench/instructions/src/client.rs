//! The client end of the connection: frames requests and reads replies, outside of the count.

use bytes::BytesMut;
use machine::net::{Credentials, NetEffect, NetEvent, Policy};
use machine::{ConnId, Effects, Machine, Random, Time};
use messenger::{Config, Effect, Endpoint, Input, ReadPlan, SocketId};
use wire::messages::{Body, Message};
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName};

pub struct Client {
    endpoint: Endpoint,
    fx: Effects<Effect>,
    pub conn: ConnId,
    pub socket: Option<SocketId>,
    pub ready: bool,
    pub replies: u64,
    pub failures: u64,
}

impl Client {
    pub fn new(server: EntityAddrVec) -> Client {
        let addr = EntityAddr::msgr2("10.0.0.2:4000".parse().expect("an address"), 7);
        let mut config = Config::new(EntityName::new(EntityKind::CLIENT, 4100), addr.into());
        config.methods = vec![wire::cephx::METHOD_NONE];
        let conn = ConnId::outgoing(1);
        let mut client = Client {
            endpoint: Endpoint::new(config, Random::from_number(2)),
            fx: Effects::new(),
            conn,
            socket: None,
            ready: false,
            replies: 0,
            failures: 0,
        };
        let credentials = Credentials::None { auth_name: "client.admin".into(), global_id: 4100 };
        let connect = NetEffect::Connect {
            conn,
            to: server,
            kind: EntityKind::OSD,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        };
        client.step(Input::Role(connect));
        let socket = client.socket.expect("connecting opens a socket");
        client.step(Input::Connected { socket });
        client
    }

    pub fn send(&mut self, message: Message) {
        self.step(Input::Role(NetEffect::Send { conn: self.conn, message }));
    }

    pub fn take_written(&mut self) -> BytesMut {
        take_written(&mut self.endpoint, Time(1))
    }

    pub fn receive(&mut self, bytes: BytesMut) {
        let socket = self.socket.expect("connected");
        receive(&mut self.endpoint, Time(1), socket, bytes, &mut self.fx);
        self.settle();
    }

    fn step(&mut self, input: Input) {
        self.endpoint.step(Time(1), input, &mut self.fx);
        self.settle();
    }

    fn settle(&mut self) {
        for effect in self.fx.take() {
            match effect {
                Effect::Open { socket, .. } => self.socket = Some(socket),
                Effect::Event(NetEvent::Ready { .. }) => self.ready = true,
                Effect::Event(NetEvent::Message { message, .. }) => {
                    self.replies += 1;
                    let is_fine = matches!(&message.body, Body::MOSDOpReply(reply) if reply.result >= 0);
                    self.failures += u64::from(!is_fine);
                }
                Effect::Event(NetEvent::Closed { why, .. }) => panic!("the connection ended: {why:?}"),
                _ => {}
            }
        }
    }
}

/// Concatenates all bytes that an endpoint wants to write.
pub fn take_written(endpoint: &mut Endpoint, now: Time) -> BytesMut {
    let mut dirty = Vec::new();
    endpoint.take_dirty(&mut dirty);
    let mut bytes = BytesMut::new();
    let mut fx = Effects::new();
    for socket in dirty {
        if let Some(queue) = endpoint.outgoing(socket) {
            queue.take().for_each(|piece| bytes.extend_from_slice(&piece));
            endpoint.step(now, Input::Wrote { socket }, &mut fx);
        }
    }
    bytes
}

/// Feeds received bytes to an endpoint the way a reactor does.
pub fn receive(
    endpoint: &mut Endpoint,
    now: Time,
    socket: SocketId,
    mut bytes: BytesMut,
    fx: &mut Effects<Effect>,
) {
    /// Large enough for all requests of a turn, so that no partial frame is copied.
    const READ_LEN: usize = 1 << 20;
    while !bytes.is_empty() {
        match endpoint.read_plan(socket) {
            ReadPlan::Nothing => panic!("the endpoint does not read"),
            ReadPlan::Own(buffer, missing) => {
                buffer.extend_from_slice(&bytes.split_to(missing.min(bytes.len())));
                endpoint.step(now, Input::Filled { socket }, fx);
            }
            ReadPlan::Shared => {
                let mut partial = endpoint.take_partial(socket);
                let next = bytes.split_to(READ_LEN.min(bytes.len()));
                let bytes = match partial.is_empty() {
                    true => next,
                    false => {
                        partial.extend_from_slice(&next);
                        partial
                    }
                };
                endpoint.step(now, Input::Received { socket, bytes }, fx);
            }
        }
    }
}
