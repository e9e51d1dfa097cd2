// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of the node segment.
//!
//! ```text
//! segment   head page | region of local rank 0 | region 1 | ... | boards
//! region r  0x0000 ident      the owner's identity (cold)
//!           0x0800 waits      its wait counters (cold)
//!           0x1000 bell       pending bits and sleep word of r
//!           0x2000 offers     64 lines: transfers that r shares with the owner of the data
//!           0x3000 lines[P]   64 bytes each: credit and attention that r gives sender p
//!           then   rings[P]   4 KiB each: frames from p to r
//!           then   pool side  how often each of r's buffers was released
//!           then   pool data  64 buffers of 8 KiB that r fills as a sender, four places of each
//!           then   own[P]     8 KiB each: a buffer that r fills for receiver p alone, when none of the 64 is free
//! boards    16, each: words of the board, then two halves of data (each P times 64 KiB, and at least 2 MiB),
//!           then a page of lines of each member, then words of the broadcast queue and its ring of 128 KiB
//! ```
//! `P` is the number of ranks on the node. Behind the boards lie the ranks' arenas (memory that each rank allocates and
//! all ranks can map), if the file is that long ([`file_bytes`]).
//!
//! The file is sparse: a page costs memory when it is first touched, and two ranks that exchange no frames touch no
//! page of their rings.

/// Number of slots of a ring.
#[cfg(not(loom))]
pub const SLOTS: u32 = 64;
/// Number of slots of a ring in a model: the smallest number with which the ring wraps.
#[cfg(loom)]
pub const SLOTS: u32 = 2;

/// Number of 64-bit words in a slot's body.
#[cfg(not(loom))]
pub(crate) const SLOT_WORDS: usize = 6;
#[cfg(loom)]
pub(crate) const SLOT_WORDS: usize = 1;

/// Bytes of a slot's body.
pub const SLOT_BODY_BYTES: usize = 8 * SLOT_WORDS;

/// Maximum number of ranks in one node segment.
pub const MAX_LOCAL_RANKS: u32 = 1024;

/// Number of words with pending bits in a bell.
#[cfg(not(loom))]
pub(crate) const PENDING_WORDS: usize = MAX_LOCAL_RANKS as usize / 64;
#[cfg(loom)]
pub(crate) const PENDING_WORDS: usize = 1;

/// Number of bounce buffers in the pool of each rank. The rank fills them as a sender.
pub const POOL_BUFFERS: u32 = 64;

/// Number of places in memory of each bounce buffer; one place is in use at a time. All places together are larger than
/// a core's private caches: writes to a line that is still in the cache of its last reader run at a third of the speed.
pub const POOL_PLACES: u32 = 4;

/// In place of a buffer's number, this number means the buffer that the sender fills only for this receiver.
pub const OWN_BUFFER: u32 = POOL_BUFFERS * POOL_PLACES;

/// Bytes of one bounce buffer.
pub const POOL_BUFFER_BYTES: usize = 8 * 1024;

/// Number of boards of a segment. Board 0 is for all ranks of the node together.
pub const BOARDS: u32 = 16;

/// The data of one round of a board have at most this number of bytes times the number of ranks of the node. A board's
/// half has at least that size.
pub const BOARD_PART_BYTES: usize = 64 * 1024;

/// Minimum size of a board's half in bytes: both halves together are larger than a core's private caches. Successive
/// rounds use all parts of a half in turn, since writes to a line that is still in the cache of its last reader run at
/// a third of the speed.
pub const BOARD_HALF_LEAST_BYTES: usize = 2 * 1024 * 1024;

/// Bytes of one member's lines in a board.
pub(crate) const MEMBER_LINES_BYTES: usize = PAGE;

/// Bytes of the ring of a broadcast queue.
pub const QUEUE_BYTES: usize = 128 * 1024;

/// Bytes for the words of a broadcast queue, which are before its ring.
pub(crate) const QUEUE_WORDS_BYTES: usize = 20 * PAGE;

/// Offset of the data in a board.
pub const BOARD_DATA_OFFSET: usize = 36 * PAGE;

/// First word of a segment: the bytes `rmpiseg1` in memory.
pub const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"rmpiseg1");

/// Incremented with every change of this layout. The launcher, which makes the segment, and the library must have the
/// same version.
pub const LAYOUT_VERSION: u32 = 10;

/// Bytes of a node segment for `local_size` ranks.
#[must_use]
pub const fn segment_bytes(local_size: u32) -> u64 {
    (boards_offset(local_size) + boards_bytes(local_size)) as u64
}

