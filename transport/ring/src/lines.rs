// SPDX-License-Identifier: MIT OR Apache-2.0
//! A member's lines in a board, which only that member writes: for each round its [`RoundNote`], and its data if they
//! are few.
//!
//! A member has lines for [`DEPTH`] rounds in turn. It may write the line of round r when all members have arrived in
//! round r − ([`DEPTH`] − 1): then all have read the content that it overwrites (R7).
//!
//! Numbers that another process can garble decide only when a member continues. So a faulty process makes results
//! wrong, or makes members wait, but causes no access to other memory.

use crate::board::RoundNote;
use crate::sync::{AtomicU64, Ordering};

/// The lines of one member. All words 0: the member has not arrived in any round.
#[derive(Debug)]
#[repr(C)]
pub struct MemberLines {
    lines: [RoundLine; DEPTH as usize],
}

/// The line of one round.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(128)))]
struct RoundLine {
    /// The round (low half) and the [`RoundNote`] (high half), which is not 0.
    published: AtomicU64,
    body: [AtomicU64; BODY_WORDS],
}

impl MemberLines {
    /// Publishes the member's note for `round`. Its data of the round may be read from now on.
    #[inline]
    pub fn publish(&self, round: u32, note: RoundNote) {
        let word = u64::from(round) | u64::from(note.word()) << 32;
        // PAIR(board-note): `note` and `has_reached` load it with Acquire.
        self.at(round).published.store(word, Ordering::Release);
    }

    /// The member's note for `round`, if it has been published.
    #[inline]
    #[must_use]
    pub fn note(&self, round: u32) -> Option<RoundNote> {
        // PAIR(board-note): `publish` stores it with Release, after the data.
        let word = self.at(round).published.load(Ordering::Acquire);
        let [published_round, note] = [word & u64::from(u32::MAX), word >> 32];
        // Before the first round the words are zero.
        (note != 0 && published_round == u64::from(round)).then(|| RoundNote::of(note))
    }

    /// Whether the member has published its note for `round`, or for a later round that uses the same line.
    #[inline]
    #[must_use]
    pub fn has_reached(&self, round: u32) -> bool {
        // PAIR(board-note): `publish` stores it with Release, after the data.
        let word = self.at(round).published.load(Ordering::Acquire);
        #[allow(clippy::cast_possible_truncation, reason = "the low half of a word")]
        let ahead = (word as u32).wrapping_sub(round);
        word >> 32 != 0 && ahead <= u32::MAX / 2
    }

