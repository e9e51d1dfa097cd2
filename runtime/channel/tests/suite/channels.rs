// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours of gated channels.

use std::ptr::NonNull;

use channel::{
    ChannelCounters, ChannelDirection, ChannelError, ChannelId, ChannelKey, ChannelMemory, OWNER,
    UserBlocks,
};
use transport::{Head, Peer};

use crate::suite::guest::channels_of;
use testbed::memory::{Guarded, is_all};
use testbed::{TestRank, head, pattern};

/// Message lengths in bytes, around the eager limit, the length of a frame, and the largest staging buffer.
const SIZES: [usize; 9] = [0, 1, 8, 4095, 4096, 4097, 16384, 20_001, 262_147];

/// One end of a channel and its buffer. If the end is strided, it uses only every second block of the buffer.
struct End {
    id: ChannelId,
    buffer: Guarded,
    bytes: usize,
    block: usize,
}

impl End {
    fn new(rank: &mut TestRank, way: ChannelKey, bytes: usize, striped: bool) -> Self {
        let block = if striped { (bytes / 5).max(1) } else { bytes };
        let blocks = if striped { bytes.div_ceil(block) } else { 1 };
        let mut buffer = Guarded::new(2 * block * blocks);
        let memory = memory(&mut buffer, bytes, block);
        let channels = channels_of(&mut rank.guest);
        let id = channels.declare(&mut rank.fabric, way, memory).unwrap();
        Self {
            id,
            buffer,
            bytes,
            block,
        }
    }

    fn fill(&mut self, content: &[u8]) {
        let stride = 2 * self.block.max(1);
        let places = self.buffer.bytes_mut().chunks_mut(stride);
        for (place, block) in places.zip(content.chunks(self.block.max(1))) {
            place[..block.len()].copy_from_slice(block);
        }
    }

    /// Checks that the buffer has the content, and zeros elsewhere, and clears it.
    fn check(&mut self, content: &[u8]) {
        let stride = 2 * self.block.max(1);
        let places = self.buffer.bytes_mut().chunks_mut(stride);
        let blocks = content.chunks(self.block.max(1)).enumerate();
        for (place, (number, block)) in places.zip(blocks) {
            let wrong = differences(&place[..block.len()], block);
            assert!(
                wrong.is_none(),
                "block {number} of {} bytes in blocks of {}: {}",
                self.bytes,
                self.block,
                wrong.as_deref().unwrap_or_default()
            );
            assert!(is_all(&place[block.len()..], 0), "bytes between blocks");
            place.fill(0);
        }
        self.buffer.assert_guards();
    }
}

/// Describes where the bytes differ. `None`: they are equal.
fn differences(found: &[u8], expected: &[u8]) -> Option<String> {
    let both = || found.iter().zip(expected);
    let first = both().position(|(found, expected)| found != expected)?;
    let last = both().rposition(|(found, expected)| found != expected)?;
    let wrong = both().filter(|(found, expected)| found != expected).count();
    let zeros = found[first..=last]
        .iter()
        .filter(|byte| **byte == 0)
        .count();
    Some(format!(
        "{wrong} bytes are wrong, from {first} to {last}, {zeros} bytes there are zero; found {:02x?}, expected {:02x?}",
        &found[first..(first + 8).min(found.len())],
        &expected[first..(first + 8).min(expected.len())]
    ))
}

fn memory(buffer: &mut Guarded, bytes: usize, block: usize) -> ChannelMemory {
    let base = NonNull::from(buffer.bytes_mut()).cast::<u8>();
    let blocks = bytes.checked_div(block).unwrap_or(0);
    let stride = 2 * block.cast_signed();
    // SAFETY: within the buffer. The tests keep it until the channel is freed, and access it only between starts.
    let whole = unsafe { UserBlocks::new(base, block, blocks, stride) };
    let rest = bytes - blocks * block;
    let at = base.as_ptr().wrapping_add(2 * blocks * block);
    // SAFETY: as above; empty if there is no rest.
    let rest = unsafe { UserBlocks::new(NonNull::new(at).unwrap(), rest, 1, 0) };
    ChannelMemory::new([whole, rest]).unwrap()
}

