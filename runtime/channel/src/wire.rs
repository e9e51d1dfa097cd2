// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of channels.
//!
//! | field | bytes | meaning |
//! |-------|------:|-----|
//! | kind  |     1 | one of the kinds below, which are in the range of [channels](crate::OWNER) |
//! | flags |     2 | bits 0 to 3: the class. In DIFFER, bit 4: sent by the receiver. In GATE, bit 5: the memory is a staging buffer; bit 6: the layout of the receive's blocks was sent. In STREAM, bit 5: the last frame of a message. In LAYOUT, bit 5: the first frame of a layout |
//! | word  |     8 | `context | number << 32`: the communicator's context id, and the low half of a start number or, in LAYOUT and NO_LAYOUT, the handle of a receive |
//!
//! | kind         | body                                                                                 | action of the other side |
//! |--------------|--------------------------------------------------------------------------------------|-----|
//! | 16 GATE      | bytes, remote key (3 words), token and stamp; optionally the location of a gate line | when it starts the send of that number, writes the message to that memory, with the token as immediate data |
//! | 17 DATA      | the message                                                                          | delivers the message to the receive of that number, or buffers it |
//! | 18 STREAM    | the next bytes of the message                                                        | appends them to the message. Used if the memory cannot be written to, or the message is shorter than the staging buffer |
//! | 19 DIFFER    | bytes of the message, bytes of its receive                                           | completes the receive or the send of that number with an error: the message is too long. Such a send may be complete already |
//! | 20 CREDIT    | none                                                                                 | records that the receiver has started this number of receives, so their buffers are free |
//! | 21 FORGET    | location of a gate line                                                              | unbinds the gate line: its receive has other memory now, or was freed |
//! | 22 NO_LINE   | token                                                                                | opens the gates of the receive in the token by frames from now on: the sender cannot use its gate line |
//! | 23 LAYOUT    | remote key (3 words), bytes of a block, blocks, stride                               | records these blocks of the receive. The sender may write to them instead of to the memory of a gate; if so, it sets a flag in the gate line's note or in the token |
//! | 24 NO_LAYOUT | none                                                                                 | removes the recorded blocks of the receive |
//! | 25 LEAVE     | number of sends started, number of receives started                                  | completes operations that are paired with later starts with an error: there will be none |
//! | 26 QUERY     | none                                                                                 | if it has left the context, replies with LEAVE. A QUERY is sent if a send waits and no receive of the other side is known |
//!
//! The transport identifies the sender of a frame.

use transport::{Arrived, Head, Owner, RemoteKey};

use crate::OWNER;

/// A gate.
pub(crate) const GATE: u8 = OWNER.kind(0);
/// A whole message, sent eagerly before its gate was known.
pub(crate) const DATA: u8 = OWNER.kind(1);
/// Some bytes of a message.
pub(crate) const STREAM: u8 = OWNER.kind(2);
/// A message is too long for its receive.
pub(crate) const DIFFER: u8 = OWNER.kind(3);
/// Receives were started.
pub(crate) const CREDIT: u8 = OWNER.kind(4);
/// The receive of a gate line no longer uses the line.
pub(crate) const FORGET: u8 = OWNER.kind(5);
/// The sender cannot use a gate line.
pub(crate) const NO_LINE: u8 = OWNER.kind(6);
/// One piece of the block layout of a receive.
pub(crate) const LAYOUT: u8 = OWNER.kind(7);
/// The blocks of a receive are no longer valid.
pub(crate) const NO_LAYOUT: u8 = OWNER.kind(8);
/// A process has left a context.
pub(crate) const LEAVE: u8 = OWNER.kind(9);
/// A send waits, and no receive of the peer is known.
pub(crate) const QUERY: u8 = OWNER.kind(10);

/// Number of classes of a pair of ranks in one context.
pub(crate) const CLASSES: u8 = 16;
/// Flag of DIFFER: the receiver has sent it, about a message that was sent eagerly.
pub(crate) const FROM_RECEIVER: u16 = 16;
/// Flag of GATE: the memory is a staging buffer.
const IS_STAGING: u16 = 32;
/// Flag of GATE: the layout of the receive's blocks was sent.
const HAS_LAYOUT: u16 = 64;
/// Flag of STREAM: the last frame of a message.
pub(crate) const LAST: u16 = 32;
/// Flag of LAYOUT: the first piece of a layout, which replaces an older layout of the receive.
pub(crate) const FIRST: u16 = 32;
const FLAGS: u16 = FROM_RECEIVER | IS_STAGING | HAS_LAYOUT;

/// The queue of starts that a frame belongs to: context and class, with the same values on both sides.
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

/// The queue that a header names; `None`: the class is invalid.
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

/// The start number in a header, of which only the low half is transferred: the number closest to `near`. `None`: it is
/// out of range.
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

/// The receive that a LAYOUT or NO_LAYOUT is about: its handle in the receiving process.
pub(crate) fn owner(head: &Head) -> u32 {
    (head.word >> 32) as u32
}

/// An open gate: the memory that one message may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveGate {
    pub(crate) bytes: u64,
    pub(crate) key: RemoteKey,
    /// Immediate data by which the sender completes the receive.
    pub(crate) token: u32,
    /// The gate line that opens later gates of this receive, if there is one.
    pub(crate) line: Option<LineName>,
    /// Whether the memory is a staging buffer of the receiver.
    pub(crate) is_staging: bool,
    /// Handle of the receive in the receiving process, if the layout of its blocks was sent.
    pub(crate) layout: Option<u32>,
}

/// Location and stamp of a gate line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineName {
    pub(crate) place: u64,
    pub(crate) stamp: u32,
}

impl ReceiveGate {
    /// The flags of this gate in the header.
    pub(crate) fn flags(&self) -> u16 {
        let staging = if self.is_staging { IS_STAGING } else { 0 };
        let layout = if self.layout.is_some() { HAS_LAYOUT } else { 0 };
        staging | layout
    }

    /// Encodes the body of a GATE: its words, and their number.
    pub(crate) fn to_words(self) -> ([u64; 6], usize) {
        let [address, bytes, check] = self.key.to_words();
        let (stamp, place) = self.line.map_or((0, 0), |line| (line.stamp, line.place));
        let token = u64::from(self.token) | u64::from(stamp) << 32;
        let words = [self.bytes, address, bytes, check, token, place];
        (words, if self.line.is_some() { 6 } else { 5 })
    }

    /// Decodes a GATE. `None`: the body is invalid.
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
/// Number of bits below the handle in a token: the start number, and [`DIRECT`].
const TOKEN_BITS: u32 = NUMBER_BITS + 1;
/// Maximum number of handles: as many as a token can distinguish.
pub(crate) const HANDLES_MAX: usize = 1 << (Owner::IMMEDIATE_BITS - TOKEN_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_carry_names_and_numbers_across_32_bit_wraparound() {
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
