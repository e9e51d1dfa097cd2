// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions over byte streams, between two ends. The network delivers bytes in pieces, breaks streams within a
//! frame, lets streams stall silently, and opens foreign streams. Every posted message must arrive once and in order; a
//! seed determines the run.
//!
//! `RMPI_TEST_SEED` runs only one seed; `RMPI_TEST_SEEDS` multiplies the number of seeds.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test"
)]

#[path = "two_ports/end.rs"]
mod end;
#[path = "two_ports/frames.rs"]
mod frames;
#[path = "two_ports/net.rs"]
mod net;

use session::WINDOW;
use session::{Ack, LinkMessage};

use end::{End, LARGE, MOST_BODY, MOST_SILENCE_NS, Seen};
use frames::Writer;
use net::{Net, Random};

const SECOND: u64 = 1_000_000_000;

/// Runs the test for each seed, and prints the seed that failed.
fn for_seeds(usual: u64, mut test: impl FnMut(u64)) {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        text.parse::<u64>().ok()
    };
    let only = number("RMPI_TEST_SEED");
    let count = usual * number("RMPI_TEST_SEEDS").unwrap_or(1);
    for seed in only.map_or(0..count, |seed| seed..seed + 1) {
        let failing = Failing(seed);
        test(seed);
        std::mem::forget(failing);
    }
}

struct Failing(u64);

impl Drop for Failing {
    fn drop(&mut self) {
        eprintln!("failing seed: RMPI_TEST_SEED={}", self.0);
    }
}

/// For each fault, the average number of turns between two occurrences; 0: it never occurs.
#[derive(Clone, Copy, Default)]
struct Faults {
    resets: usize,
    deaths: usize,
    foreign_streams: usize,
    pauses: usize,
}

/// Two ends, and the state of the messages between them.
struct Pair {
    now_ns: u64,
    random: Random,
    net: Net,
    ends: [End; 2],
    /// Number of messages that each end has posted.
    posted: [u32; 2],
    got: [u32; 2],
    /// Number of large messages that each end has received and not returned.
    lent: [usize; 2],
    /// Whether each end keeps large messages for now.
    holds: [bool; 2],
    /// Until when each end does not poll.
    away_until_ns: [u64; 2],
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xabcd);
        let first = match random.below(3) {
            0 => 0,
            1 => u32::MAX - random.below(100) as u32,
            _ => random.word() as u32,
        };
        Self {
            now_ns: SECOND,
            net: Net::new(seed),
            ends: [0, 1].map(|me| End::new(me, first, random.once_in(2))),
            posted: [0; 2],
            got: [0; 2],
            lent: [0; 2],
            holds: [false; 2],
            away_until_ns: [0; 2],
            random,
        }
    }

    /// The body of message `number` of an end.
    fn message(side: usize, number: u32) -> Vec<u8> {
        let mut random = Random::new(u64::from(number) << 1 | side as u64);
        let most = if random.once_in(3) { MOST_BODY } else { 60 };
        let count = random.below(most + 1);
        random.bytes(count)
    }

    /// Advances the time by a random step.
    fn pass(&mut self) {
        let most = if self.random.once_in(30) {
            5_000_000
        } else {
            400_000
        };
        self.now_ns += 1 + self.random.below(most) as u64;
    }

    fn happen(&mut self, faults: &Faults) {
        let is_now = |random: &mut Random, every: usize| every != 0 && random.once_in(every);
        if is_now(&mut self.random, faults.resets) {
            self.net.reset_some(self.now_ns);
        }
        if is_now(&mut self.random, faults.deaths) {
            match self.random.below(2) {
                0 => self.net.make_blackhole(),
                _ => self.net.down_until_ns = self.now_ns + self.random.below(200_000_000) as u64,
            }
        }
        if is_now(&mut self.random, faults.foreign_streams) {
            let bytes = foreign_bytes(&mut self.random);
            let side = self.random.below(2);
            self.net.open_foreign_stream(self.now_ns, side, bytes);
        }
        if is_now(&mut self.random, faults.pauses) {
            let side = self.random.below(2);
            self.away_until_ns[side] = self.now_ns + self.random.below(300_000_000) as u64;
        }
    }

    /// Both ends post messages, until each has posted `messages`, and make progress.
    fn turn(&mut self, messages: u32) {
        self.pass();
        for side in [0, 1] {
            if self.now_ns < self.away_until_ns[side] {
                continue;
            }
            let mut burst = self.random.below(12);
            while burst != 0 && self.posted[side] < messages {
                let body = Self::message(side, self.posted[side]);
                if !self.ends[side].post(self.now_ns, &body) {
                    break;
                }
                self.posted[side] += 1;
                burst -= 1;
            }
            self.ends[side].turn(self.now_ns, &mut self.net);
            self.take(side);
        }
    }

    /// An end takes all received messages and checks them. It returns the large messages, or keeps them for now.
    fn take(&mut self, side: usize) {
        while let Some(body) = self.ends[side].ready.pop_front() {
            let expected = Self::message(1 - side, self.got[side]);
            assert_eq!(body, expected, "message {} to end {side}", self.got[side]);
            self.got[side] += 1;
            self.lent[side] += usize::from(body.len() > LARGE);
        }
        assert!(self.lent[side] <= 32, "{} large ones", self.lent[side]);
        assert!(self.ends[side].kept() <= WINDOW as usize, "S2");
        // At times large messages are kept for many turns; then all are returned.
        if self.random.once_in(20) {
            self.holds[side] = !self.holds[side];
        }
        while self.lent[side] != 0 && !self.holds[side] {
            self.lent[side] -= 1;
            self.ends[side].give_back();
        }
    }

    fn is_done(&self, messages: u32) -> bool {
        let done = |side: usize| {
            let is_acknowledged = self.ends[side].session.oldest_unacknowledged().is_none();
            self.got[side] == messages && is_acknowledged
        };
        done(0) && done(1)
    }

    /// Runs until all messages have arrived; faults occur in the first `faulty_turns` turns.
    fn run(&mut self, messages: u32, faults: &Faults, faulty_turns: u32) {
        for turn in 0_u32.. {
            if self.is_done(messages) {
                break;
            }
            if turn < faulty_turns {
                self.happen(faults);
            }
            assert!(
                turn < 60_000,
                "stands still: {:?} {:?}",
                self.got,
                self.posted
            );
            self.turn(messages);
        }
        assert_eq!((self.posted, self.got), ([messages; 2], [messages; 2]));
        assert_eq!(self.ends.each_ref().map(End::kept), [0; 2]);
    }

    fn seen(&self) -> [Seen; 2] {
        self.ends.each_ref().map(|end| end.seen)
    }
}

