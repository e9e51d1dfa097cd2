// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames of channels.
//!
//! | field | bytes | meaning |
//! |-------|------:|---------|
//! | kind  | 1 | one of the kinds below, of [channels' own](crate::OWNER) |
//! | flags | 2 | bits 0 to 3: the class; of DIFFER, bit 4: it comes from the receiver; of GATE, bit 5: the place is one from where the receiver copies, bit 6: the blocks behind it were told; of STREAM, bit 5: nothing follows; of LAYOUT, bit 5: it is the first |
//! | word  | 8 | `context | number << 32`: the communicator's context, and the low half of the number of a start |
//!
//! | kind | body | what the other side does |
//! |------|------|--------------------------|
//! | 16 GATE | bytes, remote key (3 words), token and stamp, or nothing more, place of a line | writes the message there when it has started the send of that number, and the token as immediate |
//! | 17 DATA | the message | puts it where the receive of that number wants it, or keeps it |
//! | 18 STREAM | the next bytes of the message | appends them: where memory cannot be written to, or nothing else tells how short a message is |
//! | 19 DIFFER | bytes of the message, room of its receive | ends the receive of that number; or the send, which may have been complete already: the message is too long |
//! | 20 CREDIT | none | so many receives were started, and as many kept messages are gone |
//! | 21 FORGET | place of a line | forgets it: its receive has another memory now, or is no more |
//! | 22 NO_LINE | token | opens the gates of that receive by frames: its line cannot be reached |
//! | 23 LAYOUT | remote key (3 words), bytes of a block, blocks, stride | keeps these blocks of the receive whose place in its table is the number; may write there instead of to the place of a gate, and then says so in a line, or in the token |
//! | 24 NO_LAYOUT | none | forgets them |
//! | 25 LEAVE | sends, receives | starts no more than so many: what would meet one behind them ends |
//! | 26 ASK | none | answers LEAVE if it has left, or when it does: a send waits for it, and nothing was heard of it yet |
//!
//! The sender of a frame is known from the queue pair.

use transport::{Arrived, Head, Owner, RemoteKey};

use crate::OWNER;

/// Kinds of channels' frames.
pub(crate) const GATE: u8 = OWNER.kind(0);
/// A whole message, sent before its gate was known.
pub(crate) const DATA: u8 = OWNER.kind(1);
/// Some bytes of a message.
pub(crate) const STREAM: u8 = OWNER.kind(2);
/// A message has another length than its receive.
pub(crate) const DIFFER: u8 = OWNER.kind(3);
/// How many receives were started.
pub(crate) const CREDIT: u8 = OWNER.kind(4);
/// A line is not that of its receive any more.
pub(crate) const FORGET: u8 = OWNER.kind(5);
/// A line cannot be reached.
pub(crate) const NO_LINE: u8 = OWNER.kind(6);
/// Some blocks of a receive.
pub(crate) const LAYOUT: u8 = OWNER.kind(7);
/// The blocks of a receive are not there any more.
pub(crate) const NO_LAYOUT: u8 = OWNER.kind(8);
/// A process starts nothing more.
pub(crate) const LEAVE: u8 = OWNER.kind(9);
/// A send waits for a process that has not told of any receive.
pub(crate) const ASK: u8 = OWNER.kind(10);

/// Classes of a pair of ranks.
pub(crate) const CLASSES: u8 = 16;
/// DIFFER is about a message that was sent already.
pub(crate) const FROM_RECEIVER: u16 = 16;
/// GATE is that of a place from where the receiver copies.
const IS_LANDING: u16 = 32;
/// The blocks of the receive of GATE were told.
const HAS_LAYOUT: u16 = 64;
/// The last frame of a message.
pub(crate) const LAST: u16 = 32;
/// The first blocks of a receive: it has others no more.
pub(crate) const FIRST: u16 = 32;
const FLAGS: u16 = FROM_RECEIVER | IS_LANDING | HAS_LAYOUT;

/// The queue of starts that a frame belongs to, by context and class, the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StartQueueName {
    pub(crate) context: u32,
    pub(crate) class: u8,
}

/// The head of a frame about start `number`.
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

/// The name in a head; `None` for a class that there is not.
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

/// The number in a head, which is not far from `near`.
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

/// A receiver's offer: the memory that the next message may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveGate {
    pub(crate) bytes: u64,
    pub(crate) key: RemoteKey,
    /// What the receiver wants to hear when the message is there.
    pub(crate) token: u32,
    /// The line that later starts are told by.
    pub(crate) line: Option<LineName>,
    /// The memory is a place from where the receiver copies.
    pub(crate) is_landing: bool,
    /// The owner of the blocks behind it, if they were told.
    pub(crate) layout: Option<u32>,
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineName {
    pub(crate) place: u64,
    pub(crate) stamp: u32,
}

impl ReceiveGate {
    /// What it adds to the flags of its head.
    pub(crate) fn flags(&self) -> u16 {
        let landing = if self.is_landing { IS_LANDING } else { 0 };
        let layout = if self.layout.is_some() { HAS_LAYOUT } else { 0 };
        landing | layout
    }

    /// The words of a body, and how many there are.
    pub(crate) fn to_words(self) -> ([u64; 6], usize) {
        let [address, bytes, check] = self.key.to_words();
        let (stamp, place) = self.line.map_or((0, 0), |line| (line.stamp, line.place));
        let token = u64::from(self.token) | u64::from(stamp) << 32;
        let words = [self.bytes, address, bytes, check, token, place];
        (words, if self.line.is_some() { 6 } else { 5 })
    }

    /// `None`: a body of another length, or one that makes no sense.
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
            is_landing: flags & IS_LANDING != 0,
            layout: (flags & HAS_LAYOUT != 0).then(|| handle_of(token)),
        })
    }
}

/// The token of a receive handle: its place, and the end of the number of its start.
#[allow(clippy::cast_possible_truncation, reason = "cut to its bits")]
pub(crate) fn token(handle: u32, number: u64) -> u32 {
    handle << TOKEN_BITS | (number as u32 & NUMBER_MASK)
}

/// What the receive of a token is told with it: the bytes are in its blocks, not in the place of the gate.
pub(crate) const DIRECT: u32 = 1 << NUMBER_BITS;

/// The handle that a token names.
pub(crate) fn handle_of(token: u32) -> u32 {
    token >> TOKEN_BITS
}

const NUMBER_BITS: u32 = 8;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// The number, and [`DIRECT`].
const TOKEN_BITS: u32 = NUMBER_BITS + 1;
/// Handles that tokens can name.
pub(crate) const MOST_HANDLES: usize = 1 << (Owner::IMMEDIATE_BITS - TOKEN_BITS);

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
