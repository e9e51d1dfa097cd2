// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the protocols of this crate in all relevant interleavings of two or three threads, with loom (`cargo xtask
//! test model`).
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;
use ring::{
    BcastEntryHead, BcastQueue, Bell, Bias, Board, ChunkClaim, Consumer, DEPTH, ENTRIES, Full,
    GateLine, Head, Ident, MemberLines, Offer, POOL_BUFFERS, PairLine, Pool, PoolSide, Producer,
    Ring, RoundArrival, RoundNote, Sleeps, Turnstile, Wake,
};

struct Node {
    ring: Ring,
    line: PairLine,
    bell: Bell,
    pool: PoolSide,
    /// Stands for the effect of a futex wake, so that a model can distinguish "slept for ever" from "was woken".
    woken: AtomicU32,
}

fn node() -> Arc<Node> {
    Arc::new(Node {
        ring: Ring::new(),
        line: PairLine::new(),
        bell: Bell::new(),
        pool: PoolSide::new(),
        woken: AtomicU32::new(0),
    })
}

fn head(kind: u8) -> Head {
    Head {
        kind,
        len: 8,
        flags: 0,
        word: u64::from(kind) + 100,
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// R1, R2: three frames pass through two slots, and arrive in order and complete; returned credit frees slots (PAIR
/// slot-full, slot-free).
#[test]
fn publish_consume_and_credit_return() {
    model(|| {
        let node = node();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                for i in 1..=3u8 {
                    while tx.push(head(i), &[u64::from(i) * 11]) == Err(Full) {
                        thread::yield_now();
                    }
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        for i in 1..=3u8 {
            let frame = loop {
                match rx.pop() {
                    Some(frame) => break frame,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((frame.head, frame.body[0]), (head(i), u64::from(i) * 11));
        }
        assert_eq!(rx.pop(), None);
        sender.join().unwrap();
    });
}

/// Non-atomic memory that loom checks: each write must be ordered before or after every other access.
struct Watched(loom::cell::UnsafeCell<u32>);

// SAFETY: loom panics when two threads touch the cell without an order between them.
#[allow(unsafe_code)]
unsafe impl Sync for Watched {}
// SAFETY: a number may be sent to any thread.
#[allow(unsafe_code)]
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    fn set(&self, value: u32) {
        self.0.with_mut(|cell| {
            // SAFETY: the pointer is to the cell's own memory; loom checks that no other thread accesses it.
            #[allow(unsafe_code)]
            unsafe {
                *cell = value;
            }
        });
    }

    fn get(&self) -> u32 {
        self.0.with(|cell| {
            // SAFETY: the pointer is to the cell's own memory; loom checks that it is not written concurrently.
            #[allow(unsafe_code)]
            unsafe {
                *cell
            }
        })
    }
}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

/// R1: a slot is the producer's again only after the consumer has read it (PAIR slot-free). Each slot has a watched
/// cell beside it, because in loom an atomic load never sees a later store, so the slot itself would not show the
/// error.
#[test]
fn a_slot_is_not_reused_early() {
    model(|| {
        let node = node();
        let beside = Arc::new([Watched::new(), Watched::new()]);
        let sender = {
            let (node, beside) = (node.clone(), beside.clone());
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                for i in 0..3u8 {
                    while !tx.has_room() {
                        thread::yield_now();
                    }
                    beside[usize::from(i) % 2].set(u32::from(i));
                    tx.push(head(i), &[]).unwrap();
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        for i in 0..3u8 {
            while rx.pop().is_none() {
                thread::yield_now();
            }
            assert_eq!(beside[usize::from(i) % 2].get(), u32::from(i));
            rx.return_credit();
        }
        sender.join().unwrap();
    });
}

/// R1: the buffer that is filled only for one receiver is read only after a frame has named it (PAIR slot-full, here
/// with `peek_plain`) and written again only after the receiver has copied it out (PAIR own-free).
#[test]
fn a_receivers_own_buffer_is_not_reused_early() {
    model(|| {
        let (node, buffer) = (node(), Arc::new(Watched::new()));
        let sender = {
            let (node, buffer) = (node.clone(), buffer.clone());
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                for i in 1..=2 {
                    while !tx.acquire_own() {
                        thread::yield_now();
                    }
                    buffer.set(u32::from(i));
                    tx.push(head(i), &[]).unwrap();
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        for i in 1..=2 {
            while rx.peek_plain(i, 8).is_none() {
                thread::yield_now();
            }
            rx.take();
            assert_eq!(buffer.get(), u32::from(i));
            rx.release_own();
        }
        sender.join().unwrap();
    });
}

/// A process that finds the pending bit set sees the stores that were made before the bell was rung (PAIR
/// bell-pending), even without the fence that pushing to a ring makes in loom.
#[test]
fn pending_bit_publishes_earlier_stores() {
    model(|| {
        let (bell, stored) = (Arc::new(Bell::new()), Arc::new(Watched::new()));
        let ringer = {
            let (bell, stored) = (bell.clone(), stored.clone());
            thread::spawn(move || {
                stored.set(7);
                let _ = bell.ring(3);
            })
        };
        if bell.take_pending(0) == 1 << 3 {
            assert_eq!(stored.get(), 7);
        }
        ringer.join().unwrap();
    });
}

/// A process that finds an offer open sees the stores that were made before it was opened (PAIR offer-open).
#[test]
fn open_offer_publishes_the_offered_memory() {
    model(|| {
        let (offer, memory) = (Arc::new(Offer::new()), Arc::new(Watched::new()));
        let helper = {
            let (offer, memory) = (offer.clone(), memory.clone());
            thread::spawn(move || {
                if let ChunkClaim::Chunk(_) = offer.claim_back(1, 2) {
                    assert_eq!(memory.get(), 5);
                }
            })
        };
        memory.set(5);
        offer.open(1);
        let _ = offer.claim_front(1, 2);
        helper.join().unwrap();
    });
}

/// A process that finds a rank's identity published sees all of it (PAIR ident).
#[test]
fn published_identity_is_complete() {
    model(|| {
        let ident = Arc::new(Ident::new());
        let owner = {
            let ident = ident.clone();
            thread::spawn(move || ident.introduce(77, 88, &[99]))
        };
        if let Some(pid) = ident.pid() {
            assert_eq!((pid, ident.nonces(), ident.cpus()[0]), (77, 88, 99));
        }
        owner.join().unwrap();
    });
}

/// R3, R5: a receiver that announces its sleep and checks once more either finds the frame or is woken from its sleep.
#[test]
fn a_sleeper_is_woken_or_sees_the_frame() {
    model(|| {
        let node = node();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                if !tx.push(head(1), &[1]).unwrap() && node.bell.ring(0) == Wake::Sleeper {
                    node.woken.store(1, Ordering::SeqCst);
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        node.bell.doze();
        let seen = node.bell.take_pending(0) != 0 && rx.pop().is_some();
        sender.join().unwrap();
        if !seen {
            assert!(node.bell.was_woken(), "asleep with a frame in the ring");
            assert_eq!(
                node.woken.load(Ordering::SeqCst),
                1,
                "there was no wake-up call"
            );
            node.bell.rise();
            assert_eq!(node.bell.take_pending(0), 1);
            assert!(rx.pop().is_some());
        }
    });
}

/// R5: if two senders ring one sleeping receiver, exactly one makes the wake-up call, and the receiver finds both
/// frames.
#[test]
fn two_ringers_make_one_wake_up() {
    model(|| {
        let bell = Arc::new(Bell::new());
        bell.doze();
        let ringers: Vec<_> = (0..2)
            .map(|sender| {
                let bell = bell.clone();
                thread::spawn(move || u32::from(bell.ring(sender) == Wake::Sleeper))
            })
            .collect();
        let calls: u32 = ringers.into_iter().map(|r| r.join().unwrap()).sum();
        assert_eq!(calls, 1);
        assert_eq!(bell.take_pending(0), 0b11);
    });
}

/// R3 with attention: if the sender does not ring the bell, the receiver certainly polls again. (PAIR attention; the
/// heavy fence, a system call in reality, is a full fence here.)
#[test]
fn withdrawn_attention_never_hides_a_frame() {
    model(|| {
        let node = node();
        let mut rx = Consumer::new(&node.ring, &node.line);
        rx.begin_polling();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                let watched = tx.push(head(1), &[1]).unwrap();
                if !watched && node.bell.ring(0) == Wake::Sleeper {
                    node.woken.store(1, Ordering::SeqCst);
                }
            })
        };
        rx.end_polling();
        fence(Ordering::SeqCst);
        let mut seen = rx.pop().is_some();
        if !seen {
            node.bell.doze();
            seen = node.bell.take_pending(0) != 0 && rx.pop().is_some();
        }
        sender.join().unwrap();
        if !seen {
            assert_eq!(
                node.woken.load(Ordering::SeqCst),
                1,
                "asleep with a frame in the ring"
            );
            assert!(rx.pop().is_some());
        }
    });
}

/// If a receiver clears the pending bit and then finds the ring empty, the sender of the next frame sets the bit again.
#[test]
fn cleared_pending_bit_is_set_again() {
    model(|| {
        let node = node();
        let sender = {
            let node = node.clone();
            thread::spawn(move || {
                let mut tx = Producer::new(&node.ring, &node.line);
                for i in 1..=2u8 {
                    tx.push(head(i), &[0]).unwrap();
                    let _ = node.bell.ring(0);
                }
            })
        };
        let mut rx = Consumer::new(&node.ring, &node.line);
        let mut got = 0;
        if node.bell.take_pending(0) != 0 {
            while rx.pop().is_some() {
                got += 1;
            }
        }
        sender.join().unwrap();
        if node.bell.take_pending(0) != 0 {
            while rx.pop().is_some() {
                got += 1;
            }
        }
        assert_eq!(got, 2, "a frame is in the ring without a pending bit");
    });
}

/// A sender may die at any step: its published frames arrive, its unpublished frames do not, and the receiver does not
/// wait for them.
#[test]
fn a_sender_that_dies_leaves_the_ring_usable() {
    for steps in 0..=2u8 {
        model(move || {
            let node = node();
            let sender = {
                let node = node.clone();
                thread::spawn(move || {
                    let mut tx = Producer::new(&node.ring, &node.line);
                    // The bell is not rung for the last published frame.
                    let rung = steps.saturating_sub(1);
                    (1..=steps).for_each(|i| {
                        let watched = tx.push(head(i), &[0]).unwrap();
                        let _ = (i <= rung && !watched).then(|| node.bell.ring(0));
                    });
                })
            };
            let mut rx = Consumer::new(&node.ring, &node.line);
            let mut got = u8::from(rx.pop().is_some());
            sender.join().unwrap();
            while rx.pop().is_some() {
                got += 1;
            }
            assert_eq!(got, steps);
        });
    }
}

/// A pool buffer is written again only after the receiver has copied it out (PAIR pool-free), with both methods that
/// take a buffer.
#[test]
fn a_pool_buffer_is_not_reused_early() {
    for in_turn in [false, true] {
        model(move || {
            let (node, buffer) = (node(), Arc::new(Watched::new()));
            let mut pool = Pool::new(&node.pool);
            // A frame names the last buffer to the receiver; the others stay in use for ever.
            let all: Vec<_> = (0..POOL_BUFFERS).map_while(|_| pool.acquire()).collect();
            let index = all[63];
            buffer.set(1);
            let receiver = {
                let (node, buffer) = (node.clone(), buffer.clone());
                thread::spawn(move || {
                    assert_eq!(buffer.get(), 1);
                    node.pool.release(index);
                })
            };
            let again = loop {
                let found = if in_turn {
                    pool.acquire_in_turn()
                } else {
                    pool.acquire()
                };
                match found {
                    Some(found) => break found,
                    None => thread::yield_now(),
                }
            };
            // The same buffer; `acquire_in_turn` returns it in its next place.
            assert_eq!(again % POOL_BUFFERS, index);
            buffer.set(2);
            receiver.join().unwrap();
        });
    }
}

/// Reader and helper of an offer never copy the same chunk, every chunk is copied, and the reader sees the bytes that
/// the helper copied (PAIR offer-open, offer-done).
#[test]
fn reader_and_helper_share_every_chunk_once() {
    model(|| {
        let offer = Arc::new(Offer::new());
        let written = Arc::new(AtomicU32::new(0));
        offer.open(1);
        let helper = {
            let (offer, written) = (offer.clone(), written.clone());
            thread::spawn(move || {
                while let ChunkClaim::Chunk(chunk) = offer.claim_back(1, 3) {
                    let before = written.load(Ordering::Relaxed);
                    written.store(before | 1 << chunk, Ordering::Relaxed);
                    offer.finish_back(false);
                }
            })
        };
        let (mut mine, mut count) = (0u32, 0);
        while let ChunkClaim::Chunk(chunk) = offer.claim_front(1, 3) {
            mine |= 1 << chunk;
            count += 1;
        }
        loop {
            let helped = offer.helped(1).unwrap();
            if helped.chunks + count == 3 {
                break;
            }
            thread::yield_now();
        }
        let theirs = written.load(Ordering::Relaxed);
        assert_eq!((mine | theirs, mine & theirs), (0b111, 0));
        helper.join().unwrap();
    });
}

const NOTE: RoundNote = RoundNote { kind: 1, bytes: 4 };

/// One member of a board: in each round it writes its part, arrives, waits and reads all parts.
fn take_part(board: &Board, parts: &[[Watched; 3]; 2], place: usize, members: usize, rounds: u32) {
    for round in 0..rounds {
        let half = &parts[round as usize % 2];
        half[place].set(10 * round + place as u32);
        let _ = board.arrive(place as u32, members as u32, round, NOTE);
        while board.rounds() != round + 1 {
            thread::yield_now();
        }
        for (other, part) in half.iter().enumerate().take(members) {
            assert_eq!(part.get(), 10 * round + other as u32);
        }
        assert!(!board.is_disputed(round));
    }
}

fn check_rounds(members: usize, rounds: u32) {
    model(move || {
        let board = Arc::new(Board::new());
        let parts: Arc<[[Watched; 3]; 2]> = Arc::new(Default::default());
        let others: Vec<_> = (1..members)
            .map(|place| {
                let (board, parts) = (board.clone(), parts.clone());
                thread::spawn(move || take_part(&board, &parts, place, members, rounds))
            })
            .collect();
        take_part(&board, &parts, 0, members, rounds);
        for other in others {
            other.join().unwrap();
        }
    });
}

/// R6, R7: two halves in turn are enough, since no member writes in a round before the previous round is over (PAIR
/// board-gate, board-over).
#[test]
fn board_members_read_all_contributions() {
    check_rounds(2, 3);
}

/// R6 with two groups of members: a member that sees that the round is over sees the bytes of all members.
#[test]
fn round_ends_across_member_groups() {
    model(|| {
        let board = Arc::new(Board::new());
        let parts: Arc<[Watched; 3]> = Arc::new(Default::default());
        let come = |board: &Board, parts: &[Watched; 3], place: usize| {
            parts[place].set(place as u32 + 1);
            let _ = board.arrive(place as u32, 3, 0, NOTE);
            if board.rounds() == 1 {
                let all = parts.iter().map(Watched::get);
                assert_eq!(all.sum::<u32>(), 6);
            }
        };
        let others = [1, 2].map(|place| {
            let (board, parts) = (board.clone(), parts.clone());
            thread::spawn(move || come(&board, &parts, place))
        });
        come(&board, &parts, 0);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(board.rounds(), 1);
    });
}

/// A process that sees a member's note also sees the member's data (PAIR board-note).
#[test]
fn note_publishes_the_data_of_its_member() {
    model(|| {
        let shared = Arc::new((MemberLines::new(), Watched::default()));
        let root = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.set(9);
                shared.0.publish(0, NOTE);
            })
        };
        if let Some(note) = shared.0.note(0) {
            assert_eq!((note, shared.1.get()), (NOTE, 9));
        }
        root.join().unwrap();
    });
}

/// R7: one member runs ahead of the other by as many rounds as its lines allow, and overwrites nothing that is still to
/// be read.
#[test]
fn lines_are_reused_only_after_all_have_read() {
    model(|| {
        let lines = Arc::new([MemberLines::new(), MemberLines::new()]);
        let reader = {
            let lines = lines.clone();
            thread::spawn(move || {
                for round in 0..DEPTH + 1 {
                    lines[1].publish(round, NOTE);
                    while !lines[0].has_reached(round) {
                        thread::yield_now();
                    }
                    let mut got = [0];
                    assert!(lines[0].get(round, 0, &mut got));
                    assert_eq!(u32::from(got[0]), round + 1);
                }
            })
        };
        for round in 0..DEPTH + 1 {
            while round >= DEPTH && !lines[1].has_reached(round - DEPTH + 1) {
                thread::yield_now();
            }
            assert!(lines[0].put(round, &[round as u8 + 1]));
            lines[0].publish(round, NOTE);
        }
        reader.join().unwrap();
    });
}

/// No member sleeps through a note in a member's lines (PAIR board-sleep).
#[test]
fn note_publisher_finds_sleepers() {
    model(|| {
        let shared = Arc::new((Board::new(), MemberLines::new()));
        let publisher = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.publish(0, NOTE);
                shared.0.has_sleepers() && shared.0.sleeps_for(0) == Some(Sleeps::ForRound(0))
            })
        };
        shared.0.doze(0, Sleeps::ForRound(0));
        let goes_to_sleep = !shared.1.has_reached(0);
        let wakes = publisher.join().unwrap();
        assert!(!goes_to_sleep || wakes);
    });
}