/// The content of a foreign stream: noise, or frames that do not begin a session, the last of them perhaps incomplete.
fn foreign_bytes(random: &mut Random) -> Vec<u8> {
    if random.once_in(3) {
        let count = random.below(200);
        return random.bytes(count);
    }
    let mut writer = Writer::new();
    for _ in 0..1 + random.below(3) {
        frame(random, &mut writer);
    }
    let bytes = writer.waiting();
    let is_connect = bytes[4] == connect_byte();
    let keep = random.below(bytes.len() + 1);
    let keep = if is_connect { keep.min(15) } else { keep };
    bytes[..keep].to_vec()
}

/// The kind byte of a frame that begins a session, Connect.
fn connect_byte() -> u8 {
    let mut writer = Writer::new();
    let (attempt, end, again) = (0, (), false);
    let message = LinkMessage::Connect {
        attempt,
        end,
        again,
    };
    writer.link_message(Ack::default(), message);
    writer.waiting()[4]
}

/// Writes a random frame, often with numbers that are near valid ones.
fn frame(random: &mut Random, writer: &mut Writer) {
    let near = |random: &mut Random| match random.below(3) {
        0 => random.below(200) as u32,
        1 => (random.below(200) as u32).wrapping_neg(),
        _ => random.word() as u32,
    };
    let ack = Ack {
        next: near(random),
        beyond: 0,
        returned: near(random) as u16,
    };
    let (number, flag) = (near(random), random.once_in(2));
    let (attempt, end) = (number, ());
    let message = match random.below(9) {
        0 => LinkMessage::Ack { ack_request: flag },
        1 => LinkMessage::Connect {
            attempt,
            end,
            again: flag,
        },
        2 => LinkMessage::Accept { attempt, end },
        3 => LinkMessage::Ready { attempt },
        4 => LinkMessage::Refuse { attempt },
        5 => LinkMessage::Disconnect {
            attempt,
            done: flag,
        },
        _ => {
            let count = random.below(MOST_BODY + 1);
            let body = random.bytes(count);
            return writer.packet(ack, number, &body);
        }
    };
    writer.link_message(ack, message);
}

