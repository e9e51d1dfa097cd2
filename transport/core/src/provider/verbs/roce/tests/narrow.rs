// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests on networks that have a smaller MTU than the interfaces at their ends, and drop longer packets silently: both
//! ends find a packet size that arrives.

use super::super::{PacketFaults, PacketNet};
use super::world::World;
use crate::{NetLimits, NetTerms};

/// Overhead of a packet beside its payload, from the IPv4 header on, in bytes.
const AROUND: usize = 20 + 8 + 32 + 4;

/// Processes at interfaces with an MTU of 9000 bytes. They request queue pairs after `datagrams_first` datagrams.
fn jumbo(faults: PacketFaults, datagrams_first: u32) -> World {
    let limits = NetLimits {
        datagrams_first,
        terms: NetTerms {
            answer_ms: 1,
            ..NetTerms::DEFAULT
        },
        ..NetLimits::DEFAULT
    };
    World::on(PacketNet::of_links(faults, 9000), limits)
}

impl World {
    /// Time since the beginning, in milliseconds.
    fn now_ms(&self) -> u64 {
        self.net.as_ref().map_or(0, PacketNet::now_ns) / 1_000_000
    }

    /// Queue pairs with a smaller MTU than the ports, counted at their requesters, and all queue pairs.
    fn narrow_and_joined(&self) -> (u64, u64) {
        let stats = self.all.iter().map(|one| one.net_stats());
        stats.fold((0, 0), |(narrow, joined), one| {
            (narrow + one.narrow, joined + one.joined)
        })
    }

    /// Asserts that there were messages about this packet size, and about no other.
    fn assert_reported(&self, found: u32) {
        let expected = format!("those of {found} bytes do");
        assert!(!self.messages.is_empty());
        for messages in &self.messages {
            assert!(messages.contains(&expected), "{messages}");
            assert!(messages.starts_with("packets of 4096 bytes do not arrive"));
        }
    }
}

#[test]
fn packets_shrink_to_the_network_mtu() {
    // MTU of the network, and the largest packet size that fits; 4148 bytes fit a datagram with a payload of 4096
    // bytes, but no packet of a queue pair with this payload.
    for (most_bytes, found) in [
        (AROUND + 4095, 2048),
        (4148, 2048),
        (1500, 1024),
        (576, 512),
        (AROUND + 256, 256),
    ] {
        let faults = PacketFaults {
            most_bytes,
            ..PacketFaults::default()
        };
        let mut world = jumbo(faults, 2);
        world.chat(20);
        for bytes in [5000, 100_000] {
            world.move_data([0, 1], bytes);
            world.move_data([2, 0], bytes);
        }
        world.assert_reported(found);
        let broken = world.all.iter().map(|one| one.net_stats().broken);
        assert_eq!(broken.sum::<u64>(), 0, "{most_bytes}");
        assert!(world.now_ms() < 600, "{most_bytes}: {} ms", world.now_ms());
    }
}

#[test]
fn the_full_network_mtu_is_used_without_reports() {
    let faults = PacketFaults {
        most_bytes: AROUND + 4096,
        ..PacketFaults::default()
    };
    let mut world = jumbo(faults, 2);
    world.chat(20);
    world.move_data([0, 1], 100_000);
    assert_eq!(world.messages, [""; 0]);
    assert!(world.now_ms() < 20, "nothing was sent twice");
}

#[test]
fn one_narrow_direction_shrinks_packets() {
    for narrow_from in [1, 2] {
        let faults = PacketFaults {
            most_bytes: 1500,
            narrow_from,
            ..PacketFaults::default()
        };
        let mut world = jumbo(faults, 0);
        world.chat(10);
        for pair in [[0, 1], [1, 0]] {
            world.move_data(pair, 50_000);
        }
        world.assert_reported(1024);
    }
}