/// No member sleeps through the end of a round (PAIR board-sleep).
#[test]
fn last_arrival_finds_sleepers() {
    model(|| {
        let board = Arc::new(Board::new());
        let last = {
            let board = board.clone();
            thread::spawn(move || board.arrive(1, 2, 0, NOTE))
        };
        let early = board.arrive(0, 2, 0, NOTE);
        board.doze(0, Sleeps::ForRound(0));
        let goes_to_sleep = board.rounds() == 0;
        let wakes = last.join().unwrap() == RoundArrival::Last(true);
        assert!(!goes_to_sleep || wakes || early != RoundArrival::Early);
    });
}

/// Each member's last access to a board happens before the first access of the next member that claims the board (PAIR
/// board-left, board-free).
#[test]
fn a_board_is_free_when_all_have_left() {
    model(|| {
        let shared = Arc::new((Board::new(), Watched::default()));
        assert!(shared.0.claim(5));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _ = shared.1.get();
                shared.0.leave(2);
            })
        };
        let _ = shared.1.get();
        shared.0.leave(2);
        if shared.0.claim(6) {
            shared.1.set(1);
        }
        other.join().unwrap();
    });
}

/// R8: the bytes of an entry are visible to a member that sees the entry, and are overwritten only after all members
/// have taken it (PAIR queue-entry, queue-taken).
#[test]
fn broadcast_entry_is_overwritten_only_after_all_took_it() {
    model(|| {
        let shared: Arc<(BcastQueue, [Watched; ENTRIES as usize])> = Arc::new(Default::default());
        let last = ENTRIES;
        let publisher = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (queue, bytes) = &*shared;
                for number in 0..=last {
                    while number - queue.least_taken(2, number) >= ENTRIES {
                        thread::yield_now();
                    }
                    bytes[(number % ENTRIES) as usize].set(number + 1);
                    queue.publish(number, entry_head(0));
                    queue.take(0, number + 1);
                }
            })
        };
        let (queue, bytes) = &*shared;
        for number in 0..=last {
            while queue.entry(number).is_none() {
                thread::yield_now();
            }
            assert_eq!(bytes[(number % ENTRIES) as usize].get(), number + 1);
            queue.take(1, number + 1);
        }
        publisher.join().unwrap();
    });
}

