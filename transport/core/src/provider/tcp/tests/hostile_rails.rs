// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of rails that are not allowed, and of peers that violate the protocol over a rail.

use std::io::Write;
use std::net::IpAddr;

use session::Ack;

use super::super::links::TcpLimits;
use super::super::packet::{PIECE_BYTES, TcpPacketKind, TcpReadRequest, TcpWorkReply};
use super::super::proof::{self, HandshakeContext, HandshakeVerdict, Hello};
use super::super::system::System;
use super::super::{PeerIdentities, StreamKey, Tcp};
use super::hostile::{
    HostilePeer, KEY, complaint, connect_to, greet, hello, is_ended, keys, pull, until,
};
use crate::{Completion, Head, Peer, RemoteKey, WorkOutcome};

/// Rank 2 of three, with three interfaces, each of which has one address. Rank 2 makes no rails itself.
fn host() -> Tcp<System> {
    let addresses: [IpAddr; 3] =
        ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|it| it.parse().unwrap());
    let (system, port, found) = System::open(&addresses, None).unwrap();
    let limits = TcpLimits {
        lines: 8,
        silence_ns: 1_000_000_000,
        rails: 2,
        shared_bytes: 1,
    };
    let known = (PeerIdentities::new(2, 3, 0), StreamKey::new(KEY));
    let mut tcp = Tcp {
        port,
        ..Tcp::new(system, known, 3, limits)
    };
    tcp.links.interfaces = found.into_iter().zip(0..).collect();
    tcp
}

fn hello_of_rail(tcp: &Tcp<System>, rank: u32) -> Hello {
    Hello {
        is_rail: true,
        ..hello(tcp, rank, 0)
    }
}

/// Connects and requests to be a rail of this rank, with the job key `key`; returns the verdict, if the key is right.
fn request_rail(
    tcp: &mut Tcp<System>,
    rank: u32,
    at: &str,
    key: u128,
) -> (HostilePeer, Option<HandshakeVerdict>) {
    let mut stream = connect_to(tcp, at);
    let hello = hello_of_rail(tcp, rank);
    let (verdict, nonce) = greet(tcp, &mut stream, hello);
    assert_eq!(verdict, HandshakeVerdict::Joined);
    let keys = keys(key);
    let context = HandshakeContext { keys, hello, nonce };
    let proof = context.proof(Ack::default(), 2);
    stream.write_all(&proof).unwrap();
    let verdict = (key == KEY).then(|| {
        let mut reply = [0; proof::WELCOME_BYTES];
        pull(tcp, &mut stream, &mut reply);
        context.of_welcome(&reply).unwrap().verdict
    });
    (HostilePeer { stream, number: 0 }, verdict)
}

fn rails(tcp: &Tcp<System>, peer: u32) -> usize {
    let side = tcp.links.find(peer);
    side.map_or(0, |side| side.rails.all.len())
}

/// Joins as rank 0; returns the line (the first connection) and a rail (a further one).
fn joined(tcp: &mut Tcp<System>, attempt: u32) -> (HostilePeer, HostilePeer) {
    let first = HostilePeer::join(tcp, 0, attempt);
    let (rail, verdict) = request_rail(tcp, 0, "127.0.0.2", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::Joined));
    assert_eq!(rails(tcp, 0), 1);
    (first, rail)
}

#[test]
fn rejected_rails_are_closed_and_warned_of_once() {
    let mut tcp = host();
    // Without a line: once, a second time, and with a wrong key.
    for (key, expected) in [
        (
            KEY,
            "is rank 0, which requests another connection without a first one",
        ),
        (KEY, ""),
        (KEY + 1, "did not prove that it has the key"),
    ] {
        let (mut hostile, verdict) = request_rail(&mut tcp, 0, "127.0.0.2", key);
        assert!(verdict.is_none_or(|verdict| verdict == HandshakeVerdict::NoRail));
        is_ended(&mut tcp, &mut hostile.stream);
        let message = complaint(&mut tcp);
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
    }
    assert_eq!(tcp.links.counts.refused.get(), 3);
    // A rail over the interface of the line is rejected without a warning: a peer cannot find out which addresses of
    // this host are of one interface.
    let _first = HostilePeer::join(&mut tcp, 0, 1);
    let (_, verdict) = request_rail(&mut tcp, 0, "127.0.0.1", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::NoRail));
    let (_rail, verdict) = request_rail(&mut tcp, 0, "127.0.0.2", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::Joined));
    assert_eq!((rails(&tcp, 0), complaint(&mut tcp)), (1, String::new()));
}

#[test]
fn rails_beyond_the_limit_are_rejected() {
    let mut tcp = host();
    let (_first, _rail) = joined(&mut tcp, 1);
    let (mut hostile, verdict) = request_rail(&mut tcp, 0, "127.0.0.3", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::NoRail));
    is_ended(&mut tcp, &mut hostile.stream);
    let message = complaint(&mut tcp);
    assert!(
        message.contains("beside as many as there may be"),
        "{message}"
    );
    assert_eq!(rails(&tcp, 0), 1);
}

