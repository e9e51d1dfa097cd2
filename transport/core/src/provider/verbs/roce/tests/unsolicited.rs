// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of unsolicited datagrams at the socket.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use roce::Psn;
use roce::format::{Bth, DEFAULT_PARTITION, Headers, ImmDt, NetworkHeaders, Opcode, Reth};
use roce::icrc::Icrc;

use super::super::super::port::{CqKind, Receives, VerbsPort, WorkStatus};
use super::side::{Side, end, joined, until_done};
use crate::provider::sim::SimRandom;

fn socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn place(side: &Side) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, side.port.facts().lid).into()
}

/// A packet of a peer, as sent from this socket.
fn packet(headers: &Headers, payload: &[u8], from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut bytes = headers.as_bytes().to_vec();
    bytes.extend(payload);
    let network = NetworkHeaders::assumed(from, to, bytes.len() as u16).unwrap();
    let icrc = Icrc::new(&network, &bytes).finish();
    bytes.extend(icrc);
    bytes
}

#[test]
fn garbage_datagrams_are_ignored() {
    let (mut sides, [here, _]) = joined();
    let (socket, to) = (socket(), place(&sides[1]));
    let mut random = SimRandom::new(5);
    for round in 0..500u64 {
        let bytes = random.below(if round % 50 == 0 { 9000 } else { 80 });
        let garbage: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
        // Datagrams longer than the interface's MTU cannot be sent.
        _ = socket.send_to(&garbage, to);
        sides[1].port.turn();
    }
    assert_eq!(sides[1].done(CqKind::Receives), []);
    assert_eq!(sides[1].port.next_event(), None);
    sides[1].give(Receives::Shared, 0, 1);
    assert!(sides[0].send(here, 1, b"hello"));
    let came = until_done(&mut sides, 1, CqKind::Receives);
    assert_eq!((came.len(), came[0].status), (1, WorkStatus::Success));
    assert_eq!(end(&mut sides, 0), (1, WorkStatus::Success));
}

#[test]
fn packets_with_wrong_numbers_partition_or_order_are_dropped() {
    let (mut sides, [_, there]) = joined();
    let (socket, to) = (socket(), place(&sides[1]));
    let from = socket.local_addr().unwrap();
    sides[1].give(Receives::Shared, 0, 2);
    let send = Opcode::parse(4).unwrap();
    let first = Psn::new(100);
    let bth = |number, psn| Bth::new(send, DEFAULT_PARTITION, number, psn).carrying(4);
    let right = bth(there.number, first);
    let wrong_partition = Bth {
        partition: 0x8001,
        ..right
    };
    let broken = {
        let mut bytes = packet(&Headers::new(&right), b"evil", from, to);
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    let of = |bth: &Bth| packet(&Headers::new(bth), b"evil", from, to);
    for bytes in [
        of(&bth(there.number ^ 1 << 20, first)),
        of(&bth(there.number ^ 1, first)),
        of(&bth(0, first)),
        of(&bth(there.number, Psn::new(5_000_000))),
        of(&wrong_partition),
        broken,
    ] {
        socket.send_to(&bytes, to).unwrap();
        sides[1].port.turn();
        assert_eq!(sides[1].done(CqKind::Receives), []);
        assert_eq!(sides[1].port.next_event(), None);
    }
}

#[test]
fn a_guessed_key_writes_nothing_and_breaks_the_queue_pair() {
    // An attacker who has all numbers of a queue pair can break it, as on every fabric, but cannot access memory
    // without a key.
    let (mut sides, [_, there]) = joined();
    let (socket, to) = (socket(), place(&sides[1]));
    let from = socket.local_addr().unwrap();
    let write = Opcode::parse(0x0b).unwrap();
    let bth = Bth::new(write, DEFAULT_PARTITION, there.number, Psn::new(100)).carrying(8);
    let reth = Reth {
        address: sides[1].address(0),
        key: sides[1].region.remote_key ^ 1 << 16,
        bytes: 8,
    };
    let headers = Headers::new(&bth)
        .reth(&reth)
        .immediate(&ImmDt { data: [0; 4] });
    socket
        .send_to(&packet(&headers, &[7; 8], from, to), to)
        .unwrap();
    sides[1].port.turn();
    assert_eq!(sides[1].block.get(0, 8), [0; 8]);
    let headers = Headers::new(&bth).reth(&reth);
    socket
        .send_to(&packet(&headers, &[7; 8], from, to), to)
        .unwrap();
    sides[1].port.turn();
    assert_eq!(sides[1].block.get(0, 8), [0; 8]);
    assert!(sides[1].port.next_event().is_some());
}