/// A member that waits for room sleeps only if another member will wake it, even if the last two members take the entry
/// at the same time (PAIR queue-room).
#[test]
fn last_taker_finds_the_member_waiting_for_room() {
    model(|| {
        let queue = Arc::new(BcastQueue::new());
        queue.publish(0, entry_head(0));
        queue.take(0, 1);
        let others = [1, 2].map(|place| {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.take(place, 1);
                queue.waiter(3, 1)
            })
        });
        queue.doze(0, 1);
        let sleeps = queue.least_taken(3, 1) == 0;
        let woken = others.map(|other| other.join().unwrap());
        assert!(!sleeps || woken.contains(&Some(0)), "{woken:?}");
        queue.rise();
        assert_eq!(queue.waiter(3, 1), None);
    });
}

fn entry_head(place: u32) -> BcastEntryHead {
    BcastEntryHead {
        note: NOTE,
        place,
        end: 0,
    }
}

/// The owner of a bias, which makes only the light fence, and a thread that has revoked the bias are never inside at
/// the same time (PAIR bias, bias-left).
#[test]
fn bias_owner_and_revoker_exclude_each_other() {
    model(|| {
        let shared = Arc::new((Bias::new(), Watched::default()));
        shared.0.give(1);
        let owner = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (bias, data) = &*shared;
                for _ in 0..2 {
                    if let Some(turn) = bias.enter(1) {
                        data.set(data.get() + 1);
                        bias.leave(turn);
                    }
                }
            })
        };
        let (bias, data) = &*shared;
        bias.revoke(|| fence(Ordering::SeqCst), thread::yield_now);
        data.set(data.get() + 1);
        bias.give(2);
        let turn = bias.enter(2).unwrap();
        data.set(data.get() + 1);
        bias.leave(turn);
        owner.join().unwrap();
    });
}