#[test]
fn a_later_rail_over_an_interface_replaces_the_earlier() {
    let mut tcp = host();
    let (_first, mut old) = joined(&mut tcp, 1);
    let (_new, verdict) = request_rail(&mut tcp, 0, "127.0.0.2", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::Joined));
    is_ended(&mut tcp, &mut old.stream);
    assert_eq!((rails(&tcp, 0), complaint(&mut tcp)), (1, String::new()));
}

#[test]
fn a_protocol_violation_on_a_rail_closes_it_and_later_loses_the_peer() {
    let key = RemoteKey {
        address: 4096,
        bytes: 1 << 30,
        check: 3,
    };
    let read = move |bytes: usize| TcpReadRequest {
        id: 1,
        offset: 0,
        bytes: bytes as u64,
        key,
    };
    let answer = TcpWorkReply {
        id: 1,
        outcome: WorkOutcome::BadKey,
        old: 0,
    };
    let head = Head {
        kind: 7,
        len: 0,
        flags: 3,
        word: 9,
    };
    let attacks: [&dyn Fn(&mut HostilePeer); 6] = [
        &|hostile| _ = hostile.stream.write_all(&[0xff; 64]),
        &|hostile| hostile.send(TcpPacketKind::Data, |maker| maker.data(77, 0), &[1; 50]),
        &|hostile| hostile.send(TcpPacketKind::Answer, |maker| maker.answer(answer), &[]),
        &|hostile| hostile.send(TcpPacketKind::Frame, |it| it.frame(head, b"hello"), &[]),
        &|hostile| {
            let read = read(PIECE_BYTES + 1);
            hostile.send(TcpPacketKind::Read, |maker| maker.read(&read), &[]);
        },
        &|hostile| {
            hostile.number = 1;
            let read = read(1);
            hostile.send(TcpPacketKind::Read, |maker| maker.read(&read), &[]);
        },
    ];
    for attacks in attacks.chunks(3) {
        let mut tcp = host();
        for (attempt, attack) in (1..).zip(attacks.iter().chain(&attacks[..1])) {
            let (_first, mut rail) = joined(&mut tcp, attempt);
            attack(&mut rail);
            if attempt < 4 {
                is_ended(&mut tcp, &mut rail.stream);
                assert!(tcp.links.has_line(0) && rails(&tcp, 0) == 0);
            } else {
                until(&mut tcp, |_, completions| {
                    matches!(
                        completions.take(0),
                        Some(Completion::Lost { peer: Peer(0) })
                    )
                });
            }
        }
        assert!(tcp.why_lost(Peer(0)).unwrap().contains("makes no sense"));
        assert!(complaint(&mut tcp).contains("what rank 0 sends"));
    }
}

#[test]
fn a_rail_reads_only_exported_memory() {
    let mut tcp = host();
    let memory = vec![5u8; 4096];
    let address = memory.as_ptr().expose_provenance() as u64;
    let key = tcp.export(Peer(0), address, 4096);
    let foreign = tcp.export(Peer(1), address, 4096);
    let (_first, mut rail) = joined(&mut tcp, 1);
    let bad = RemoteKey {
        check: key.check ^ 1,
        ..key
    };
    for (key, offset) in [(bad, 0), (foreign, 0), (key, 4090), (key, u64::MAX - 3)] {
        let read = TcpReadRequest {
            id: 3,
            offset,
            bytes: 8,
            key,
        };
        rail.number = 0;
        rail.send(TcpPacketKind::Read, |maker| maker.read(&read), &[]);
        assert_eq!(rail.answer(&mut tcp), 1, "{read:?}");
    }
    let read = TcpReadRequest {
        id: 4,
        offset: 100,
        bytes: 8,
        key,
    };
    rail.number = 0;
    rail.send(TcpPacketKind::Read, |maker| maker.read(&read), &[]);
    let mut reply = [0; 40];
    pull(&mut tcp, &mut rail.stream, &mut reply);
    assert_eq!(
        (reply[4], reply[16], &reply[32..]),
        (TcpPacketKind::Data as u8, 4, &[5; 8][..])
    );
    assert!(!tcp.moves.is_any_under_way());
}

/// A peer that has more requests in progress over a rail than are allowed loses the rail.
#[test]
fn requests_queued_over_a_rail_are_bounded() {
    let mut tcp = host();
    let memory = vec![5u8; 1 << 19].leak();
    let address = memory.as_ptr().expose_provenance() as u64;
    let key = tcp.export(Peer(0), address, 1 << 19);
    let (_first, mut rail) = joined(&mut tcp, 1);
    let read = TcpReadRequest {
        id: 4,
        offset: 0,
        bytes: 1 << 19,
        key,
    };
    for _ in 0..200 {
        rail.number = 0;
        rail.send(TcpPacketKind::Read, |maker| maker.read(&read), &[]);
    }
    until(&mut tcp, |tcp, _| rails(tcp, 0) == 0);
    assert!(!tcp.moves.is_any_under_way());
    assert!(complaint(&mut tcp).contains("not requested"));
}