fn to(peer: u32, class: u8) -> ChannelKey {
    ChannelKey {
        direction: ChannelDirection::Send,
        peer: Peer(peer),
        context: 77,
        class,
    }
}

fn from(peer: u32, class: u8) -> ChannelKey {
    ChannelKey {
        direction: ChannelDirection::Receive,
        ..to(peer, class)
    }
}

fn start(rank: &mut TestRank, ids: &[ChannelId]) {
    let channels = channels_of(&mut rank.guest);
    channels.start(&mut rank.fabric, ids).unwrap();
}

async fn wait(rank: &mut TestRank, ids: &[ChannelId]) -> Result<(), ChannelError> {
    loop {
        let channels = channels_of(&mut rank.guest);
        if channels.are_done(ids).unwrap() {
            return channels.collect(ids);
        }
        rank.turn().await;
    }
}

fn counters(rank: &mut TestRank) -> ChannelCounters {
    channels_of(&mut rank.guest).counters()
}

/// Frees all ends, after all ranks have reached a barrier with all their frames sent.
async fn finish(rank: &mut TestRank, ends: Vec<End>) {
    while !channels_of(&mut rank.guest).is_drained() {
        rank.turn().await;
    }
    rank.barrier().await;
    for end in ends {
        let channels = channels_of(&mut rank.guest);
        channels.free(&mut rank.fabric, end.id).unwrap();
        assert_eq!(
            channels.free(&mut rank.fabric, end.id),
            Err(ChannelError::Stale)
        );
    }
}

pub async fn neighbours(rank: &mut TestRank) {
    let (up, down) = (
        (rank.me + 1) % rank.size,
        (rank.me + rank.size - 1) % rank.size,
    );
    for (number, bytes) in (0..).zip(SIZES) {
        let striped = |side| (number + side) % 3 == 0;
        let mut ends = vec![
            End::new(rank, from(down, 0), bytes, striped(0)),
            End::new(rank, from(up, 1), bytes, striped(1)),
            End::new(rank, to(up, 0), bytes, striped(2)),
            End::new(rank, to(down, 1), bytes, striped(0)),
        ];
        let ids: Vec<_> = ends.iter().map(|end| end.id).collect();
        for round in 0..6 {
            ends[2].fill(&pattern(rank.me, 2 * round, bytes));
            ends[3].fill(&pattern(rank.me, 2 * round + 1, bytes));
            start(rank, &ids);
            wait(rank, &ids).await.unwrap();
            ends[0].check(&pattern(down, 2 * round, bytes));
            ends[1].check(&pattern(up, 2 * round + 1, bytes));
        }
        assert_eq!(counters(rank).refused, 0);
        finish(rank, ends).await;
    }
}

/// Two lists of ends in the same queues. Each round starts one of them: usually as a whole, sometimes only half of its
/// ends, sometimes in another order or in two steps.
pub async fn lists_in_turn(rank: &mut TestRank) {
    // Some of the small messages are sent eagerly.
    for bytes in [5000, 700] {
        lists_in_turn_of(rank, bytes).await;
    }
}

async fn lists_in_turn_of(rank: &mut TestRank, bytes: usize) {
    let (up, down) = (
        (rank.me + 1) % rank.size,
        (rank.me + rank.size - 1) % rank.size,
    );
    let mut lists: Vec<Vec<End>> = Vec::new();
    for _ in 0..2 {
        lists.push(vec![
            End::new(rank, from(down, 0), bytes, false),
            End::new(rank, from(down, 0), bytes, false),
            End::new(rank, to(up, 0), bytes, false),
            End::new(rank, to(up, 0), bytes, false),
        ]);
    }
    let mut number = 0;
    // All ranks make the same choices, because each sends the messages that another receives.
    let mut choice = testbed::Random(7);
    for _ in 0..60 {
        let ends = &mut lists[choice.below(2) as usize];
        let mut ids: Vec<_> = ends.iter().map(|end| end.id).collect();
        let way = choice.below(6);
        if way == 0 {
            ids = vec![ids[0], ids[2]];
        }
        let messages = ids.len() as u64 / 2;
        for (at, end) in (number..number + messages).zip(&mut ends[2..]) {
            end.fill(&pattern(rank.me, at, bytes));
        }
        match way {
            1 => start(rank, &[ids[2], ids[0], ids[3], ids[1]]),
            2 => {
                start(rank, &ids[..2]);
                rank.pass().await;
                start(rank, &ids[2..]);
            }
            _ => start(rank, &ids),
        }
        wait(rank, &ids).await.unwrap();
        for (at, end) in (number..number + messages).zip(&mut ends[..2]) {
            end.check(&pattern(down, at, bytes));
        }
        number += messages;
    }
    assert_eq!(counters(rank).refused, 0);
    finish(rank, lists.into_iter().flatten().collect()).await;
}

