// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form in which the root and a leader exchange the blocks of a node's ranks; not all ranks have the lengths. Each
//! block has a *slot*: its length, followed by the block itself if it fits. Longer blocks follow together in one
//! message, and still longer blocks are sent directly between the root and their rank. The length in the slot
//! determines which of these applies.
//!
//! ```text
//! bytes   what
//! 0..8    length of the block
//! 8..120  the block, if it has at most 112 bytes
//! ```

use transport::seat::LINE_BODY_BYTES;

use super::super::various::read_into;
use super::{Error, Payload};

/// How a block is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Travels {
    InSlot,
    /// In one message with other blocks.
    Together,
    /// In a message of its own between the root and its rank.
    Alone,
}

impl Travels {
    /// How a block of `bytes` bytes is sent, if blocks of at most `limit` bytes are sent together.
    pub(super) fn of(bytes: u64, limit: u64) -> Self {
        match bytes {
            0..=IN_SLOT_BYTES => Self::InSlot,
            bytes if bytes <= limit => Self::Together,
            _ => Self::Alone,
        }
    }
}

/// The slots that some ranks exchange.
#[derive(Debug)]
pub(super) struct ExchangeSlots {
    bytes: Vec<u8>,
    /// Largest block, in bytes, that is sent together with other blocks.
    limit: u64,
}

impl ExchangeSlots {
    /// Slots for `ranks` ranks, with empty blocks so far.
    pub(super) fn new(ranks: usize, limit: u64) -> Self {
        Self {
            bytes: vec![0; ranks * SLOT_BYTES],
            limit,
        }
    }

    /// The bytes of all slots.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// All slots as one buffer to be sent or received.
    pub(super) fn whole(&mut self) -> Payload {
        super::dense(&mut self.bytes)
    }

    /// Each slot as a buffer to be sent or received.
    pub(super) fn places(&mut self) -> Vec<Payload> {
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES);
        slots.map(super::dense).collect()
    }

    /// Fills a slot.
    pub(super) fn put(&mut self, at: usize, block: &Payload) {
        let (slots, _) = self.bytes.as_chunks_mut::<SLOT_BYTES>();
        let (length, body) = slots[at].split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&block.bytes().to_ne_bytes());
        if let Some(body) = body.get_mut(..in_memory(block.bytes())) {
            body.copy_from_slice(&block.to_dense());
        }
    }

    /// How the block of a slot is sent.
    pub(super) fn travels(&self, at: usize) -> Travels {
        Travels::of(self.length(at), self.limit)
    }

    /// Copies a block out of its slot.
    ///
    /// # Errors
    /// When its length differs from that of its place.
    pub(super) fn take(&self, at: usize, place: &Payload) -> Result<(), Error> {
        let length = in_memory(self.length(at));
        let body = self.slot(at).get(LENGTH_BYTES..).unwrap_or(&[]);
        read_into(place, length, |into| into.copy_from_slice(&body[..length]))
    }

    /// For each block, its number of bytes in the message of blocks that are sent together; 0: the block is not in that
    /// message.
    pub(super) fn together(&self) -> Vec<usize> {
        let length = |at| match self.travels(at) {
            Travels::Together => in_memory(self.length(at)),
            Travels::InSlot | Travels::Alone => 0,
        };
        (0..self.bytes.len() / SLOT_BYTES).map(length).collect()
    }

    fn length(&self, at: usize) -> u64 {
        let length = self.slot(at).first_chunk();
        u64::from_ne_bytes(*length.unwrap_or(&[0; LENGTH_BYTES]))
    }

    fn slot(&self, at: usize) -> &[u8] {
        &self.bytes[at * SLOT_BYTES..][..SLOT_BYTES]
    }
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

const LENGTH_BYTES: usize = size_of::<u64>();
/// Size of a slot: as many bytes as fit the cache lines of a rank on a board.
const SLOT_BYTES: usize = LINE_BODY_BYTES;
const IN_SLOT_BYTES: u64 = (SLOT_BYTES - LENGTH_BYTES) as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_blocks_are_sent_in_slots_and_longer_ones_behind_them() {
        let mut slots = ExchangeSlots::new(5, 256);
        for (at, bytes, travels) in [
            (0, 0, Travels::InSlot),
            (1, 112, Travels::InSlot),
            (2, 113, Travels::Together),
            (3, 256, Travels::Together),
            (4, 257, Travels::Alone),
        ] {
            let mut block = vec![7; bytes];
            let block = super::super::dense(&mut block);
            slots.put(at, &block);
            assert_eq!(slots.travels(at), travels, "{bytes}");
        }
        assert_eq!(slots.together(), [0, 0, 113, 256, 0]);
        let mut taken = [0; 112];
        slots.take(1, &super::super::dense(&mut taken)).unwrap();
        assert_eq!(taken, [7; 112]);
        let shorter = super::super::dense(&mut taken[1..]);
        assert!(matches!(
            slots.take(1, &shorter),
            Err(Error::Unequal {
                given: 112,
                expected: 111
            })
        ));
    }
}
