// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of processes of two jobs that meet over a network after they were opened: each process numbers the others
//! itself, and each job has a datagram key of its own. The network is a fake of devices that checks all calls strictly,
//! and produces every fault on demand.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

mod far {
    pub mod both;
}

use far::both::{Both, KEYS, MILLISECOND, SECOND, Shape, TWO};
use testbed::memory::{attach_as, segment_file};
use testbed::world::Failing;
use transport::{
    Config, Error, Fabric, FakeConfig, FakeNet, ForeignPeer, NetLimits, Peer, StreamKey,
};

/// A size for which several rails are used, in bytes.
const LARGE: usize = 1 << 20;

/// Pairs of jobs of several sizes. The second job numbers the processes of the first job in order or in reverse, and
/// the processes of one of the two jobs have `is_first`.
fn shapes() -> impl Iterator<Item = Shape> {
    let sizes = [[1, 1], [2, 2], [2, 3], [3, 1]];
    let shapes = [(false, false), (false, true), (true, false), (true, true)];
    sizes.into_iter().flat_map(move |sizes| {
        shapes
            .into_iter()
            .map(move |(is_reversed, is_first)| Shape {
                sizes,
                is_reversed,
                is_first,
                ..TWO
            })
    })
}

fn with_datagrams(shape: Shape, datagrams_first: u32) -> Shape {
    let limits = NetLimits {
        datagrams_first,
        ..shape.limits
    };
    Shape { limits, ..shape }
}

#[test]
fn all_pairs_of_two_jobs_exchange_messages() {
    for shape in shapes() {
        for datagrams_first in [0, 3, 1000] {
            let shape = with_datagrams(shape, datagrams_first);
            let mut both = Both::joined(FakeConfig::calm(1), shape);
            both.assert_whole();
            both.assert_careful();
            let (me, other) = (0, shape.sizes[0] as usize);
            let stats = both.all[me].fabric.net_stats();
            assert!(stats.joined > 0 && stats.datagrams > 0 && stats.packets > 0);
            assert_eq!(both.refused(me) + both.refused(other), 0);
            assert!(both.all.iter().all(|process| process.messages.is_empty()));
        }
    }
}

#[test]
fn two_jobs_communicate_on_a_faulty_network() {
    for seed in 1..25 {
        let _failing = Failing(seed);
        let shapes: Vec<Shape> = shapes().collect();
        let shape = shapes[seed as usize % shapes.len()];
        let shape = Shape {
            rails: 1 + seed as u32 % 2,
            ..with_datagrams(shape, (seed % 5) as u32)
        };
        let mut both = Both::joined(FakeConfig::harsh(seed), shape);
        both.chat(30);
        both.settle();
        both.assert_no_peer_lost();
        both.assert_careful();
    }
}

#[test]
fn memory_of_the_other_job_is_read_and_written() {
    for shape in shapes() {
        let (one, other) = (0, shape.sizes[0] as usize);
        for (rails, reads) in [(1, 16), (2, 16), (1, 0), (2, 0)] {
            let config = FakeConfig {
                reads,
                ..FakeConfig::calm(1)
            };
            let mut both = Both::joined(config, Shape { rails, ..shape });
            // The second rail is connected when a large message needs it.
            for bytes in [100, 70_000, LARGE, LARGE, LARGE] {
                for (user, owner) in [(one, other), (other, one)] {
                    both.read(user, owner, bytes);
                    both.write(user, owner, bytes);
                }
                both.pass(100 * MILLISECOND);
            }
            let striped = both.all[one].fabric.net_stats().striped;
            assert_eq!(striped > 0, rails > 1, "{shape:?}, {rails} rails");
            both.assert_whole();
            both.assert_careful();
            assert_eq!(both.refused(one) + both.refused(other), 0);
        }
    }
}