/// Both ends agree on a list of message lengths. For each message, either end uses any of its idle handles of that
/// length.
pub async fn in_order_of_starts(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    let lists = |from: u32| {
        let mut random = testbed::Random(u64::from(from) + 99);
        (0..40).map(move |_| SIZES[random.below(7) as usize])
    };
    let mut sends: Vec<End> = Vec::new();
    let mut receives: Vec<End> = Vec::new();
    for at in 0..14 {
        sends.push(End::new(rank, to(other, 3), SIZES[at % 7], at > 7));
        receives.push(End::new(rank, from(other, 3), SIZES[at % 7], at < 7));
    }
    let mut going: Vec<(usize, bool, u64)> = Vec::new();
    let (mut out, mut into) = ((0..).zip(lists(rank.me)), (0..).zip(lists(other)));
    let (mut next_out, mut next_in) = (out.next(), into.next());
    while next_out.is_some() || next_in.is_some() || !going.is_empty() {
        let sends_now = rank.random.below(2) == 0;
        let (next, ends) = match sends_now {
            true => (&mut next_out, &mut sends),
            false => (&mut next_in, &mut receives),
        };
        let busy = |at: usize| going.iter().any(|it| (it.0, it.1) == (at, sends_now));
        let wanted = |(_, bytes): (u64, usize)| {
            (0..ends.len()).find(|at| ends[*at].bytes == bytes && !busy(*at))
        };
        if let Some(at) = next.and_then(wanted)
            && let Some((number, bytes)) = *next
        {
            if sends_now {
                ends[at].fill(&pattern(rank.me, number, bytes));
            }
            start(rank, &[ends[at].id]);
            going.push((at, sends_now, number));
            *next = if sends_now { out.next() } else { into.next() };
        }
        // Polls instead of sleeping, because there may be something to start.
        rank.pass().await;
        let channels = channels_of(&mut rank.guest);
        going.retain(|(at, sent, number)| {
            let end = if *sent {
                &mut sends[*at]
            } else {
                &mut receives[*at]
            };
            if !channels.are_done(&[end.id]).unwrap() {
                return true;
            }
            channels.collect(&[end.id]).unwrap();
            if !*sent {
                end.check(&pattern(other, *number, end.bytes));
            }
            false
        });
    }
    assert_eq!(counters(rank).refused, 0);
    sends.append(&mut receives);
    finish(rank, sends).await;
}

pub async fn sends_first(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    let mut ends: Vec<End> = (0..9)
        .map(|_| End::new(rank, to(other, 0), 4096, false))
        .collect();
    for round in 0..3 {
        for (number, end) in (10 * round..).zip(&mut ends[..8]) {
            end.fill(&pattern(rank.me, number, 4096));
            start(rank, &[end.id]);
        }
        let ids: Vec<_> = ends[..8].iter().map(|end| end.id).collect();
        wait(rank, &ids).await.unwrap();
        // The other end has no buffer for a ninth message.
        ends[8].fill(&pattern(rank.me, 10 * round + 8, 4096));
        start(rank, &[ends[8].id]);
        // Calls `pass`, which never sleeps, instead of `turn`: nothing arrives that would wake a sleeping rank.
        for _ in 0..5 {
            rank.pass().await;
        }
        assert!(
            !channels_of(&mut rank.guest)
                .are_done(&[ends[8].id])
                .unwrap()
        );
        rank.barrier().await;
        let mut target = End::new(rank, from(other, 0), 4096, round == 1);
        for number in 0..9 {
            start(rank, &[target.id]);
            wait(rank, &[target.id]).await.unwrap();
            target.check(&pattern(other, 10 * round + number, 4096));
        }
        wait(rank, &[ends[8].id]).await.unwrap();
        assert_eq!(counters(rank).refused, 0);
        finish(rank, vec![target]).await;
    }
    finish(rank, ends).await;
}