/// Offset of the boards: after the head page and all regions.
#[must_use]
pub const fn boards_offset(local_size: u32) -> usize {
    PAGE + local_size as usize * region_bytes(local_size)
}

/// Bytes of all boards: 0 if the node has one rank only.
const fn boards_bytes(local_size: u32) -> usize {
    match local_size {
        0 | 1 => 0,
        _ => BOARDS as usize * board_bytes(local_size),
    }
}

/// Bytes of a board with its data.
pub(crate) const fn board_bytes(local_size: u32) -> usize {
    queue_offset(local_size) + QUEUE_WORDS_BYTES + QUEUE_BYTES
}

/// Offset of the members' lines in a board.
pub(crate) const fn member_lines_offset(local_size: u32) -> usize {
    BOARD_DATA_OFFSET + 2 * board_half_bytes(local_size)
}

/// Offset of the broadcast queue in a board.
#[must_use]
pub const fn queue_offset(local_size: u32) -> usize {
    member_lines_offset(local_size) + local_size as usize * MEMBER_LINES_BYTES
}

/// Bytes of one of the two halves of a board's data.
#[must_use]
pub const fn board_half_bytes(local_size: u32) -> usize {
    let room = board_room_bytes(local_size);
    if room < BOARD_HALF_LEAST_BYTES {
        BOARD_HALF_LEAST_BYTES
    } else {
        room
    }
}

/// Maximum size of the data of one round of a board, in bytes.
#[must_use]
pub const fn board_room_bytes(local_size: u32) -> usize {
    local_size as usize * BOARD_PART_BYTES
}

/// Offset of the wait counters of local rank `rank`, for tools that read them from the file; `rank` is below
/// `local_size`.
#[cfg(not(loom))]
#[must_use]
pub const fn waits_offset(local_size: u32, rank: u32) -> u64 {
    (PAGE + rank as usize * region_bytes(local_size) + WAITS_OFFSET) as u64
}

/// Bytes of the file with a segment, followed by an arena of `arena_bytes` bytes for each rank: memory that a rank
/// allocates itself and all others can map.
#[must_use]
pub const fn file_bytes(local_size: u32, arena_bytes: u64) -> u64 {
    segment_bytes(local_size) + local_size as u64 * arena_bytes
}

/// Offsets in bytes inside a region; those that depend on the number of ranks are functions below, as is the region's
/// size.
#[cfg(not(loom))]
pub(crate) const IDENT_OFFSET: usize = 0;
#[cfg(not(loom))]
pub(crate) const WAITS_OFFSET: usize = PAGE / 2;
#[cfg(not(loom))]
pub(crate) const BELL_OFFSET: usize = PAGE;
#[cfg(not(loom))]
pub(crate) const OFFERS_OFFSET: usize = 2 * PAGE;
pub(crate) const LINES_OFFSET: usize = 3 * PAGE;

pub(crate) const fn rings_offset(local_size: u32) -> usize {
    LINES_OFFSET + (local_size as usize * 64).next_multiple_of(PAGE)
}

pub(crate) const fn pool_side_offset(local_size: u32) -> usize {
    rings_offset(local_size) + local_size as usize * PAGE
}

pub(crate) const fn pool_data_offset(local_size: u32) -> usize {
    pool_side_offset(local_size) + PAGE
}

#[cfg(not(loom))]
pub(crate) const fn own_data_offset(local_size: u32) -> usize {
    pool_data_offset(local_size) + OWN_BUFFER as usize * POOL_BUFFER_BYTES
}

pub(crate) const fn region_bytes(local_size: u32) -> usize {
    pool_data_offset(local_size) + (OWN_BUFFER + local_size) as usize * POOL_BUFFER_BYTES
}

pub(crate) const PAGE: usize = 4096;

#[cfg(not(loom))]
const _: () =
    assert!(region_bytes(64).is_multiple_of(PAGE) && region_bytes(1).is_multiple_of(PAGE));

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_without_overlap() {
        for ranks in [1, 2, 63, 64, 65, 1024] {
            assert!(LINES_OFFSET + ranks as usize * 64 <= rings_offset(ranks));
            assert_eq!(rings_offset(ranks) % PAGE, 0);
            assert_eq!(pool_data_offset(ranks) % PAGE, 0);
            assert_eq!(
                segment_bytes(ranks),
                (boards_offset(ranks) + boards_bytes(ranks)) as u64
            );
            assert_eq!(boards_offset(ranks) % PAGE, 0);
        }
    }
}
