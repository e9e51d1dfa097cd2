// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of large reads between ranks of one node: reader and owner share the copy when both poll the transport.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use ring::ChunkClaim;
use testbed::memory::{Guarded, attach, can_reach_own_process, open, segment_file};
use testbed::{Random, TestRank, head, pattern, world};
use transport::{Completion, Completions, Fabric, Peer, RemoteKey, WorkId, WorkOutcome, wait};

const LARGE: usize = 8 << 20;

/// A reader (rank 0) and an owner (rank 1) in one thread, and the memory between which they copy.
struct Scene {
    reader: Fabric,
    owner: Fabric,
    source: Guarded,
    target: Guarded,
    key: RemoteKey,
    segment: ring::Segment,
}

impl Scene {
    /// A scene with `bytes` bytes of memory; `None`: the kernel forbids reading another process's memory.
    fn new(bytes: usize) -> Option<Self> {
        if !can_reach_own_process() {
            return None;
        }
        let file = segment_file(2, 5);
        let (reader, mut owner) = (open(&file, 5, 0, 2), open(&file, 5, 1, 2));
        let mut source = Guarded::of(&pattern(1, 1, bytes));
        let key = source.export(&mut owner, 0);
        let target = Guarded::new(bytes);
        Some(Self {
            reader,
            owner,
            source,
            target,
            key,
            segment: attach(&file, 5, 0, 2).segment,
        })
    }

    fn post(&mut self, work: u64) {
        let lease = self.target.lease(0, self.target.bytes().len());
        self.reader
            .post_read(Peer(1), lease, self.key, 0, WorkId(work));
    }

    /// Polls the reader, and, if `owner_polls`, the owner too, until `reads` reads have completed.
    fn finish(&mut self, reads: usize, owner_polls: bool) -> Vec<(WorkId, WorkOutcome)> {
        let mut completions = Completions::new();
        let mut ended = Vec::new();
        for _ in 0..100_000 {
            ended.extend(ends(&mut self.reader, &mut completions));
            if ended.len() == reads {
                break;
            }
            if owner_polls {
                assert!(ends(&mut self.owner, &mut completions).is_empty());
            }
        }
        ended
    }

    fn assert_copied(&self) {
        assert!(
            self.target.bytes() == self.source.bytes(),
            "the copy differs"
        );
    }
}