#[test]
fn simultaneous_connects_make_one_queue_pair() {
    for seed in 0..30 {
        for is_first in [false, true] {
            let _failing = Failing(seed);
            let config = FakeConfig {
                most_delay_ns: 1_000 + 1_000 * seed,
                loss_permille: 10 * seed as u32,
                duplicate_permille: 10 * seed as u32,
                ..FakeConfig::calm(seed)
            };
            let mut both = Both::joined(config, Shape { is_first, ..TWO });
            assert!(both.try_send(0, 1, 40) && both.try_send(1, 0, 40));
            both.settle();
            both.until("a queue pair", |both| {
                both.chat(1);
                let net = &both.net;
                net.pair_between(0, 1).is_some() && net.pair_between(1, 0).is_some()
            });
            both.pass(SECOND);
            both.assert_whole();
            for place in [0, 1] {
                assert_eq!(both.net.stats(place).pairs, 1);
                let messages = &both.all[place as usize].messages;
                assert!(messages.is_empty(), "nothing broke: {messages:?}");
            }
            both.assert_careful();
        }
    }
}

#[test]
fn broken_queue_pair_is_recreated() {
    for shape in shapes() {
        let (one, other) = (0, shape.sizes[0] as usize);
        let mut both = Both::joined(FakeConfig::calm(1), shape);
        both.assert_whole();
        for (round, (from, to)) in (0..).zip([(one, other), (other, one)].repeat(3)) {
            let ports = (both.port(from, 0), both.port(to, 0));
            both.until("a queue pair", |both| {
                both.chat(1);
                both.net.pair_between(ports.0, ports.1).is_some()
            });
            let joined = both.all[from].fabric.net_stats().joined;
            let pair = both.net.pair_between(ports.0, ports.1).unwrap();
            both.net.break_pair(pair, round % 2 == 0);
            both.until("another queue pair", |both| {
                both.chat(1);
                both.all[from].fabric.net_stats().joined > joined
            });
            both.read(to, from, LARGE);
        }
        both.assert_whole();
        both.assert_careful();
        let messages = both.all.iter().flat_map(|process| &process.messages);
        let messages: Vec<&String> = messages.collect();
        assert!(
            !messages.is_empty()
                && messages
                    .iter()
                    .all(|messages| messages.contains("(of another job)"))
        );
    }
}

#[test]
fn a_rail_may_be_lost_on_either_side() {
    for (at, is_for_good) in [(0, false), (0, true), (1, false), (1, true)] {
        for lost in [0, 1] {
            let shape = Shape { rails: 2, ..TWO };
            let mut both = Both::joined(FakeConfig::calm(1), shape);
            both.assert_whole();
            both.read(1 - at, at, LARGE);
            both.pass(SECOND);
            let port = both.port(at, lost);
            match is_for_good {
                true => both.net.lose_device(port),
                false => both.net.port_down(port),
            }
            both.chat(10);
            both.settle();
            both.read(0, 1, LARGE);
            both.read(1, 0, LARGE);
            if !is_for_good {
                both.net.readdress(port);
                both.net.port_up(port);
                both.pass(SECOND);
            }
            both.assert_whole();
            both.assert_careful();
        }
    }
}

#[test]
fn address_change_is_followed() {
    for shape in shapes() {
        for datagrams_first in [0, 1000] {
            let shape = with_datagrams(shape, datagrams_first);
            let mut both = Both::joined(FakeConfig::calm(1), shape);
            both.assert_whole();
            for place in [0, shape.sizes[0] as usize] {
                both.net.readdress(both.port(place, 0));
                both.assert_whole();
            }
            both.assert_careful();
        }
    }
}

