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
pub enum LinkMessage<E> {
    /// Acknowledges packets.
    Ack {
        /// An acknowledgement is requested.
        ack_request: bool,
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
    Disconnect {
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
    Disconnected,
    /// Connect was sent.
    Connecting {
        /// The local end.
        end: Q,
    },
    /// Connect was received, the local end is connected, and Accept was sent.
    Accepted {
        /// The local end.
        end: Q,
    },
    /// Both ends are connected.
    Connected {
        /// The local end.
        end: Q,
        /// This process sent Connect, and would send [`LinkMessage::Ready`] again.
        is_initiator: bool,
    },
    /// The local end is no longer used for sends. When all posted work has completed, Disconnect is sent; when the peer
    /// has sent it too, the carrier is destroyed.
    Disconnecting {
        /// The local end.
        end: Q,
        /// Disconnect was sent.
        is_sent: bool,
        /// The peer's Disconnect was received.
        peer_disconnected: bool,
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
    retry_at_ns: u64,
    /// The last messages had no reply, and nothing was received from the peer since.
    is_unreachable: bool,
}

/// Action that a received message requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectAction<E> {
    /// Nothing.
    Nothing,
    /// Break the existing end, if any; create one, connect it to the peer's and send Accept; then call
    /// [`Connection::accepted`].
    Accept {
        /// The peer's end.
        end: E,
        /// It replaces a connection that broke.
        again: bool,
    },
    /// Send Accept again.
    RepeatAccept,
    /// Connect the local end to the peer's and send Ready; then call [`Connection::connected`].
    Connect {
        /// The peer's end.
        end: E,
    },
    /// Send Ready again.
    RepeatReady,
    /// The end can be used for sends now.
    Use,
    /// Destroy the local end; continue without a connection.
    Abandon,
    /// Stop sending over it: [`Connection::disconnect`].
    Disconnect,
    /// Neither side uses it: destroy it.
    Destroy {
        /// Whether to send Disconnect with `done`.
        send_done: bool,
    },
    /// It was destroyed before: send Disconnect with `done` again.
    RepeatDisconnect,
}

impl<Q> Default for Connection<Q> {
    fn default() -> Self {
        Self {
            state: CarrierState::Disconnected,
            attempt: 0,
            deadline_ns: NEVER,
            tries: 0,
            retry_at_ns: 0,
            is_unreachable: false,
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
    pub fn retry_at_ns(&self) -> u64 {
        self.retry_at_ns
    }

    /// The local end, in any state.
    #[must_use]
    pub fn end(&self) -> Option<Q> {
        match self.state {
            CarrierState::Disconnected => None,
            CarrierState::Connecting { end }
            | CarrierState::Accepted { end }
            | CarrierState::Connected { end, .. }
            | CarrierState::Disconnecting { end, .. } => Some(end),
        }
    }

    /// The local end, if it may be used for sends (C2).
    #[inline(always)]
    #[must_use]
    pub fn usable(&self) -> Option<Q> {
        match self.state {
            CarrierState::Connected { end, .. } => Some(end),
            _ => None,
        }
    }

    /// Whether it is connected, or being connected.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(
            self.state,
            CarrierState::Disconnected | CarrierState::Disconnecting { .. }
        )
    }

    /// Whether this process may send Connect now.
    #[must_use]
    pub fn may_connect(&self, now_ns: u64) -> bool {
        self.state == CarrierState::Disconnected && now_ns >= self.retry_at_ns
    }

    /// Whether the peer is considered unreachable: it is sent requests for an acknowledgement, but no Connect.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// This process initiates with an end that it has created; returns the number of the attempt.
    pub fn connect(&mut self, end: Q, now_ns: u64) -> u32 {
        self.attempt = self.attempt.wrapping_add(1);
        self.state = CarrierState::Connecting { end };
        self.wait(now_ns);
        self.attempt
    }

    /// Handles a message of the peer. `is_first`: this process is the first of the two; the peer passes the opposite.
    #[must_use]
    pub fn receive<E>(&self, message: LinkMessage<E>, is_first: bool) -> ConnectAction<E> {
        match message {
            LinkMessage::Connect {
                attempt,
                end,
                again,
            } => self.receive_connect(attempt, end, again, !is_first),
            LinkMessage::Accept { attempt, end } if attempt == self.attempt => match self.state {
                CarrierState::Connecting { .. } => ConnectAction::Connect { end },
                CarrierState::Connected {
                    is_initiator: true, ..
                } => ConnectAction::RepeatReady,
                _ => ConnectAction::Nothing,
            },
            LinkMessage::Ready { attempt } if attempt == self.attempt => match self.state {
                CarrierState::Accepted { .. } => ConnectAction::Use,
                _ => ConnectAction::Nothing,
            },
            LinkMessage::Refuse { attempt } if attempt == self.attempt => match self.state {
                CarrierState::Connecting { .. } => ConnectAction::Abandon,
                _ => ConnectAction::Nothing,
            },
            LinkMessage::Disconnect { attempt, done } if attempt == self.attempt => {
                match self.state {
                    CarrierState::Accepted { .. } | CarrierState::Connected { .. } => {
                        ConnectAction::Disconnect
                    }
                    CarrierState::Disconnecting { is_sent: false, .. } => ConnectAction::Disconnect,
                    CarrierState::Disconnecting { is_sent: true, .. } => {
                        ConnectAction::Destroy { send_done: !done }
                    }
                    CarrierState::Disconnected if !done => ConnectAction::RepeatDisconnect,
                    CarrierState::Disconnected | CarrierState::Connecting { .. } => {
                        ConnectAction::Nothing
                    }
                }
            }
            _ => ConnectAction::Nothing,
        }
    }

    fn receive_connect<E>(
        &self,
        attempt: u32,
        end: E,
        again: bool,
        yields: bool,
    ) -> ConnectAction<E> {
        let newer = attempt.wrapping_sub(self.attempt).cast_signed();
        match self.state {
            _ if newer > 0 => ConnectAction::Accept { end, again },
            // The local attempt of the same number has failed.
            CarrierState::Disconnected if newer == 0 => ConnectAction::Accept { end, again },
            CarrierState::Connecting { .. } if newer == 0 && yields => {
                ConnectAction::Accept { end, again }
            }
            CarrierState::Accepted { .. } if newer == 0 => ConnectAction::RepeatAccept,
            CarrierState::Connected {
                is_initiator: false,
                ..
            } if newer == 0 => ConnectAction::RepeatAccept,
            _ => ConnectAction::Nothing,
        }
    }

    /// Rejects the peer's attempt: [`LinkMessage::Refuse`].
    pub fn refuse(&mut self, attempt: u32) {
        self.attempt = attempt;
    }

    /// Accept was sent for the peer's attempt, with a local end.
    pub fn accepted(&mut self, attempt: u32, end: Q, now_ns: u64) {
        self.attempt = attempt;
        self.state = CarrierState::Accepted { end };
        self.wait(now_ns);
    }

    /// Both ends are connected. `is_initiator`: this process sent Connect.
    pub fn connected(&mut self, end: Q, is_initiator: bool) {
        self.state = CarrierState::Connected { end, is_initiator };
        self.deadline_ns = NEVER;
    }

    /// A packet arrived over an accepted end: the other end is connected.
    #[inline(always)]
    pub fn note_arrival(&mut self) {
        if let CarrierState::Accepted { end } = self.state {
            self.connected(end, false);
        }
    }

    /// The local end is no longer used for sends. `peer_disconnected`: the peer's Disconnect was received.
    pub fn disconnect(&mut self, end: Q, peer_disconnected: bool) {
        self.state = CarrierState::Disconnecting {
            end,
            is_sent: false,
            peer_disconnected,
        };
        self.deadline_ns = NEVER;
    }

    /// Disconnect was sent.
    pub fn sent_disconnect(&mut self, end: Q, now_ns: u64) {
        self.state = CarrierState::Disconnecting {
            end,
            is_sent: true,
            peer_disconnected: false,
        };
        self.wait(now_ns);
    }

    /// The local end is gone.
    pub fn disconnected(&mut self) {
        self.state = CarrierState::Disconnected;
        self.deadline_ns = NEVER;
    }

    /// The attempt failed: none before this time.
    pub fn retry_after(&mut self, retry_at_ns: u64) {
        self.disconnected();
        self.retry_at_ns = retry_at_ns;
    }

    /// The peer does not reply on this link: until something is received from it, no Connect is sent, only an
    /// occasional request for an acknowledgement.
    pub fn set_unreachable(&mut self, now_ns: u64) {
        self.retry_after(now_ns + UNREACHABLE_PROBE_NS);
        self.is_unreachable = true;
    }

    /// Something was received from the peer on this link, or must be.
    #[inline(always)]
    pub fn note_reachable(&mut self) {
        if self.is_unreachable {
            (self.is_unreachable, self.retry_at_ns) = (false, 0);
        }
    }

    /// The peer is active but has not received the last message, or its reply was lost: the message is sent again at
    /// this time, and the intervals start over.
    pub fn resend_at(&mut self, at_ns: u64) {
        if self.deadline_ns != NEVER {
            (self.tries, self.deadline_ns) = (0, at_ns);
        }
    }

    /// Whether the last message must be sent again at `now_ns`, since no reply arrived.
    pub fn timeout(&mut self, now_ns: u64) -> Option<ConnectTimeout> {
        if now_ns < self.deadline_ns {
            return None;
        }
        self.tries = self.tries.saturating_add(1);
        let pause = FIRST_INTERVAL_NS << self.tries.min(BACKOFF_MAX);
        self.deadline_ns = now_ns + pause;
        Some(ConnectTimeout { tries: self.tries })
    }

    /// The next time for [`timeout`](Self::timeout).
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        Some(self.deadline_ns).filter(|deadline| *deadline != NEVER)
    }

    fn wait(&mut self, now_ns: u64) {
        self.tries = 0;
        self.deadline_ns = now_ns + FIRST_INTERVAL_NS;
    }
}

/// A message without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectTimeout {
    /// How often it was sent without a reply.
    pub tries: u8,
}