/// Two threads are never inside a turnstile at the same time, and a waiting thread takes an offered lock (PAIR
/// turnstile).
#[test]
fn one_thread_at_a_time_passes_a_turnstile() {
    model(|| {
        let shared = Arc::new((Turnstile::new(), Watched::default()));
        let pass = |shared: &(Turnstile, Watched), thread: usize| {
            let (lock, data) = shared;
            if !lock.enter() {
                lock.begin_to_wait();
                while !lock.enter_waiting(thread) {
                    thread::yield_now();
                }
            }
            data.set(data.get() + 1);
            let _ = lock.leave(thread);
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                pass(&shared, 1);
                pass(&shared, 1);
            })
        };
        pass(&shared, 2);
        pass(&shared, 2);
        other.join().unwrap();
        pass(&shared, 3);
        assert_eq!(shared.1.get(), 5);
    });
}

/// With a gate, bytes are written only after the receiver has read those of the previous message, and read only after
/// they are written (PAIR gate-open, gate-written).
#[test]
fn gate_orders_writes_and_reads() {
    model(|| {
        let both = Arc::new((GateLine::new(), Watched::new()));
        let sender = {
            let both = both.clone();
            thread::spawn(move || {
                let (line, bytes) = &*both;
                for number in 1..=2u32 {
                    while !line.is_open(number.into()) {
                        thread::yield_now();
                    }
                    bytes.set(number);
                    if number == 2 {
                        line.note(2, 7);
                    }
                    line.signal_written(number.into());
                }
            })
        };
        let (line, bytes) = &*both;
        for number in 1..=2u32 {
            line.open(number.into());
            while !line.is_written(number.into()) {
                thread::yield_now();
            }
            assert_eq!(bytes.get(), number);
            assert_eq!(line.noted(number.into()), (number == 2).then_some(7));
        }
        sender.join().unwrap();
    });
}

