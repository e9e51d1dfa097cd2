// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of channels.
//!
//! | field | bytes | meaning |
//! |-------|------:|---------|
//! | kind  | 1 | one of the kinds below, of [channels' own](crate::OWNER) |
//! | flags | 2 | bits 0 to 3: the class; of DIFFER, bit 4: sent by the receiver; of GATE, bit 5: the memory is a staging buffer, bit 6: the layout of the blocks behind it was sent; of STREAM, bit 5: the last frame; of LAYOUT, bit 5: the first frame |
//! | word  | 8 | `context | number << 32`: the communicator's context, and the low half of a start number |
//!
//! | kind | body | action of the other side |
//! |------|------|--------------------------|
//! | 16 GATE | bytes, remote key (3 words), token and stamp; optionally the location of a gate line | writes the message there when it has started the send of that number, with the token as immediate data |
//! | 17 DATA | the message | delivers it to the receive of that number, or buffers it |
//! | 18 STREAM | the next bytes of the message | appends them: for memory that cannot be written to, or a message shorter than its staging buffer |
//! | 19 DIFFER | bytes of the message, bytes of its receive | completes the receive of that number, or the send, which may have been complete already, with an error: the message is too long |
//! | 20 CREDIT | none | that number of receives were started, and their buffers are free |
//! | 21 FORGET | location of a gate line | unbinds it: its receive has other memory now, or was freed |
//! | 22 NO_LINE | token | opens the gates of that receive by frames: its gate line cannot be mapped |
//! | 23 LAYOUT | remote key (3 words), bytes of a block, blocks, stride | records these blocks of the receive whose handle is the number; may write there instead of to the memory of a gate, and notes that in the gate line, or in the token |
//! | 24 NO_LAYOUT | none | removes them |
//! | 25 LEAVE | sends, receives | no further ones will be started: operations paired with later ones complete |
//! | 26 QUERY | none | replies with LEAVE when it has left: a send waits for it, and no receive of it is known |
//!
//! The sender of a frame is identified by the queue pair.

use transport::{Arrived, Head, Owner, RemoteKey};

use crate::OWNER;

/// A gate.
pub(crate) const GATE: u8 = OWNER.kind(0);
/// A whole message, sent before its gate was known.
pub(crate) const DATA: u8 = OWNER.kind(1);
/// Some bytes of a message.
pub(crate) const STREAM: u8 = OWNER.kind(2);
/// A message is too long for its receive.
pub(crate) const DIFFER: u8 = OWNER.kind(3);
/// Receives were started.
pub(crate) const CREDIT: u8 = OWNER.kind(4);
/// A gate line no longer belongs to its receive.
pub(crate) const FORGET: u8 = OWNER.kind(5);
/// A gate line cannot be mapped.
pub(crate) const NO_LINE: u8 = OWNER.kind(6);
/// Some blocks of a receive.
pub(crate) const LAYOUT: u8 = OWNER.kind(7);
/// The blocks of a receive are no longer valid.
pub(crate) const NO_LAYOUT: u8 = OWNER.kind(8);
/// A process has left a context.
pub(crate) const LEAVE: u8 = OWNER.kind(9);
/// A send waits for a process of which no receive is known.
pub(crate) const QUERY: u8 = OWNER.kind(10);

/// Classes of a pair of ranks.
pub(crate) const CLASSES: u8 = 16;
/// DIFFER is about a message that was sent already.
pub(crate) const FROM_RECEIVER: u16 = 16;
/// GATE is that of a staging buffer.
const IS_STAGING: u16 = 32;
/// The layout of the blocks behind GATE was sent.
const HAS_LAYOUT: u16 = 64;
/// The last frame of a message.
pub(crate) const LAST: u16 = 32;
/// The first blocks of a receive, which replace older ones.
pub(crate) const FIRST: u16 = 32;
const FLAGS: u16 = FROM_RECEIVER | IS_STAGING | HAS_LAYOUT;

/// The queue of starts that a frame belongs to: context and class, the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StartQueueName {
    pub(crate) context: u32,
    pub(crate) class: u8,
}

/// The header of a frame about start `number`.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is what travels"
)]
pub(crate) fn head(kind: u8, name: StartQueueName, number: u64) -> Head {
    Head {
        kind,
        len: 0,
        flags: u16::from(name.class),
        word: u64::from(name.context) | u64::from(number as u32) << 32,
    }
}

