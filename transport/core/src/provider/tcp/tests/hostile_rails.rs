// SPDX-License-Identifier: MIT OR Apache-2.0
//! Further connections that are not allowed, and peers that violate the protocol over one.

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

/// Rank 2 of three, with three interfaces, at each of which one address leads to it. It makes no rails itself.
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

/// Requests to be a rail of this rank, with the key of this job; returns the verdict.
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

/// A peer, and its rail.
fn joined(tcp: &mut Tcp<System>, attempt: u32) -> (HostilePeer, HostilePeer) {
    let first = HostilePeer::join(tcp, 0, attempt);
    let (rail, verdict) = request_rail(tcp, 0, "127.0.0.2", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::Joined));
    assert_eq!(rails(tcp, 0), 1);
    (first, rail)
}

#[test]
fn who_may_have_no_rail_is_sent_away_and_why_is_told_once() {
    let mut tcp = host();
    // Without a first connection; again, and without the key.
    for (key, expected) in [
        (
            KEY,
            "is rank 0, which wants another connection without a first one",
        ),
        (KEY, ""),
        (KEY + 1, "did not prove to know the key"),
    ] {
        let (mut hostile, verdict) = request_rail(&mut tcp, 0, "127.0.0.2", key);
        assert!(verdict.is_none_or(|verdict| verdict == HandshakeVerdict::NoRail));
        is_ended(&mut tcp, &mut hostile.stream);
        let words = complaint(&mut tcp);
        assert!(words.contains(expected), "{words}");
        assert_eq!(words.is_empty(), expected.is_empty(), "{words}");
    }
    assert_eq!(tcp.links.counts.refused.get(), 3);
    // By the same interface, which the peer cannot detect.
    let _first = HostilePeer::join(&mut tcp, 0, 1);
    let (_, verdict) = request_rail(&mut tcp, 0, "127.0.0.1", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::NoRail));
    let (_rail, verdict) = request_rail(&mut tcp, 0, "127.0.0.2", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::Joined));
    assert_eq!((rails(&tcp, 0), complaint(&mut tcp)), (1, String::new()));
}

#[test]
fn one_rail_too_many_is_sent_away() {
    let mut tcp = host();
    let (_first, _rail) = joined(&mut tcp, 1);
    let (mut hostile, verdict) = request_rail(&mut tcp, 0, "127.0.0.3", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::NoRail));
    is_ended(&mut tcp, &mut hostile.stream);
    let words = complaint(&mut tcp);
    assert!(words.contains("beside as many as there may be"), "{words}");
    assert_eq!(rails(&tcp, 0), 1);
}

#[test]
fn of_two_rails_over_an_interface_the_later_one_counts() {
    let mut tcp = host();
    let (_first, mut old) = joined(&mut tcp, 1);
    let (_new, verdict) = request_rail(&mut tcp, 0, "127.0.0.2", KEY);
    assert_eq!(verdict, Some(HandshakeVerdict::Joined));
    is_ended(&mut tcp, &mut old.stream);
    assert_eq!((rails(&tcp, 0), complaint(&mut tcp)), (1, String::new()));
}

#[test]
fn who_lies_over_a_rail_loses_it_and_is_given_up_after_some_time() {
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
fn over_a_rail_nothing_is_read_but_what_was_exported() {
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

/// A peer that requests more at once than is allowed, of a process that computes, loses the rail.
#[test]
fn no_more_is_kept_of_a_rail_than_honest_peers_ask_for() {
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
    assert!(complaint(&mut tcp).contains("nobody has asked"));
}
