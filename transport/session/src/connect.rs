// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection establishment: two processes agree on a reliable carrier, with messages that may be lost, duplicated or
//! reordered, and try again if that fails. This module decides what to do; the caller owns the carriers and executes
//! the [`ConnectAction`]s.
//!
//! The initiator creates its end and sends [`LinkMessage::Connect`]. The other side creates its end, connects it and
//! sends [`LinkMessage::Accept`]. Then the initiator connects its end and sends [`LinkMessage::Ready`]. (These are REQ,
//! REP and RTU of InfiniBand's connection manager.) Each attempt has a number, which is larger than those of all
//! earlier attempts of the two processes. If both initiate at the same time, the attempt with the larger number is
//! continued; if the numbers are equal, the attempt of the process with `is_first` is continued.
//!
//! A byte stream is connected as soon as it exists. With such a carrier the messages are sent over the carrier itself,
//! and Ready is not needed.
//!
//! - C1: at most one attempt is in progress or connected. The end of an older attempt is broken before a newer attempt
//!   begins.
//! - C2: an end is used for sends only when the other end is known to be connected.
//! - C3: a repeated message gets the same reply again.

/// A message between the two ends of a link. `E` describes an end of a carrier to the peer, which connects its own end
/// to that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMessage<E> {
    /// Acknowledges packets.
    Ack {
        /// Whether an acknowledgement is requested.
        ack_request: bool,
    },
    /// Requests a connection to `end` (REQ).
    Connect {
        /// Number of the attempt.
        attempt: u32,
        /// The sender's end.
        end: E,
        /// Whether the connection replaces one that broke.
        again: bool,
    },
    /// Accepts a connection: the sender's end is connected to the peer's (REP).
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
    /// Rejects a connection: the sender has too many (REJ).
    Refuse {
        /// Number of the attempt.
        attempt: u32,
    },
    /// Disconnects: the sender posts nothing to its end any more (DREQ).
    Disconnect {
        /// Number of the attempt.
        attempt: u32,
        /// Whether both sides have disconnected (DREP).
        done: bool,
    },
}

/// State of the carrier to a peer. `Q` identifies the local end.
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
        /// Whether this process sent Connect. If so, it sends [`LinkMessage::Ready`] again when Accept is received
        /// again.
        is_initiator: bool,
    },
    /// The local end is no longer used for sends. When all posted work has completed, Disconnect is sent. When the peer
    /// has sent Disconnect too, the carrier is destroyed.
    Disconnecting {
        /// The local end.
        end: Q,
        /// Whether Disconnect was sent.
        is_sent: bool,
        /// Whether the peer's Disconnect was received.
        peer_disconnected: bool,
    },
}

/// The connection to a peer.
#[derive(Clone, Copy, Debug)]
pub struct Connection<Q> {
    state: CarrierState<Q>,
    /// Number of the latest known attempt.
    attempt: u32,
    /// When the last message is sent again, if no reply arrives before; [`NEVER`]: it is not sent again.
    deadline_ns: u64,
    tries: u8,
    /// No Connect is sent before this time, because an attempt has failed.
    retry_at_ns: u64,
    /// Whether the peer is considered unreachable: it did not reply, and nothing was received from it after that.
    is_unreachable: bool,
}

