// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of input that no process of the job would send, and of simultaneous actions of both sides.

use transport::FakeConfig;

use super::job::{AT_ONCE, Job, SECOND};
use testbed::Random;

#[test]
fn datagrams_with_a_wrong_q_key_are_dropped() {
    let mut job = Job::calm(2, AT_ONCE);
    job.assert_whole();
    let (number, q_key) = job.net.datagrams_at(0);
    let before = job.all[1].fabric.stats().refused;
    for bit in 0..31 {
        let ack = note(ACK, 0, 0);
        job.net
            .inject_datagram(0, number, 1, q_key ^ 1 << bit, &ack);
    }
    job.pass(SECOND / 100);
    assert_eq!(job.net.stats(1).datagrams_foreign, 31);
    assert_eq!(job.all[1].fabric.stats().refused, before);
    job.assert_whole();
}

#[test]
fn datagram_from_a_wrong_source_is_refused() {
    let mut job = Job::calm(3, AT_ONCE);
    job.assert_whole();
    let (real, q_key) = job.net.datagrams_at(0);
    let (third, _) = job.net.datagrams_at(2);
    let refused = |job: &Job| job.all[1].fabric.stats().refused;
    for source in [0, 1, 2, 3, 4, u32::MAX - 1, u32::MAX] {
        for number in [0, real, third, 77, 0xff_ffff] {
            let is_right = (source, number) == (0, real) || (source, number) == (2, third);
            for what in (ACK..=MOVED).filter(|_| !is_right) {
                let before = refused(&job);
                let bytes = note(what, source, 9);
                job.net.inject_datagram(0, number, 1, q_key, &bytes);
                job.pass(20_000);
                assert_eq!(
                    refused(&job),
                    before + 1,
                    "{what} of {source} from {number}"
                );
            }
        }
    }
    job.assert_whole();
    job.assert_careful();
}

/// Whatever bytes a process receives from a queue pair of its job, it does not fail, and the traffic with other peers
/// is not affected.
#[test]
fn hostile_bytes_affect_no_other_peer() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let config = FakeConfig {
            first_packet: random.word() as u32,
            ..FakeConfig::calm(seed)
        };
        let mut job = Job::on(config, 3, AT_ONCE);
        job.assert_whole();
        let (number, q_key) = job.net.datagrams_at(0);
        for _ in 0..150 {
            let bytes = hostile(&mut random, config.first_packet);
            match job.net.pair_between(0, 1) {
                Some(pair) if random.below(3) == 0 && bytes.len() <= 220 => {
                    job.net.inject_message(pair, &bytes);
                }
                _ => job.net.inject_datagram(0, number, 1, q_key, &bytes),
            }
            if random.below(4) == 0 {
                job.pass(3_000);
            }
            if random.below(8) == 0 {
                job.try_send(1, 0, 40);
            }
        }
        job.pass(SECOND / 10);
        // Rank 1 may have accepted any of these bytes as input from rank 0, but its traffic with rank 2 is correct.
        job.chat_between(1, 2);
    }
}

/// Random bytes, or bytes that are nearly valid input.
fn hostile(random: &mut Random, first: u32) -> Vec<u8> {
    let bytes = match random.below(4) {
        0 => random.below(300),
        1 => 31 + random.below(3),
        2 => 38 + random.below(60),
        _ => random.below(1025),
    };
    let mut body: Vec<u8> = (0..bytes).map(|_| random.word() as u8).collect();
    if random.below(10) == 0 {
        return body;
    }
    let mut put = |at: usize, word: u32| {
        if let Some(place) = body.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    };
    put(4, 0);
    let near = |random: &mut Random| {
        first
            .wrapping_add(random.below(100) as u32)
            .wrapping_sub(20)
    };
    if random.below(2) == 0 {
        put(8, near(random));
        put(12, near(random));
    }
    if random.below(2) == 0 {
        put(20, near(random));
    }
    if random.below(3) == 0 {
        put(8, random.below(5) as u32);
    }
    if let Some(what) = body.first_mut() {
        *what = PACKET + random.below(8) as u8;
    }
    if random.below(2) == 0
        && let Some(parts) = body.get_mut(32)
    {
        *parts = random.below(5) as u8;
    }
    body
}

/// A note in the format of `wire.rs`.
fn note(what: u8, source: u32, attempt: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = what;
    bytes[4..8].copy_from_slice(&source.to_le_bytes());
    bytes[8..12].copy_from_slice(&attempt.to_le_bytes());
    bytes
}

#[test]
fn packet_numbers_wrap_around() {
    for before in [0, 1, 5, 63, 64, 65, 130] {
        for datagrams_first in [0, 20, 1000] {
            let limits = transport::NetLimits {
                datagrams_first,
                ..AT_ONCE
            };
            let config = FakeConfig {
                first_packet: u32::MAX - before,
                loss_permille: 100,
                duplicate_permille: 100,
                most_delay_ns: 20_000,
                break_permille: 5,
                ..FakeConfig::calm(before.into())
            };
            let mut job = Job::on(config, 2, limits);
            job.chat(100);
            job.settle();
            job.assert_no_peer_lost();
            job.assert_careful();
        }
    }
}

#[test]
fn simultaneous_connects_make_one_queue_pair() {
    for seed in 0..30 {
        let config = FakeConfig {
            most_delay_ns: 1_000 + 1_000 * seed,
            loss_permille: 10 * seed as u32,
            duplicate_permille: 10 * seed as u32,
            ..FakeConfig::calm(seed)
        };
        let mut job = Job::on(config, 2, AT_ONCE);
        // Each rank has the other's address before it has received anything from the other.
        assert!(job.try_send(0, 1, 40) && job.try_send(1, 0, 40));
        job.settle();
        job.until("a queue pair", |job| {
            job.chat(1);
            job.net.pair_between(0, 1).is_some() && job.net.pair_between(1, 0).is_some()
        });
        job.pass(SECOND);
        job.assert_whole();
        for rank in [0, 1] {
            assert_eq!(job.net.stats(rank).pairs, 1, "seed {seed}");
            let messages = job.messages_of(rank);
            assert!(messages.is_empty(), "nothing broke: {messages}");
        }
        job.assert_careful();
    }
}

/// First byte of a packet, in the format of `wire.rs`; those of notes follow.
const PACKET: u8 = 0x11;
const ACK: u8 = 0x12;
const MOVED: u8 = 0x18;
