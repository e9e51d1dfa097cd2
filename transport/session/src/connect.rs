// SPDX-License-Identifier: MIT OR Apache-2.0
//! How two processes agree on a reliable carrier, in notes that may be lost, come twice or overtake each other; and when they try
//! again. Decides what is to be done; whoever has the carriers does it.
//!
//! Who wants one makes its end and says [`Say::Connect`]; the other makes and joins its own and says [`Say::Accept`]; the
//! first joins and says [`Say::Ready`]. Each attempt has a number, larger than all before between the two. Who asks while
//! the other asks too: the larger number wins, and of equal ones that of the first of the two.
//!
//! Where a carrier that is made is joined at once, as a stream of bytes is, the notes go over it, and there is nothing to be ready for.
//!
//! - C1: at most one attempt is alive. An older one's end is broken before a newer one begins.
//! - C2: an end is used for sends only when the other end is known to be joined.
//! - C3: what is asked twice is answered the same way twice.

/// What a note says. `E` is what a peer must know of an end to join its own to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say<E> {
    /// What has arrived.
    Ack {
        /// An answer is wanted.
        asks: bool,
    },
    /// "Join your end to mine."
    Connect {
        /// Number of the attempt.
        attempt: u32,
        /// The end of who says it.
        end: E,
        /// Another one broke.
        again: bool,
    },
    /// "I did, to this one."
    Accept {
        /// Number of the attempt.
        attempt: u32,
        /// The end of who says it.
        end: E,
    },
    /// "Mine is joined too."
    Ready {
        /// Number of the attempt.
        attempt: u32,
    },
    /// "I have too many already."
    Refuse {
        /// Number of the attempt.
        attempt: u32,
    },
    /// "Let us give this one up: I post nothing to it any more."
    GiveUp {
        /// Number of the attempt.
        attempt: u32,
        /// Nor will anybody.
        done: bool,
    },
}

/// The state of the carrier to a peer. `Q` is the end of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierState<Q> {
    /// There is none.
    Apart,
    /// This process has asked.
    Asking {
        /// What it made for that.
        end: Q,
    },
    /// It was asked, has joined its end and answered.
    Answered {
        /// That end.
        end: Q,
    },
    /// Both ends are joined.
    Joined {
        /// That of this process.
        end: Q,
        /// By this process, which would say [`Say::Ready`] again.
        asked: bool,
    },
    /// It is in use no more on this side. First what is under way must arrive, then the peer is told, and when it has said so too,
    /// nobody uses it.
    Leaving {
        /// That of this process.
        end: Q,
        /// The peer was told.
        said: bool,
        /// The peer has told.
        heard: bool,
    },
}

/// A connection to a peer.
#[derive(Clone, Copy, Debug)]
pub struct Connection<Q> {
    state: CarrierState<Q>,
    /// Number of the newest attempt that is known of.
    attempt: u32,
    /// When something is said again, and how often it was.
    deadline_ns: u64,
    tries: u8,
    /// Nobody asks before this time: the peer refused.
    not_before_ns: u64,
    /// What was asked last nobody has heard, nor was the peer since.
    is_vain: bool,
}

/// What is to be done about a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do<E> {
    /// Nothing.
    Nothing,
    /// Break the end that there is, if any; make one, join it to the peer's, say Accept; then call [`Connection::answered`].
    Answer {
        /// The peer's.
        end: E,
        /// Another one broke.
        again: bool,
    },
    /// Say Accept again.
    AnswerAgain,
    /// Join the end that was made to the peer's, say Ready; then call [`Connection::joined`].
    Join {
        /// The peer's.
        end: E,
    },
    /// Say Ready again.
    ReadyAgain,
    /// The end can be used for sends now.
    Use,
    /// Give the end up that was made; stay with what there is without it.
    Abandon,
    /// Send nothing over it any more: [`Connection::leave`].
    Leave,
    /// Nobody uses it: take it apart.
    TakeApart {
        /// And tell the peer.
        asked: bool,
    },
    /// It is long gone: tell the peer.
    GoneAgain,
}

