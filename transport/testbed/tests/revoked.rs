// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a reader whose offer was overwritten: only the owner can confirm that it will not write later, and its
//! confirmation reaches the reader.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; it overwrites a segment"
)]

use std::os::fd::OwnedFd;

use ring::{Head, Producer};
use testbed::memory::{Guarded, SegmentMapping, attach, open, segment_file};
use testbed::pattern;
use transport::{Completion, Completions, Fabric, Peer, WorkId, WorkOutcome};

const BYTES: usize = 4 << 20;
const OWNER: u32 = 0;
const READER: u32 = 1;
const HOSTILE: u32 = 2;
const REVOKE: u8 = 0x82;

/// A read in progress, whose offer was overwritten.
struct Scene {
    file: OwnedFd,
    owner: Fabric,
    reader: Fabric,
    source: Guarded,
    target: Guarded,
}

impl Scene {
    fn new() -> Self {
        let file = segment_file(3, 7);
        let (mut owner, mut reader) = (open(&file, 7, OWNER, 3), open(&file, 7, READER, 3));
        owner.set_attentive(true);
        reader.set_attentive(true);
        let mut source = Guarded::of(&pattern(0, 1, BYTES));
        let mut target = Guarded::new(BYTES);
        let key = source.export(&mut owner, READER);
        let lease = target.lease(0, BYTES);
        reader.post_read(Peer(OWNER), lease, key, 0, WorkId(1));
        let scene = Self {
            file,
            owner,
            reader,
            source,
            target,
        };
        scene.write(READER, 0x2000, &[0xff; 4096]);
        scene
    }

    fn write(&self, rank: u32, offset: usize, bytes: &[u8]) {
        let region = (ring::layout::boards_offset(3) - 4096) / 3;
        SegmentMapping::of(&self.file).write(4096 + rank as usize * region + offset, bytes);
    }

    fn poll_reader(&mut self) -> Option<WorkOutcome> {
        poll(&mut self.reader)
    }

    fn finish(mut self) {
        for _ in 0..100_000 {
            poll(&mut self.owner);
            if let Some(outcome) = self.poll_reader() {
                assert_eq!(outcome, WorkOutcome::Done);
                assert!(self.target.bytes() == self.source.bytes());
                return;
            }
        }
        panic!("the read never ends");
    }
}

fn poll(fabric: &mut Fabric) -> Option<WorkOutcome> {
    let mut completions = Completions::new();
    fabric.poll(&mut completions);
    (0..completions.len()).find_map(|at| match completions.take(at) {
        Some(Completion::Worked { outcome, .. }) => Some(outcome),
        _ => None,
    })
}

#[test]
fn a_scribbler_cannot_declare_the_owner_dead() {
    let mut scene = Scene::new();
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    let pid = dead.id();
    dead.wait().unwrap();
    // The place where the owner stores its process id.
    scene.write(OWNER, 4, &pid.to_ne_bytes());
    for _ in 0..10_000 {
        assert_eq!(scene.poll_reader(), None, "the owner may still write");
    }
    scene.finish();
}

#[test]
fn rank_ignoring_replies_does_not_block_others() {
    let mut scene = Scene::new();
    let segment = attach(&scene.file, 7, HOSTILE, 3).segment;
    let mut ring = Producer::new(
        segment.ring(OWNER, HOSTILE),
        segment.pair_line(OWNER, HOSTILE),
    );
    let head = Head {
        kind: REVOKE,
        len: 16,
        flags: 0,
        word: 0,
    };
    let _ = segment.bell(OWNER).ring(HOSTILE);
    for number in 0..10_000 {
        while ring.push(head, &[number, 0]).is_err() {
            poll(&mut scene.owner);
        }
    }
    scene.finish();
}