fn ends(fabric: &mut Fabric, completions: &mut Completions) -> Vec<(WorkId, WorkOutcome)> {
    fabric.poll(completions);
    let taken = (0..completions.len()).filter_map(|at| completions.take(at));
    taken
        .map(|completion| match completion {
            Completion::Worked { work, outcome, .. } => (work, outcome),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn reader_and_owner_share_a_large_read_when_both_poll() {
    let Some(mut scene) = Scene::new(LARGE) else {
        return;
    };
    scene.reader.set_attentive(true);
    scene.post(1);
    assert_eq!(scene.finish(1, true), [(WorkId(1), WorkOutcome::Done)]);
    scene.assert_copied();
    let (read, helped) = (
        scene.reader.stats().read_bytes,
        scene.reader.stats().helped_bytes,
    );
    assert!(helped > 0, "the owner did nothing");
    assert!(read > 0, "the reader did nothing");
    assert!(
        (read + helped).abs_diff(LARGE as u64) < 256 << 10,
        "{read} + {helped}"
    );
}

#[test]
fn reader_copies_everything_if_the_owner_does_not_poll() {
    let Some(mut scene) = Scene::new(LARGE) else {
        return;
    };
    scene.reader.set_attentive(true);
    scene.post(1);
    assert_eq!(scene.finish(1, false), [(WorkId(1), WorkOutcome::Done)]);
    scene.assert_copied();
    assert_eq!(scene.reader.stats().helped_bytes, 0);
    // Now the owner polls, too late: the request for help is stale, so nothing is written any more.
    scene.target.bytes_mut().fill(3);
    let mut completions = Completions::new();
    for _ in 0..10 {
        assert!(ends(&mut scene.owner, &mut completions).is_empty());
    }
    assert!(
        scene
            .target
            .bytes()
            .iter()
            .step_by(997)
            .all(|byte| *byte == 3)
    );
}

#[test]
fn reader_sharing_its_core_requests_no_help() {
    let Some(mut scene) = Scene::new(LARGE) else {
        return;
    };
    scene.post(1);
    assert_eq!(scene.finish(1, true), [(WorkId(1), WorkOutcome::Done)]);
    scene.assert_copied();
    assert_eq!(scene.reader.stats().helped_bytes, 0);
}

#[test]
fn more_reads_than_offers_all_end() {
    let Some(mut scene) = Scene::new(2_000_000) else {
        return;
    };
    scene.reader.set_attentive(true);
    for work in 0..80 {
        scene.post(work);
    }
    let mut ended = scene.finish(80, true);
    ended.sort_unstable_by_key(|(work, _)| work.0);
    let expected = (0..80).map(|work| (WorkId(work), WorkOutcome::Done));
    assert!(ended.into_iter().eq(expected));
    scene.assert_copied();
    assert!(scene.reader.stats().helped_bytes > 0);
}

#[test]
fn full_ring_prevents_help_requests_but_not_reads() {
    let Some(mut scene) = Scene::new(LARGE) else {
        return;
    };
    scene.reader.set_attentive(true);
    while scene.reader.post_send(Peer(1), head(1), &[]).is_ok() {}
    scene.post(1);
    assert_eq!(scene.finish(1, false), [(WorkId(1), WorkOutcome::Done)]);
    scene.assert_copied();
}

/// A rank other than the owner claims all chunks of the offer and writes none of them.
#[test]
fn offer_drained_by_another_rank_does_not_block_the_reader() {
    let Some(mut scene) = Scene::new(LARGE) else {
        return;
    };
    scene.reader.set_attentive(true);
    scene.post(1);
    let intruder = scene.segment.offer(0, 0).unwrap();
    let chunks = (LARGE >> 18) as u32;
    let mut stolen = 0;
    while let ChunkClaim::Chunk(_) = intruder.claim_back(1, chunks) {
        stolen += 1;
    }
    assert_eq!(stolen, chunks, "the test assumes this number of chunks");
    assert_eq!(scene.finish(1, true), [(WorkId(1), WorkOutcome::Done)]);
    scene.assert_copied();
}

/// The offer's words are overwritten at every stage of a read.
#[test]
fn offer_overwritten_by_another_rank_corrupts_no_read() {
    for step in 0..24 {
        let Some(mut scene) = Scene::new(LARGE) else {
            return;
        };
        scene.reader.set_attentive(true);
        scene.post(1);
        let mut completions = Completions::new();
        let mut ended = Vec::new();
        for turn in 0..100_000 {
            if turn == step / 4 {
                // The offer is overwritten with another generation, with the same generation from the start, with all
                // chunks finished, or with a failure.
                let intruder = scene.segment.offer(0, 0).unwrap();
                match step % 4 {
                    0 => intruder.open(77),
                    1 => intruder.open(1),
                    2 => (0..32).for_each(|_| intruder.finish_back(false)),
                    _ => intruder.finish_back(true),
                }
            }
            assert!(ends(&mut scene.owner, &mut completions).is_empty());
            ended.extend(ends(&mut scene.reader, &mut completions));
            if !ended.is_empty() {
                break;
            }
        }
        assert_eq!(ended, [(WorkId(1), WorkOutcome::Done)], "step {step}");
        // A forged count that is valid is accepted, so in that case the target may have wrong bytes.
        assert!(
            step % 4 == 2 || scene.target.bytes() == scene.source.bytes(),
            "step {step}"
        );
    }
}

/// The owner exports memory with one inaccessible page. No side can copy that page, so the read fails.
#[test]
fn shared_read_of_inaccessible_memory_fails() {
    let Some(mut scene) = Scene::new(LARGE) else {
        return;
    };
    for hole in [0, LARGE / 2, LARGE - 4096] {
        let memory = Pages::new(LARGE);
        memory.forbid(hole, 4096);
        scene.reader.set_attentive(true);
        scene.key = scene.owner.export(Peer(0), memory.address(), LARGE as u64);
        scene.post(7);
        assert_eq!(
            scene.finish(1, true),
            [(WorkId(7), WorkOutcome::BadKey)],
            "hole {hole}"
        );
        // Nothing may be written after the lease was returned.
        scene.target.bytes_mut().fill(9);
        let mut completions = Completions::new();
        for _ in 0..100 {
            assert!(ends(&mut scene.owner, &mut completions).is_empty());
            assert!(ends(&mut scene.reader, &mut completions).is_empty());
        }
        assert!(
            scene
                .target
                .bytes()
                .iter()
                .step_by(997)
                .all(|byte| *byte == 9)
        );
    }
}

/// Reader and owner are processes. The owner is killed at a random moment of the copy, and the read still completes.
#[test]
fn owner_killed_while_helping_does_not_block_the_reader() {
    for round in 0..8 {
        let file = segment_file(2, 0x70b);
        let mut children = world::start(&file, 2, "death");
        let mut random = Random(round);
        // The reader prints a mark when it begins to read.
        world::wait_for_mark(&mut children[0]);
        std::thread::sleep(Duration::from_micros(random.below(10_000)));
        children[1].kill().unwrap();
        let ends = world::finish(children);
        assert!(
            ends[0].success(),
            "round {round}: the reader ended with {}",
            ends[0]
        );
        assert!(ends[1].success() || ends[1].signal() == Some(libc::SIGKILL));
    }
}

#[test]
fn child_rank() {
    let Some((name, mut rank)) = world::child() else {
        return;
    };
    assert_eq!(name, "death");
    match rank.me {
        0 => world::run(&mut rank, read_until_the_owner_is_killed),
        _ => world::run(&mut rank, own_and_help),
    }
}

async fn read_until_the_owner_is_killed(rank: &mut TestRank) {
    const BYTES: usize = 12 << 20;
    rank.fabric.set_attentive(true);
    let key = rank.receive_key(1).await;
    let mut target = Guarded::new(BYTES);
    let mut begun = false;
    let limit = Instant::now() + Duration::from_secs(150);
    loop {
        assert!(Instant::now() < limit, "the owner lives for ever");
        let outcome = rank.read(1, target.lease(0, BYTES), key, 0).await;
        if !begun {
            std::io::stdout().write_all(b"!").unwrap();
            std::io::stdout().flush().unwrap();
            begun = true;
        }
        match outcome {
            WorkOutcome::Done => {}
            WorkOutcome::BadKey | WorkOutcome::Unreachable => return,
            WorkOutcome::Unknown => panic!("a read in doubt"),
        }
    }
}

async fn own_and_help(rank: &mut TestRank) {
    const BYTES: usize = 12 << 20;
    let mut source = Guarded::of(&vec![1; BYTES]);
    let key = source.export(&mut rank.fabric, 0);
    rank.send_key(0, key).await;
    loop {
        rank.poll();
        wait::yield_core();
    }
}

/// Memory of whole pages, some of which can be made inaccessible.
struct Pages {
    base: *mut u8,
    bytes: usize,
}

impl Pages {
    fn new(bytes: usize) -> Self {
        // SAFETY: a new private mapping at an address chosen by the kernel.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self {
            base: base.cast(),
            bytes,
        }
    }

    fn address(&self) -> u64 {
        self.base.expose_provenance() as u64
    }

    fn forbid(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes);
        // SAFETY: the offset is within the mapping.
        let place = unsafe { self.base.add(offset) };
        // SAFETY: the pages belong to this mapping, and nothing in Rust refers to them.
        let answer = unsafe { libc::mprotect(place.cast(), bytes, libc::PROT_NONE) };
        assert_eq!(answer, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