/// No deadline.
const NEVER: u64 = u64::MAX;
const FIRST_INTERVAL_NS: u64 = 20_000_000;
const BACKOFF_MAX: u8 = 5;
/// Interval of acknowledgement requests to an unreachable peer.
const UNREACHABLE_PROBE_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 9;

    fn connect(attempt: u32) -> LinkMessage<u32> {
        LinkMessage::Connect {
            attempt,
            end: END,
            again: false,
        }
    }

    fn ready(attempt: u32) -> LinkMessage<u32> {
        LinkMessage::Ready { attempt }
    }

    #[test]
    fn the_ordinary_way() {
        let (mut a, mut b) = (Connection::new(), Connection::new());
        let attempt = a.connect('a', 0);
        let answer = ConnectAction::Accept {
            end: END,
            again: false,
        };
        assert_eq!(b.receive(connect(attempt), false), answer);
        b.accepted(attempt, 'b', 0);
        assert_eq!(b.usable(), None, "C2");
        assert_eq!(
            b.receive(connect(attempt), false),
            ConnectAction::RepeatAccept,
            "C3"
        );
        let accept = LinkMessage::Accept { attempt, end: END };
        assert_eq!(a.receive(accept, true), ConnectAction::Connect { end: END });
        a.connected('a', true);
        assert_eq!(a.receive(accept, true), ConnectAction::RepeatReady, "C3");
        assert_eq!(b.receive(ready(attempt), false), ConnectAction::Use);
        b.connected('b', false);
        assert_eq!((a.usable(), b.usable()), (Some('a'), Some('b')));
        assert_eq!(b.receive(ready(attempt), false), ConnectAction::Nothing);
    }

    #[test]
    fn of_two_who_ask_at_once_the_first_wins() {
        let (mut first, mut second) = (Connection::new(), Connection::new());
        let attempt = first.connect('f', 0);
        assert_eq!(second.connect('s', 0), attempt);
        assert_eq!(
            first.receive(connect(attempt), true),
            ConnectAction::Nothing
        );
        assert!(matches!(
            second.receive(connect(attempt), false),
            ConnectAction::Accept { .. }
        ));
    }

    #[test]
    fn a_newer_attempt_replaces_whatever_there_is_and_an_older_one_nothing() {
        let mut it = Connection::new();
        it.accepted(5, 'x', 0);
        it.note_arrival();
        assert_eq!(it.usable(), Some('x'));
        assert!(matches!(
            it.receive(connect(6), true),
            ConnectAction::Accept { .. }
        ));
        assert_eq!(it.receive(connect(4), true), ConnectAction::Nothing);
        assert_eq!(it.receive(ready(4), true), ConnectAction::Nothing);
        let late: LinkMessage<u32> = LinkMessage::Disconnect {
            attempt: 4,
            done: true,
        };
        assert_eq!(it.receive(late, true), ConnectAction::Nothing);
    }

    #[test]
    fn both_leave_before_anything_is_taken_apart() {
        let mut it = Connection::new();
        it.accepted(1, 'x', 0);
        it.note_arrival();
        let give_up = |done| -> LinkMessage<u32> { LinkMessage::Disconnect { attempt: 1, done } };
        assert_eq!(it.receive(give_up(false), true), ConnectAction::Disconnect);
        it.disconnect('x', true);
        assert_eq!(it.usable(), None);
        it.disconnected();
        assert_eq!(
            it.receive(give_up(false), true),
            ConnectAction::RepeatDisconnect,
            "C3"
        );

        it.connected('y', true);
        it.disconnect('y', false);
        assert_eq!(
            it.receive(give_up(false), true),
            ConnectAction::Disconnect,
            "both at once"
        );
        it.sent_disconnect('y', 0);
        let taken = ConnectAction::Destroy { send_done: true };
        assert_eq!(it.receive(give_up(false), true), taken);
        let taken = ConnectAction::Destroy { send_done: false };
        assert_eq!(it.receive(give_up(true), true), taken);
    }

    #[test]
    fn what_nobody_answers_is_said_again_ever_more_slowly() {
        let mut it = Connection::new();
        it.connect('x', 0);
        assert_eq!(it.timeout(FIRST_INTERVAL_NS - 1), None);
        assert_eq!(
            it.timeout(FIRST_INTERVAL_NS),
            Some(ConnectTimeout { tries: 1 })
        );
        assert_eq!(it.deadline_ns(), Some(3 * FIRST_INTERVAL_NS));
        it.resend_at(5);
        assert_eq!(it.timeout(5), Some(ConnectTimeout { tries: 1 }));
        it.retry_after(100);
        it.resend_at(7);
        assert_eq!(it.deadline_ns(), None);
        assert!(!it.may_connect(99) && it.may_connect(100));
        it.note_reachable();
        assert!(!it.may_connect(99), "it was reachable when it refused");
    }

    #[test]
    fn what_nobody_heard_is_asked_again_as_soon_as_the_peer_is_heard() {
        let mut it = Connection::new();
        it.connect('x', 0);
        it.set_unreachable(5);
        assert!(
            it.is_unreachable()
                && !it.may_connect(4 + UNREACHABLE_PROBE_NS)
                && it.may_connect(5 + UNREACHABLE_PROBE_NS)
        );
        it.note_reachable();
        assert!(!it.is_unreachable() && it.may_connect(5));
    }
}
