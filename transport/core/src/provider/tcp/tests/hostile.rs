// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of connections of foreign processes, and of a faulty peer: nothing outside exported memory is read or written,
//! no state grows without bound, and other peers are not affected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use session::Ack;

use super::super::packet::{
    TcpPacketBuilder, TcpPacketHeader, TcpPacketKind, TcpReadRequest, TcpWriteRequest,
};
use super::super::proof::{self, HandshakeContext, HandshakeVerdict, Hello, PairKey};
use super::super::system::System;
use super::super::{StreamKey, Tcp, TcpTerms};
use crate::provider::verbs::NetLimits;
use crate::{Atomic, Completion, Completions, Head, Peer, RemoteKey, WorkOutcome};

pub(super) const KEY: u128 = 0x1357 << 90;
/// The number of connections that the faulty peer offers in its PROOF.
const RAILS: u8 = 2;
const HEAD: Head = Head {
    kind: 7,
    len: 0,
    flags: 3,
    word: 9,
};

/// Rank 0 of three, which listens only at the loopback interface.
pub(super) fn host() -> Tcp<System> {
    let terms = TcpTerms {
        interfaces: "lo".to_owned(),
        ..TcpTerms::default()
    };
    let limits = NetLimits {
        silence_ns: 1_000_000_000,
        ..NetLimits::default()
    };
    let key = Some(StreamKey::new(KEY));
    Tcp::open_best(Peer(0), 3, key, (2, limits), &terms).unwrap()
}

/// Polls the host until `holds` returns true.
pub(super) fn until(
    tcp: &mut Tcp<System>,
    mut holds: impl FnMut(&mut Tcp<System>, &mut Completions) -> bool,
) {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let mut completions = Completions::new();
        tcp.poll(&mut completions);
        if holds(tcp, &mut completions) {
            return;
        }
        assert!(Instant::now() < limit, "it does not come");
    }
}

pub(super) fn connect(tcp: &Tcp<System>) -> TcpStream {
    connect_to(tcp, "127.0.0.1")
}

