// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wire format between two engines.
//!
//! A frame has a body, and a head of 11 bytes, which the transport carries beside its own sequence and length. The
//! queue pair determines the sender, so the sender is not in the frame. The byte order is that of the machine, which
//! must be the same on all hosts of a job.
//!
//! | field | bytes | meaning |
//! |-------|------:|-----|
//! | kind  |     1 | one of the kinds below; there can be at most 15. 0 is never sent. Other kinds belong to other protocols and to the transport |
//! | flags |     2 | EAGER: the mark of a synchronous send, or 0; RTS: bit 0 is set for a synchronous send; CANCEL: the mark of the message, or 0 if the message was announced; CANCELLED: bit 0 is set if the message was taken back; FIN: number of further tokens |
//! | word  |     8 | EAGER, RTS and FIRST: `context | tag << 32`; MORE: 0; MATCHED: the mark; CANCELLED: `token | mark << 32` of the send; others: `to | from << 32`, the tokens of two requests |
//!
//! | kind        | body                                                                     | what the receiver does |
//! |-------------|--------------------------------------------------------------------------|-----|
//! | 1 EAGER     | the message                                                              | matches the message, or keeps it; if there is a mark, answers MATCHED when a receive has matched the message |
//! | 2 RTS       | token, message bytes, remote key (3 words, 0 if the data cannot be read) | matches the message, then reads the data and answers FIN, or requests the data by CTS |
//! | 3 CTS       | bytes wanted                                                             | streams that many bytes as DATA |
//! | 4 FIN       | further tokens, two a word                                               | completes the announced sends that the tokens name: their data have been read |
//! | 5 DATA      | the next bytes of the message                                            | appends them to the received data |
//! | 6 THROTTLE  | none                                                                     | from now on announces every message |
//! | 7 RELEASE   | none                                                                     | ends THROTTLE |
//! | 8 CANCEL    | context                                                                  | removes the message from its queue if no receive has matched it, and answers CANCELLED |
//! | 9 CANCELLED | none                                                                     | completes the send as cancelled, or continues to wait for the match |
//! | 10 FIRST    | message bytes                                                            | matches the message, or keeps it, and waits for its bytes |
//! | 11 MORE     | the next bytes of the message of the sender's last FIRST                 | appends them to the received data |
//! | 12 MATCHED  | none                                                                     | completes the synchronous send that has the mark |
//!
//! A *token* names a request at the process that made it: `index << 8 | generation`.

use crate::ContextId;

/// The part of a frame's head that the engine writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Kind of the frame.
    pub kind: u8,
    /// Depends on the kind.
    pub flags: u16,
    /// Depends on the kind.
    pub word: u64,
}

/// A whole message.
pub const EAGER: u8 = 1;
/// Request to send: the envelope of a message whose data stay with the sender.
pub const RTS: u8 = 2;
/// Clear to send: the receiver requests the data.
pub const CTS: u8 = 3;
/// The receiver has the data, of one send or of several.
pub const FIN: u8 = 4;
/// Some bytes of a message for which the receiver sent CTS.
pub const DATA: u8 = 5;
/// The receiver's budget for unexpected data is used up.
pub const THROTTLE: u8 = 6;
/// The receiver accepts eager messages again.
pub const RELEASE: u8 = 7;
/// The sender requests that an unmatched message be taken back.
pub const CANCEL: u8 = 8;
/// Answer to CANCEL.
pub const CANCELLED: u8 = 9;

/// The envelope of a message. Its data follow in [`MORE`] frames; between these frames the sender sends no other frame.
pub const FIRST: u8 = 10;
/// Some bytes of the message of the sender's last [`FIRST`].
pub const MORE: u8 = 11;

/// A receive has matched a message with a mark.
pub const MATCHED: u8 = 12;

/// One more than the highest kind.
pub const KINDS_END: u8 = MATCHED + 1;

/// The longest message that FIRST may announce, in bytes, whatever the limits of the ranks are.
pub const MAX_EARLY_BYTES: u64 = 1 << 20;

