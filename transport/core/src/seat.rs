// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's seat at a board: where ranks of this node that do the same thing together put their data and wait for each
//! other, without a message between any two of them.
//!
//! The members of a board count rounds. In each of them a member may put bytes on the board, [tells](Seat::tell) what it does,
//! [arrives](Seat::arrive), and may read all bytes when the round [is over](Seat::is_over). It begins the next round when the
//! last one is over ([`Seat::begin`]), which need not be at once.

use std::cell::Cell;
use std::rc::Rc;

use ring::{Arrival, Bell, Board, BoardData, Wake};

pub use ring::Note;

use crate::{Node, Segment, wait};

/// A member's place at a board, and the count of its rounds.
#[derive(Debug)]
pub struct Seat {
    board: &'static Board,
    data: BoardData,
    segment: Segment,
    /// Local ranks of all members, by place.
    members: Box<[u32]>,
    place: u32,
    /// The round that this member begins next.
    next: Cell<u32>,
}

/// What a member waits for.
#[derive(Clone, Debug)]
pub struct Awaited {
    seat: Rc<Seat>,
    what: Event,
}

/// Something that happens at a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The round is over.
    Over(Round),
    /// This member has told what it does in the round.
    Told(Round, u32),
}

/// One round at a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round(u32);

impl Seat {
    /// A seat at the board that the ranks of a node call `key`, for the members in the order of their places. All of them take
    /// one or none does, and all before any of them begins a round. `None`: there is no such board.
    pub(crate) fn take(node: &Node, key: u32, members: Box<[u32]>, place: u32) -> Option<Self> {
        let (board, data) = find(node, key)?;
        Some(Self {
            board,
            data,
            segment: node.segment,
            members,
            place,
            next: Cell::new(board.rounds()),
        })
    }

    /// Number of members.
    #[must_use]
    pub fn members(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// Bytes that fit the board in one round, of all members together.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.data.half_bytes()
    }

    /// The next round, if the last one is over.
    #[must_use]
    pub fn begin(&self) -> Option<Round> {
        let next = self.next.get();
        (self.board.rounds() == next).then_some(Round(next))
    }

    /// The last round that this member arrived in.
    #[must_use]
    pub fn last(&self) -> Round {
        Round(self.next.get().wrapping_sub(1))
    }

    /// Puts bytes on the board from byte `at` on. Before the arrival.
    ///
    /// # Panics
    /// When they do not [fit](Self::room_bytes).
    pub fn put(&self, round: Round, at: usize, bytes: &[u8]) {
        let fits = self.data.fill(round.0, at, bytes);
        assert!(fits, "{} bytes at {at} of a board", bytes.len());
    }

    /// Reads bytes from byte `at` on: those of a member that has told, or of any when the round is over.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn read(&self, round: Round, at: usize, into: &mut [u8]) {
        let fits = self.data.drain(round.0, at, into);
        assert!(fits, "{} bytes at {at} of a board", into.len());
    }

    /// Tells what this member does, and that its bytes are there, to those that wait for [`Event::Told`].
    pub fn tell(&self, round: Round, note: Note) {
        self.board.tell(self.place, round.0, note);
        if self.board.has_sleepers() {
            self.wake_all();
        }
    }

    /// Has done its part of the round: nothing is put on the board any more. After [`tell`](Self::tell) with the same note,
    /// or instead of it.
    pub fn arrive(&self, round: Round, note: Note) {
        self.next.set(round.0.wrapping_add(1));
        self.board.tell(self.place, round.0, note);
        let members = self.members();
        if self.board.arrive(self.place, members, round.0, note) == Arrival::Last(true) {
            self.wake_all();
        }
    }

    /// Whether all members have arrived.
    #[must_use]
    pub fn is_over(&self, round: Round) -> bool {
        self.board.rounds() != round.0
    }

    /// What a member does in the round, if it has told.
    #[must_use]
    pub fn note(&self, round: Round, place: u32) -> Option<Note> {
        self.board.note(place, round.0)
    }

    /// Whether not all members do the same in a round that is over.
    #[must_use]
    pub fn is_disputed(&self, round: Round) -> bool {
        self.board.is_disputed(round.0)
    }

    /// The first member that does something else than `note` in the round.
    #[must_use]
    pub fn who_differs(&self, round: Round, note: Note) -> Option<(u32, Note)> {
        (0..self.members())
            .filter_map(|place| Some((place, self.note(round, place)?)))
            .find(|(_, other)| *other != note)
    }

    #[cold]
    #[inline(never)]
    fn wake_all(&self) {
        for member in &self.members {
            let bell: &Bell = self.segment.bell(*member);
            if bell.wake() == Wake::Sleeper {
                wait::futex_wake(bell.sleep_word());
            }
        }
    }
}

impl Awaited {
    /// What `seat` waits for.
    #[must_use]
    pub fn new(seat: &Rc<Seat>, what: Event) -> Self {
        let seat = Rc::clone(seat);
        Self { seat, what }
    }

    /// Whether it has happened.
    #[must_use]
    pub fn has_happened(&self) -> bool {
        match self.what {
            Event::Over(round) => self.seat.is_over(round),
            Event::Told(round, place) => self.seat.note(round, place).is_some(),
        }
    }

    /// Runs `sleep` in such a way that it is woken when this happens; it must not sleep if the answer to its argument is that
    /// it has.
    pub fn doze(&self, sleep: impl FnOnce(&Self)) {
        self.seat.board.doze();
        sleep(self);
        self.seat.board.rise();
    }
}

/// Takes a board of the node for members who will call it `key`, which is not 0. They all [`leave`] it in the end.
pub(crate) fn claim(node: &Node, key: u32) -> bool {
    (OF_THE_NODE + 1..ring::layout::BOARDS)
        .filter_map(|index| node.segment.board(index))
        .any(|(board, _)| board.claim(key))
}

/// One of `members` members is done with a board. Nothing happens if there is none.
pub(crate) fn leave(node: &Node, key: u32, members: u32) {
    if let Some((board, _)) = find(node, key).filter(|_| key != NODE_BOARD) {
        board.leave(members);
    }
}

fn find(node: &Node, key: u32) -> Option<(&'static Board, BoardData)> {
    if key == NODE_BOARD {
        return node.segment.board(OF_THE_NODE);
    }
    (OF_THE_NODE + 1..ring::layout::BOARDS)
        .filter_map(|index| node.segment.board(index))
        .find(|(board, _)| board.key() == key)
}

/// The key of the board that is always there, of all ranks of the node.
pub const NODE_BOARD: u32 = 0;
/// Its index.
const OF_THE_NODE: u32 = 0;
