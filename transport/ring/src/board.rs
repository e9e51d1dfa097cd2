// SPDX-License-Identifier: MIT OR Apache-2.0
//! A board: where ranks of one node that do the same thing together meet. Each puts its data on the board, tells what it
//! does, and arrives; when all have arrived, the round is over and everybody reads. The bytes themselves are moved by
//! [`BoardData`](crate::BoardData).
//!
//! A round has two halves of data in turn, so a member may write for the next round while others still read this one. It must
//! not begin before this one is over; then whoever read the half that it writes has arrived since (R7).
//!
//! Numbers that another process can garble decide nothing but when a member goes on: a scribble makes results wrong, or
//! makes members wait, and reaches no memory.

use crate::layout::MAX_LOCAL_RANKS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The shared words of a board.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub struct Board {
    /// What the members call it; 0: it is free.
    key: AtomicU32,
    /// Members that will not come again.
    left: AtomicU32,
    pad: [u32; 14],
    /// Rounds that are over. What waits looks at this line alone.
    rounds: AtomicU32,
    /// The last round whose members did not all tell the same, plus one.
    disputed: AtomicU32,
    /// Members that sleep until something happens here.
    sleepers: AtomicU32,
    pad2: [u32; 13],
    /// Groups that are complete.
    top: Gate,
    /// Arrivals of 16 members each, so that not all write to the same line.
    groups: [Gate; GROUPS],
    /// What each member told in the last two rounds: see [`Note`]. As with data, those of a round stay until all have seen them.
    notes: [[AtomicU64; MEMBERS]; 2],
}

/// How many have come (low 16 bits), and the sum of what they told, so that a disagreement shows without a look at all notes.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct Gate(AtomicU64);

/// What a member does in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is; the members know what that means. Not 0.
    pub kind: u8,
    /// Bytes that it is about: below 2²⁴.
    pub bytes: u32,
}

/// What an arrival was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the last one wakes the others"]
pub enum Arrival {
    /// Others are still to come.
    Early,
    /// The last of the round, which is over now. `true`: somebody may sleep on it.
    Last(bool),
}