/// A message that is shorter than its receive fills the beginning of the memory, even after a longer message.
pub async fn shorter(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    for (number, (sent, wanted)) in (0..).zip([
        (13, 50),
        (0, 1),
        (4096, 5000),
        (4097, 9000),
        (100_000, 100_001),
        (0, 300_000),
        (150_000, 400_000),
        (299_999, 300_000),
    ]) {
        let striped = |side| (number / 2 + side) % 2 == 1;
        let mut send = End::new(rank, to(other, 6), sent, striped(0));
        let mut full = End::new(rank, to(other, 6), wanted, striped(0));
        let mut receive = End::new(rank, from(other, 6), wanted, striped(number));
        for round in 0..8 {
            let (end, bytes) = match round % 4 {
                0 => (&mut full, wanted),
                _ => (&mut send, sent),
            };
            let content = |of: u32| {
                let mut content = pattern(of, 100 * number + round, bytes);
                content.resize(wanted, LEFT_ALONE);
                content
            };
            receive.fill(&vec![LEFT_ALONE; wanted]);
            end.fill(&content(rank.me)[..bytes]);
            let ids = [end.id, receive.id];
            match rank.random.below(3) {
                0 => start(rank, &ids),
                1 => ids.iter().for_each(|id| start(rank, &[*id])),
                _ => {
                    start(rank, &ids[1..]);
                    rank.pass().await;
                    start(rank, &ids[..1]);
                }
            }
            wait(rank, &ids).await.unwrap();
            receive.check(&content(other));
        }
        assert_eq!(counters(rank).refused, 0);
        finish(rank, vec![send, full, receive]).await;
    }
}

/// Value of the bytes behind a shorter message: these bytes must not change.
const LEFT_ALONE: u8 = 0x5a;

/// Waits for the error of a send whose message is too long. The error is returned once: by the collection of that send
/// or, if the send was collected before the error arrived, by the collection of the next send.
async fn wait_for_size_error(rank: &mut TestRank, send: ChannelId, sizes: (u64, u64)) {
    let mut end = wait(rank, &[send]).await;
    while end.is_ok() {
        rank.turn().await;
        end = wait(rank, &[send]).await;
    }
    assert_eq!(end, Err(ChannelError::SizesDiffer));
    assert_eq!(failed(rank, send), sizes);
    assert_eq!(wait(rank, &[send]).await, Ok(()), "reported twice");
}

fn failed(rank: &mut TestRank, id: ChannelId) -> (u64, u64) {
    let channels = channels_of(&mut rank.guest);
    let failed = channels.failed(id).unwrap().unwrap();
    assert_eq!(failed.error, ChannelError::SizesDiffer);
    assert_eq!(failed.peer, Peer(rank.size - 1 - rank.me));
    (failed.message_bytes, failed.room_bytes)
}

/// A message longer than its receive is not delivered, and both ends get an error.
pub async fn sizes_differ(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    for (sent, wanted) in [(16, 8), (5000, 4096), (9001, 9000), (1, 0), (4096, 4095)] {
        let send = End::new(rank, to(other, 5), sent, false);
        let mut receive = End::new(rank, from(other, 5), wanted, false);
        // From the third start on, gates may be opened by gate lines.
        for round in 0..6 {
            let sends_first = round % 2 == 1;
            start(rank, &[if sends_first { send.id } else { receive.id }]);
            rank.barrier().await;
            start(rank, &[if sends_first { receive.id } else { send.id }]);
            let end = wait(rank, &[receive.id]).await;
            assert_eq!(end, Err(ChannelError::SizesDiffer), "{sent} for {wanted}");
            let sizes = (sent as u64, wanted as u64);
            assert_eq!(failed(rank, receive.id), sizes);
            if sent > 4096 {
                let end = wait(rank, &[send.id]).await;
                assert_eq!(end, Err(ChannelError::SizesDiffer), "{sent} for {wanted}");
                assert_eq!(failed(rank, send.id), sizes);
            } else {
                wait_for_size_error(rank, send.id, sizes).await;
            }
            receive.check(&vec![0; wanted]);
            rank.barrier().await;
        }
        finish(rank, vec![send, receive]).await;
    }
    // Later messages of the queue are delivered.
    let mut send = End::new(rank, to(other, 5), 100, false);
    let mut receive = End::new(rank, from(other, 5), 100, false);
    send.fill(&pattern(rank.me, 1, 100));
    start(rank, &[send.id, receive.id]);
    wait(rank, &[send.id, receive.id]).await.unwrap();
    receive.check(&pattern(other, 1, 100));
    assert_eq!(counters(rank).refused, 0);
    finish(rank, vec![send, receive]).await;
}