impl<Q> Default for Connection<Q> {
    fn default() -> Self {
        Self {
            state: CarrierState::Apart,
            attempt: 0,
            deadline_ns: NEVER,
            tries: 0,
            not_before_ns: 0,
            is_vain: false,
        }
    }
}

impl<Q: Copy + PartialEq> Connection<Q> {
    /// There is none as yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where it stands.
    #[inline(always)]
    #[must_use]
    pub fn state(&self) -> CarrierState<Q> {
        self.state
    }

    /// Number of the newest attempt that is known of.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Nobody asks before this time.
    #[inline]
    #[must_use]
    pub fn not_before_ns(&self) -> u64 {
        self.not_before_ns
    }

    /// The end of this process, in any state.
    #[must_use]
    pub fn end(&self) -> Option<Q> {
        match self.state {
            CarrierState::Apart => None,
            CarrierState::Asking { end }
            | CarrierState::Answered { end }
            | CarrierState::Joined { end, .. }
            | CarrierState::Leaving { end, .. } => Some(end),
        }
    }

    /// The end, if sends may use it (C2).
    #[inline(always)]
    #[must_use]
    pub fn usable(&self) -> Option<Q> {
        match self.state {
            CarrierState::Joined { end, .. } => Some(end),
            _ => None,
        }
    }