impl Board {
    /// Takes a free board. `false`: somebody has it.
    #[must_use]
    pub fn claim(&self, key: u32) -> bool {
        // PAIR(board-free): the last member's `leave` stores 0 with Release.
        self.key
            .compare_exchange(0, key, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// What the members call it; 0 while it is free.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }

    /// One of `members` members is done with it for ever; the last one makes it free.
    pub fn leave(&self, members: u32) {
        // PAIR(board-left): a member's last look at the board is before the last member frees it.
        if self.left.fetch_add(1, Ordering::AcqRel).wrapping_add(1) == members {
            self.give_back();
        }
    }

    fn give_back(&self) {
        self.left.store(0, Ordering::Relaxed);
        // PAIR(board-free): `claim` takes it with Acquire.
        self.key.store(0, Ordering::Release);
    }

    /// Rounds that are over. Data of those are there to be read.
    #[inline]
    #[must_use]
    pub fn rounds(&self) -> u32 {
        // PAIR(board-over): the last arrival stores it with Release, after it has seen all others.
        self.rounds.load(Ordering::Acquire)
    }

    /// Whether the members of a round that is over did not all tell the same.
    #[must_use]
    pub fn is_disputed(&self, round: u32) -> bool {
        self.disputed.load(Ordering::Relaxed) == round.wrapping_add(1)
    }

    /// Tells what member `place` does in `round`. Its data of the round may be read from now on, by those that look at this
    /// note; if any do, it is up to the caller to see whether they [sleep](Self::has_sleepers).
    pub fn tell(&self, place: u32, round: u32, note: Note) {
        let word = u64::from(round) | u64::from(note.word()) << 32;
        // PAIR(board-note): `note` loads it with Acquire.
        self.note_word(place, round).store(word, Ordering::Release);
    }

    /// What member `place` does in `round`, if it has told already.
    #[must_use]
    pub fn note(&self, place: u32, round: u32) -> Option<Note> {
        // PAIR(board-note): `tell` stores it with Release, after the data.
        let word = self.note_word(place, round).load(Ordering::Acquire);
        let [round_told, note] = [word & u64::from(u32::MAX), word >> 32];
        // Where nobody has told anything yet, there are zeros.
        (note != 0 && round_told == u64::from(round)).then(|| Note::of(note))
    }

    fn note_word(&self, place: u32, round: u32) -> &AtomicU64 {
        &self.notes[round as usize % 2][place as usize % MEMBERS]
    }

    /// Member `place` of `members` has done its part of `round`.
    pub fn arrive(&self, place: u32, members: u32, round: u32, note: Note) -> Arrival {
        let group = place / GROUP;
        let in_group = (members - group * GROUP).min(GROUP);
        let gate = &self.groups[group as usize % GROUPS];
        let Some(sum) = gate.pass(note.signature(), in_group) else {
            return Arrival::Early;
        };
        let sum = match members.div_ceil(GROUP) {
            1 => Some(sum),
            groups => self.top.pass(sum, groups),
        };
        let Some(sum) = sum else {
            return Arrival::Early;
        };
        if sum != note.signature().wrapping_mul(u64::from(members)) & SUM {
            self.disputed
                .store(round.wrapping_add(1), Ordering::Relaxed);
        }
        // PAIR(board-over): `rounds` loads it with Acquire.
        self.rounds.store(round.wrapping_add(1), Ordering::Release);
        Arrival::Last(self.has_sleepers())
    }

    /// A member is about to sleep: it must look once more at what it waits for, and sleep only if that is not there.
    pub fn doze(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // PAIR(board-sleep): whoever ends a round, or tells, fences before it looks for sleepers.
        fence(Ordering::SeqCst);
    }

    /// It is awake again.
    pub fn rise(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether anybody may sleep on what was done here before.
    #[must_use]
    pub fn has_sleepers(&self) -> bool {
        // PAIR(board-sleep): `doze` counts itself, fences, and then looks once more.
        fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    /// A new board in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        let gate = || Gate(AtomicU64::new(0));
        Self {
            key: AtomicU32::new(0),
            left: AtomicU32::new(0),
            pad: [0; 14],
            rounds: AtomicU32::new(0),
            disputed: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            pad2: [0; 13],
            top: gate(),
            groups: core::array::from_fn(|_| gate()),
            notes: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// One of `expected` comes; the last one gets the sum of what they told, and closes the gate again.
    fn pass(&self, told: u64, expected: u32) -> Option<u64> {
        // PAIR(board-gate): each arrival joins the chain of those before it; the last one has seen all.
        let before = self.0.fetch_add(1 | told << 16, Ordering::AcqRel);
        if before & 0xffff != u64::from(expected - 1) {
            return None;
        }
        // Nobody comes before the round is over, which the last one says later, with Release.
        self.0.store(0, Ordering::Relaxed);
        Some((before >> 16).wrapping_add(told) & SUM)
    }
}

impl Note {
    fn word(self) -> u32 {
        u32::from(self.kind) << 24 | self.bytes & 0x00ff_ffff
    }

    #[allow(clippy::cast_possible_truncation, reason = "the parts of a word")]
    fn of(word: u64) -> Self {
        Self {
            kind: (word >> 24) as u8,
            bytes: word as u32 & 0x00ff_ffff,
        }
    }

    /// 48 bits whose sums differ where notes do.
    fn signature(self) -> u64 {
        u64::from(self.word())
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 16
    }
}

/// Members that share a gate.
#[cfg(not(loom))]
const GROUP: u32 = 16;
#[cfg(loom)]
const GROUP: u32 = 2;
const MEMBERS: usize = if cfg!(loom) {
    4
} else {
    MAX_LOCAL_RANKS as usize
};
const GROUPS: usize = MEMBERS.div_ceil(GROUP as usize);
/// What of a gate's word is a sum, once it is shifted down.
const SUM: u64 = u64::MAX >> 16;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SEND: Note = Note { kind: 3, bytes: 8 };

    fn round(board: &Board, members: u32, round: u32, note: impl Fn(u32) -> Note) {
        for place in 0..members {
            assert_eq!(board.rounds(), round);
            let arrival = board.arrive(place, members, round, note(place));
            let last = place + 1 == members;
            assert_eq!(
                arrival == Arrival::Last(false),
                last,
                "{place} of {members}"
            );
        }
        assert_eq!(board.rounds(), round.wrapping_add(1));
    }

    #[test]
    fn a_round_is_over_when_all_have_arrived() {
        for members in [1, 2, 15, 16, 17, 32, 33, 1000, 1024] {
            let board = Board::new();
            for number in 0..3 {
                round(&board, members, number, |_| SEND);
                assert!(!board.is_disputed(number));
            }
        }
    }

    #[test]
    fn who_tells_something_else_is_noticed() {
        for members in [2, 16, 40] {
            let board = Board::new();
            for odd in 0..members {
                let other = Note { bytes: 16, ..SEND };
                let note = |place| if place == odd { other } else { SEND };
                round(&board, members, 2 * odd, note);
                assert!(board.is_disputed(2 * odd), "{odd} of {members}");
                round(&board, members, 2 * odd + 1, |_| SEND);
                assert!(!board.is_disputed(2 * odd + 1));
            }
        }
    }

    #[test]
    fn a_note_is_of_one_round() {
        let board = Board::new();
        assert_eq!(board.note(0, 0), None);
        let note = Note {
            kind: 7,
            bytes: 0x00ff_ffff,
        };
        board.tell(1023, u32::MAX, note);
        assert_eq!(board.note(1023, u32::MAX), Some(note));
        assert_eq!(board.note(1023, 0), None);
        assert!(!board.has_sleepers());
        board.doze();
        assert!(board.has_sleepers());
        board.rise();
        assert!(!board.has_sleepers());
    }

    #[test]
    fn the_last_to_leave_makes_it_free() {
        let board = Board::new();
        assert!(board.claim(12));
        assert!(!board.claim(16));
        board.leave(2);
        assert_eq!(board.key(), 12);
        board.leave(2);
        assert_eq!(board.key(), 0);
        assert!(board.claim(16));
        board.leave(1);
        assert_eq!(board.key(), 0);
    }
}