/// A sending end is freed before its error is known: the next send of the queue reports the error.
pub async fn late_size_error(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    let send = End::new(rank, to(other, 5), 100, false);
    start(rank, &[send.id]);
    wait(rank, &[send.id]).await.unwrap();
    finish(rank, vec![send]).await;
    let receive = End::new(rank, from(other, 5), 60, false);
    start(rank, &[receive.id]);
    let end = wait(rank, &[receive.id]).await;
    assert_eq!(end, Err(ChannelError::SizesDiffer));
    let next = End::new(rank, to(other, 5), 10, false);
    wait_for_size_error(rank, next.id, (100, 60)).await;
    finish(rank, vec![receive, next]).await;
}

/// Starts these ends one by one, waits for each, and returns their outcomes.
async fn ends_of(rank: &mut TestRank, ends: &[&End]) -> Vec<Result<(), ChannelError>> {
    for end in ends {
        start(rank, &[end.id]);
    }
    let mut all = Vec::new();
    for end in ends {
        all.push(wait(rank, &[end.id]).await);
    }
    all
}

/// Checks that operations with a peer that has left the context complete, in classes of all states, including unused
/// classes.
async fn check_unmatched_ends(rank: &mut TestRank, other: u32) {
    for (class, bytes) in [
        (0, 8),
        (1, 8),
        (2, 20_001),
        (3, 20_001),
        (4, 20_001),
        (7, 20_001),
        (8, 8),
    ] {
        let late =
            [to(other, class), from(other, class)].map(|way| End::new(rank, way, bytes, false));
        let [late_send, late_receive] = &late;
        // A small send may complete eagerly before the error is known.
        let ends = ends_of(rank, &[late_send, late_receive]).await;
        assert!(
            ends[0] == Err(ChannelError::Left) || bytes <= 4096,
            "class {class}"
        );
        assert_eq!(ends[1], Err(ChannelError::Left), "class {class}");
        let ends = ends_of(rank, &[late_receive, late_send]).await;
        assert_eq!(ends, [Err(ChannelError::Left); 2], "class {class}");
        for end in late {
            let channels = channels_of(&mut rank.guest);
            channels.free(&mut rank.fabric, end.id).unwrap();
        }
    }
}

/// The last rank leaves the context. Operations paired with those that it has started complete successfully, and no
/// rank waits for later ones.
pub async fn peer_leaves(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    for (class, bytes, rounds) in [
        (0, 8, 0),
        (1, 8, 4),
        (2, 20_001, 0),
        (3, 20_001, 1),
        (4, 20_001, 5),
    ] {
        let send = End::new(rank, to(other, class), bytes, false);
        let receive = End::new(rank, from(other, class), bytes, false);
        for _ in 0..rounds {
            start(rank, &[receive.id, send.id]);
            wait(rank, &[receive.id, send.id]).await.unwrap();
        }
        rank.barrier().await;
        finish(rank, vec![send, receive]).await;
    }
    let [send, receive] = [to(other, 6), from(other, 6)].map(|way| End::new(rank, way, 500, false));
    let leaves = rank.me > other;
    let waits = rank.me < other;
    if leaves {
        start(rank, &[send.id]);
        wait(rank, &[send.id]).await.unwrap();
        let channels = channels_of(&mut rank.guest);
        channels.leave(&mut rank.fabric, 77);
        channels.leave(&mut rank.fabric, 77);
    } else if waits {
        check_unmatched_ends(rank, other).await;
        assert_eq!(ends_of(rank, &[&receive]).await, [Ok(())], "sent before");
        assert_eq!(ends_of(rank, &[&receive]).await, [Err(ChannelError::Left)]);
    }
    rank.barrier().await;
    assert_eq!(counters(rank).refused, 0);
    finish(rank, vec![send, receive]).await;
}