/// A gate is either claimed or revoked: the sender writes only if it has claimed the gate, and after the receiver has
/// revoked it, only the receiver uses the memory (PAIR gate-claim, gate-open, gate-written).
#[test]
fn claim_or_revoke_gives_the_memory_one_owner() {
    model(|| {
        let both = Arc::new((GateLine::new(), Watched::new()));
        let sender = {
            let both = both.clone();
            thread::spawn(move || {
                let (line, bytes) = &*both;
                for _ in 0..2 {
                    if let Some(place) = line.offered(1)
                        && line.claim(1)
                    {
                        assert_eq!(place, [4, 5, 6]);
                        bytes.set(1);
                        line.note(1, 4);
                        line.signal_written(1);
                        return true;
                    }
                }
                false
            })
        };
        let (line, bytes) = &*both;
        bytes.set(7);
        line.offer(1, [4, 5, 6]);
        if line.revoke(1) {
            bytes.set(9);
            assert!(!sender.join().unwrap());
            assert!(!line.is_written(1));
            return;
        }
        while !line.is_written(1) {
            thread::yield_now();
        }
        assert_eq!((bytes.get(), line.noted(1)), (1, Some(4)));
        assert!(sender.join().unwrap());
    });
}

/// R3 for gates: a process that goes to sleep either sees the other process's store when it checks once more, or is
/// woken.
#[test]
fn sleeper_at_a_gate_is_woken_or_sees_it_open() {
    model(|| {
        let both = Arc::new((GateLine::new(), Bell::new()));
        let other = {
            let both = both.clone();
            thread::spawn(move || {
                let (line, bell) = &*both;
                line.open(1);
                bell.wake() == Wake::Sleeper
            })
        };
        let (line, bell) = &*both;
        bell.doze();
        let seen = line.is_open(1);
        let woke = other.join().unwrap();
        assert!(seen || (woke && bell.was_woken()), "asleep at an open gate");
    });
}
