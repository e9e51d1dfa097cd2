// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection establishment: how two processes agree on a reliable carrier, with messages that may be lost, duplicated
//! or reordered, and when they try again. This module decides; the caller owns the carriers and executes the
//! [`ConnectAction`]s.
//!
//! The initiator creates its end and sends [`LinkMessage::Connect`]; the other side creates its end, connects it and
//! sends [`LinkMessage::Accept`]; the initiator connects its own and sends [`LinkMessage::Ready`] (REQ, REP and RTU of
//! InfiniBand's connection manager). Each attempt has a number, larger than all earlier ones of the two processes. If
//! both initiate at once, the larger number wins, and of equal ones that of the process that `is_first`.
//!
//! Where a carrier is connected as soon as it exists, as a byte stream is, the messages go over it, and Ready is not
//! needed.
//!
//! - C1: at most one attempt is alive. An older one's end is broken before a newer one begins.
//! - C2: an end is used for sends only when the other end is known to be connected.
//! - C3: a repeated message gets the same reply again.

/// A message between the two ends of a link. `E` describes an end to the peer, which connects its own end to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say<E> {
    /// Acknowledges packets.
    Ack {
        /// An acknowledgement is requested.
        asks: bool,
    },
    /// Requests a connection to `end` (REQ).
    Connect {
        /// Number of the attempt.
        attempt: u32,
        /// The sender's end.
        end: E,
        /// It replaces a connection that broke.
        again: bool,
    },
    /// Accepts it: the sender's end is connected (REP).
    Accept {
        /// Number of the attempt.
        attempt: u32,
        /// The sender's end.
        end: E,
    },
    /// Both ends are connected (RTU).
    Ready {
        /// Number of the attempt.
        attempt: u32,
    },
    /// Rejects it: the sender has too many connections (REJ).
    Refuse {
        /// Number of the attempt.
        attempt: u32,
    },
    /// Disconnects: the sender posts nothing to it any more (DREQ).
    GiveUp {
        /// Number of the attempt.
        attempt: u32,
        /// Both sides have disconnected (DREP).
        done: bool,
    },
}

/// State of the carrier to a peer. `Q` is the local end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierState<Q> {
    /// There is no connection.
    Apart,
    /// Connect was sent.
    Asking {
        /// The local end.
        end: Q,
    },
    /// Connect was received, the local end is connected, and Accept was sent.
    Answered {
        /// The local end.
        end: Q,
    },
    /// Both ends are connected.
    Joined {
        /// The local end.
        end: Q,
        /// This process sent Connect, and would send [`LinkMessage::Ready`] again.
        asked: bool,
    },
    /// The local end is no longer used for sends. When all posted work has completed, Disconnect is sent; when the peer
    /// has sent it too, the carrier is destroyed.
    Leaving {
        /// The local end.
        end: Q,
        /// Disconnect was sent.
        said: bool,
        /// The peer's Disconnect was received.
        heard: bool,
    },
}

/// The connection to a peer.
#[derive(Clone, Copy, Debug)]
pub struct Connection<Q> {
    state: CarrierState<Q>,
    /// Number of the latest known attempt.
    attempt: u32,
    /// When the last message is sent again, and how often it was.
    deadline_ns: u64,
    tries: u8,
    /// No Connect is sent before this time: the peer rejected one.
    not_before_ns: u64,
    /// The last messages had no reply, and nothing was received from the peer since.
    is_vain: bool,
}