#[test]
fn stable_streams_deliver_once_over_one_stream() {
    for_seeds(50, |seed| {
        let mut pair = Pair::new(seed);
        pair.run(300, &Faults::default(), 0);
        for seen in pair.seen() {
            let all = (seen.joined, seen.broken, seen.twice, seen.silent);
            assert_eq!(all, (1, 0, 0, 0), "{seen:?}");
            // If both ends have sent Connect at the same time, one of the two attempts is refused.
            assert!(seen.refused <= 1, "{seen:?}");
        }
    });
}

#[test]
fn breaking_streams_deliver_once_in_order() {
    let mut total = Seen::default();
    for_seeds(200, |seed| {
        let mut random = Random::new(seed);
        let mut every = |most: usize| random.below(2) * (5 + random.below(most));
        let faults = Faults {
            resets: 5 + every(60),
            deaths: every(300),
            foreign_streams: every(60),
            pauses: every(200),
        };
        let mut pair = Pair::new(seed);
        pair.run(200, &faults, 2_000);
        for seen in pair.seen() {
            assert!(!seen.is_lost);
            total.joined += seen.joined;
            total.broken += seen.broken;
            total.torn += seen.torn;
            total.twice += seen.twice;
            total.silent += seen.silent;
            total.refused += seen.refused;
        }
    });
    if std::env::var("RMPI_TEST_SEED").is_err() {
        let all = [total.broken, total.torn, total.twice, total.silent];
        assert!(all.iter().all(|count| *count > 50), "{total:?}");
        assert!(total.refused > 50, "{total:?}");
    }
}

#[test]
fn foreign_streams_are_closed_without_effect() {
    for_seeds(50, |seed| {
        let faults = Faults {
            foreign_streams: 3,
            ..Faults::default()
        };
        let mut pair = Pair::new(seed);
        pair.run(200, &faults, 1_000);
        for seen in pair.seen() {
            assert!(seen.joined == 1 && seen.broken == 0, "{seen:?}");
        }
        for _ in 0..2_000 {
            pair.turn(200);
        }
        let open = pair.ends.each_ref().map(End::open_streams);
        assert_eq!(open, [1; 2], "the one that counts");
    });
}

#[test]
fn only_a_permanently_silent_peer_is_given_up() {
    for_seeds(30, |seed| {
        let mut pair = Pair::new(seed);
        pair.net.down_until_ns = pair.now_ns + MOST_SILENCE_NS / 2;
        pair.run(100, &Faults::default(), 0);
        assert!(
            pair.seen()
                .iter()
                .all(|seen| !seen.is_lost && seen.silent > 0)
        );

        pair.net.down_until_ns = u64::MAX;
        let down_ns = pair.now_ns;
        while !pair.ends[0].seen.is_lost {
            pair.turn(200);
            let waited_ns = pair.now_ns - down_ns;
            assert!(waited_ns < 2 * MOST_SILENCE_NS + SECOND, "{waited_ns}");
        }
        assert!(pair.now_ns - down_ns > MOST_SILENCE_NS);
        assert_eq!((pair.ends[0].kept(), pair.ends[0].open_streams()), (0, 0));
    });
}

#[test]
fn random_frames_from_a_peer_are_harmless() {
    let mut received = 0;
    for_seeds(400, |seed| {
        let mut random = Random::new(seed);
        let mut net = Net::new(seed);
        let mut end = End::new(0, random.below(100) as u32, false);
        let mut now_ns = SECOND;
        for attempt in 0..30 {
            // The foreign process begins as a peer does, and then sends random frames.
            let mut writer = Writer::new();
            let (end_there, again) = ((), random.once_in(2));
            let message = LinkMessage::Connect {
                attempt: 1 + attempt,
                end: end_there,
                again,
            };
            writer.link_message(Ack::default(), message);
            for _ in 0..random.below(30) {
                frame(&mut random, &mut writer);
            }
            let mut bytes = writer.waiting().to_vec();
            if random.once_in(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            net.open_foreign_stream(now_ns, 0, bytes);
            for _ in 0..10 {
                now_ns += random.below(10_000_000) as u64;
                end.post(now_ns, &[7; 400]);
                end.turn(now_ns, &mut net);
                received += end.ready.drain(..).count();
                assert!(end.kept() <= WINDOW as usize && end.open_streams() < 40);
            }
        }
    });
    assert!(received > 0 || std::env::var("RMPI_TEST_SEED").is_ok());
}
