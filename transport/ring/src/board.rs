// SPDX-License-Identifier: MIT OR Apache-2.0
//! A board: memory in which ranks of one node run a collective together. In each round, each member puts its data on
//! the board, publishes a note of its operation, and arrives; when all have arrived, the round is over and all may read
//! the data. A member's own [lines](crate::MemberLines) hold its note, and its data if they are few; larger data are
//! copied by [`SharedBytes`](crate::SharedBytes).
//!
//! If the members are few, they poll each other's lines for arrivals. If they are many, the board counts the arrivals,
//! at separate gates for each round, since a member may be some rounds ahead of others.
//!
//! Larger data use the two halves of the board in turn, so a member may write for the next round while others still
//! read this round's data. But it must not begin to write before this round is over. Then every member has read the
//! previous round's data before it arrived in this round, so the half with those data is free (R7).
//!
//! Numbers that another process can garble decide only when a member continues. So a faulty process makes results
//! wrong, or makes members wait, but causes no access to other memory.

use crate::layout::MAX_LOCAL_RANKS;
use crate::lines::DEPTH;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The shared words of a board.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub struct Board {
    /// The key under which its members use the board; 0: the board is free.
    key: AtomicU32,
    /// Number of members that have left for good.
    left: AtomicU32,
    pad: [u32; 14],
    /// Number of rounds that are over. If the board counts the arrivals, waiting members poll only this cache line.
    rounds: AtomicU32,
    /// Number of members that sleep until an event of this board occurs.
    sleepers: AtomicU32,
    pad2: [u32; 14],
    /// Rounds in which the members' notes differ, at index round modulo [`DEPTH`]: the round's number, and a bit that
    /// makes it non-zero.
    disputed: [AtomicU64; DEPTH as usize],
    /// The gates of each round, at index round modulo [`DEPTH`].
    gates: [ArrivalGates; DEPTH as usize],
    /// The event for which each member sleeps: a number, and bits for its kind; 0: the member does not sleep.
    awaited: [AtomicU64; MEMBERS],
}

/// Counts the arrivals of one round.
#[derive(Debug)]
#[repr(C)]
struct ArrivalGates {
    /// Counts the groups in which all members have arrived.
    top: ArrivalGate,
    /// Each gate counts the arrivals of one group of 16 members, so the groups write to different cache lines.
    groups: [ArrivalGate; GROUPS],
}

/// A count of arrivals (low 16 bits), and the sum of the [signatures](RoundNote::signature) of the arriving members'
/// notes. With the sum a disagreement is found without reading all notes.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct ArrivalGate(AtomicU64);

/// A member's operation in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundNote {
    /// Kind of operation. Its values are defined by the members; not 0.
    pub kind: u8,
    /// Size of the operation in bytes: below 2²⁴.
    pub bytes: u32,
}

/// The event for which a member sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeps {
    /// It sleeps until this round is over.
    ForRound(u32),
    /// It sleeps until all members whose place is less than `below` have arrived in `round`.
    ForArrivals {
        /// The round.
        round: u32,
        /// The end of the range of places; not 0.
        below: u32,
    },
    /// It sleeps until this entry of the broadcast queue is published.
    ForEntry(u32),
}

/// The result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the last one wakes the others"]
pub enum RoundArrival {
    /// Other members have not arrived yet.
    Early,
    /// This was the last arrival of the round, which is over now. `true`: some member may be sleeping.
    Last(bool),
}

