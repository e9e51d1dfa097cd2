// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overwrites the node segment while ranks use it. Payload may be corrupted, and frames and reads may be lost or
//! refused; but no rank crashes, hangs inside a call, or accesses memory that was not lent.
//!
//! The variable `RMPI_TEST_LONG` extends the tests from seconds to minutes; `RMPI_TEST_SEED` runs only one seed.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testbed::memory::{Guarded, SegmentMapping, inherited, number_of, open, segment_file};
use testbed::{Random, pattern};
use transport::{Completion, Completions, Fabric, Head, Peer, RemoteKey, WorkId};

const RANKS: u32 = 3;
const JOB: u64 = 0xbad;
const SOURCE_BYTES: usize = 300_000;
const SINK_BYTES: usize = 20_000;

/// A rank that uses all functions of a fabric at random, and accepts any result.
struct Victim {
    me: u32,
    fabric: Fabric,
    random: Random,
    /// Memory that peers may read, but never write.
    source: Guarded,
    sink: Guarded,
    /// For each rank, the keys with which this rank accesses that rank's `source` and `sink`.
    keys: Vec<(RemoteKey, RemoteKey)>,
    /// Memory of posted work, which is kept until the end of the test.
    lent: Vec<Guarded>,
    posted: u64,
    ended: u64,
}

impl Victim {
    /// Makes all ranks. Their keys are exchanged outside the segment, since another test covers invalid keys.
    fn all(file: &OwnedFd, seed: u64) -> Vec<Self> {
        let mut victims: Vec<_> = (0..RANKS)
            .map(|me| Self {
                me,
                fabric: open(file, JOB, me, RANKS),
                random: Random(seed * 8 + u64::from(me)),
                source: Guarded::of(&pattern(me, 0, SOURCE_BYTES)),
                sink: Guarded::new(SINK_BYTES),
                keys: Vec::new(),
                lent: Vec::new(),
                posted: 0,
                ended: 0,
            })
            .collect();
        for user in 0..RANKS {
            let keys: Vec<_> = victims.iter_mut().map(|owner| owner.export(user)).collect();
            victims[user as usize].keys = keys;
        }
        victims
    }

    fn export(&mut self, user: u32) -> (RemoteKey, RemoteKey) {
        (
            self.source.export(&mut self.fabric, user),
            self.sink.export(&mut self.fabric, user),
        )
    }

    fn act(&mut self) {
        match self.random.below(16) {
            0..5 => self.send(),
            5 if self.lent.len() < 40 => self.read(),
            6 if self.lent.len() < 40 => self.write(),
            7 => self.fabric.set_attentive(self.random.below(3) != 0),
            8 if self.fabric.prepare_sleep() => match self.random.below(4) {
                0 => self.fabric.sleep(Duration::from_micros(50)),
                _ => self.fabric.stay_awake(),
            },
            _ => self.take_in(),
        }
    }

    fn send(&mut self) {
        let to = self.random.below(u64::from(RANKS)) as u32;
        let bytes = match self.random.below(4) {
            0 => self.random.below(8193),
            _ => self.random.below(70),
        };
        let head = Head {
            kind: self.random.below(128) as u8,
            len: 0,
            flags: 7,
            word: self.random.word(),
        };
        let body = &self.source.bytes()[..bytes as usize];
        let _ = self.fabric.post_send(Peer(to), head, body);
    }

    fn read(&mut self) {
        let from = self.random.below(u64::from(RANKS)) as u32;
        let bytes = self.random.below(SOURCE_BYTES as u64) as usize;
        let offset = self.random.below((SOURCE_BYTES - bytes) as u64 + 1);
        let mut target = Guarded::new(bytes);
        let lease = target.lease(0, bytes);
        self.lent.push(target);
        self.posted += 1;
        let key = self.keys[from as usize].0;
        self.fabric
            .post_read(Peer(from), lease, key, offset, WorkId(self.posted));
    }

    fn write(&mut self) {
        let to = self.random.below(u64::from(RANKS)) as u32;
        let mut source = Guarded::of(&pattern(self.me, 1, SINK_BYTES / 2));
        let lease = source.lease(0, SINK_BYTES / 2);
        self.lent.push(source);
        let key = self.keys[to as usize].1;
        let posted =
            self.fabric
                .post_write(Peer(to), lease, key, 100, WorkId(self.posted + 1), Some(3));
        self.posted += u64::from(posted.is_ok());
    }

    fn take_in(&mut self) {
        if self.random.below(3) == 0
            && let Some(first) = self.fabric.first_frame()
        {
            assert!(first.peer().0 < RANKS);
            // As in real use, only a short frame of a user's kind is taken here; any other frame is left to the poll.
            if first.head().kind < 128 && first.head().len <= 8 {
                let _ = first.word();
                first.take();
            }
        }
        let mut completions = Completions::new();
        self.fabric.poll(&mut completions);
        for at in 0..completions.len() {
            match completions.take(at).unwrap() {
                Completion::Arrived(arrived) => {
                    assert!(arrived.peer.0 < RANKS, "a peer is known from its ring");
                    assert!(arrived.head.kind < 128, "the provider keeps its own frames");
                    assert!(arrived.bytes() <= 8192);
                    let mut body = Guarded::new(arrived.bytes() as usize);
                    let copied = self.fabric.copy_body(&arrived, body.bytes_mut());
                    assert!(arrived.is_lent() || copied == body.bytes().len());
                    self.fabric.release(&arrived);
                }
                Completion::Written { peer, .. } | Completion::Lost { peer } => {
                    assert!(peer.0 < RANKS);
                }
                Completion::Worked { lease, .. } => {
                    self.ended += 1;
                    assert!(self.ended <= self.posted, "a lease came back twice");
                    assert!(lease.bytes() <= SOURCE_BYTES);
                }
            }
        }
    }

