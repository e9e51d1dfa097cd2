// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of processes of a node that meet after they were opened: two jobs of two processes each. Each job has a
//! segment of its own; later all four processes attach a joint segment.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test code may panic; its sizes are small"
)]

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use testbed::memory::{Guarded, attach_as, can_reach_own_process, open, segment_file};
use testbed::{head, pattern};
use transport::{Completion, Completions, Config, Error, Fabric, Head, Peer, WorkId, WorkOutcome};

/// The longest sleep: a rank sleeps this long only if it is not woken.
const FOR_EVER: Duration = Duration::from_secs(40);
const JOINT: u64 = 99;

/// The peer numbers that process `me` of the four uses for the ranks of the joint segment: 0 and 1 for its own job.
fn numbers(me: u32) -> Vec<Peer> {
    let shift = if me < 2 { [0, 1, 2, 3] } else { [2, 3, 0, 1] };
    shift.map(Peer).to_vec()
}

/// Process `me` of the four, with only the segment of its own job.
fn process(jobs: &[OwnedFd; 2], me: u32) -> Fabric {
    let job = me / 2;
    open(&jobs[job as usize], job.into(), me % 2, 2)
}

fn attach_joint(fabric: &mut Fabric, joint: &OwnedFd, me: u32) {
    let node = attach_as(joint, JOINT, me, numbers(me));
    assert_eq!(fabric.peer_count(), 2);
    fabric.attach(node).unwrap();
    assert_eq!(fabric.peer_count(), 4);
}

fn four() -> ([OwnedFd; 2], OwnedFd) {
    (
        [segment_file(2, 0), segment_file(2, 1)],
        segment_file(4, JOINT),
    )
}

/// Waits for the next frame of a process: its sender, its number and its body.
fn next(fabric: &mut Fabric, completions: &mut Completions) -> (Peer, u64, Vec<u8>) {
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < FOR_EVER, "nothing comes");
        fabric.poll(completions);
        if let Some(Completion::Arrived(arrived)) = completions.take(0) {
            let mut body = vec![0; arrived.bytes() as usize];
            assert_eq!(fabric.copy_body(&arrived, &mut body), body.len());
            fabric.release(&arrived);
            assert!(completions.take(1).is_none());
            return (arrived.peer, arrived.head.word, body);
        }
    }
}

#[test]
fn processes_attached_later_exchange_messages() {
    let (jobs, joint) = four();
    let mut all: Vec<Fabric> = (0..4).map(|me| process(&jobs, me)).collect();
    for (me, fabric) in (0..).zip(&mut all) {
        attach_joint(fabric, &joint, me);
    }
    let mut completions = Completions::new();
    // Bodies in a slot, bodies in a buffer of the pool, and the longest.
    for bytes in [0, 8, 40, 1000, 4096] {
        for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
            let there = Peer(numbers(from)[to as usize].0);
            let word = u64::from(10 * from + to);
            let body = pattern(from, word, bytes);
            all[from as usize]
                .post_send(there, Head { word, ..head(1) }, &body)
                .unwrap();
            let got = next(&mut all[to as usize], &mut completions);
            assert_eq!(
                got,
                (numbers(to)[from as usize], word, body),
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn memory_of_a_later_attached_process_is_accessible() {
    let (jobs, joint) = four();
    let mut all: Vec<Fabric> = [0, 2].map(|me| process(&jobs, me)).into();
    for (me, fabric) in [0, 2].into_iter().zip(&mut all) {
        attach_joint(fabric, &joint, me);
    }
    let [one, other] = &mut all[..] else { panic!() };
    // Each process has the other as peer 2.
    let mut ours = Guarded::new(70_000);
    let mut theirs = Guarded::of(&pattern(2, 0, 70_000));
    let key = theirs.export(other, 2);
    one.post_read(Peer(2), ours.lease(0, 70_000), key, 0, WorkId(7));
    let since = Instant::now();
    let mut completions = Completions::new();
    let outcome = 'end: loop {
        assert!(since.elapsed() < FOR_EVER, "the read does not end");
        other.poll(&mut completions);
        one.poll(&mut completions);
        for at in 0.. {
            match completions.take(at) {
                None => break,
                Some(Completion::Worked { work, outcome, .. }) => {
                    assert_eq!(work, WorkId(7));
                    break 'end outcome;
                }
                Some(_) => {}
            }
        }
    };
    // If the kernel forbids reading another process's memory, this read is impossible.
    if can_reach_own_process() {
        assert_eq!(outcome, WorkOutcome::Done);
        assert_eq!(ours.bytes(), pattern(2, 0, 70_000));
    }
}

#[test]
fn sleeper_is_woken_from_either_segment() {
    let (jobs, joint) = four();
    let mut sleeper = process(&jobs, 0);
    attach_joint(&mut sleeper, &joint, 0);
    for waker in [1, 2] {
        std::thread::scope(|scope| {
            let mut other = process(&jobs, waker);
            attach_joint(&mut other, &joint, waker);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                let there = numbers(waker)[0];
                other.post_send(there, head(waker as u8), b"up").unwrap();
            });
            let mut completions = Completions::new();
            let since = Instant::now();
            loop {
                sleeper.poll(&mut completions);
                if let Some(Completion::Arrived(arrived)) = completions.take(0) {
                    assert_eq!(u32::from(arrived.head.kind), waker);
                    sleeper.release(&arrived);
                    break;
                }
                if sleeper.prepare_sleep() {
                    sleeper.sleep(FOR_EVER);
                }
                assert!(since.elapsed() < FOR_EVER / 2, "no wake-up came");
            }
        });
    }
}

#[test]
fn nonconsecutive_peer_numbers_are_refused() {
    let joint = segment_file(2, JOINT);
    let mut alone = Fabric::open(Config::alone()).unwrap();
    let node = attach_as(&joint, JOINT, 0, vec![Peer(0), Peer(2)]);
    let refused = alone.attach(node).unwrap_err();
    assert!(
        matches!(refused, Error::PeerNumbers { expected: 1 }),
        "{refused}"
    );
    assert_eq!(alone.peer_count(), 1);
    let node = attach_as(&joint, JOINT, 0, vec![Peer(0), Peer(1)]);
    alone.attach(node).unwrap();
    assert_eq!(alone.peer_count(), 2);
}