pub(super) fn connect_to(tcp: &Tcp<System>, address: &str) -> TcpStream {
    let stream = TcpStream::connect((address, tcp.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
}

/// Waits until the host has ended the connection.
pub(super) fn is_ended(tcp: &mut Tcp<System>, stream: &mut TcpStream) {
    stream.set_nonblocking(true).unwrap();
    until(tcp, |_, _| match stream.read(&mut [0; 100]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    });
}

pub(super) fn complaint(tcp: &mut Tcp<System>) -> String {
    tcp.next_warning().unwrap_or_default()
}

pub(super) fn hello(tcp: &Tcp<System>, from: u32, attempt: u32) -> Hello {
    Hello {
        from,
        to: tcp.links.identity,
        attempt,
        welcomed: 0,
        is_rail: false,
        nonce: [1, 2],
    }
}

/// Sends a HELLO; returns the host's reply.
pub(super) fn greet(
    tcp: &mut Tcp<System>,
    stream: &mut TcpStream,
    hello: Hello,
) -> (HandshakeVerdict, [u64; 2]) {
    stream.write_all(&hello.to_bytes()).unwrap();
    let mut reply = [0; proof::RIDDLE_BYTES];
    pull(tcp, stream, &mut reply);
    proof::of_riddle(&reply).unwrap()
}

pub(super) fn keys(key: u128) -> PairKey {
    let key = StreamKey::new(key);
    PairKey::new(key, key)
}

pub(super) fn pull(tcp: &mut Tcp<System>, stream: &mut TcpStream, place: &mut [u8]) {
    stream.set_nonblocking(true).unwrap();
    let mut got = 0;
    until(tcp, |_, _| {
        if let Ok(more) = stream.read(&mut place[got..]) {
            got += more;
        }
        got == place.len()
    });
    stream.set_nonblocking(false).unwrap();
}

/// A peer of the job that has joined.
pub(super) struct HostilePeer {
    pub(super) stream: TcpStream,
    /// Number of its next packet.
    pub(super) number: u32,
}

impl HostilePeer {
    pub(super) fn join(tcp: &mut Tcp<System>, rank: u32, attempt: u32) -> Self {
        let mut stream = connect(tcp);
        let hello = hello(tcp, rank, attempt);
        let (_, nonce) = greet(tcp, &mut stream, hello);
        let keys = keys(KEY);
        let context = HandshakeContext { keys, hello, nonce };
        let next = tcp.links.of(rank).session.ack().next;
        let ack = Ack {
            next: 1,
            beyond: 0,
            returned: 0,
        };
        stream.write_all(&context.proof(ack, RAILS)).unwrap();
        let mut reply = [0; proof::WELCOME_BYTES];
        pull(tcp, &mut stream, &mut reply);
        assert_eq!(
            context.of_welcome(&reply).unwrap().verdict,
            HandshakeVerdict::Joined
        );
        Self {
            stream,
            number: next,
        }
    }

    /// Sends a packet that ends with `data`.
    pub(super) fn send(
        &mut self,
        kind: TcpPacketKind,
        make: impl FnOnce(&mut TcpPacketBuilder<'_>),
        data: &[u8],
    ) {
        let mut bytes = Vec::new();
        make(&mut TcpPacketBuilder::new(&mut bytes));
        bytes.extend_from_slice(data);
        let header = TcpPacketHeader {
            bytes: bytes.len() - 16,
            kind,
            requests_ack: false,
            lacks_core: false,
            ack: Ack {
                next: 1,
                beyond: 0,
                returned: 0,
            },
            number: self.number,
        };
        header.write_to(&mut bytes[..16]);
        self.number += 1;
        self.stream.write_all(&bytes).unwrap();
    }

    /// The outcome in the host's next ANSWER, as on the wire.
    pub(super) fn answer(&mut self, tcp: &mut Tcp<System>) -> u8 {
        let mut reply = [0; 32];
        pull(tcp, &mut self.stream, &mut reply);
        assert_eq!(reply[4], TcpPacketKind::Answer as u8, "{reply:?}");
        reply[20]
    }
}

#[test]
fn garbage_connections_are_rejected_with_a_warning_and_peers_accepted() {
    let mut tcp = host();
    let mut silent = connect(&tcp);
    for (garbage, expected) in [
        (
            &b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: nothing\r\n\r\n"[..],
            "is no process of an MPI job",
        ),
        (&[0xff; 4096][..], ""),
    ] {
        let mut stream = connect(&tcp);
        _ = stream.write_all(garbage);
        is_ended(&mut tcp, &mut stream);
        let message = complaint(&mut tcp);
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
    }
    // A process of another version gets a RIDDLE of this version before its connection is closed.
    let mut old = connect(&tcp);
    let mut bytes = hello(&tcp, 1, 1).to_bytes();
    bytes[8] = 9;
    old.write_all(&bytes).unwrap();
    is_ended(&mut tcp, &mut old);
    assert!(complaint(&mut tcp).contains("version 9"));
    // Ranks that do not exist, and the host's own.
    for rank in [0, 3, u32::MAX] {
        let mut stream = connect(&tcp);
        let hello = hello(&tcp, rank, 1);
        let (verdict, _) = greet(&mut tcp, &mut stream, hello);
        assert_eq!(verdict, HandshakeVerdict::NotMe, "{rank}");
        is_ended(&mut tcp, &mut stream);
    }
    // A process without the key.
    let mut wrong = connect(&tcp);
    let hello = hello(&tcp, 1, 1);
    let (_, nonce) = greet(&mut tcp, &mut wrong, hello);
    let keys = keys(KEY + 1);
    let proof = HandshakeContext { keys, hello, nonce }.proof(Ack::default(), 0);
    wrong.write_all(&proof).unwrap();
    is_ended(&mut tcp, &mut wrong);
    assert!(complaint(&mut tcp).contains("did not prove that it has the key"));
    assert!(tcp.links.find(1).is_none_or(|side| side.line.is_none()));
    // A peer with the key is served nevertheless, beside a connection that sends nothing.
    let mut good = HostilePeer::join(&mut tcp, 1, 1);
    good.send(
        TcpPacketKind::Frame,
        |maker| maker.frame(HEAD, b"hello"),
        &[],
    );
    until(&mut tcp, |_, completions| {
        let arrived = completions.take(0);
        arrived.is_some_and(|it| it.arrived().is_some_and(|it| it.head == HEAD))
    });
    silent.write_all(b"r").unwrap();
}

// tidy: long (one altered key after the other)
#[test]
fn a_peer_accesses_only_memory_exported_to_it() {
    let mut tcp = host();
    let mut memory = vec![5u8; 4096];
    let address = memory.as_mut_ptr().expose_provenance() as u64;
    let key = tcp.export(Peer(1), address + 1024, 1024);
    let foreign = tcp.export(Peer(2), address + 1024, 1024);
    let withdrawn = tcp.export(Peer(1), address, 4096);
    tcp.withdraw(Peer(1), withdrawn);
    let mut hostile = HostilePeer::join(&mut tcp, 1, 1);
    let bad = [
        (key, 1024, 1),
        (key, 1020, 8),
        (key, u64::MAX, 8),
        (key, u64::MAX - 3, 8),
        (foreign, 0, 8),
        (withdrawn, 0, 8),
        (RemoteKey { address, ..key }, 0, 8),
        (RemoteKey { bytes: 4096, ..key }, 1024, 8),
        (
            RemoteKey {
                check: key.check ^ 1,
                ..key
            },
            0,
            8,
        ),
        (RemoteKey::default(), 0, 8),
    ];
    for (key, offset, bytes) in bad {
        let id = 3;
        let read = TcpReadRequest {
            id,
            offset,
            bytes,
            key,
        };
        hostile.send(TcpPacketKind::Read, |maker| maker.read(&read), &[]);
        assert_eq!(hostile.answer(&mut tcp), 1, "{read:?}");
        let immediate = Some(1);
        let write = TcpWriteRequest {
            id,
            is_last: true,
            immediate,
            offset,
            bytes,
            at: 0,
            key,
        };
        let data = vec![9; usize::try_from(bytes).unwrap()];
        hostile.send(TcpPacketKind::Write, |maker| maker.write(&write), &data);
        assert_eq!(hostile.answer(&mut tcp), 1, "{write:?}");
        let atomic = Atomic::FetchAdd { add: 1 };
        let change = super::super::packet::TcpAtomicRequest {
            id,
            atomic,
            offset,
            key,
        };
        hostile.send(TcpPacketKind::Atomic, |maker| maker.atomic(&change), &[]);
        assert_eq!(hostile.answer(&mut tcp), 1, "{change:?}");
    }
    assert!(memory.iter().all(|byte| *byte == 5), "memory was changed");
    // Exported memory is accessible.
    let write = TcpWriteRequest {
        id: 4,
        is_last: true,
        immediate: None,
        offset: 8,
        bytes: 8,
        at: 0,
        key,
    };
    hostile.send(TcpPacketKind::Write, |maker| maker.write(&write), &[9; 8]);
    assert_eq!(hostile.answer(&mut tcp), 0);
    assert_eq!(memory[1024 + 8..][..8], [9; 8]);
}

#[test]
fn a_peer_that_violates_the_protocol_is_lost_after_some_attempts() {
    type Attack = fn(&mut HostilePeer);
    let attacks: [Attack; 4] = [
        // Invalid lengths.
        |hostile| _ = hostile.stream.write_all(&[0xff; 64]),
        // A packet out of order.
        |hostile| {
            hostile.number += 5;
            hostile.send(TcpPacketKind::Frame, |maker| maker.frame(HEAD, &[]), &[]);
        },
        // Data of a read that was not posted, and an ANSWER to a work request that was not posted.
        |hostile| hostile.send(TcpPacketKind::Data, |maker| maker.data(77, 0), &[1; 50]),
        |hostile| {
            let answer = super::super::packet::TcpWorkReply {
                id: 1,
                outcome: WorkOutcome::Done,
                old: 0,
            };
            hostile.send(TcpPacketKind::Answer, |maker| maker.answer(answer), &[]);
        },
    ];
    let mut tcp = host();
    for (attempt, attack) in (1..).zip(attacks) {
        let mut hostile = HostilePeer::join(&mut tcp, 1, attempt);
        attack(&mut hostile);
        if attempt < 4 {
            is_ended(&mut tcp, &mut hostile.stream);
        } else {
            until(&mut tcp, |_, completions| {
                matches!(
                    completions.take(0),
                    Some(Completion::Lost { peer: Peer(1) })
                )
            });
        }
    }
    assert!(tcp.why_lost(Peer(1)).unwrap().contains("makes no sense"));
    assert!(complaint(&mut tcp).contains("what rank 1 sends"));
    // Other peers are not affected.
    _ = HostilePeer::join(&mut tcp, 2, 1);
}

#[test]
fn a_later_connection_of_a_peer_replaces_the_earlier() {
    let mut tcp = host();
    let mut first = HostilePeer::join(&mut tcp, 1, 1);
    let mut second = HostilePeer::join(&mut tcp, 1, 2);
    is_ended(&mut tcp, &mut first.stream);
    second.send(TcpPacketKind::Frame, |maker| maker.frame(HEAD, b"x"), &[]);
    until(&mut tcp, |_, completions| !completions.is_empty());
    // A late earlier attempt changes nothing.
    let mut late = connect(&tcp);
    let hello = hello(&tcp, 1, 1);
    let (_, nonce) = greet(&mut tcp, &mut late, hello);
    let keys = keys(KEY);
    let context = HandshakeContext { keys, hello, nonce };
    let ack = Ack {
        next: 1,
        ..Ack::default()
    };
    late.write_all(&context.proof(ack, 0)).unwrap();
    let mut reply = [0; proof::WELCOME_BYTES];
    pull(&mut tcp, &mut late, &mut reply);
    assert_eq!(
        context.of_welcome(&reply).unwrap().verdict,
        HandshakeVerdict::Old
    );
}