impl Board {
    /// Claims a free board for the members with `key`. `false`: it is in use.
    #[must_use]
    pub fn claim(&self, key: u32) -> bool {
        // PAIR(board-free): the last member's `leave` stores 0 with Release.
        self.key
            .compare_exchange(0, key, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Resets the board to round 0. Called only while no other member uses the board.
    pub fn begin(&self) {
        self.rounds.store(0, Ordering::Relaxed);
        self.sleepers.store(0, Ordering::Relaxed);
        let gates = self.gates.iter();
        gates
            .flat_map(|gates| gates.groups.iter().chain([&gates.top]))
            .for_each(|gate| gate.0.store(0, Ordering::Relaxed));
        let words = self.disputed.iter().chain(&self.awaited);
        words.for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The key under which its members use the board; 0: the board is free.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }

    /// One of `members` members leaves for good; the last one frees the board.
    pub fn leave(&self, members: u32) {
        // PAIR(board-left): every member's last access to the board happens before the last member frees it.
        if self.left.fetch_add(1, Ordering::AcqRel).wrapping_add(1) == members {
            self.give_back();
        }
    }

    fn give_back(&self) {
        self.left.store(0, Ordering::Relaxed);
        // PAIR(board-free): `claim` exchanges the key with Acquire.
        self.key.store(0, Ordering::Release);
    }

    /// Number of rounds that are over. The data of the last of these rounds may be read.
    #[inline]
    #[must_use]
    pub fn rounds(&self) -> u32 {
        // PAIR(board-over): the last member to arrive stores the number with Release, after it has seen all other
        // arrivals.
        self.rounds.load(Ordering::Acquire)
    }

    /// Whether the members' notes for `round`, which is over, differ.
    #[must_use]
    pub fn is_disputed(&self, round: u32) -> bool {
        self.disputed_in(round).load(Ordering::Relaxed) == numbered(round)
    }

    /// Member `place` of `members` arrives in `round`.
    pub fn arrive(&self, place: u32, members: u32, round: u32, note: RoundNote) -> RoundArrival {
        let group = place / GROUP;
        let in_group = (members - group * GROUP).min(GROUP);
        let gates = &self.gates[(round % DEPTH) as usize];
        let gate = &gates.groups[group as usize % GROUPS];
        let Some(sum) = gate.pass(note.signature(), in_group) else {
            return RoundArrival::Early;
        };
        let sum = match members.div_ceil(GROUP) {
            1 => Some(sum),
            groups => gates.top.pass(sum, groups),
        };
        let Some(sum) = sum else {
            return RoundArrival::Early;
        };
        if sum != note.signature().wrapping_mul(u64::from(members)) & SUM {
            self.disputed_in(round)
                .store(numbered(round), Ordering::Relaxed);
        }
        // PAIR(board-over): `rounds` loads it with Acquire.
        self.rounds.store(round.wrapping_add(1), Ordering::Release);
        RoundArrival::Last(self.has_sleepers())
    }

    /// Announces that member `place` is about to sleep. Then the member must check once more for the event, and sleep
    /// only if it has not occurred.
    pub fn doze(&self, place: u32, what: Sleeps) {
        let word = match what {
            Sleeps::ForRound(round) => numbered(round),
            Sleeps::ForArrivals { round, below } => {
                numbered(round) | u64::from(below) << BELOW_SHIFT
            }
            Sleeps::ForEntry(entry) => u64::from(entry) | FOR_ENTRY,
        };
        self.awaited_by(place).store(word, Ordering::Relaxed);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // PAIR(board-sleep): a member that ends a round, or publishes a note or an entry, fences before it looks for
        // sleepers.
        fence(Ordering::SeqCst);
    }

    /// Revokes [`doze`](Self::doze): the member is awake again. Afterwards it checks whether its event has occurred,
    /// and if so, wakes other members that sleep for the same event.
    pub fn rise(&self, place: u32) {
        self.awaited_by(place).store(0, Ordering::Relaxed);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        // PAIR(board-sleep): another member fences before it looks for sleepers. If that member still finds this member
        // asleep, this member sees that member's earlier stores after the fence here.
        fence(Ordering::SeqCst);
    }

    /// The event for which member `place` may be sleeping; `None`: it does not sleep.
    #[must_use]
    pub fn sleeps_for(&self, place: u32) -> Option<Sleeps> {
        let word = self.awaited_by(place).load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation, reason = "the low half of a word")]
        let number = word as u32;
        match (word & FOR_ENTRY != 0, word >> BELOW_SHIFT) {
            (true, _) => Some(Sleeps::ForEntry(number)),
            (false, 0) => (word != 0).then_some(Sleeps::ForRound(number)),
            (false, below) => Some(Sleeps::ForArrivals {
                round: number,
                below: u32::try_from(below).unwrap_or(u32::MAX),
            }),
        }
    }

    fn disputed_in(&self, round: u32) -> &AtomicU64 {
        &self.disputed[(round % DEPTH) as usize]
    }

    fn awaited_by(&self, place: u32) -> &AtomicU64 {
        &self.awaited[place as usize % MEMBERS]
    }