/// Flag of an RTS: the send is synchronous.
pub const RTS_SYNCHRONOUS: u16 = 1;
/// Flag of a CANCELLED: the message was taken back.
pub const WAS_CANCELLED: u16 = 1;

/// Maximum number of tokens in the body of a FIN. One more token is in its head.
pub const MAX_FURTHER_TOKENS: u16 = 12;
const MAX_TOKENS: usize = 1 + MAX_FURTHER_TOKENS as usize;

/// Words of an RTS body: token, bytes, key.
pub const RTS_WORDS: u8 = 5;

/// The remote key of data that are not contiguous: they cannot be read, only streamed.
pub const NO_KEY: [u64; 3] = [0; 3];

/// The remote key in the body of an RTS; `None` if the data cannot be read.
#[must_use]
pub fn key_of_rts(words: &[u64; 6]) -> Option<[u64; 3]> {
    let [_, _, key @ .., _] = *words;
    (key != NO_KEY).then_some(key)
}

/// The head of an eager message.
#[inline(always)]
#[must_use]
pub fn eager(context: ContextId, tag: i32) -> FrameHead {
    FrameHead {
        kind: EAGER,
        flags: 0,
        word: envelope_word(context, tag),
    }
}

/// Context and tag in one word.
#[inline(always)]
pub(crate) fn envelope_word(context: ContextId, tag: i32) -> u64 {
    u64::from(context.0) | u64::from(tag.cast_unsigned()) << 32
}

/// The inverse of [`envelope_word`].
#[inline(always)]
pub(crate) fn envelope(word: u64) -> (u32, i32) {
    (low(word), high(word).cast_signed())
}

/// The tag in the word of an eager message.
#[inline(always)]
#[must_use]
pub fn tag_of(word: u64) -> i32 {
    envelope(word).1
}

/// Two tokens in one word.
pub(crate) fn token_word(to: u32, from: u32) -> u64 {
    u64::from(to) | u64::from(from) << 32
}

/// Adds a token to the body of a FIN that has `before` tokens; returns the new number of body words.
pub(crate) fn put_further(words: &mut [u64; 6], before: u16, token: u32) -> u8 {
    let (place, is_high) = further_place(before);
    words[place] |= u64::from(token) << if is_high { 32 } else { 0 };
    words_of_further(before + 1)
}

/// The tokens of a FIN and their number; `None` if the body has the wrong length.
pub(crate) fn tokens(
    head: FrameHead,
    words: [u64; 6],
    bytes: u64,
) -> Option<([u32; MAX_TOKENS], usize)> {
    let further = head.flags;
    if further > MAX_FURTHER_TOKENS || bytes != 8 * u64::from(words_of_further(further)) {
        return None;
    }
    let mut tokens = [0; MAX_TOKENS];
    tokens[0] = low(head.word);
    for (number, token) in (0..further).zip(&mut tokens[1..]) {
        *token = match further_place(number) {
            (place, false) => low(words[place]),
            (place, true) => high(words[place]),
        };
    }
    Some((tokens, 1 + usize::from(further)))
}

/// The place of token `number` in the body of a FIN: the index of the word, and whether the token is in its high half.
fn further_place(number: u16) -> (usize, bool) {
    (usize::from(number / 2), number % 2 == 1)
}

#[allow(clippy::cast_possible_truncation, reason = "at most six")]
fn words_of_further(count: u16) -> u8 {
    count.div_ceil(2) as u8
}

/// The low half of a word.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the half is cut out of the word"
)]
pub(crate) fn low(word: u64) -> u32 {
    word as u32
}

/// The high half of a word.
#[inline(always)]
pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_survive_encoding() {
        for (context, tag) in [(0, 0), (u32::MAX, i32::MAX), (7, -2), (1 << 31, 1)] {
            assert_eq!(
                envelope(envelope_word(ContextId(context), tag)),
                (context, tag)
            );
        }
        assert_eq!((low(token_word(3, 9)), high(token_word(3, 9))), (3, 9));
    }
}
