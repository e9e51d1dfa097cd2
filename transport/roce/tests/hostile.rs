// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends invalid packets to queue pairs: nothing panics, the number of responses is bounded, and memory that the peer
//! may not access is unchanged.

mod common;

use common::arena::{address, sge};
use common::by_hand::{ByHand, RNR, SEQUENCE, answer};
use common::dice::Dice;
use common::end::{self, End, config, end};
use roce::format::{NetworkHeaders, Opcode, Packet};
use roce::{Config, PathMtu, Psn, QueuePairState, RequestOpcode};

#[test]
fn any_bytes_are_parsed_without_a_panic() {
    let mut dice = Dice::new(1);
    for _ in 0..20_000 {
        let len = dice.index(80);
        let mut bytes = dice.bytes(len);
        if let Some(version) = bytes.get_mut(1)
            && dice.permille(800)
        {
            *version &= 0xf0;
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            assert!(packet.payload.len() < bytes.len());
            let _ = (packet.reth(), packet.aeth(), packet.atomic());
            let _ = (packet.deth(), packet.immediate(), packet.invalidate());
            let _ = packet.sack();
        }
        if let Some(version) = bytes.first_mut() {
            *version = [0x45, 0x46, 0x60][dice.index(3)];
        }
        let _ = NetworkHeaders::parse(&bytes);
    }
}

#[test]
fn altered_packets_are_harmless() {
    for seed in 0..100 {
        let run = std::panic::catch_unwind(|| HostileRun::new(seed).run());
        assert!(run.is_ok(), "seed {seed} failed");
    }
}

/// The long test. `RMPI_TEST_PACKETS` is the number of packets.
#[test]
#[ignore = "takes long: cargo xtask test soak"]
fn many_altered_packets_are_harmless() {
    let wanted = std::env::var("RMPI_TEST_PACKETS").ok();
    let wanted = wanted.map_or(100_000_000, |it| it.parse().expect("a number of packets"));
    let (mut seed, mut received) = (1_000_000, 0);
    while received < wanted {
        received += HostileRun::new(seed).run();
        seed += 1;
    }
    println!("{received} packets");
}

#[test]
fn responses_to_unsent_requests_are_ignored() {
    for code in [0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12] {
        let mut end = end(config());
        end.post(0, RequestOpcode::Send, sge(7, 0, 1));
        for psn in [0x00ff_fffd, 0x00ff_fffe, 0x00ff_ffff, 0, 0x007f_ffff] {
            for syndrome in 0..=u8::MAX {
                let mut packet = ByHand::new(code, psn, &[]);
                if code != 0x0e {
                    packet = packet.aeth(syndrome);
                }
                if code == 0x12 {
                    packet = packet.value(1);
                }
                packet.to(&mut end, 0);
            }
        }
        assert_eq!(end.pair.state(), QueuePairState::Ready);
        assert_eq!(end.sends_done(), []);
        assert_eq!(end.leaving(0).len(), 1);
    }
}

#[test]
fn repeated_naks_do_not_cause_endless_resends() {
    let mut end = end(config());
    end.post(0, RequestOpcode::Send, sge(7, 0, 8000));
    let once = end.leaving(0).len();
    let mut sent = 0;
    for _ in 0..1000 {
        answer(&mut end, 0, 0x00ff_fffe, SEQUENCE);
        answer(&mut end, 0, 0x00ff_fffe, RNR);
        sent += end.leaving(0).len();
    }
    assert!(sent <= once, "{sent} packets");
}

/// Two ends, each of which receives the packets of the other end, some of them modified.
struct HostileRun {
    dice: Dice,
    ends: [End; 2],
    now: u64,
    work: u64,
    received: u64,
}

const DEPTH: u32 = 16;
/// Key of the memory that a peer may access.
const OPEN: u32 = 4;
const OWN: u32 = 5;

