// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with processes of another version, whose messages may have other lengths.

use std::net::SocketAddr;

use super::super::sockets::{Sock, Sockets};
use super::super::{StreamsConfig, address, proof};
use super::world::World;
use crate::Peer;

/// A message of another version: a message of this version, with another version number and length.
fn with_version(ours: &[u8], version: u8, bytes: usize) -> Vec<u8> {
    let mut message = ours.to_vec();
    message[8..10].copy_from_slice(&[version, 0]);
    message.resize(bytes, 0);
    message
}

/// Sends all the bytes on a raw socket.
fn send_raw(world: &mut World, from: usize, sock: Sock, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() {
        world.net.advance();
        let sockets = &mut world.all[from].links.sockets;
        sent += sockets.send(sock, &bytes[sent..], None, false).unwrap();
    }
}

/// The bytes that arrive, until the end of the connection.
fn receive_raw(world: &mut World, at: usize, sock: Sock) -> Vec<u8> {
    let mut received = Vec::new();
    for _ in 0..10_000 {
        world.turn();
        let mut place = [0; 100];
        let sockets = &mut world.all[at].links.sockets;
        match sockets.receive(sock, None, &mut place) {
            Ok(got) => received.extend_from_slice(&place[..got]),
            Err(_) => return received,
        }
    }
    panic!("it does not end, after {received:?}");
}

#[test]
fn an_incoming_connection_of_another_version_is_answered_and_warned_of_once() {
    let mut world = World::new(StreamsConfig::of(0, 2), 8);
    let ours = proof::riddle(proof::HandshakeVerdict::NotMe, [0; 2]);
    let hello = [7; proof::HELLO_BYTES];
    let magic = &ours[..8];
    // These messages are shorter than a HELLO of this version, as long as one, and longer.
    for bytes in [44, proof::HELLO_BYTES, 60] {
        let to = SocketAddr::from(([10, 0, 0, 0], 1));
        let sock = world.all[1].links.sockets.connect(to).unwrap();
        let hello = with_version(&[magic, &hello[8..]].concat(), 1, bytes);
        send_raw(&mut world, 1, sock, &hello);
        assert_eq!(receive_raw(&mut world, 1, sock), ours, "{bytes}");
        world.all[1].links.sockets.close(sock);
    }
    let [(rank, message)] = &world.complaints[..] else {
        panic!("{:?}", world.complaints);
    };
    assert_eq!(*rank, 0);
    let ours = format!("this process version {}", proof::VERSION);
    for part in ["10.9.9.9", "version 1 ", &*ours, "one installation"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn connecting_to_another_version_warns_once_and_at_once() {
    for bytes in [12, proof::RIDDLE_BYTES, 40] {
        let mut world = World::new(StreamsConfig::of(0, 2), 8);
        world.busy = vec![1];
        let identity = world.all[1].links.identity;
        let place = ["10.0.0.1".parse().unwrap()];
        let record = address::to_record(&place, 1, identity, "elsewhere");
        world.all[0].set_peer_address(Peer(1), Some(&record));
        world.send(0, 1);
        let riddle = proof::riddle(proof::HandshakeVerdict::NotMe, [0; 2]);
        let riddle = with_version(&riddle, 9, bytes);
        for _ in 0..3 {
            let sock = loop {
                world.turn();
                if let Some((sock, _)) = world.all[1].links.sockets.accept().unwrap() {
                    break sock;
                }
            };
            send_raw(&mut world, 1, sock, &riddle);
            world.all[1].links.sockets.close(sock);
        }
        (0..1000).for_each(|_| world.turn());
        let [(rank, message)] = &world.complaints[..] else {
            panic!("{bytes}: {:?}", world.complaints);
        };
        assert_eq!(*rank, 0);
        let parts = ["rank 1 on host elsewhere", "version 9 ", "one installation"];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}
