// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers data over a link that loses a tenth of all packets, and reorders, duplicates and damages others: every
//! delivered byte is correct. `RMPI_TEST_MIB` is the amount of data in the long test, in MiB.

mod common;

use std::collections::BTreeMap;

use common::arena::{address, sge};
use common::dice::Dice;
use common::end::{self, End};
use roce::{CompletionStatus, Config, PathMtu, RegisteredMemory, RequestOpcode, WorkCompletion};

#[test]
fn all_operations_are_correct_on_a_lossy_link() {
    for seed in 0..6 {
        let repaired = Link::new(seed, seed % 2 == 0).carry(8 << 20);
        assert!(repaired > 100, "seed {seed} sends {repaired} packets again");
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask test soak"]
fn large_transfers_are_correct_on_a_lossy_link() {
    let mib = std::env::var("RMPI_TEST_MIB").ok();
    let mib = mib.map_or(10_240, |mib| {
        mib.parse().expect("RMPI_TEST_MIB is a number")
    });
    let repaired = Link::new(77, true).carry(mib << 20);
    println!("{mib} MiB have come right, {repaired} packets were sent again");
}

const MESSAGE_BYTES: u32 = 64 << 10;
/// Largest number of outstanding messages.
const SLOTS: u32 = 16;
const SOURCE: u32 = 3;
const TARGET: u32 = 4;
const TICK_NS: u64 = 1000;
const DELAY_TICKS: u64 = 20;
/// Number of lost packets per thousand; the next numbers are per thousand too.
const LOST: u64 = 100;
const LATE: u64 = 50;
const TWICE: u64 = 10;
const DAMAGED: u64 = 10;

/// Two ends. The first end sends to the second, writes to it and reads from it, in turn.
struct Link {
    ends: [End; 2],
    dice: Dice,
    /// Packets on the way to each end, by arrival time, then by order of departure.
    flying: [BTreeMap<(u64, u64), Vec<u8>>; 2],
    departed: u64,
    tick: u64,
}

impl Link {
    fn new(seed: u64, selective_repeat: bool) -> Self {
        let config = Config {
            path_mtu: PathMtu::BYTES_4096,
            window_packets: 64,
            peer_is_rmpi: true,
            selective_repeat,
            ack_delay_ns: 100 * TICK_NS,
            floor_ns: 4 * DELAY_TICKS * TICK_NS,
            ceiling_ns: 10_000 * TICK_NS,
            timeout: 7,
            ..Config::new(1, 2, end::address(2))
        };
        let other = Config {
            number: 2,
            remote_number: 1,
            to: end::address(1),
            ..config
        };
        let ends = [(config, 1), (other, 2)].map(|(config, host)| {
            let mut end = End::new(config, end::address(host));
            for key in [SOURCE, TARGET] {
                end.arena
                    .add(key, vec![0; (SLOTS * MESSAGE_BYTES) as usize]);
            }
            end
        });
        Self {
            ends,
            dice: Dice::new(seed),
            flying: [const { BTreeMap::new() }; 2],
            departed: 0,
            tick: 0,
        }
    }

    /// Transfers this number of bytes, a multiple of the message length; returns the number of packets beyond the
    /// minimum for these bytes.
    fn carry(mut self, bytes: u64) -> u64 {
        let messages = bytes / u64::from(MESSAGE_BYTES);
        let (mut posted, mut ended, mut received) = (0, 0, 0);
        while ended < messages {
            while posted < messages && posted < ended + u64::from(SLOTS) {
                self.post(posted);
                posted += 1;
            }
            self.pass();
            for done in self.ends[1].receives_done() {
                self.check(&done, 1, received * 3);
                received += 1;
            }
            for done in self.ends[0].sends_done() {
                match ended % 3 {
                    0 => assert!(received > ended / 3, "a send has ended and has not come"),
                    1 => self.check(&done, 1, ended),
                    _ => self.check(&done, 0, ended),
                }
                assert_eq!(done.status, CompletionStatus::Success);
                ended += 1;
            }
            assert!(self.tick < 10_000 + messages * 10_000, "it takes too long");
        }
        let needed = messages * u64::from(MESSAGE_BYTES / 4096);
        let sent = self.ends[0].pair.counts().sent + self.ends[1].pair.counts().sent;
        sent.saturating_sub(needed)
    }

    fn post(&mut self, message: u64) {
        let offset = slot(message);
        let (remote, key) = (address(SOURCE) + u64::from(offset), SOURCE);
        let content = content(message);
        let source = usize::from(message % 3 == 2);
        let arena = &mut self.ends[source].arena;
        let place = address(SOURCE) + u64::from(offset);
        arena.place(SOURCE, place, &content).expect("it is there");
        let local = sge(SOURCE, offset, MESSAGE_BYTES);
        let target = address(TARGET) + u64::from(offset);
        match message % 3 {
            0 => {
                let buffer = sge(TARGET, offset, MESSAGE_BYTES);
                assert!(self.ends[1].receives.post(message, buffer));
                self.ends[0].post(message, RequestOpcode::Send, local);
            }
            1 => {
                let write = RequestOpcode::Write {
                    address: target,
                    key: TARGET,
                };
                self.ends[0].post(message, write, local);
            }
            _ => {
                let read = RequestOpcode::Read {
                    address: remote,
                    key,
                };
                let local = sge(TARGET, offset, MESSAGE_BYTES);
                self.ends[0].post(message, read, local);
            }
        }
    }

    fn check(&self, done: &WorkCompletion, side: usize, message: u64) {
        assert_eq!(
            (done.work, done.status),
            (message, CompletionStatus::Success)
        );
        let from = slot(message) as usize;
        let target = self.ends[side].arena.bytes(TARGET);
        let came = &target[from..from + MESSAGE_BYTES as usize];
        assert!(came == content(message), "message {message} is wrong");
    }

    fn pass(&mut self) {
        self.tick += 1;
        let now = self.tick * TICK_NS;
        for side in 0..2 {
            while let Some(entry) = self.flying[side].first_entry()
                && entry.key().0 <= self.tick
            {
                let wire = entry.remove();
                self.ends[side].receive(now, &wire);
            }
            for _ in 0..2 {
                let Some(wire) = self.ends[side].next_on_wire(now) else {
                    break;
                };
                self.depart(1 - side, wire);
            }
        }
    }

    fn depart(&mut self, to: usize, mut wire: Vec<u8>) {
        let copies = 1 + u64::from(self.dice.permille(TWICE));
        if self.dice.permille(DAMAGED) {
            let at = self.dice.index(wire.len());
            wire[at] ^= 1 << self.dice.index(8);
        }
        for _ in 0..copies {
            if self.dice.permille(LOST) {
                continue;
            }
            let late = match self.dice.permille(LATE) {
                true => self.dice.below(3 * DELAY_TICKS),
                false => 0,
            };
            self.departed += 1;
            let key = (self.tick + DELAY_TICKS + late, self.departed);
            self.flying[to].insert(key, wire.clone());
        }
    }
}

fn slot(message: u64) -> u32 {
    u32::try_from(message % u64::from(SLOTS)).expect("it is small") * MESSAGE_BYTES
}

/// The content of a message, which is different for each message.
fn content(message: u64) -> Vec<u8> {
    Dice::new(message << 32).bytes(MESSAGE_BYTES as usize)
}
