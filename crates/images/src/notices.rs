//! Notifications between clients of an image, on its header (`librbd/WatchNotifyTypes.cc`).

use bytes::Bytes;
use codec::{DecodeError, Encode, Features, Reader, Writer};
use wire::types::Name;
use wire::types::cls::rbd::SnapshotNamespace;

/// A client of the image: its number at the monitors, and its watch of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientId {
    pub gid: u64,
    pub handle: u64,
}

/// A request to the owner of the exclusive lock that takes its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AsyncRequest {
    pub client: ClientId,
    pub number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    AcquiredLock(ClientId),
    ReleasedLock(ClientId),
    /// A client wants the lock.
    RequestLock,
    HeaderUpdate,
    AsyncProgress {
        request: AsyncRequest,
        offset: u64,
        total: u64,
    },
    AsyncComplete {
        request: AsyncRequest,
        result: i32,
    },
    Flatten(AsyncRequest),
    /// Another request to the lock's owner: a resize, a snapshot and the like.
    Other,
}

impl Notice {
    pub(crate) fn decode(payload: &[u8]) -> Result<Notice, DecodeError> {
        fn client(r: &mut Reader<'_>) -> Result<ClientId, DecodeError> {
            Ok(ClientId { gid: r.u64()?, handle: r.u64()? })
        }
        fn request(r: &mut Reader<'_>) -> Result<AsyncRequest, DecodeError> {
            Ok(AsyncRequest { client: client(r)?, number: r.u64()? })
        }
        // An empty payload is a header update of old clients.
        if payload.is_empty() {
            return Ok(Notice::HeaderUpdate);
        }
        Reader::new(payload).envelope("NotifyMessage", 7, |r, _| {
            Ok(match r.u32()? {
                0 => Notice::AcquiredLock(client(r)?),
                1 => Notice::ReleasedLock(client(r)?),
                2 => Notice::RequestLock,
                3 => Notice::HeaderUpdate,
                4 => Notice::AsyncProgress { request: request(r)?, offset: r.u64()?, total: r.u64()? },
                5 => Notice::AsyncComplete { request: request(r)?, result: r.i32()? },
                6 => Notice::Flatten(request(r)?),
                _ => Notice::Other,
            })
        })
    }
}

impl Encode for Notice {
    fn encode(&self, w: &mut Writer) {
        let client = |w: &mut Writer, client: &ClientId| {
            w.u64(client.gid);
            w.u64(client.handle);
        };
        let request = |w: &mut Writer, request: &AsyncRequest| {
            client(w, &request.client);
            w.u64(request.number);
        };
        w.envelope(2, 1, |w| match self {
            Notice::AcquiredLock(id) => {
                w.u32(0);
                client(w, id);
            }
            Notice::ReleasedLock(id) => {
                w.u32(1);
                client(w, id);
            }
            Notice::RequestLock => w.u32(2),
            Notice::HeaderUpdate | Notice::Other => w.u32(3),
            Notice::AsyncProgress { request: id, offset, total } => {
                w.u32(4);
                request(w, id);
                w.u64(*offset);
                w.u64(*total);
            }
            Notice::AsyncComplete { request: id, result } => {
                w.u32(5);
                request(w, id);
                w.i32(*result);
            }
            Notice::Flatten(id) => {
                w.u32(6);
                request(w, id);
            }
        });
    }
}

impl Notice {
    pub(crate) fn payload(&self) -> Bytes {
        self.to_vec(Features::ALL).into()
    }
}

/// Work that the owner of the lock is asked to do.
pub(crate) enum OwnerRequest<'a> {
    Flatten,
    SnapCreate {
        name: &'a Name,
        namespace: &'a SnapshotNamespace,
    },
    SnapRemove {
        name: &'a Name,
        namespace: &'a SnapshotNamespace,
    },
    /// Every object of an image that others migrate is copied from the source.
    Migrate,
}

