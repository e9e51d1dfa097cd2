// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that no peer is starved by another peer that sends without pause (E2 of the engine depends on it).
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "test code may panic; its sizes are small"
)]

use testbed::memory::{Guarded, can_reach_own_process, open, segment_file};
use testbed::{head, pattern};
use transport::{Completion, Completions, Config, Fabric, Peer, WorkId, WorkOutcome};

/// Fills the ring towards `to`, so that one poll cannot return everything.
fn flood(fabric: &mut Fabric, to: u32) {
    while fabric.post_send(Peer(to), head(1), b"flood").is_ok() {}
}

fn fabrics(ranks: u32) -> Vec<Fabric> {
    let file = segment_file(ranks, 9);
    (0..ranks).map(|me| open(&file, 9, me, ranks)).collect()
}

/// Polls, counts the frames of each peer, and returns the outcome of a read, if one has completed.
fn poll(fabric: &mut Fabric, counts: &mut [u64]) -> Option<WorkOutcome> {
    let mut completions = Completions::new();
    fabric.poll(&mut completions);
    count(&mut completions, counts)
}

/// Counts the frames of each peer among the completions of a poll, and returns the outcome of a read, if one has
/// completed.
fn count(completions: &mut Completions, counts: &mut [u64]) -> Option<WorkOutcome> {
    let mut ended = None;
    for at in 0..completions.len() {
        match completions.take(at).unwrap() {
            Completion::Arrived(arrived) => counts[arrived.peer.0 as usize] += 1,
            Completion::Worked { outcome, .. } => ended = Some(outcome),
            Completion::Written { .. } => panic!("no write was posted"),
            Completion::Lost { .. } => panic!("no peer was lost"),
        }
    }
    ended
}

#[test]
fn flooding_peers_are_served_fairly() {
    let mut ranks = fabrics(5);
    let mut counts = [0; 5];
    for _ in 0..2000 {
        for sender in &mut ranks[1..] {
            flood(sender, 0);
        }
        poll(&mut ranks[0], &mut counts);
    }
    let all: u64 = counts.iter().sum();
    let fair = counts[1..].iter().all(|count| *count > all / 8);
    assert!(fair, "frames per sender: {counts:?}");
}

#[test]
fn quiet_peer_is_served_during_a_flood() {
    for (loud, quiet) in [(1, 2), (2, 1)] {
        for attentive in [false, true] {
            let mut ranks = fabrics(3);
            ranks[0].set_attentive(attentive);
            let mut counts = [0; 3];
            for turn in 0..300 {
                flood(&mut ranks[loud], 0);
                if turn == 100 {
                    ranks[quiet].post_send(Peer(0), head(1), b"me").unwrap();
                }
                poll(&mut ranks[0], &mut counts);
            }
            assert_eq!(counts[quiet], 1, "{loud} is loud, attentive: {attentive}");
        }
    }
}

/// After some hundred frames from one ring, further frames are returned only by a poll, and polls serve all peers.
#[test]
fn frames_at_hand_are_limited_for_fairness() {
    for besides in [false, true] {
        frames_at_hand_run_out(besides);
    }
}

/// `besides`: whether the polls skip the ring of the flooding sender.
fn frames_at_hand_run_out(besides: bool) {
    let mut ranks = fabrics(3);
    ranks[0].set_attentive(true);
    let mut counts = [0; 3];
    flood(&mut ranks[1], 0);
    poll(&mut ranks[0], &mut counts);
    ranks[2].post_send(Peer(0), head(1), b"me").unwrap();
    let (mut polls, mut completions) = (0, Completions::new());
    while counts[2] == 0 {
        let mut taken = 0;
        flood(&mut ranks[1], 0);
        while let Some(frame) = ranks[0].first_frame() {
            frame.take();
            flood(&mut ranks[1], 0);
            taken += 1;
            assert!(taken < 10_000, "other peers would starve");
        }
        assert!(
            taken > 100 && ranks[0].must_poll() && ranks[0].has_run_out(),
            "{taken} frames at hand"
        );
        let of_the_loud = counts[1];
        match besides {
            true => ranks[0].poll_beside_first(&mut completions),
            false => ranks[0].poll(&mut completions),
        }
        count(&mut completions, &mut counts);
        assert!(!besides || counts[1] == of_the_loud);
        assert!(!ranks[0].must_poll() && !ranks[0].has_run_out());
        polls += 1;
    }
    assert!(polls <= 3, "{polls} polls");
}

/// Even if idle receivers hold all buffers of the pool, active receivers still receive large bodies, one after the
/// other.
#[test]
fn idle_receivers_do_not_starve_others_of_buffers() {
    let mut ranks = fabrics(6);
    let (sender, receivers) = ranks.split_first_mut().unwrap();
    for away in 1..=4 {
        while sender.post_send(Peer(away), head(1), &[7; 8192]).is_ok() {}
    }
    let present = &mut receivers[4];
    for number in 0..100 {
        let body = pattern(0, number, 8192);
        sender.post_send(Peer(5), head(1), &body).unwrap();
        let refused = sender.post_send(Peer(5), head(1), &body);
        assert!(refused.is_err(), "the buffer is the receiver's");
        let mut completions = Completions::new();
        present.poll(&mut completions);
        let Some(Completion::Arrived(arrived)) = completions.take(0) else {
            panic!("message {number} has not arrived");
        };
        let mut got = vec![0; 8192];
        present.copy_body(&arrived, &mut got);
        present.release(&arrived);
        assert_eq!(got, body);
    }
}

#[test]
fn a_read_ends_under_a_flood() {
    let mut ranks = fabrics(3);
    let mut source = Guarded::of(&pattern(2, 0, 100_000));
    let mut target = Guarded::new(100_000);
    let key = source.export(&mut ranks[2], 0);
    let lease = target.lease(0, 100_000);
    let mut counts = [0; 3];
    let mut ended = None;
    ranks[0].post_read(Peer(2), lease, key, 0, WorkId(1));
    for _ in 0..300 {
        flood(&mut ranks[1], 0);
        ended = poll(&mut ranks[0], &mut counts).or(ended);
    }
    assert!(ended.is_some());
    assert!(ended == Some(WorkOutcome::Done) || !can_reach_own_process());
}

#[test]
fn self_and_peer_traffic_are_served_fairly() {
    let mut ranks = fabrics(2);
    let mut counts = [0; 2];
    for _ in 0..300 {
        let (first, rest) = ranks.split_first_mut().unwrap();
        flood(first, 0);
        flood(&mut rest[0], 0);
        poll(first, &mut counts);
    }
    assert!(counts[0] > 500 && counts[1] > 500, "{counts:?}");
}

#[test]
fn single_process_can_flood_itself() {
    let mut fabric = Fabric::open(Config::alone()).unwrap();
    let mut counts = [0];
    for _ in 0..100 {
        flood(&mut fabric, 0);
        poll(&mut fabric, &mut counts);
    }
    assert!(counts[0] >= 800);
}
