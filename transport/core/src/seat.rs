// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process's seat at a board. A board is shared memory of a node: ranks of the node that run a collective together
//! put their data there and wait for each other, without messages between them.
//!
//! The members of a board count rounds. In each round a member may put bytes on the board, [arrives](Seat::arrive) with
//! a note that describes the operation, and may read all bytes when the round [is over](Seat::is_over). A member begins
//! the next round at any time after the last one is over ([`Seat::begin`]). A few bytes fit into the member's own cache
//! lines: a member that uses only these may be some rounds ahead of the others ([`Seat::begin_in_lines`]). Data that
//! need no round are sent through the board's [broadcast queue](Seat::bcast_queue).

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use ring::{Bell, Board, BoardParts, DEPTH, MemberLines, RoundArrival, SharedBytes, Sleeps, Wake};

pub use ring::{LINE_BODY_BYTES, RoundNote};

use crate::bcast_queue::{BcastEntryHead, BcastQueueMember};
use crate::{Node, Segment, wait};

/// A member's place at a board, and the count of its rounds.
#[derive(Debug)]
pub struct Seat {
    board: &'static Board,
    halves: [SharedBytes; 2],
    lines: &'static [MemberLines],
    queue: BcastQueueMember,
    segment: Segment,
    /// Local ranks of all members, by place.
    members: Box<[u32]>,
    place: u32,
    /// The round that this member begins next.
    next: Cell<u32>,
    /// Number of rounds that were over when this member last looked. With at most [`FEW`] members, also how many
    /// members had arrived in the next round, in the order of their places.
    over: Cell<(u32, u32)>,
}

/// A board event that a member waits for.
#[derive(Clone, Debug)]
pub struct Awaited {
    seat: Rc<Seat>,
    what: BoardEvent,
}

/// An event at a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardEvent {
    /// The round is over.
    Over(Round),
    /// All members below this place, which is not 0, have arrived in the round.
    Arrived(Round, u32),
    /// This entry of the broadcast queue was published.
    Entry(u32),
    /// All members have taken this many entries of the broadcast queue.
    Taken(u32),
}

/// One round at a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round(u32);

impl Seat {
    /// Takes a seat at the board with the key `key` of a node, for the members in the order of their places. Either all
    /// members take a seat or none does, and all take their seats before any member begins a round. `None`: there is no
    /// such board.
    pub(crate) fn take(node: &Node, key: u32, members: Box<[u32]>, place: u32) -> Option<Self> {
        let parts = find(node, key)?;
        let count = u32::try_from(members.len()).ok()?;
        let lines = parts.lines.get(..members.len())?;
        let first = match lines.len() <= FEW {
            true => lines.get(place as usize)?.next_round(),
            false => parts.board.rounds(),
        };
        Some(Self {
            board: parts.board,
            halves: parts.halves,
            lines,
            queue: BcastQueueMember::take_place(&parts, count, place),
            segment: node.segment,
            members,
            place,
            next: Cell::new(first),
            over: Cell::new((first, 0)),
        })
    }

    /// Number of members.
    #[must_use]
    pub fn members(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// Bytes that fit on the board in one round, of all members together.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        ring::layout::board_room_bytes(self.segment.local_size())
    }

    /// Bytes of half a board, which one round may use: more than [`room_bytes`](Self::room_bytes) if the members are
    /// few.
    #[must_use]
    pub fn half_bytes(&self) -> usize {
        self.halves[0].length()
    }

    /// Bytes of half a board that each of `members` members has at least, in whole cache lines.
    #[must_use]
    pub const fn place_bytes(members: u32) -> usize {
        let share =
            ring::layout::BOARD_HALF_LEAST_BYTES / members as usize / LINE_BYTES * LINE_BYTES;
        if share < ring::layout::BOARD_PART_BYTES {
            ring::layout::BOARD_PART_BYTES
        } else {
            share
        }
    }