pub async fn used_once(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    for (number, bytes) in (0..).zip(SIZES.iter().cycle().take(30)) {
        // The ends are declared and started in any order: the other rank may have started its ends long before.
        let make_send = |rank: &mut TestRank| End::new(rank, to(other, 2), *bytes, number % 2 == 1);
        let make_receive =
            |rank: &mut TestRank| End::new(rank, from(other, 2), *bytes, number % 3 == 1);
        let (mut send, mut receive);
        if rank.random.below(2) == 0 {
            send = make_send(rank);
            receive = make_receive(rank);
        } else {
            receive = make_receive(rank);
            send = make_send(rank);
        }
        send.fill(&pattern(rank.me, number, *bytes));
        let mut ids = [send.id, receive.id];
        if rank.random.below(2) == 0 {
            ids.reverse();
            start(rank, &ids);
        } else {
            start(rank, &ids[1..]);
            rank.pass().await;
            start(rank, &ids[..1]);
        }
        wait(rank, &ids).await.unwrap();
        receive.check(&pattern(other, number, *bytes));
        let mut free = |end: &End| {
            let channels = channels_of(&mut rank.guest);
            channels.free(&mut rank.fabric, end.id).unwrap();
        };
        free(&send);
        free(&receive);
    }
    assert_eq!(counters(rank).refused, 0);
    finish(rank, Vec::new()).await;
}

pub async fn malformed_frames(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    let mut send = End::new(rank, to(other, 4), 5000, false);
    let mut receive = End::new(rank, from(other, 4), 5000, false);
    rank.barrier().await;
    let mut random = testbed::Random(u64::from(rank.me) + 5);
    for round in 0..200 {
        let words: Vec<u8> = (0..6)
            .flat_map(|_| (random.word() >> (random.below(8) * 8)).to_ne_bytes())
            .collect();
        let length = [0, 8, 40, 41, 48][random.below(5) as usize];
        // Random frames for other classes than 4. Class 4 is in use, and its state must stay valid.
        let class = random.below(20) as u16;
        let made = Head {
            flags: class + u16::from(class == 4) + 16 * random.below(3) as u16,
            word: u64::from(random.below(80) as u32) | random.below(1 << 32) << 32,
            ..head(OWNER.kind(random.below(9) as u8))
        };
        rank.send(other, made, &words[..length]).await;
        if round % 10 == 0 {
            rank.pass().await;
        }
    }
    // Eager messages for the class in use, all of them too long: for the first start, for the first start again, and
    // for two later ones.
    for number in [0, 0, 9, 5_000_000] {
        let made = Head {
            flags: 4,
            word: 77 | number << 32,
            ..head(OWNER.kind(1))
        };
        rank.send(other, made, &[1; 5000]).await;
    }
    rank.barrier().await;
    assert!(counters(rank).refused > 20);
    send.fill(&pattern(rank.me, 1, 5000));
    start(rank, &[receive.id, send.id]);
    wait(rank, &[receive.id, send.id]).await.unwrap();
    receive.check(&pattern(other, 1, 5000));
    finish(rank, vec![send, receive]).await;
}