    /// Puts the member's data of `round` into its line, before the round is [published](Self::publish). `false`: the
    /// data do not fit, and nothing was put.
    #[inline]
    #[must_use]
    pub fn put(&self, round: u32, bytes: &[u8]) -> bool {
        if bytes.len() > LINE_BODY_BYTES {
            return false;
        }
        for (word, bytes) in self.at(round).body.iter().zip(bytes.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(all), Ordering::Relaxed);
        }
        true
    }

    /// Copies data of a round that the member has published, from byte `at` of the data on. `false`: the range exceeds
    /// the room of a line, and nothing was copied.
    #[inline]
    #[must_use]
    pub fn get(&self, round: u32, at: usize, bytes: &mut [u8]) -> bool {
        let end = at.saturating_add(bytes.len());
        if end > LINE_BODY_BYTES {
            return false;
        }
        let body = &self.at(round).body;
        let word = |index: usize| body[index].load(Ordering::Relaxed).to_ne_bytes();
        let (first, skipped) = (at / 8, at % 8);
        let in_first = bytes.len().min((8 - skipped) % 8);
        let (head, rest) = bytes.split_at_mut(in_first);
        if in_first > 0 {
            head.copy_from_slice(&word(first)[skipped..skipped + in_first]);
        }
        let first = first + usize::from(skipped > 0);
        for (index, bytes) in (first..).zip(rest.chunks_mut(8)) {
            match <&mut [u8; 8]>::try_from(&mut *bytes) {
                Ok(whole) => *whole = word(index),
                Err(_) => bytes.copy_from_slice(&word(index)[..bytes.len()]),
            }
        }
        true
    }

    /// The round after the last one that the member has published.
    #[must_use]
    pub fn next_round(&self) -> u32 {
        let published = self.lines.iter().filter_map(|line| {
            let word = line.published.load(Ordering::Relaxed);
            #[allow(clippy::cast_possible_truncation, reason = "the low half of a word")]
            (word >> 32 != 0).then_some((word as u32).wrapping_add(1))
        });
        let later = |one: u32, other: u32| match one.wrapping_sub(other) <= u32::MAX / 2 {
            true => one,
            false => other,
        };
        published.reduce(later).unwrap_or(0)
    }

    /// Resets the lines to those of a member that has not arrived in any round. Called only while no other member uses
    /// the board.
    pub fn begin(&self) {
        for line in &self.lines {
            line.published.store(0, Ordering::Relaxed);
        }
    }

    fn at(&self, round: u32) -> &RoundLine {
        &self.lines[(round % DEPTH) as usize]
    }

    /// New lines in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        let line = |_| RoundLine {
            published: AtomicU64::new(0),
            body: core::array::from_fn(|_| AtomicU64::new(0)),
        };
        Self {
            lines: core::array::from_fn(line),
        }
    }
}

impl Default for MemberLines {
    fn default() -> Self {
        Self::new()
    }
}

/// Number of rounds that a member has lines for.
#[cfg(not(loom))]
pub const DEPTH: u32 = 32;
/// In a model: the smallest number that lets a member run ahead.
#[cfg(loom)]
pub const DEPTH: u32 = 3;
const BODY_WORDS: usize = if cfg!(loom) { 1 } else { 15 };
/// Maximum size of the data in the line of a round, in bytes.
pub const LINE_BODY_BYTES: usize = 8 * BODY_WORDS;

#[cfg(not(loom))]
const _: () = assert!(size_of::<MemberLines>() == crate::layout::MEMBER_LINES_BYTES);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn note_belongs_to_one_round() {
        let lines = MemberLines::new();
        assert_eq!(lines.note(0), None);
        assert!(!lines.has_reached(0));
        let note = RoundNote {
            kind: 7,
            bytes: 0x00ff_ffff,
        };
        lines.publish(u32::MAX, note);
        assert_eq!(lines.note(u32::MAX), Some(note));
        assert_eq!(lines.note(u32::MAX - DEPTH), None);
        assert!(lines.has_reached(u32::MAX) && lines.has_reached(u32::MAX - DEPTH));
        assert!(!lines.has_reached(u32::MAX.wrapping_add(DEPTH)));
        assert_eq!(lines.next_round(), 0);
        (0..3).for_each(|round| lines.publish(round, note));
        assert_eq!(lines.next_round(), 3);
        lines.begin();
        assert_eq!((lines.note(u32::MAX), lines.next_round()), (None, 0));
        assert!(!lines.has_reached(u32::MAX));
    }

    #[test]
    fn member_lines_hold_exactly_their_capacity() {
        let lines = MemberLines::new();
        let bytes: Vec<u8> = (0..).take(LINE_BODY_BYTES + 1).collect();
        assert!(!lines.put(3, &bytes));
        assert!(lines.put(3, &bytes[..LINE_BODY_BYTES]));
        for at in 0..LINE_BODY_BYTES {
            let mut part = vec![0; LINE_BODY_BYTES - at];
            assert!(lines.get(3, at, &mut part));
            assert_eq!(part, bytes[at..LINE_BODY_BYTES]);
        }
        let mut one = [0];
        assert!(!lines.get(3, LINE_BODY_BYTES, &mut one) && !lines.get(3, usize::MAX, &mut one));
    }
}
