// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of boards (shared memory for the collectives of a node): ranks that meet on a board read what all of them
//! wrote, sleep and are woken, and survive arbitrary data on the board.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "test code may panic; its sizes are small"
)]

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use testbed::Random;
use testbed::memory::{SegmentMapping, open, segment_file};
use transport::bcast_queue::CHUNK_BYTES;
use transport::seat::{Awaited, BoardEvent, NODE_BOARD, Round, RoundNote};
use transport::{Completions, Fabric, Peer, Seat};

const JOB: u64 = 77;

fn seat(fabric: &Fabric, key: u32, members: &[u32]) -> Option<Rc<Seat>> {
    let members = members.iter().copied().map(Peer);
    fabric.take_seat(key, members).map(Rc::new)
}

fn each_rank<T: Send + 'static>(
    file: &Arc<OwnedFd>,
    ranks: u32,
    body: impl Fn(u32, Fabric) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let body = Arc::new(body);
    let threads: Vec<_> = (0..ranks)
        .map(|me| {
            let (file, body) = (Arc::clone(file), Arc::clone(&body));
            thread::spawn(move || body(me, open(&file, JOB, me, ranks)))
        })
        .collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

fn wait_for(event: impl Fn() -> bool) {
    while !event() {
        thread::yield_now();
    }
}

fn begin(seat: &Seat) -> Round {
    wait_for(|| seat.begin().is_some());
    seat.begin().unwrap()
}

fn byte(round: u32, place: u32, at: usize) -> u8 {
    (round.wrapping_mul(31) ^ place.wrapping_mul(7)).wrapping_add(at as u32) as u8
}

#[test]
fn members_read_what_all_wrote() {
    for ranks in [2, 3, 17] {
        let file = Arc::new(segment_file(ranks, JOB));
        each_rank(&file, ranks, move |me, fabric| {
            let all: Vec<u32> = (0..ranks).collect();
            let seat = seat(&fabric, NODE_BOARD, &all).unwrap();
            assert_eq!(seat.members(), ranks);
            let mut random = Random(5);
            for number in 0..300 {
                // The same number on all ranks.
                let bytes = random.below(400) as usize;
                let note = RoundNote {
                    kind: 1,
                    bytes: bytes as u32,
                };
                let round = begin(&seat);
                let mine: Vec<u8> = (0..bytes).map(|at| byte(number, me, at)).collect();
                seat.put(round, ranks as usize * bytes, me as usize * bytes, &mine);
                seat.arrive(round, note);
                // At random, ranks other than 0 do not wait, like the members of a reduction other than its root.
                if random.below(3) == 0 && me != 0 {
                    continue;
                }
                wait_for(|| seat.is_over(round));
                assert!(!seat.is_disputed(round));
                let mut got = vec![0; bytes];
                for from in 0..ranks {
                    seat.read(
                        round,
                        ranks as usize * bytes,
                        from as usize * bytes,
                        &mut got,
                    );
                    let expected = |(at, got): (usize, &u8)| *got == byte(number, from, at);
                    assert!(
                        got.iter().enumerate().all(expected),
                        "round {number} from {from}"
                    );
                }
            }
        });
    }
}

#[test]
fn member_with_a_differing_note_is_named() {
    let file = Arc::new(segment_file(3, JOB));
    let found = each_rank(&file, 3, |me, fabric| {
        let seat = seat(&fabric, NODE_BOARD, &[0, 1, 2]).unwrap();
        let round = begin(&seat);
        let kind = if me == 1 { 9 } else { 4 };
        let note = RoundNote { kind, bytes: 8 };
        seat.arrive(round, note);
        wait_for(|| seat.is_over(round));
        (seat.is_disputed(round), seat.who_differs(round, note))
    });
    let other = |kind| Some(RoundNote { kind, bytes: 8 });
    for (me, (disputed, theirs)) in found.into_iter().enumerate() {
        assert!(disputed, "rank {me}");
        let expected = if me == 1 {
            (0, other(4))
        } else {
            (1, other(9))
        };
        assert_eq!(
            theirs.map(|(rank, note)| (rank, Some(note))),
            Some(expected)
        );
    }
}