impl HostileRun {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let ends = ends(&mut dice);
        Self {
            dice,
            ends,
            now: 0,
            work: 0,
            received: 0,
        }
    }

    /// Runs the test; returns the number of packets received.
    fn run(mut self) -> u64 {
        let untouched = self.ends[0].arena.bytes(OWN)[2048..].to_vec();
        for _ in 0..150 {
            for side in 0..2 {
                self.post(side);
                self.deliver(side);
                let end = &mut self.ends[side];
                assert!(end.sends_done().len() <= DEPTH as usize);
                end.receives_done();
                assert!(end.arena.bytes(OWN)[2048..] == untouched[..]);
            }
            self.now += self.dice.below(20_000);
            if self
                .ends
                .iter()
                .any(|end| end.pair.state() == QueuePairState::Error)
            {
                self.ends = ends(&mut self.dice);
            }
        }
        self.received
    }

    fn post(&mut self, side: usize) {
        let (remote, key) = (address(OPEN) + self.dice.below(64) * 8, OPEN);
        let operation = match self.dice.below(5) {
            0 => RequestOpcode::Send,
            1 => RequestOpcode::Write {
                address: remote,
                key,
            },
            2 | 3 => RequestOpcode::Read {
                address: remote,
                key,
            },
            _ => RequestOpcode::FetchAdd {
                address: remote,
                key,
                add: 1,
            },
        };
        let bytes = match operation {
            RequestOpcode::FetchAdd { .. } => 8,
            _ => u32::try_from(self.dice.below(1500)).expect("it is small"),
        };
        let request = roce::RoceRequest {
            work: self.work,
            operation,
            body: roce::RequestBody::Sge(sge(OWN, 0, bytes)),
            immediate: self.dice.permille(300).then_some([1; 4]),
            signaled: self.dice.permille(500),
        };
        let _ = self.ends[side].pair.post(&request);
        if self.dice.permille(500) {
            let buffer = sge(OWN, 0, 2048);
            self.ends[side].receives.post(self.work, buffer);
        }
        self.work += 1;
    }

    /// Delivers outgoing packets to the other end, some of them twice or modified.
    fn deliver(&mut self, side: usize) {
        let mut left = 0;
        while let Some(wire) = self.ends[side].next_on_wire(self.now) {
            left += 1;
            assert!(left < 5000, "it sends without end");
            let mut packet = wire[..wire.len() - 4].to_vec();
            let times = 1 + self.dice.index(2);
            for _ in 0..times {
                if self.dice.permille(30) {
                    change(&mut self.dice, &mut packet);
                }
                self.received += 1;
                if let Ok(packet) = Packet::parse(&packet) {
                    self.ends[1 - side].receive_packet(self.now, &packet);
                }
                let selective = self.ends[side].pair.config().selective_repeat;
                let bound = (if selective { 8 } else { 2 }) * DEPTH as usize + 1;
                assert!(self.ends[1 - side].pair.queued_responses() <= bound);
            }
        }
    }
}

fn ends(dice: &mut Dice) -> [End; 2] {
    let selective_repeat = dice.permille(500);
    let one = Config {
        peer_is_rmpi: selective_repeat,
        selective_repeat,
        ack_delay_ns: 5_000 * u64::from(selective_repeat),
        floor_ns: 10_000,
        path_mtu: PathMtu::BYTES_256,
        send_depth: DEPTH,
        window_packets: [2, 16][dice.index(2)],
        read_packets: 2,
        timeout: 3,
        min_rnr_timer: 1,
        sq_psn: Psn::new(Psn::MASK),
        ..Config::new(1, 2, end::address(2))
    };
    let other = Config {
        number: 2,
        remote_number: 1,
        to: end::address(1),
        sq_psn: one.rq_psn,
        rq_psn: one.sq_psn,
        ..one
    };
    [(one, 1), (other, 2)].map(|(config, host)| {
        let mut end = End::new(config, end::address(host));
        end.arena.add(OPEN, vec![1; 2048]);
        end.arena.add(OWN, vec![2; 4096]);
        for access in [
            roce::MemoryAccess::RemoteRead,
            roce::MemoryAccess::RemoteWrite,
            roce::MemoryAccess::RemoteAtomic,
        ] {
            end.arena.deny(OWN, access);
        }
        end
    })
}

/// Modifies a packet: sets fields to boundary values, or flips bits.
fn change(dice: &mut Dice, packet: &mut Vec<u8>) {
    match dice.below(10) {
        0 => {
            let codes: Vec<u8> = (0..=0x17)
                .filter(|code| Opcode::parse(*code).is_some())
                .collect();
            packet[0] = codes[dice.index(codes.len())];
        }
        1 => {
            let psn = u32::from_be_bytes([0, packet[9], packet[10], packet[11]]);
            let far = [1, 2, 3, 16, 1 << 23, Psn::MASK][dice.index(6)];
            let psn = Psn::new(psn).plus(far).get().to_be_bytes();
            packet[9..12].copy_from_slice(&psn[1..]);
        }
        2 => packet.truncate(12 + 4 * dice.index(12)),
        3 => packet.extend(dice.bytes(4 * 70).iter().take(4 * dice.index(70))),
        4 if packet.len() >= 28 => {
            let length = [0, 1, 256, 257, 1 << 30, (1 << 30) + 1, u32::MAX][dice.index(7)];
            packet[24..28].copy_from_slice(&length.to_be_bytes());
        }
        5 if packet.len() >= 24 => {
            let (at, byte) = (12 + dice.index(12), dice.byte());
            packet[at] = byte;
        }
        6 if packet.len() >= 16 => {
            packet[12] = [0x1f, 0x20, 0x21, 0x60, 0x61, 0x62, 0x63, 0xe0][dice.index(8)];
        }
        7 => packet[8] ^= 0x80,
        // A selective acknowledgement, also of packets that do not exist.
        8 if packet.len() >= 16 => {
            packet[0] = 0x11;
            packet.truncate(16);
            let words = 1 + dice.index(5);
            packet.extend(dice.bytes(8 * words));
        }
        _ => {
            let at = dice.index(packet.len());
            packet[at] ^= 1 << dice.below(8);
        }
    }
    let length = packet.len().max(12);
    packet.resize(length, 0);
}