impl OwnerRequest<'_> {
    /// The version of which the fields are: each message names one.
    const VERSION: u8 = 7;

    pub(crate) fn payload(&self, request: AsyncRequest) -> Bytes {
        let AsyncRequest { client: ClientId { gid, handle }, number } = request;
        let mut w = Writer::new(Features::ALL);
        w.envelope(OwnerRequest::VERSION, 1, |w| {
            w.u32(match self {
                OwnerRequest::Flatten => 6,
                OwnerRequest::SnapCreate { .. } => 8,
                OwnerRequest::SnapRemove { .. } => 9,
                OwnerRequest::Migrate => 16,
            });
            if let OwnerRequest::SnapCreate { name, namespace }
            | OwnerRequest::SnapRemove { name, namespace } = self
            {
                w.put(*name);
                w.put(*namespace);
            }
            [gid, handle, number].into_iter().for_each(|field| w.u64(field));
            if matches!(self, OwnerRequest::SnapCreate { .. }) {
                // No flags: the clients of the image are asked to quiesce.
                w.u64(0);
            }
        });
        w.into_bytes()
    }
}

/// The reply of the lock's owner to a request.
pub(crate) fn response(result: i32) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.envelope(1, 1, |w| w.i32(result));
    w.into_bytes()
}

pub(crate) fn decode_response(bytes: &[u8]) -> Result<i32, DecodeError> {
    Reader::new(bytes).envelope("ResponseMessage", 1, |r, _| r.i32())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_have_their_numbers_on_the_wire() {
        let client = ClientId { gid: 7, handle: 8 };
        let request = AsyncRequest { client, number: 9 };
        let all = [
            Notice::AcquiredLock(client),
            Notice::ReleasedLock(client),
            Notice::RequestLock,
            Notice::HeaderUpdate,
            Notice::AsyncProgress { request, offset: 1, total: 2 },
            Notice::AsyncComplete { request, result: -5 },
            Notice::Flatten(request),
        ];
        for (number, notice) in all.iter().enumerate() {
            let payload = notice.payload();
            assert_eq!(payload[6..10], (number as u32).to_le_bytes(), "{notice:?}");
            assert_eq!(Notice::decode(&payload), Ok(*notice));
        }
        let flatten = all[6].payload();
        assert_eq!(flatten[..6], [2, 1, 28, 0, 0, 0]);
        assert!(Notice::decode(&flatten[..20]).is_err(), "a cut payload is damage");
        assert_eq!(Notice::decode(b""), Ok(Notice::HeaderUpdate));
    }

    #[test]
    fn requests_to_the_owner_carry_their_fields() {
        let request = AsyncRequest { client: ClientId { gid: 7, handle: 8 }, number: 9 };
        let numbers = [7u64, 8, 9].map(u64::to_le_bytes).concat();
        let (name, namespace) = (&Name::from("s"), &SnapshotNamespace::User);
        let named = [&[1, 0, 0, 0, b's'][..], &[1, 1, 4, 0, 0, 0, 0, 0, 0, 0]].concat();
        let cases = [
            (OwnerRequest::Flatten, 6u8, numbers.clone()),
            (
                OwnerRequest::SnapCreate { name, namespace },
                8,
                [&named[..], &numbers, &0u64.to_le_bytes()].concat(),
            ),
            (OwnerRequest::SnapRemove { name, namespace }, 9, [&named[..], &numbers].concat()),
            (OwnerRequest::Migrate, 16, numbers.clone()),
        ];
        for (asked, number, fields) in cases {
            let head = [7, 1, fields.len() as u8 + 4, 0, 0, 0, number, 0, 0, 0];
            assert_eq!(asked.payload(request)[..], [&head[..], &fields].concat());
        }
        let flatten = OwnerRequest::Flatten.payload(request);
        assert_eq!(Notice::decode(&flatten), Ok(Notice::Flatten(request)));
    }

    #[test]
    fn response_carries_its_result() {
        assert_eq!(response(-16)[..], [1, 1, 4, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff]);
        assert_eq!(decode_response(&response(-16)), Ok(-16));
        assert!(decode_response(b"").is_err());
    }
}