    fn assert_unharmed(&self) {
        assert!(
            self.source.bytes() == pattern(self.me, 0, SOURCE_BYTES),
            "a source was written"
        );
        self.source.assert_guards();
        self.sink.assert_guards();
        self.lent.iter().for_each(Guarded::assert_guards);
    }
}

/// Overwrites random bytes of the segment: mostly control words, with writes of 1 to 8 bytes and small, large and
/// random values.
fn scribble(segment: &SegmentMapping, random: &mut Random) {
    let region = (segment.bytes() - 4096) / RANKS as usize;
    let place = random.below(u64::from(RANKS)) as usize * region + 4096;
    // Length of the blocks of a region up to its pool; see `layout.rs` of crate `ring`.
    let control = 4096 * (4 + RANKS as usize) + 4096;
    let offset = match random.below(8) {
        0 => random.below(segment.bytes() as u64 - 64) as usize,
        1..4 => place + random.below(control as u64 - 64) as usize,
        // Near the beginnings of pages, where most control words are.
        _ => {
            place + 4096 * random.below(control as u64 / 4096) as usize + random.below(130) as usize
        }
    };
    let value = match random.below(5) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(70),
        3 => random.below(70) << (8 * random.below(8)),
        _ => random.word(),
    };
    let bytes = [1, 2, 4, 8][random.below(4) as usize];
    segment.write(offset, &value.to_ne_bytes()[..bytes]);
    if random.below(50) == 0 {
        let noise = pattern(9, random.word(), 64);
        segment.write(offset & !63, &noise);
    }
}

fn is_long() -> bool {
    std::env::var_os("RMPI_TEST_LONG").is_some()
}

#[test]
fn segment_overwritten_between_steps_harms_no_rank() {
    let only = std::env::var("RMPI_TEST_SEED").ok();
    let only = only.map(|seed| seed.parse::<u64>().unwrap());
    let many = if is_long() { 3000 } else { 60 };
    for seed in only.map_or(0..many, |seed| seed..seed + 1) {
        let _failing = testbed::world::Failing(seed);
        let file = segment_file(RANKS, JOB);
        let segment = SegmentMapping::of(&file);
        let mut random = Random(seed);
        let mut victims = Victim::all(&file, seed);
        // The seed determines how many turns pass before the first overwrite, and how often the segment is overwritten.
        let (quiet, pause) = (random.below(200), 1 + random.below(60));
        for turn in 0..1500 {
            for victim in &mut victims {
                victim.act();
                if turn > quiet && random.below(pause) == 0 {
                    scribble(&segment, &mut random);
                }
            }
        }
        victims.iter().for_each(Victim::assert_unharmed);
        let works: u64 = victims.iter().map(|victim| victim.ended).sum();
        assert!(works > 0, "no read or write ever ended");
    }
}

/// Another process overwrites the segment as fast as it can, while ranks in threads use it.
#[test]
fn segment_overwritten_concurrently_harms_no_rank() {
    let (rounds, time) = match is_long() {
        true => (60, Duration::from_secs(3)),
        false => (6, Duration::from_millis(300)),
    };
    for round in 0..rounds {
        let file = segment_file(RANKS, JOB);
        let mut scribbler = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["child_scribbler", "--exact", "--quiet"])
            .env(
                "RMPI_TEST_SCRIBBLER",
                format!("{} {round}", number_of(&file)),
            )
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = Victim::all(&file, 1000 + round)
            .into_iter()
            .map(|mut victim| {
                let over = over.clone();
                std::thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        victim.act();
                    }
                    victim
                })
            })
            .collect();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        // A thread that hangs inside a call is not joined: the time limit of the test detects it.
        let victims: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        scribbler.kill().unwrap();
        scribbler.wait().unwrap();
        victims.iter().for_each(Victim::assert_unharmed);
    }
}

#[test]
fn child_scribbler() {
    let Ok(value) = std::env::var("RMPI_TEST_SCRIBBLER") else {
        return;
    };
    let (number, seed) = value.split_once(' ').unwrap();
    let segment = SegmentMapping::of(&inherited(number.parse().unwrap()));
    let mut random = Random(seed.parse().unwrap());
    let limit = Instant::now() + Duration::from_secs(30);
    let pause = 1 << random.below(12);
    while Instant::now() < limit {
        scribble(&segment, &mut random);
        for _ in 0..random.below(pause) {
            std::hint::spin_loop();
        }
    }
}