/// Action that a received message requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do<E> {
    /// Nothing.
    Nothing,
    /// Break the existing end, if any; create one, connect it to the peer's and send Accept; then call
    /// [`Connection::accepted`].
    Answer {
        /// The peer's end.
        end: E,
        /// It replaces a connection that broke.
        again: bool,
    },
    /// Send Accept again.
    AnswerAgain,
    /// Connect the local end to the peer's and send Ready; then call [`Connection::connected`].
    Join {
        /// The peer's end.
        end: E,
    },
    /// Send Ready again.
    ReadyAgain,
    /// The end can be used for sends now.
    Use,
    /// Destroy the local end; continue without a connection.
    Abandon,
    /// Stop sending over it: [`Connection::disconnect`].
    Leave,
    /// Neither side uses it: destroy it.
    TakeApart {
        /// And send Disconnect with `done`.
        asked: bool,
    },
    /// It was destroyed before: send Disconnect with `done` again.
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
    /// Not connected.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Its state.
    #[inline(always)]
    #[must_use]
    pub fn state(&self) -> CarrierState<Q> {
        self.state
    }

    /// Number of the latest known attempt.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// No Connect is sent before this time.
    #[inline]
    #[must_use]
    pub fn not_before_ns(&self) -> u64 {
        self.not_before_ns
    }

    /// The local end, in any state.
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

    /// The local end, if it may be used for sends (C2).
    #[inline(always)]
    #[must_use]
    pub fn usable(&self) -> Option<Q> {
        match self.state {
            CarrierState::Joined { end, .. } => Some(end),
            _ => None,
        }
    }

    /// Whether it is connected, or being connected.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(
            self.state,
            CarrierState::Apart | CarrierState::Leaving { .. }
        )
    }

    /// Whether this process may send Connect now.
    #[must_use]
    pub fn may_ask(&self, now_ns: u64) -> bool {
        self.state == CarrierState::Apart && now_ns >= self.not_before_ns
    }

    /// Whether the peer is considered unreachable: it is sent requests for an acknowledgement, but no Connect.
    #[must_use]
    pub fn is_vain(&self) -> bool {
        self.is_vain
    }

    /// This process initiates with an end that it has created; returns the number of the attempt.
    pub fn ask(&mut self, end: Q, now_ns: u64) -> u32 {
        self.attempt = self.attempt.wrapping_add(1);
        self.state = CarrierState::Asking { end };
        self.wait(now_ns);
        self.attempt
    }

    /// Handles a message of the peer. `is_first`: this process is the first of the two; the peer passes the opposite.
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
            // The local attempt of the same number has failed.
            CarrierState::Apart if newer == 0 => Do::Answer { end, again },
            CarrierState::Asking { .. } if newer == 0 && yields => Do::Answer { end, again },
            CarrierState::Answered { .. } if newer == 0 => Do::AnswerAgain,
            CarrierState::Joined { asked: false, .. } if newer == 0 => Do::AnswerAgain,
            _ => Do::Nothing,
        }
    }

    /// Rejects the peer's attempt: [`LinkMessage::Refuse`].
    pub fn refuse(&mut self, attempt: u32) {
        self.attempt = attempt;
    }

    /// Accept was sent for the peer's attempt, with a local end.
    pub fn answered(&mut self, attempt: u32, end: Q, now_ns: u64) {
        self.attempt = attempt;
        self.state = CarrierState::Answered { end };
        self.wait(now_ns);
    }

    /// Both ends are connected. `is_initiator`: this process sent Connect.
    pub fn joined(&mut self, end: Q, asked: bool) {
        self.state = CarrierState::Joined { end, asked };
        self.deadline_ns = NEVER;
    }

    /// A packet arrived over an accepted end: the other end is connected.
    #[inline(always)]
    pub fn was_used(&mut self) {
        if let CarrierState::Answered { end } = self.state {
            self.joined(end, false);
        }
    }

    /// The local end is no longer used for sends. `peer_disconnected`: the peer's Disconnect was received.
    pub fn leave(&mut self, end: Q, heard: bool) {
        self.state = CarrierState::Leaving {
            end,
            said: false,
            heard,
        };
        self.deadline_ns = NEVER;
    }

    /// Disconnect was sent.
    pub fn said(&mut self, end: Q, now_ns: u64) {
        self.state = CarrierState::Leaving {
            end,
            said: true,
            heard: false,
        };
        self.wait(now_ns);
    }

    /// The local end is gone.
    pub fn apart(&mut self) {
        self.state = CarrierState::Apart;
        self.deadline_ns = NEVER;
    }

    /// The attempt failed: none before this time.
    pub fn refused(&mut self, not_before_ns: u64) {
        self.apart();
        self.not_before_ns = not_before_ns;
    }

    /// The peer does not reply on this link: until something is received from it, no Connect is sent, only an
    /// occasional request for an acknowledgement.
    pub fn in_vain(&mut self, now_ns: u64) {
        self.refused(now_ns + UNHEARD_NS);
        self.is_vain = true;
    }

    /// Something was received from the peer on this link, or must be.
    #[inline(always)]
    pub fn heard(&mut self) {
        if self.is_vain {
            (self.is_vain, self.not_before_ns) = (false, 0);
        }
    }

    /// The peer is active but has not received the last message, or its reply was lost: the message is sent again at
    /// this time, and the intervals start over.
    pub fn hasten(&mut self, at_ns: u64) {
        if self.deadline_ns != NEVER {
            (self.tries, self.deadline_ns) = (0, at_ns);
        }
    }

    /// Whether the last message must be sent again at `now_ns`, since no reply arrived.
    pub fn timeout(&mut self, now_ns: u64) -> Option<Overdue> {
        if now_ns < self.deadline_ns {
            return None;
        }
        self.tries = self.tries.saturating_add(1);
        let pause = FIRST_PAUSE_NS << self.tries.min(MOST_BACKOFF);
        self.deadline_ns = now_ns + pause;
        Some(Overdue { tries: self.tries })
    }

    /// The next time for [`timeout`](Self::timeout).
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        Some(self.deadline_ns).filter(|deadline| *deadline != NEVER)
    }

    fn wait(&mut self, now_ns: u64) {
        self.tries = 0;
        self.deadline_ns = now_ns + FIRST_PAUSE_NS;
    }
}

/// A message without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// How often it was sent without a reply.
    pub tries: u8,
}

/// No deadline.
const NEVER: u64 = u64::MAX;
const FIRST_PAUSE_NS: u64 = 20_000_000;
const MOST_BACKOFF: u8 = 5;
/// Interval of acknowledgement requests to an unreachable peer.
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