/// A peer sends a layout of blocks that do not exist, and a gate to them. Messages through that gate are lost, and
/// everything else continues.
pub async fn invalid_blocks(rank: &mut TestRank) {
    let other = rank.size - 1 - rank.me;
    let mut random = testbed::Random(u64::from(rank.me) + 77);
    let bytes = 40_000u64;
    for striped in [false, true] {
        let class = 8 + u8::from(striped);
        let mut lost = End::new(rank, to(other, class), 40_000, striped);
        lost.fill(&pattern(rank.me, 1, 40_000));
        rank.barrier().await;
        let made = |kind: u8, flags: u16, number: u64| Head {
            flags: u16::from(class) | flags,
            word: 77 | number << 32,
            ..head(OWNER.kind(kind))
        };
        let body = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let wild = [random.word(), random.word()];
        // Two pieces of the layout of receive 3: the memory of the first is not mapped, the second has an invalid key
        // in an arena. Then a gate with an invalid key.
        let first = body(&[wild[0] >> 20, 20_000, wild[1], 20_000, 1, 0]);
        let second = body(&[1 << 63 | 1 << 50, 30_000, 0, 10_000, 2, 20_000]);
        let gate = body(&[bytes, wild[1] >> 20, bytes, wild[0], 3 << 9]);
        rank.send(other, made(7, 32, 3), &first).await;
        rank.send(other, made(7, 0, 3), &second).await;
        rank.send(other, made(0, 32 | 64, 0), &gate).await;
        rank.barrier().await;
        start(rank, &[lost.id]);
        wait(rank, &[lost.id]).await.unwrap();
        finish(rank, vec![lost]).await;
    }
    let mut send = End::new(rank, to(other, 4), 50_000, true);
    let mut receive = End::new(rank, from(other, 4), 50_000, true);
    send.fill(&pattern(rank.me, 2, 50_000));
    start(rank, &[receive.id, send.id]);
    wait(rank, &[receive.id, send.id]).await.unwrap();
    receive.check(&pattern(other, 2, 50_000));
    finish(rank, vec![send, receive]).await;
}

pub async fn wrong_use(rank: &mut TestRank) {
    let me = rank.me;
    let send = End::new(rank, to(me, 0), 10_000, false);
    let mut receive = End::new(rank, from(me, 0), 10_000, true);
    let channels = channels_of(&mut rank.guest);
    let fabric = &mut rank.fabric;
    let nothing = || ChannelMemory::new([]).unwrap();
    let refused = channels.declare(fabric, to(me, 16), nothing());
    assert_eq!(refused, Err(ChannelError::BadClass));
    let unknown = ChannelId(send.id.0 + 77);
    for ids in [[send.id, unknown], [unknown, send.id]] {
        assert_eq!(channels.start(fabric, &ids), Err(ChannelError::Stale));
    }
    let twice = channels.start(fabric, &[send.id, send.id]);
    assert_eq!(twice, Err(ChannelError::Active));
    channels.start(fabric, &[send.id]).unwrap();
    let again = channels.start(fabric, &[receive.id, send.id]);
    assert_eq!(again, Err(ChannelError::Active), "all or nothing");
    assert_eq!(channels.are_done(&[receive.id]), Ok(true));
    assert_eq!(channels.are_done(&[send.id]), Ok(false));
    assert_eq!(channels.collect(&[send.id]), Err(ChannelError::Active));
    assert_eq!(channels.free(fabric, send.id), Err(ChannelError::Active));
    let moved = channels.change_memory(fabric, send.id, nothing());
    assert_eq!(moved, Err(ChannelError::Active));
    channels.start(fabric, &[receive.id]).unwrap();
    wait(rank, &[send.id, receive.id]).await.unwrap();
    // The receive gets other memory; the channel stays the same.
    receive.buffer = Guarded::new(20_000);
    let other = memory(&mut receive.buffer, 10_000, 100);
    receive.block = 100;
    let channels = channels_of(&mut rank.guest);
    channels
        .change_memory(&mut rank.fabric, receive.id, other)
        .unwrap();
    let mut send = send;
    send.fill(&pattern(0, 3, 10_000));
    start(rank, &[receive.id, send.id]);
    wait(rank, &[receive.id, send.id]).await.unwrap();
    receive.check(&pattern(0, 3, 10_000));
    lost(rank, &send, &receive);
    finish(rank, vec![send, receive]).await;
}

/// Operations that wait for a lost peer complete with an error, and so do later ones.
fn lost(rank: &mut TestRank, send: &End, receive: &End) {
    let (me, channels) = (Peer(rank.me), channels_of(&mut rank.guest));
    channels.start(&mut rank.fabric, &[send.id]).unwrap();
    assert_eq!(channels.are_done(&[send.id]), Ok(false));
    channels.lose(me);
    assert_eq!(channels.collect(&[send.id]), Err(ChannelError::Lost));
    let both = [receive.id, send.id];
    channels.start(&mut rank.fabric, &both).unwrap();
    assert_eq!(channels.are_done(&both), Ok(true));
    assert_eq!(channels.collect(&both), Err(ChannelError::Lost));
    assert_eq!(channels.collect(&both), Ok(()), "reported once");
    assert!(!channels.is_busy());
}