#[test]
fn lost_peer_is_reported_by_its_local_number() {
    let shape = Shape {
        sizes: [2, 2],
        is_reversed: true,
        limits: NetLimits {
            silence_ns: 2 * SECOND,
            ..TWO.limits
        },
        ..TWO
    };
    let mut both = Both::joined(FakeConfig::calm(1), shape);
    both.assert_whole();
    both.net.vanish(both.port(3, 0));
    for from in [0, 1, 2] {
        both.send(from, 3, 40);
    }
    both.until("all others lose it", |both| {
        let mut others = both.all[..3].iter();
        others.all(|process| process.lost == [3])
    });
    let (there, second) = (both.peer(0, 3), both.peer(0, 2));
    assert!(both.all[0].fabric.why_lost(there).is_some());
    assert!(both.all[0].fabric.why_lost(second).is_none());
    // A peer may be given up before its address is provided.
    let peer = both.peer(2, 1);
    both.all[2].fabric.lose(peer, "it has died");
    both.pass(SECOND / 10);
    assert_eq!(both.all[2].lost, [3, 1]);
    assert_eq!(both.all[2].fabric.why_lost(peer), Some("it has died"));
    for (from, to) in [(0, 1), (0, 2), (2, 0)] {
        let before = both.received(to, from);
        both.send(from, to, 3000);
        both.until("it comes", |both| both.received(to, from) > before);
    }
}

#[test]
fn frames_wait_for_the_address_of_their_sender() {
    for datagrams_first in [0, 1000] {
        let shape = with_datagrams(TWO, datagrams_first);
        let mut both = Both::apart(FakeConfig::calm(1), shape);
        both.provides_addresses = false;
        both.add_others(0, true);
        for _ in 0..5 {
            both.send(0, 1, 40);
        }
        both.pass(SECOND);
        // The second process has no peer with that number yet, so it refuses the input.
        assert!(both.refused(1) > 0 && both.all[1].wanted.is_empty());
        both.add_others(1, false);
        both.pass(SECOND);
        assert_eq!(both.received(1, 0), 0);
        assert_eq!(both.all[1].wanted, [0], "it is requested once");
        let (peer, record) = (both.peer(1, 0), both.record(0));
        both.all[1].fabric.set_peer_address(peer, &record);
        both.settle();
        both.assert_whole();
        both.assert_careful();
    }
}

#[test]
fn requested_address_may_be_provided_later() {
    let mut both = Both::apart(FakeConfig::calm(1), TWO);
    both.add_others(0, false);
    both.add_others(1, false);
    both.assert_whole();
    assert_eq!(
        (&both.all[0].wanted[..], &both.all[1].wanted[..]),
        (&[1][..], &[0][..])
    );
}

#[test]
fn datagrams_with_a_wrong_key_are_dropped() {
    let mut both = Both::apart(FakeConfig::calm(1), TWO);
    both.provides_addresses = false;
    both.add_others(1, true);
    // The first process has a wrong key for the second job.
    let far = ForeignPeer {
        key: KEYS[0],
        ..both.far(0, 1)
    };
    let record = both.record(1);
    both.all[0].fabric.add_far(far, Some(&record)).unwrap();
    both.send(0, 1, 40);
    both.pass(SECOND);
    let stats = both.net.stats(1);
    assert!(stats.datagrams_foreign > 0 && both.received(1, 0) == 0);
    assert_eq!(both.refused(1), 0, "it does not even see them");
    // In the other direction the key is correct.
    both.send(1, 0, 40);
    both.until("the frame has come", |both| both.received(0, 1) == 1);
    let mut both = Both::joined(FakeConfig::calm(1), TWO);
    both.assert_whole();
    for (from, to) in [(0, 1), (1, 0)] {
        let (number, own) = both.net.datagrams_at(from);
        assert_eq!(own, KEYS[from as usize]);
        let before = both.net.stats(to).datagrams_foreign;
        let note = note(both.peer(to as usize, from as usize).0);
        both.net.inject_datagram(from, number, to, own, &note);
        both.pass(MILLISECOND);
        assert_eq!(both.net.stats(to).datagrams_foreign, before + 1);
    }
    both.assert_whole();
}