    /// Whether it can be used, or is being made.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(
            self.state,
            CarrierState::Apart | CarrierState::Leaving { .. }
        )
    }

    /// Whether this process could ask now.
    #[must_use]
    pub fn may_ask(&self, now_ns: u64) -> bool {
        self.state == CarrierState::Apart && now_ns >= self.not_before_ns
    }

    /// Whether the peer is only to be asked if it hears.
    #[must_use]
    pub fn is_vain(&self) -> bool {
        self.is_vain
    }

    /// This process asks with an end that it has made; answers the number of the attempt.
    pub fn ask(&mut self, end: Q, now_ns: u64) -> u32 {
        self.attempt = self.attempt.wrapping_add(1);
        self.state = CarrierState::Asking { end };
        self.wait(now_ns);
        self.attempt
    }

    /// A note of the peer. `is_first`: whether this process counts as the first of the two, which the peer does not.
    #[must_use]
    pub fn hear<E>(&self, say: Say<E>, is_first: bool) -> Do<E> {
        match say {
            Say::Connect {
                attempt,
                end,
                again,
            } => self.hear_connect(attempt, end, again, !is_first),
            Say::Accept { attempt, end } if attempt == self.attempt => match self.state {
                CarrierState::Asking { .. } => Do::Join { end },
                CarrierState::Joined { asked: true, .. } => Do::ReadyAgain,
                _ => Do::Nothing,
            },
            Say::Ready { attempt } if attempt == self.attempt => match self.state {
                CarrierState::Answered { .. } => Do::Use,
                _ => Do::Nothing,
            },
            Say::Refuse { attempt } if attempt == self.attempt => match self.state {
                CarrierState::Asking { .. } => Do::Abandon,
                _ => Do::Nothing,
            },
            Say::GiveUp { attempt, done } if attempt == self.attempt => match self.state {
                CarrierState::Answered { .. } | CarrierState::Joined { .. } => Do::Leave,
                CarrierState::Leaving { said: false, .. } => Do::Leave,
                CarrierState::Leaving { said: true, .. } => Do::TakeApart { asked: !done },
                CarrierState::Apart if !done => Do::GoneAgain,
                CarrierState::Apart | CarrierState::Asking { .. } => Do::Nothing,
            },
            _ => Do::Nothing,
        }
    }

    fn hear_connect<E>(&self, attempt: u32, end: E, again: bool, yields: bool) -> Do<E> {
        let newer = attempt.wrapping_sub(self.attempt).cast_signed();
        match self.state {
            _ if newer > 0 => Do::Answer { end, again },
            // Ours of the same number came to nothing.
            CarrierState::Apart if newer == 0 => Do::Answer { end, again },
            CarrierState::Asking { .. } if newer == 0 && yields => Do::Answer { end, again },
            CarrierState::Answered { .. } if newer == 0 => Do::AnswerAgain,
            CarrierState::Joined { asked: false, .. } if newer == 0 => Do::AnswerAgain,
            _ => Do::Nothing,
        }
    }

    /// The peer's attempt is refused: [`Say::Refuse`].
    pub fn refuse(&mut self, attempt: u32) {
        self.attempt = attempt;
    }

    /// The peer's attempt was answered with an end of this process.
    pub fn answered(&mut self, attempt: u32, end: Q, now_ns: u64) {
        self.attempt = attempt;
        self.state = CarrierState::Answered { end };
        self.wait(now_ns);
    }

    /// Both ends are joined. `asked`: by this process.
    pub fn joined(&mut self, end: Q, asked: bool) {
        self.state = CarrierState::Joined { end, asked };
        self.deadline_ns = NEVER;
    }

    /// Something arrived over the end of an attempt that was answered: the other end is joined.
    #[inline(always)]
    pub fn was_used(&mut self) {
        if let CarrierState::Answered { end } = self.state {
            self.joined(end, false);
        }
    }

    /// The end is used no more on this side. `heard`: the peer has said so.
    pub fn leave(&mut self, end: Q, heard: bool) {
        self.state = CarrierState::Leaving {
            end,
            said: false,
            heard,
        };
        self.deadline_ns = NEVER;
    }

    /// The peer was told that this side is through.
    pub fn said(&mut self, end: Q, now_ns: u64) {
        self.state = CarrierState::Leaving {
            end,
            said: true,
            heard: false,
        };
        self.wait(now_ns);
    }

    /// There is no end any more.
    pub fn apart(&mut self) {
        self.state = CarrierState::Apart;
        self.deadline_ns = NEVER;
    }

    /// It came to nothing: not before this time again.
    pub fn refused(&mut self, not_before_ns: u64) {
        self.apart();
        self.not_before_ns = not_before_ns;
    }

    /// Nobody hears on this line: until the peer is heard it is asked for no queue pair, and now and then whether it hears.
    pub fn in_vain(&mut self, now_ns: u64) {
        self.refused(now_ns + UNHEARD_NS);
        self.is_vain = true;
    }

    /// The peer is heard on this line, or must be.
    #[inline(always)]
    pub fn heard(&mut self) {
        if self.is_vain {
            (self.is_vain, self.not_before_ns) = (false, 0);
        }
    }

    /// The peer looks and has not got what was said last, or its answer was lost: it is said again at this time, and then as slowly as
    /// at first.
    pub fn hasten(&mut self, at_ns: u64) {
        if self.deadline_ns != NEVER {
            (self.tries, self.deadline_ns) = (0, at_ns);
        }
    }

    /// Time has come to `now_ns`: what was said last is to be said again, if nobody answered. Answers since when nobody does.
    pub fn timeout(&mut self, now_ns: u64) -> Option<Overdue> {
        if now_ns < self.deadline_ns {
            return None;
        }
        self.tries = self.tries.saturating_add(1);
        let pause = FIRST_PAUSE_NS << self.tries.min(MOST_BACKOFF);
        self.deadline_ns = now_ns + pause;
        Some(Overdue { tries: self.tries })
    }

    /// When that is.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        Some(self.deadline_ns).filter(|deadline| *deadline != NEVER)
    }

    fn wait(&mut self, now_ns: u64) {
        self.tries = 0;
        self.deadline_ns = now_ns + FIRST_PAUSE_NS;
    }
}

/// Nobody has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// How often it was said in vain.
    pub tries: u8,
}