    /// Whether any member may be sleeping. The caller must have published its event before this call.
    #[must_use]
    pub fn has_sleepers(&self) -> bool {
        // PAIR(board-sleep): a member counts itself and fences in `doze`, and then checks for its event once more.
        fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    /// A new board in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        let gate = || ArrivalGate(AtomicU64::new(0));
        Self {
            key: AtomicU32::new(0),
            left: AtomicU32::new(0),
            pad: [0; 14],
            rounds: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            pad2: [0; 14],
            disputed: core::array::from_fn(|_| AtomicU64::new(0)),
            gates: core::array::from_fn(|_| ArrivalGates {
                top: gate(),
                groups: core::array::from_fn(|_| gate()),
            }),
            awaited: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl ArrivalGate {
    /// Counts one of `expected` arrivals. The last arrival resets the gate and returns the sum of the signatures of all
    /// arrivals; for the other arrivals the result is `None`.
    fn pass(&self, signature: u64, expected: u32) -> Option<u64> {
        // PAIR(board-gate): each arrival acquires from the one before it, so the last one sees the stores of all.
        let before = self.0.fetch_add(1 | signature << 16, Ordering::AcqRel);
        if before & 0xffff != u64::from(expected - 1) {
            return None;
        }
        // No member arrives at this gate again before the round is over. The last member to arrive publishes the end of
        // the round later, with Release.
        self.0.store(0, Ordering::Relaxed);
        Some((before >> 16).wrapping_add(signature) & SUM)
    }
}

impl RoundNote {
    pub(crate) fn word(self) -> u32 {
        u32::from(self.kind) << 24 | self.bytes & 0x00ff_ffff
    }

    #[allow(clippy::cast_possible_truncation, reason = "the parts of a word")]
    pub(crate) fn of(word: u64) -> Self {
        Self {
            kind: (word >> 24) as u8,
            bytes: word as u32 & 0x00ff_ffff,
        }
    }

    /// 48 bits of a hash of the note. If the members' notes differ, the sum of their signatures differs from the sum
    /// for equal notes, except by chance.
    fn signature(self) -> u64 {
        u64::from(self.word())
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 16
    }
}

/// The number of a round, and a bit that makes it non-zero.
fn numbered(round: u32) -> u64 {
    u64::from(round) | 1 << 32
}

/// This bit means that the awaited event is an entry of the broadcast queue.
const FOR_ENTRY: u64 = 1 << 33;
/// Shift of `below` of [`Sleeps::ForArrivals`].
const BELOW_SHIFT: u32 = 34;
/// Number of members in a group, whose arrivals are counted by one gate.
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
/// Mask of the sum in a gate's word, after the word is shifted down by 16 bits.
const SUM: u64 = u64::MAX >> 16;

#[cfg(not(loom))]
const _: () = assert!(size_of::<Board>() <= crate::layout::BOARD_DATA_OFFSET);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SEND: RoundNote = RoundNote { kind: 3, bytes: 8 };

    fn round(board: &Board, members: u32, round: u32, note: impl Fn(u32) -> RoundNote) {
        for place in 0..members {
            assert_eq!(board.rounds(), round);
            let arrival = board.arrive(place, members, round, note(place));
            let last = place + 1 == members;
            assert_eq!(
                arrival == RoundArrival::Last(false),
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
    fn differing_note_disputes_the_round() {
        for members in [2, 16, 40] {
            let board = Board::new();
            for odd in 0..members {
                let other = RoundNote { bytes: 16, ..SEND };
                let note = |place| if place == odd { other } else { SEND };
                round(&board, members, 2 * odd, note);
                assert!(board.is_disputed(2 * odd), "{odd} of {members}");
                round(&board, members, 2 * odd + 1, |_| SEND);
                assert!(!board.is_disputed(2 * odd + 1));
            }
        }
    }

    #[test]
    fn sleeper_is_found_with_its_wait_condition() {
        let board = Board::new();
        assert!(!board.has_sleepers() && board.sleeps_for(1023).is_none());
        for number in [0, 7, u32::MAX] {
            let arrivals = [1, 1023].map(|below| Sleeps::ForArrivals {
                round: number,
                below,
            });
            let others = [Sleeps::ForRound(number), Sleeps::ForEntry(number)];
            for what in arrivals.into_iter().chain(others) {
                board.doze(1023, what);
                assert!(board.has_sleepers());
                assert_eq!(board.sleeps_for(1023), Some(what));
                assert_eq!(board.sleeps_for(1022), None);
                board.rise(1023);
                assert!(!board.has_sleepers() && board.sleeps_for(1023).is_none());
            }
        }
    }

    #[test]
    fn begin_clears_all_state() {
        let board = Board::new();
        (0..15).for_each(|place| assert_eq!(board.arrive(place, 16, 0, SEND), RoundArrival::Early));
        board.doze(3, Sleeps::ForRound(7));
        board.begin();
        assert!(!board.has_sleepers() && board.sleeps_for(3).is_none());
        round(&board, 16, 0, |_| SEND);
        assert!(!board.is_disputed(0) && !board.is_disputed(u32::MAX));
    }

    #[test]
    fn last_member_to_leave_frees_the_board() {
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