#[test]
fn source_number_must_match_the_sending_peer() {
    let shape = Shape {
        sizes: [2, 3],
        ..TWO
    };
    let mut both = Both::joined(FakeConfig::calm(1), shape);
    both.assert_whole();
    let (to, from) = (0, 3);
    let (number, _) = both.net.datagrams_at(from);
    let right = both.peer(to as usize, from as usize).0;
    for source in (0..9).chain([u32::MAX - 1, u32::MAX]) {
        let before = both.refused(to as usize);
        both.net
            .inject_datagram(from, number, to, KEYS[0], &note(source));
        both.pass(MILLISECOND);
        let refused = both.refused(to as usize) - before;
        assert_eq!(refused, u64::from(source != right), "{source}");
    }
    both.assert_whole();
    both.assert_careful();
}

#[test]
fn datagrams_from_unreachable_numbers_are_refused() {
    let mut both = Both::apart(FakeConfig::calm(1), TWO);
    // In the first process, a process of its node gets the number 1.
    let joint = segment_file(2, 99);
    let node = attach_as(&joint, 99, 0, vec![Peer(0), Peer(1)]);
    both.all[0].fabric.attach(node).unwrap();
    let (far, record) = (both.far(0, 1), both.record(1));
    let far = ForeignPeer {
        source_number: 1,
        ..far
    };
    let peer = both.all[0].fabric.add_far(far, None);
    assert_eq!(peer.unwrap(), Peer(2));
    assert_eq!(both.all[0].fabric.peer_count(), 3);
    let (number, _) = both.net.datagrams_at(1);
    for source in [0, 1, 3] {
        both.net
            .inject_datagram(1, number, 0, KEYS[0], &note(source));
        both.pass(MILLISECOND);
    }
    assert_eq!((both.refused(0), &both.all[0].wanted[..]), (3, &[][..]));
    // The first process uses number 2 for the second one, and the second process uses number 1 for the first one.
    let back = ForeignPeer {
        source_number: 2,
        ..both.far(1, 0)
    };
    let own = both.record(0);
    both.all[1].fabric.add_far(back, Some(&own)).unwrap();
    both.all[0].fabric.set_peer_address(Peer(2), &record);
    let head = testbed::head(4);
    both.all[0].fabric.post_send(Peer(2), head, b"x").unwrap();
    both.until("it comes", |both| both.received(1, 0) == 1);
}

#[test]
fn adding_a_far_peer_needs_a_network_and_a_valid_key() {
    let mut alone = Fabric::open(Config::alone()).unwrap();
    let far = ForeignPeer {
        source_number: 1,
        key: 7,
        stream_key: StreamKey::new(7),
        is_first: true,
    };
    let why = alone.add_far(far, None).unwrap_err();
    assert!(matches!(why, Error::Far { .. }), "{why}");
    assert_eq!(alone.peer_count(), 1);
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut one = Fabric::faked(&net, Peer(0), 1, NetLimits::DEFAULT);
    let far = ForeignPeer {
        key: 1 << 31,
        ..far
    };
    let why = one.add_far(far, None).unwrap_err();
    assert!(why.to_string().contains("31 bits"), "{why}");
    assert_eq!(one.peer_count(), 1);
}

#[test]
fn memory_per_far_peer_is_bounded() {
    let net = FakeNet::new(FakeConfig::calm(1));
    let mut one = Fabric::faked(&net, Peer(0), 1, NetLimits::DEFAULT);
    let (now, most) = one.net_memory();
    let far = ForeignPeer {
        source_number: 0,
        key: 7,
        stream_key: StreamKey::new(7),
        is_first: true,
    };
    for number in 1..=1000 {
        assert_eq!(one.add_far(far, None).unwrap(), Peer(number));
    }
    let (later, most_later) = one.net_memory();
    assert!(
        later - now <= 1000 * 24,
        "{now} {later}: none was talked to"
    );
    assert!(most_later >= most && most_later - most <= 1000 * 600);
    assert!(most_later <= 8 << 20 && later <= most_later);
}

/// An acknowledgement from `source`, in the format of `wire.rs`.
fn note(source: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = 0x12;
    bytes[4..8].copy_from_slice(&source.to_le_bytes());
    bytes
}