/// The action that a received message requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectAction<E> {
    /// No action.
    Nothing,
    /// Break the existing local end, if any; create a new one, connect it to the peer's end and send Accept; then call
    /// [`Connection::accepted`].
    Accept {
        /// The peer's end.
        end: E,
        /// Whether the connection replaces one that broke.
        again: bool,
    },
    /// Send Accept again.
    RepeatAccept,
    /// Connect the local end to the peer's end and send Ready; then call [`Connection::connected`].
    Connect {
        /// The peer's end.
        end: E,
    },
    /// Send Ready again.
    RepeatReady,
    /// The local end can be used for sends now: call [`Connection::connected`].
    Use,
    /// Destroy the local end, and continue without a connection.
    Abandon,
    /// Stop sending over the local end: call [`Connection::disconnect`].
    Disconnect,
    /// Destroy the local end: neither side uses the carrier any more.
    Destroy {
        /// Whether to send Disconnect with `done`.
        send_done: bool,
    },
    /// The local end was destroyed before: send Disconnect with `done` again.
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
    /// A connection in the state [`CarrierState::Disconnected`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The state of the carrier.
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

    /// The time before which no Connect is sent.
    #[inline]
    #[must_use]
    pub fn retry_at_ns(&self) -> u64 {
        self.retry_at_ns
    }

    /// The local end, in any state; `None`: there is none.
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

    /// Whether the carrier is connected or being connected.
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

    /// Whether the peer is considered unreachable. If so, it is sent requests for an acknowledgement, but no Connect.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// Begins an attempt of this process, with a local end that the caller has created. Returns the number of the
    /// attempt, for Connect.
    pub fn connect(&mut self, end: Q, now_ns: u64) -> u32 {
        self.attempt = self.attempt.wrapping_add(1);
        self.state = CarrierState::Connecting { end };
        self.wait(now_ns);
        self.attempt
    }

    /// Handles a message of the peer. `is_first`: whether the attempt of this process is continued if both initiate
    /// with equal numbers; the peer passes the opposite value.
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
            // A local attempt with the same number has failed before.
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

    /// Records that the peer's attempt was rejected with [`LinkMessage::Refuse`].
    pub fn refuse(&mut self, attempt: u32) {
        self.attempt = attempt;
    }

    /// Records that Accept was sent for the peer's attempt, with the local end `end`.
    pub fn accepted(&mut self, attempt: u32, end: Q, now_ns: u64) {
        self.attempt = attempt;
        self.state = CarrierState::Accepted { end };
        self.wait(now_ns);
    }

    /// Records that both ends are connected. `is_initiator`: whether this process sent Connect.
    pub fn connected(&mut self, end: Q, is_initiator: bool) {
        self.state = CarrierState::Connected { end, is_initiator };
        self.deadline_ns = NEVER;
    }

    /// Records that a packet arrived over the local end. If Accept was sent for that end, the other end is connected
    /// too.
    #[inline(always)]
    pub fn note_arrival(&mut self) {
        if let CarrierState::Accepted { end } = self.state {
            self.connected(end, false);
        }
    }

    /// Records that the local end is no longer used for sends. `peer_disconnected`: whether the peer's Disconnect was
    /// received.
    pub fn disconnect(&mut self, end: Q, peer_disconnected: bool) {
        self.state = CarrierState::Disconnecting {
            end,
            is_sent: false,
            peer_disconnected,
        };
        self.deadline_ns = NEVER;
    }

    /// Records that Disconnect was sent.
    pub fn sent_disconnect(&mut self, end: Q, now_ns: u64) {
        self.state = CarrierState::Disconnecting {
            end,
            is_sent: true,
            peer_disconnected: false,
        };
        self.wait(now_ns);
    }

    /// Records that the local end was destroyed.
    pub fn disconnected(&mut self) {
        self.state = CarrierState::Disconnected;
        self.deadline_ns = NEVER;
    }

    /// Records that the attempt failed, or was rejected: no new one begins before this time.
    pub fn retry_after(&mut self, retry_at_ns: u64) {
        self.disconnected();
        self.retry_at_ns = retry_at_ns;
    }

    /// Records that the peer does not reply on this link. Until something is received from it, no Connect is sent, only
    /// an occasional request for an acknowledgement.
    pub fn set_unreachable(&mut self, now_ns: u64) {
        self.retry_after(now_ns + UNREACHABLE_PROBE_NS);
        self.is_unreachable = true;
    }

    /// Records that something was received from the peer on this link, or that the peer must be treated as reachable.
    #[inline(always)]
    pub fn note_reachable(&mut self) {
        if self.is_unreachable {
            (self.is_unreachable, self.retry_at_ns) = (false, 0);
        }
    }

    /// If the last message has no reply yet, requires that the message is sent again at this time. From then on, the
    /// intervals begin with the shortest again. Used when the peer is active: either the message or the peer's reply
    /// was lost.
    pub fn resend_at(&mut self, at_ns: u64) {
        if self.deadline_ns != NEVER {
            (self.tries, self.deadline_ns) = (0, at_ns);
        }
    }

    /// If no reply has arrived by the deadline, returns that the last message must be sent again, and sets the next
    /// deadline.
    pub fn timeout(&mut self, now_ns: u64) -> Option<ConnectTimeout> {
        if now_ns < self.deadline_ns {
            return None;
        }
        self.tries = self.tries.saturating_add(1);
        let pause = FIRST_INTERVAL_NS << self.tries.min(BACKOFF_MAX);
        self.deadline_ns = now_ns + pause;
        Some(ConnectTimeout { tries: self.tries })
    }

    /// When [`timeout`](Self::timeout) must be called next; `None`: it need not be called.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        Some(self.deadline_ns).filter(|deadline| *deadline != NEVER)
    }

    fn wait(&mut self, now_ns: u64) {
        self.tries = 0;
        self.deadline_ns = now_ns + FIRST_INTERVAL_NS;
    }
}

/// The last message had no reply in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectTimeout {
    /// How often the last message was sent without a reply, including the first time.
    pub tries: u8,
}

/// Value of `deadline_ns` if there is no deadline.
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
    fn connect_accept_ready_handshake() {
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
    fn simultaneous_connects_keep_the_attempt_of_the_first_side() {
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
    fn newer_attempt_replaces_and_older_is_ignored() {
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
    fn both_sides_disconnect_before_the_end_is_destroyed() {
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
    fn unanswered_connect_is_resent_with_backoff() {
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
    fn unreachable_peer_is_retried_when_reachable_again() {
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