#[test]
fn packets_shrink_despite_loss_duplication_and_delay() {
    for seed in 1..9u64 {
        let permille = u32::try_from(seed * 20).unwrap();
        let mut world = jumbo(
            PacketFaults {
                seed,
                loss: permille,
                twice: permille,
                late: permille,
                most_delay_ns: seed * 50_000,
                most_bytes: 1500,
                ..PacketFaults::default()
            },
            u32::try_from(seed % 3).unwrap(),
        );
        world.chat(12);
        world.move_data([0, 1], 50_000);
        world.move_data([2, 1], 50_000);
        let (narrow, joined) = world.narrow_and_joined();
        assert!(narrow > 0 && joined > 0, "{seed}");
    }
}

#[test]
fn simultaneous_connects_agree_on_the_mtu() {
    for narrow_from in 0..=2 {
        let faults = PacketFaults {
            most_bytes: 1500,
            narrow_from,
            ..PacketFaults::default()
        };
        let mut world = jumbo(faults, 0);
        // Neither process polls between the two sends.
        world.send(0, 1, &[1; 3000]);
        world.send(1, 0, &[2; 3000]);
        world.until("both", |world| {
            world.received[0][1].len() == 1 && world.received[1][0].len() == 1
        });
        assert_eq!(world.received[0][1], [[2; 3000]]);
        assert_eq!(world.received[1][0], [[1; 3000]]);
        world.move_data([0, 1], 50_000);
        world.move_data([1, 0], 50_000);
        world.assert_reported(1024);
    }
}

#[test]
fn a_long_packet_before_the_mtu_is_found_arrives() {
    let faults = PacketFaults {
        most_bytes: 1500,
        ..PacketFaults::default()
    };
    let mut world = jumbo(faults, 1000);
    world.send(0, 1, &[7; 1800]);
    world.until("it", |world| !world.received[1][0].is_empty());
    assert!(world.now_ms() < 500, "{} ms", world.now_ms());
    world.assert_reported(1024);
}

#[test]
fn packet_loss_rarely_shrinks_packets() {
    for (loss, most) in [(100, 0), (200, 3)] {
        let (mut narrow, mut joined) = (0, 0);
        for seed in 1..=60 {
            let faults = PacketFaults {
                seed,
                loss,
                ..PacketFaults::default()
            };
            let mut world = jumbo(faults, 0);
            world.chat(3);
            let (more_narrow, more) = world.narrow_and_joined();
            (narrow, joined) = (narrow + more_narrow, joined + more / 2);
        }
        assert!(joined >= 120, "{joined}");
        assert!(narrow <= most, "{loss}: {narrow} of {joined}");
    }
}

#[test]
fn a_computing_peer_does_not_shrink_packets() {
    let mut world = jumbo(PacketFaults::default(), 0);
    world.computes = Some(1);
    world.send(0, 1, &[3; 2000]);
    for _ in 0..2_000 {
        world.turn();
        world.net.as_ref().unwrap().pass(5_000_000);
    }
    world.computes = None;
    world.until("it", |world| !world.received[1][0].is_empty());
    world.move_data([0, 1], 50_000);
    assert_eq!(world.narrow_and_joined().0, 0);
    assert_eq!(world.messages, [""; 0]);
}

#[test]
fn a_network_that_becomes_narrow_breaks_a_queue_pair() {
    let mut world = jumbo(PacketFaults::default(), 0);
    world.chat(3);
    assert_eq!(world.narrow_and_joined().0, 0);
    let faults = PacketFaults {
        most_bytes: 1500,
        ..PacketFaults::default()
    };
    world.net.as_ref().unwrap().set_faults(faults);
    world.send(0, 1, &[9; 6000]);
    // A silent peer is believed to be alive for half a minute.
    for _ in 0..20_000 {
        world.turn();
        world.net.as_ref().unwrap().pass(2_000_000);
    }
    world.until("it", |world| world.received[1][0].len() == 1);
    assert_eq!(world.received[1][0], [[9; 6000]]);
    assert!(world.narrow_and_joined().0 > 0);
}