/// The longest sleep: a rank sleeps this long only if it is not woken.
const FOR_EVER: Duration = Duration::from_secs(40);

fn asleep_until(fabric: &mut Fabric, seat: &Rc<Seat>, event: BoardEvent) {
    let awaited = Awaited::new(seat, event);
    let mut completions = Completions::new();
    while !awaited.has_happened() {
        fabric.poll(&mut completions);
        let since = Instant::now();
        awaited.doze(|it| {
            if fabric.prepare_sleep() {
                match it.has_happened() {
                    true => fabric.stay_awake(),
                    false => fabric.sleep(FOR_EVER),
                }
            }
        });
        assert!(
            since.elapsed() < FOR_EVER - Duration::from_secs(5),
            "no wake-up came"
        );
    }
}

#[test]
fn last_arrival_wakes_all_sleepers() {
    const RANKS: u32 = 5;
    let file = Arc::new(segment_file(RANKS, JOB));
    each_rank(&file, RANKS, |me, mut fabric| {
        let seat = seat(&fabric, NODE_BOARD, &[0, 1, 2, 3, 4]).unwrap();
        for number in 0..300u32 {
            if seat.begin().is_none() {
                let last = seat.last();
                asleep_until(&mut fabric, &seat, BoardEvent::Over(last));
            }
            let round = seat.begin().unwrap();
            let note = RoundNote {
                kind: 2,
                bytes: number % 3,
            };
            seat.arrive(round, note);
            assert_eq!(seat.note(round, me), Some(note));
            if number % 7 == 0 {
                asleep_until(&mut fabric, &seat, BoardEvent::Over(round));
            }
        }
    });
}

/// Each rank in turn is the root of many broadcasts, and runs many entries ahead of the others. The lengths are around
/// the sizes of an entry and of a chunk; ranks that must wait sleep.
#[test]
fn broadcast_entries_stay_in_order_while_roots_run_ahead() {
    const RANKS: u32 = 4;
    let file = Arc::new(segment_file(RANKS, JOB));
    each_rank(&file, RANKS, |me, mut fabric| {
        let seat = seat(&fabric, NODE_BOARD, &[0, 1, 2, 3]).unwrap();
        let lengths = [
            0,
            1,
            8,
            47,
            48,
            49,
            64,
            65,
            1000,
            4096,
            CHUNK_BYTES - 1,
            CHUNK_BYTES,
        ];
        let byte = |number: u32, at: usize| (number as usize * 31 + at * 7) as u8;
        for number in 0..3000u32 {
            let length = lengths[number as usize % lengths.len()];
            let bytes: Vec<u8> = (0..length).map(|at| byte(number, at)).collect();
            let (root, queue) = (number / 250 % RANKS, seat.bcast_queue());
            let note = RoundNote {
                kind: 2,
                bytes: length as u32,
            };
            if me == root {
                if !queue.has_room(length) {
                    seat.wake_sleepers();
                    let count = queue.room_target(length);
                    asleep_until(&mut fabric, &seat, BoardEvent::Taken(count));
                }
                queue.publish(note, &bytes);
                seat.wake_sleepers();
                continue;
            }
            asleep_until(&mut fabric, &seat, BoardEvent::Entry(queue.next()));
            let entry = queue.next_entry().unwrap();
            assert_eq!((entry.note, entry.place), (note, root));
            let at = length / 3;
            let mut got = vec![0; length - at];
            queue.read(&entry, length, at, &mut got);
            assert_eq!(got, bytes[at..], "entry {number}");
            seat.take_entry(&entry);
        }
    });
}

#[test]
fn announced_call_is_visible_to_members() {
    let file = segment_file(2, JOB);
    let [first, second] = [0, 1].map(|me| seat(&open(&file, JOB, me, 2), NODE_BOARD, &[0, 1]));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(second.bcast_queue().announced(0), None);
    first.bcast_queue().announce(0, false);
    assert_eq!(second.bcast_queue().announced(0), Some((0, false)));
    first.bcast_queue().announce(u32::MAX, true);
    assert_eq!(second.bcast_queue().announced(0), Some((u32::MAX, true)));
}