    /// The next round; `None`: the last one is not over yet.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> Option<Round> {
        let next = self.next.get();
        (self.over.get().0 == next || self.rounds() == next).then_some(Round(next))
    }

    /// The next round, in which this member puts no bytes on the board except [in its lines](Self::put_in_lines).
    /// `None`: this member is too many rounds ahead.
    #[inline]
    #[must_use]
    pub fn begin_in_lines(&self) -> Option<Round> {
        let next = self.next.get();
        let is_far_ahead = |rounds: u32| next.wrapping_sub(rounds) >= DEPTH - 1;
        let known = self.over.get().0;
        (!is_far_ahead(known) || !is_far_ahead(self.rounds())).then_some(Round(next))
    }

    /// The event to wait for if [`begin_in_lines`](Self::begin_in_lines) returns `None`: room for several rounds, so
    /// that a waiting member is not woken for each round.
    #[must_use]
    pub fn room_in_lines(&self) -> BoardEvent {
        BoardEvent::Over(Round(self.next.get().wrapping_sub(DEPTH / 2)))
    }

    /// Whether the members are so few that they poll each other's lines; with many, that would take too long.
    #[inline]
    fn is_of_few(&self) -> bool {
        self.lines.len() <= FEW
    }

    /// How many rounds are over.
    #[inline]
    fn rounds(&self) -> u32 {
        if self.is_of_few() {
            return self.rounds_of_few();
        }
        let rounds = self.board.rounds();
        self.over.set((rounds, 0));
        rounds
    }

    fn rounds_of_few(&self) -> u32 {
        let (mut round, mut arrived) = self.over.get();
        // Counts no further than this member's own rounds, whatever the shared memory contains.
        while round != self.next.get() {
            let waits_for = self.lines[arrived as usize..]
                .iter()
                .position(|lines| !lines.has_reached(round));
            if let Some(more) = waits_for {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "at most so many as members"
                )]
                self.over.set((round, arrived + more as u32));
                return round;
            }
            (round, arrived) = (round.wrapping_add(1), 0);
        }
        self.over.set((round, arrived));
        round
    }

    /// The round that this member begins next; other members may be in it already.
    #[must_use]
    pub fn upcoming(&self) -> Round {
        Round(self.next.get())
    }

    /// The last round that this member arrived in.
    #[must_use]
    pub fn last(&self) -> Round {
        Round(self.next.get().wrapping_sub(1))
    }

    /// Puts bytes on the board from byte `at` on, in a round in which all members together put `all` bytes there. Must
    /// be called before the arrival.
    ///
    /// # Panics
    /// When the bytes exceed [half a board](Self::half_bytes).
    pub fn put(&self, round: Round, all: usize, at: usize, bytes: &[u8]) {
        let (half, start) = self.place_of(round, all);
        let fits = half.fill(start.saturating_add(at), bytes);
        assert!(fits, "{} bytes at {at} of a board", bytes.len());
    }

    /// Reads bytes of a round from byte `at` on, with `all` as in [`put`](Self::put). These must be bytes of a member
    /// that has arrived, or of any member when the round is over.
    ///
    /// # Panics
    /// When the range exceeds [half a board](Self::half_bytes).
    pub fn read(&self, round: Round, all: usize, at: usize, into: &mut [u8]) {
        let (half, start) = self.place_of(round, all);
        let fits = half.drain(start.saturating_add(at), into);
        assert!(fits, "{} bytes at {at} of a board", into.len());
    }

    /// Puts bytes into this member's lines, at most [`LINE_BODY_BYTES`]. Must be called before the arrival.
    ///
    /// # Panics
    ///
    /// When there are more than [`LINE_BODY_BYTES`] bytes.
    #[inline]
    pub fn put_in_lines(&self, round: Round, bytes: &[u8]) {
        let fits = self.lines[self.place as usize].put(round.0, bytes);
        assert!(fits, "{} bytes in lines of a board", bytes.len());
    }

    /// Reads bytes that the member at `place` has put into its lines, from byte `at` on. That member must have arrived
    /// in the round, or the round must be over.
    ///
    /// # Panics
    /// When the lines have fewer bytes.
    #[inline]
    pub fn read_lines(&self, round: Round, place: u32, at: usize, into: &mut [u8]) {
        let fits = self.lines[place as usize].get(round.0, at, into);
        assert!(fits, "{} bytes at {at} of lines of a board", into.len());
    }

    /// Location of the round's data: one of the halves, and the first byte there. Rounds that use the same half use its
    /// parts in turn.
    fn place_of(&self, round: Round, all: usize) -> (&SharedBytes, usize) {
        let half = &self.halves[round.0 as usize % 2];
        let all = all.next_multiple_of(LINE_BYTES).max(LINE_BYTES);
        let places = (half.length() / all).max(1);
        (half, round.0 as usize / 2 % places * all)
    }

    /// This member's place in the broadcast queue, through which members publish entries without waiting for each
    /// other.
    #[must_use]
    pub fn bcast_queue(&self) -> &BcastQueueMember {
        &self.queue
    }

    /// Takes the next entry of the broadcast queue. If a member waits for room in the queue, wakes it.
    pub fn take_entry(&self, head: &BcastEntryHead) {
        self.queue.take(head);
        let waiter = self.queue.waiter();
        if let Some(member) = waiter.and_then(|place| self.members.get(place as usize)) {
            self.wake(*member);
        }
    }

    /// Wakes all sleeping members, after an event for which any of them may wait.
    pub fn wake_sleepers(&self) {
        if self.board.has_sleepers() {
            self.wake_all();
        }
    }

    /// Wakes two of the members that sleep for an entry that was published; each of them wakes two more. So a publisher
    /// of many entries does not spend its time on waking all sleepers, and those woken by others are awake before it
    /// publishes the next entry.
    #[inline]
    pub fn wake_readers(&self) {
        if self.board.has_sleepers() {
            self.wake_two_readers();
        }
    }

    /// Wakes the members that sleep until a round is over, or until certain members have arrived in it, and whose event
    /// has occurred.
    #[inline]
    pub fn wake_those_of_rounds(&self) {
        if self.board.has_sleepers() {
            self.wake_all_of_rounds();
        }
    }

    /// Marks this member's part of the round as done and publishes its note. After this, the member puts no more bytes
    /// on the board in this round.
    #[inline]
    pub fn arrive(&self, round: Round, note: RoundNote) {
        self.next.set(round.0.wrapping_add(1));
        self.lines[self.place as usize].publish(round.0, note);
        if self.is_of_few() {
            return self.wake_those_of_rounds();
        }
        let members = self.members();
        if self.board.arrive(self.place, members, round.0, note) == RoundArrival::Last(true) {
            self.wake_all_of_rounds();
        }
    }

    /// Whether all members have arrived.
    #[inline]
    #[must_use]
    pub fn is_over(&self, round: Round) -> bool {
        let is_over = |rounds: u32| rounds.wrapping_sub(round.0).wrapping_sub(1) <= u32::MAX / 2;
        is_over(self.over.get().0) || is_over(self.rounds())
    }

    /// The note of a member for the round, if it has arrived.
    #[inline]
    #[must_use]
    pub fn note(&self, round: Round, place: u32) -> Option<RoundNote> {
        self.lines.get(place as usize)?.note(round.0)
    }

    /// The first member of `places` that has not arrived in the round.
    #[inline]
    #[must_use]
    pub fn first_absent(&self, round: Round, mut places: Range<u32>) -> Option<u32> {
        places.find(|place| {
            let lines = self.lines.get(*place as usize);
            lines.is_some_and(|lines| !lines.has_reached(round.0))
        })
    }

    /// Whether the members' notes of a finished round differ.
    #[inline]
    #[must_use]
    pub fn is_disputed(&self, round: Round) -> bool {
        if !self.is_of_few() {
            return self.board.is_disputed(round.0);
        }
        let own = self.note(round, self.place);
        self.lines.iter().any(|lines| lines.note(round.0) != own)
    }

    /// The first member whose note for the round differs from `note`.
    #[must_use]
    pub fn who_differs(&self, round: Round, note: RoundNote) -> Option<(u32, RoundNote)> {
        (0..self.members())
            .filter_map(|place| Some((place, self.note(round, place)?)))
            .find(|(_, other)| *other != note)
    }

    #[cold]
    #[inline(never)]
    fn wake_two_readers(&self) {
        let mut left = 2;
        // Wakes members in the order of their places: the first member is the root of most calls, so it is the one that
        // others wait for next.
        for (place, member) in (0..).zip(&self.members) {
            let Some(Sleeps::ForEntry(entry)) = self.board.sleeps_for(place) else {
                continue;
            };
            if self.queue.is_published(entry) && self.wake(*member) {
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_all_of_rounds(&self) {
        let rounds = self.rounds();
        let is_over = |round: u32| rounds.wrapping_sub(round).wrapping_sub(1) <= u32::MAX / 2;
        // A round, and the first member that has not arrived in it.
        let mut arrived: Option<(u32, u32)> = None;
        for (place, member) in (0..).zip(&self.members) {
            let has_happened = match self.board.sleeps_for(place) {
                None | Some(Sleeps::ForEntry(_)) => false,
                Some(Sleeps::ForRound(round)) => is_over(round),
                Some(Sleeps::ForArrivals { round, below }) => {
                    if arrived.is_none_or(|(known, _)| known != round) {
                        let first = self.first_absent(Round(round), 0..self.members());
                        arrived = Some((round, first.unwrap_or(u32::MAX)));
                    }
                    is_over(round) || arrived.is_some_and(|(_, first)| below <= first)
                }
            };
            if has_happened {
                self.wake(*member);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_all(&self) {
        for member in &self.members {
            self.wake(*member);
        }
    }

    /// Wakes a member. `false`: it is awake, or another member wakes it.
    fn wake(&self, member: u32) -> bool {
        let bell: &Bell = self.segment.bell(member);
        let sleeps = bell.wake() == Wake::Sleeper;
        if sleeps {
            wait::futex_wake(bell.sleep_word());
        }
        sleeps
    }
}

impl Awaited {
    /// An event that `seat` waits for.
    #[must_use]
    pub fn new(seat: &Rc<Seat>, what: BoardEvent) -> Self {
        let seat = Rc::clone(seat);
        Self { seat, what }
    }

    /// Whether the event has occurred.
    #[must_use]
    pub fn has_happened(&self) -> bool {
        match self.what {
            BoardEvent::Over(round) => self.seat.is_over(round),
            BoardEvent::Arrived(round, below) => self.seat.first_absent(round, 0..below).is_none(),
            BoardEvent::Entry(number) => self.seat.queue.is_published(number),
            BoardEvent::Taken(count) => self.seat.queue.have_taken(count),
        }
    }

    /// Announces that this process sleeps until the event occurs, and runs `sleep`; the member that causes the event
    /// then wakes this process. `sleep` must check [`has_happened`](Self::has_happened) of its argument first, and
    /// return if that is `true`.
    pub fn doze(&self, sleep: impl FnOnce(&Self)) {
        match self.what {
            BoardEvent::Taken(count) => self.seat.queue.sleep_until_taken(count, || sleep(self)),
            BoardEvent::Over(round) => self.sleep_at_board(Sleeps::ForRound(round.0), sleep),
            BoardEvent::Arrived(round, below) => {
                let round = round.0;
                self.sleep_at_board(Sleeps::ForArrivals { round, below }, sleep);
            }
            BoardEvent::Entry(number) => self.sleep_at_board(Sleeps::ForEntry(number), sleep),
        }
    }
}

impl Awaited {
    fn sleep_at_board(&self, what: Sleeps, sleep: impl FnOnce(&Self)) {
        let (board, place) = (self.seat.board, self.seat.place);
        board.doze(place, what);
        sleep(self);
        board.rise(place);
        if matches!(what, Sleeps::ForEntry(_)) && self.has_happened() {
            self.seat.wake_readers();
        }
    }
}

/// Claims a free board of the node for members that use it by the key `key`, which is not 0. Each member [`leave`]s the
/// board in the end. `false`: no board is free.
pub(crate) fn claim(node: &Node, key: u32) -> bool {
    let mut boards =
        (OF_THE_NODE + 1..ring::layout::BOARDS).filter_map(|index| node.segment.board(index));
    let claimed = boards.find(|parts| parts.board.claim(key));
    if let Some(parts) = &claimed {
        parts.board.begin();
        parts.queue.begin();
        parts.lines.iter().for_each(MemberLines::begin);
    }
    claimed.is_some()
}

/// Ends the use of a board by one of its `members` members. Does nothing if there is no board with this key.
pub(crate) fn leave(node: &Node, key: u32, members: u32) {
    if let Some(parts) = find(node, key).filter(|_| key != NODE_BOARD) {
        parts.board.leave(members);
    }
}

fn find(node: &Node, key: u32) -> Option<BoardParts> {
    if key == NODE_BOARD {
        return node.segment.board(OF_THE_NODE);
    }
    (OF_THE_NODE + 1..ring::layout::BOARDS)
        .filter_map(|index| node.segment.board(index))
        .find(|parts| parts.board.key() == key)
}

/// The key of the permanent board, of all ranks of the node.
pub const NODE_BOARD: u32 = 0;
/// Index of the permanent board.
const OF_THE_NODE: u32 = 0;
const LINE_BYTES: usize = 64;
/// Up to this many members poll each other's lines.
pub const FEW: usize = 8;
