//! Stock clients get into a monitor of ours that knows how to let them in and nothing more.

use super::Node;
use super::release::{Release, Running, releases_or_skip};
use machine::net::*;
use messenger::ModeLists;
use messenger::testing::Monitor;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};
use wire::cephx::{KeyKind, METHOD_CEPHX, METHOD_NONE};
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::types::{EntityKind, EntityName};

/// The first message that a client sends once it is in (`CEPH_MSG_MON_SUBSCRIBE`, `CEPH_MSG_MON_GET_MAP`).
const FIRST: [u16; 2] = [15, 5];

fn let_in(releases: &[Release], key_kind: KeyKind, method: u32, mode: u32) {
    for release in releases {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let ours = Node::start(EntityName::new(EntityKind::MON, 0), Some(listener), |c| {
            c.methods = vec![method];
            c.modes = ModeLists::all(&[MODE_SECURE, MODE_CRC]);
        });
        let mut judge = Monitor::new(key_kind);

        let dir = release.dir();
        let keyring = format!("[client.admin]\n\tkey = {}\n", judge.key.to_base64());
        std::fs::write(dir.outside.join("keyring"), keyring).unwrap();
        let auth = if method == METHOD_NONE { "none" } else { "cephx" };
        let mode_name = if mode == MODE_SECURE { "secure" } else { "crc" };
        let settings = ["cluster", "service", "client"].map(|who| format!("auth_{who}_required = {auth}\n"));
        let conf = format!(
            "[global]\nmon_host = [v2:{addr}]\nkeyring = {}\nms_mon_client_mode = {mode_name}\n{}",
            dir.inside.join("keyring").display(),
            settings.concat()
        );
        std::fs::write(dir.outside.join("conf"), conf).unwrap();
        let mut client = release.command("ceph");
        client.arg("-c").arg(dir.inside.join("conf")).args(["--connect-timeout", "10", "status"]);
        let _client = Running(client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());

        let (mut ready, patience) = (false, Instant::now() + Duration::from_secs(20));
        loop {
            assert!(Instant::now() < patience, "{}: nothing came", release.name());
            match ours.next() {
                NetEvent::Auth { conn, request } => {
                    assert_eq!((request.method, request.mode), (method, mode));
                    let reply = judge.judge(conn, *request);
                    ours.effect(NetEffect::AuthReply { conn, reply: reply.into() });
                }
                NetEvent::Ready { peer, .. } => {
                    assert_eq!(peer.identity.name().to_string(), "client.admin");
                    assert_eq!(peer.secure, mode == MODE_SECURE);
                    eprintln!("{}: in, with {:?}", release.name(), peer.features);
                    ready = true;
                }
                NetEvent::Message { message, .. } => {
                    assert!(ready && FIRST.contains(&message.body.kind()), "{:?}", message.body);
                    break;
                }
                other => panic!("{}: {other:?}", release.name()),
            }
        }
    }
}

fn knows_aes256k(release: &Release) -> bool {
    let version = release.run("ceph", &["--version"]);
    ["version 20.", "version 21."].iter().any(|newer| version.contains(newer))
}

#[test]
fn with_an_aes_key_in_crc_mode() {
    let_in(&releases_or_skip!("ceph"), KeyKind::Aes, METHOD_CEPHX, MODE_CRC);
}

#[test]
fn with_an_aes_key_in_secure_mode() {
    let_in(&releases_or_skip!("ceph"), KeyKind::Aes, METHOD_CEPHX, MODE_SECURE);
}

#[test]
fn with_an_aes256k_key_in_both_modes() {
    let mut releases = releases_or_skip!("ceph");
    releases.retain(knows_aes256k);
    if releases.is_empty() {
        skip::skip!("no release that is here has aes256k keys (20.2 has)");
    }
    let_in(&releases, KeyKind::Aes256k, METHOD_CEPHX, MODE_CRC);
    let_in(&releases, KeyKind::Aes256k, METHOD_CEPHX, MODE_SECURE);
}

#[test]
fn without_a_key() {
    let_in(&releases_or_skip!("ceph"), KeyKind::Aes, METHOD_NONE, MODE_CRC);
}
