// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours of gated channels whose memory has gaps: blocks of any shape at either end, in memory that the process or
//! the fabric has allocated.

use std::ptr::NonNull;

use channel::{ChannelDirection, ChannelError, ChannelId, ChannelKey, ChannelMemory, UserBlocks};
use transport::Peer;

use crate::suite::guest::channels_of;
use testbed::memory::Guarded;
use testbed::{TestRank, pattern};

/// Offset, block length, number of blocks, stride; lengths are in bytes.
type Piece = (usize, usize, usize, isize);

/// Length of a message in bytes, for a scale of 1.
pub const BYTES: usize = 96 * 1024;

/// Shapes of [`BYTES`] bytes in total: one contiguous block; large blocks with ascending addresses, with descending
/// addresses, and in several pieces; small blocks; tiny blocks.
pub fn shapes() -> Vec<Vec<Piece>> {
    vec![
        vec![(0, BYTES, 1, 0)],
        vec![(0, BYTES / 6, 6, BYTES as isize / 3)],
        vec![(BYTES * 5 / 3, BYTES / 6, 6, -(BYTES as isize) / 3)],
        vec![
            (10, BYTES / 4, 2, BYTES as isize / 2),
            (BYTES, BYTES / 2, 1, 0),
        ],
        vec![(64, 192, 512, 256)],
        vec![(0, 8, 12_288, 16)],
    ]
}

/// One end of a channel, and its memory.
pub struct End {
    pub id: ChannelId,
    place: NonNull<u8>,
    own: Option<Guarded>,
    pieces: Vec<Piece>,
}

impl End {
    pub fn new(
        rank: &mut TestRank,
        direction: ChannelDirection,
        pieces: &[Piece],
        scale: usize,
        is_own: bool,
    ) -> Self {
        let scaled = |(at, block, blocks, stride): &Piece| {
            let stride = stride * scale.cast_signed();
            (at * scale, block * scale, *blocks, stride)
        };
        let pieces: Vec<Piece> = pieces.iter().map(scaled).collect();
        let given = (!is_own).then(|| rank.fabric.allocate(AREA * scale));
        let mut own = None;
        let place = given.flatten().unwrap_or_else(|| {
            let memory = own.insert(Guarded::new(AREA * scale));
            NonNull::from(memory.bytes_mut()).cast()
        });
        let blocks = pieces.iter().map(|(at, block, blocks, stride)| {
            let base = NonNull::new(place.as_ptr().wrapping_add(*at)).unwrap();
            // SAFETY: within the area, which stays allocated until the channel is freed, and is accessed only between
            // starts.
            unsafe { UserBlocks::new(base, *block, *blocks, *stride) }
        });
        let memory = ChannelMemory::new(blocks).unwrap();
        let way = ChannelKey {
            direction,
            peer: Peer(rank.size - 1 - rank.me),
            context: 9,
            class: 1,
        };
        let channels = channels_of(&mut rank.guest);
        let id = channels.declare(&mut rank.fabric, way, memory).unwrap();
        let mut end = Self {
            id,
            place,
            own,
            pieces,
        };
        end.area().fill(0);
        end
    }

    fn area(&mut self) -> &mut [u8] {
        let (_, block, blocks, _) = self.pieces[0];
        let all = self.pieces[1..].iter().map(|it| it.1 * it.2).sum::<usize>() + block * blocks;
        let scale = all / BYTES;
        // SAFETY: as in `new`.
        unsafe { std::slice::from_raw_parts_mut(self.place.as_ptr(), AREA * scale) }
    }

    /// Offset and length of each block, in the order of the message.
    fn blocks(&self) -> Vec<(usize, usize)> {
        let all = self.pieces.iter().flat_map(|(at, block, blocks, stride)| {
            (0..*blocks).map(move |number| {
                let offset = number.cast_signed() * stride;
                (at.strict_add_signed(offset), *block)
            })
        });
        all.collect()
    }

    pub fn fill(&mut self, content: &[u8]) {
        let mut done = 0;
        for (at, bytes) in self.blocks() {
            self.area()[at..at + bytes].copy_from_slice(&content[done..done + bytes]);
            done += bytes;
        }
    }

    /// Checks that the memory has the content and that its gaps are zero, and clears it.
    pub fn check(&mut self, content: &[u8], what: &str) {
        let mut done = 0;
        for (at, bytes) in self.blocks() {
            let block = &mut self.area()[at..at + bytes];
            assert!(block == &content[done..done + bytes], "{what}: byte {done}");
            block.fill(0);
            done += bytes;
        }
        assert!(testbed::memory::is_all(self.area(), 0), "{what}: gaps");
    }

    pub fn end(self, rank: &mut TestRank) {
        let channels = channels_of(&mut rank.guest);
        channels.free(&mut rank.fabric, self.id).unwrap();
        match self.own {
            Some(own) => own.assert_guards(),
            None => assert!(rank.fabric.free(self.place)),
        }
    }
}

/// Sends one message from each rank to the other, and checks the message that this rank receives.
pub async fn exchange(rank: &mut TestRank, out: &mut End, into: &mut End, number: u64, what: &str) {
    let bytes = out.blocks().iter().map(|block| block.1).sum();
    out.fill(&pattern(rank.me, number, bytes));
    let ids = [into.id, out.id];
    let channels = channels_of(&mut rank.guest);
    channels.start(&mut rank.fabric, &ids).unwrap();
    while !channels_of(&mut rank.guest).are_done(&ids).unwrap() {
        rank.turn().await;
    }
    let end: Result<(), ChannelError> = channels_of(&mut rank.guest).collect(&ids);
    end.unwrap();
    into.check(&pattern(rank.size - 1 - rank.me, number, bytes), what);
}

/// Sends messages for two thirds of all pairs of a sender's shape and a receiver's shape.
pub async fn all_shapes(rank: &mut TestRank) {
    let mut number = 0;
    for (mine, from) in shapes().iter().enumerate() {
        for (theirs, to) in shapes().iter().enumerate() {
            if (mine + 2 * theirs) % 3 == 0 {
                continue;
            }
            // If the kernel makes the copy, only long messages bypass the staging buffer: hence the scale of 3.
            let (scale, is_own) =
                [(1, false), (1, true), (1, false), (3, true)][(mine + theirs) % 4];
            let mut out = End::new(rank, ChannelDirection::Send, from, scale, is_own);
            let mut into = End::new(rank, ChannelDirection::Receive, to, scale, is_own);
            let what = format!("shape {mine} to {theirs}, {scale} times, own {is_own}");
            for _ in 0..4 {
                exchange(rank, &mut out, &mut into, number, &what).await;
                number += 1;
            }
            while !channels_of(&mut rank.guest).is_drained() {
                rank.turn().await;
            }
            rank.barrier().await;
            assert_eq!(channels_of(&mut rank.guest).counters().refused, 0);
            out.end(rank);
            into.end(rank);
        }
    }
}

/// Length in bytes of the memory of each end, with its gaps, for a scale of 1.
const AREA: usize = 2 * BYTES;