/// The queue in a header; `None` for an invalid class.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the halves are cut out of the word"
)]
pub(crate) fn name(head: &Head) -> Option<StartQueueName> {
    let class = (head.flags & !FLAGS) as u8;
    let fits = head.flags & !FLAGS < u16::from(CLASSES);
    fits.then_some(StartQueueName {
        context: head.word as u32,
        class,
    })
}

/// The number in a header, which is close to `near`.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the half is cut out of the word"
)]
pub(crate) fn number(head: &Head, near: u64) -> Option<u64> {
    let distance = ((head.word >> 32) as u32)
        .wrapping_sub(near as u32)
        .cast_signed();
    near.checked_add_signed(distance.into())
}

/// The receive that LAYOUT is about, as its owner numbers it.
pub(crate) fn owner(head: &Head) -> u32 {
    (head.word >> 32) as u32
}

/// The memory that the next message may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveGate {
    pub(crate) bytes: u64,
    pub(crate) key: RemoteKey,
    /// Immediate data by which the sender completes the receive.
    pub(crate) token: u32,
    /// The gate line that opens later gates.
    pub(crate) line: Option<LineName>,
    /// The memory is a staging buffer of the receiver.
    pub(crate) is_staging: bool,
    /// Owner of the block layout behind it, if that was sent.
    pub(crate) layout: Option<u32>,
}

/// Location and stamp of a gate line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineName {
    pub(crate) place: u64,
    pub(crate) stamp: u32,
}

impl ReceiveGate {
    /// Its flags in the header.
    pub(crate) fn flags(&self) -> u16 {
        let staging = if self.is_staging { IS_STAGING } else { 0 };
        let layout = if self.layout.is_some() { HAS_LAYOUT } else { 0 };
        staging | layout
    }

    /// The words of a body, and their number.
    pub(crate) fn to_words(self) -> ([u64; 6], usize) {
        let [address, bytes, check] = self.key.to_words();
        let (stamp, place) = self.line.map_or((0, 0), |line| (line.stamp, line.place));
        let token = u64::from(self.token) | u64::from(stamp) << 32;
        let words = [self.bytes, address, bytes, check, token, place];
        (words, if self.line.is_some() { 6 } else { 5 })
    }

    /// Decodes it. `None`: the body is invalid.
    pub(crate) fn of(arrived: &Arrived) -> Option<Self> {
        let [bytes, address, key_bytes, check, word, place] = arrived.words;
        let stamp = u32::try_from(word >> 32).ok()?;
        let line = match (arrived.bytes(), stamp) {
            (40, 0) => None,
            (48, 1..) => Some(LineName { place, stamp }),
            _ => return None,
        };
        let token = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        let flags = arrived.head.flags;
        (key_bytes == bytes).then_some(Self {
            bytes,
            key: RemoteKey::from_words([address, key_bytes, check]),
            token,
            line,
            is_staging: flags & IS_STAGING != 0,
            layout: (flags & HAS_LAYOUT != 0).then(|| handle_of(token)),
        })
    }
}

/// The token of a receive: its handle, and the low bits of its start number.
#[allow(clippy::cast_possible_truncation, reason = "cut to its bits")]
pub(crate) fn token(handle: u32, number: u64) -> u32 {
    handle << TOKEN_BITS | (number as u32 & NUMBER_MASK)
}

/// Flag of a token in immediate data: the bytes are in the blocks of the receive, not in the memory of the gate.
pub(crate) const DIRECT: u32 = 1 << NUMBER_BITS;

/// The handle of a token.
pub(crate) fn handle_of(token: u32) -> u32 {
    token >> TOKEN_BITS
}

const NUMBER_BITS: u32 = 8;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// The number, and [`DIRECT`].
const TOKEN_BITS: u32 = NUMBER_BITS + 1;
/// Largest number of handles in tokens.
pub(crate) const HANDLES_MAX: usize = 1 << (Owner::IMMEDIATE_BITS - TOKEN_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_carry_names_and_numbers_over_the_turn_of_the_half() {
        let it = StartQueueName {
            context: u32::MAX,
            class: 15,
        };
        for number_sent in [0, 1, u64::from(u32::MAX), 1 << 32, (1 << 40) + 5] {
            let head = head(GATE, it, number_sent);
            assert_eq!(name(&head), Some(it));
            for near in [
                number_sent,
                number_sent + 1000,
                number_sent.saturating_sub(1000),
            ] {
                assert_eq!(number(&head, near), Some(number_sent));
            }
        }
        let early = head(GATE, it, u64::from(u32::MAX));
        assert_eq!(number(&early, 0), None, "before the first");
        let wild = Head {
            flags: 16 | 128,
            ..early
        };
        assert_eq!(name(&wild), None);
    }
}