#[test]
fn boards_are_claimed_shared_and_released() {
    let file = segment_file(3, JOB);
    let mut fabrics: Vec<_> = (0..3).map(|me| open(&file, JOB, me, 3)).collect();
    for _ in 0..100 {
        let claimed = (1..100)
            .take_while(|key| fabrics[0].claim_board(*key))
            .count() as u32;
        assert_eq!(claimed, ring::layout::BOARDS - 1, "all but the node's own");
        let some = seat(&fabrics[2], 1, &[2, 0]).unwrap();
        assert_eq!(some.members(), 2);
        assert!(seat(&fabrics[1], 1, &[2, 0]).is_none(), "it is no member");
        assert!(
            seat(&fabrics[1], 99, &[0, 1]).is_none(),
            "it is not claimed"
        );
        for key in 2..=claimed {
            fabrics[0].unclaim_board(key);
        }
        fabrics[2].leave_board(1, 2);
        assert!(
            seat(&fabrics[0], 1, &[2, 0]).is_some(),
            "one is still there"
        );
        fabrics[0].leave_board(1, 2);
        assert!(seat(&fabrics[0], 1, &[2, 0]).is_none());
        fabrics[1].leave_board(1, 2);
        fabrics[1].leave_board(NODE_BOARD, 1);
        assert!(seat(&fabrics[0], NODE_BOARD, &[0, 1, 2]).is_some());
    }
}

#[test]
fn single_process_has_no_board() {
    let mut alone = Fabric::open(transport::Config::alone()).unwrap();
    assert!(!alone.claim_board(3));
    assert!(seat(&alone, NODE_BOARD, &[0]).is_none());
    alone.leave_board(3, 1);
    let file = segment_file(1, JOB);
    let fabric = open(&file, JOB, 0, 1);
    assert!(seat(&fabric, NODE_BOARD, &[0]).is_none());
}

/// Whatever other processes write to a board, a member does not panic or access memory outside the board. It may read
/// garbage, and might wait forever; so the member in this test does not wait.
#[test]
fn garbage_on_a_board_is_harmless() {
    let ranks = 2;
    let file = segment_file(ranks, JOB);
    let mut fabric = open(&file, JOB, 0, ranks);
    let mapping = SegmentMapping::of(&file);
    let first = ring::layout::boards_offset(ranks);
    let queue = ring::layout::queue_offset(ranks) as u64;
    let lines = queue - 0x2000;
    let mut random = Random(2026);
    for _ in 0..2000 {
        for _ in 0..40 {
            // A third of the writes overwrites the board's words, a third the members' lines, and a third the words and
            // the ring of the broadcast queue.
            let at = match random.below(3) {
                0 => random.below(ring::layout::BOARD_DATA_OFFSET as u64),
                1 => lines + random.below(0x2000),
                _ => queue + random.below(0x8000),
            };
            let at = first + at as usize / 8 * 8;
            mapping.write(at, &random.word().to_ne_bytes());
        }
        let Some(seat) = seat(&fabric, NODE_BOARD, &[0, 1]) else {
            continue;
        };
        let note = RoundNote { kind: 1, bytes: 16 };
        let mut got = [0; 16];
        let Some(round) = seat.begin() else { continue };
        let room = seat.room_bytes();
        seat.put(round, room, room - 16, &[7; 16]);
        seat.arrive(round, note);
        let _ = (
            seat.is_over(round),
            seat.is_disputed(round),
            seat.who_differs(round, note),
        );
        let _ = seat.note(round, 1);
        seat.read(round, room, room - 16, &mut got);
        assert_eq!(got, [7; 16]);
        let queue = seat.bcast_queue();
        let length = random.below(CHUNK_BYTES as u64) as usize;
        if queue.has_room(length) {
            queue.publish(note, &vec![7; length]);
        } else {
            let _ = queue.have_taken(queue.room_target(length));
        }
        if let Some(entry) = queue.next_entry() {
            queue.read(&entry, length, random.below(9) as usize, &mut got);
            seat.take_entry(&entry);
        }
        let key = random.below(20) as u32 + 1;
        let _ = fabric.claim_board(key);
        fabric.leave_board(key, 2);
    }
}