/// A time that does not come.
const NEVER: u64 = u64::MAX;
const FIRST_PAUSE_NS: u64 = 20_000_000;
const MOST_BACKOFF: u8 = 5;
/// A peer that nobody has heard is asked so often whether it hears.
const UNHEARD_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 9;

    fn connect(attempt: u32) -> Say<u32> {
        Say::Connect {
            attempt,
            end: END,
            again: false,
        }
    }

    fn ready(attempt: u32) -> Say<u32> {
        Say::Ready { attempt }
    }

    #[test]
    fn the_ordinary_way() {
        let (mut a, mut b) = (Connection::new(), Connection::new());
        let attempt = a.ask('a', 0);
        let answer = Do::Answer {
            end: END,
            again: false,
        };
        assert_eq!(b.hear(connect(attempt), false), answer);
        b.answered(attempt, 'b', 0);
        assert_eq!(b.usable(), None, "C2");
        assert_eq!(b.hear(connect(attempt), false), Do::AnswerAgain, "C3");
        let accept = Say::Accept { attempt, end: END };
        assert_eq!(a.hear(accept, true), Do::Join { end: END });
        a.joined('a', true);
        assert_eq!(a.hear(accept, true), Do::ReadyAgain, "C3");
        assert_eq!(b.hear(ready(attempt), false), Do::Use);
        b.joined('b', false);
        assert_eq!((a.usable(), b.usable()), (Some('a'), Some('b')));
        assert_eq!(b.hear(ready(attempt), false), Do::Nothing);
    }

    #[test]
    fn of_two_who_ask_at_once_the_first_wins() {
        let (mut first, mut second) = (Connection::new(), Connection::new());
        let attempt = first.ask('f', 0);
        assert_eq!(second.ask('s', 0), attempt);
        assert_eq!(first.hear(connect(attempt), true), Do::Nothing);
        assert!(matches!(
            second.hear(connect(attempt), false),
            Do::Answer { .. }
        ));
    }

    #[test]
    fn a_newer_attempt_replaces_whatever_there_is_and_an_older_one_nothing() {
        let mut it = Connection::new();
        it.answered(5, 'x', 0);
        it.was_used();
        assert_eq!(it.usable(), Some('x'));
        assert!(matches!(it.hear(connect(6), true), Do::Answer { .. }));
        assert_eq!(it.hear(connect(4), true), Do::Nothing);
        assert_eq!(it.hear(ready(4), true), Do::Nothing);
        let late: Say<u32> = Say::GiveUp {
            attempt: 4,
            done: true,
        };
        assert_eq!(it.hear(late, true), Do::Nothing);
    }

    #[test]
    fn both_leave_before_anything_is_taken_apart() {
        let mut it = Connection::new();
        it.answered(1, 'x', 0);
        it.was_used();
        let give_up = |done| -> Say<u32> { Say::GiveUp { attempt: 1, done } };
        assert_eq!(it.hear(give_up(false), true), Do::Leave);
        it.leave('x', true);
        assert_eq!(it.usable(), None);
        it.apart();
        assert_eq!(it.hear(give_up(false), true), Do::GoneAgain, "C3");

        it.joined('y', true);
        it.leave('y', false);
        assert_eq!(it.hear(give_up(false), true), Do::Leave, "both at once");
        it.said('y', 0);
        let taken = Do::TakeApart { asked: true };
        assert_eq!(it.hear(give_up(false), true), taken);
        let taken = Do::TakeApart { asked: false };
        assert_eq!(it.hear(give_up(true), true), taken);
    }

    #[test]
    fn what_nobody_answers_is_said_again_ever_more_slowly() {
        let mut it = Connection::new();
        it.ask('x', 0);
        assert_eq!(it.timeout(FIRST_PAUSE_NS - 1), None);
        assert_eq!(it.timeout(FIRST_PAUSE_NS), Some(Overdue { tries: 1 }));
        assert_eq!(it.deadline_ns(), Some(3 * FIRST_PAUSE_NS));
        it.hasten(5);
        assert_eq!(it.timeout(5), Some(Overdue { tries: 1 }));
        it.refused(100);
        it.hasten(7);
        assert_eq!(it.deadline_ns(), None);
        assert!(!it.may_ask(99) && it.may_ask(100));
        it.heard();
        assert!(!it.may_ask(99), "it was heard when it refused");
    }

    #[test]
    fn what_nobody_heard_is_asked_again_as_soon_as_the_peer_is_heard() {
        let mut it = Connection::new();
        it.ask('x', 0);
        it.in_vain(5);
        assert!(it.is_vain() && !it.may_ask(4 + UNHEARD_NS) && it.may_ask(5 + UNHEARD_NS));
        it.heard();
        assert!(!it.is_vain() && it.may_ask(5));
    }
}
