// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether a request or a response is sent next, if there are both. Whole messages alternate, so that the
//! packets of a message leave one after the other, and a carrier can send them in one batch. A long message is
//! interrupted after [`TURN_PACKETS`] packets, so that neither kind waits for long.

/// The kind that is sent next, if there are both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    of: TurnKind,
    /// Packets of this kind sent since the last change.
    packets: u32,
}

/// A kind of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnKind {
    Requests,
    Responses,
}

impl Turn {
    /// Responses are first.
    pub(super) fn new() -> Self {
        Self {
            of: TurnKind::Responses,
            packets: 0,
        }
    }

    pub(super) fn is_of(&self, kind: TurnKind) -> bool {
        self.of == kind
    }

    /// Records that a packet of this kind was sent. `is_inside`: the rest of its message follows.
    pub(super) fn sent(&mut self, kind: TurnKind, is_inside: bool) {
        let before = if self.of == kind { self.packets } else { 0 };
        let packets = before + 1;
        *self = match is_inside && packets < TURN_PACKETS {
            true => Self { of: kind, packets },
            false => Self {
                of: kind.other(),
                packets: 0,
            },
        };
    }
}

impl TurnKind {
    fn other(self) -> Self {
        match self {
            Self::Requests => Self::Responses,
            Self::Responses => Self::Requests,
        }
    }
}

/// Maximum number of packets of one kind sent in a row while packets of the other kind wait.
const TURN_PACKETS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_sent_whole_before_the_kind_changes() {
        let mut turn = Turn::new();
        for _ in 0..3 {
            assert!(turn.is_of(TurnKind::Responses));
            turn.sent(TurnKind::Responses, true);
        }
        turn.sent(TurnKind::Responses, false);
        assert!(turn.is_of(TurnKind::Requests));
        turn.sent(TurnKind::Requests, false);
        assert!(turn.is_of(TurnKind::Responses));
    }

    #[test]
    fn a_long_message_is_interrupted() {
        let mut turn = Turn::new();
        // There are no responses to send.
        for _ in 1..TURN_PACKETS {
            turn.sent(TurnKind::Requests, true);
            assert!(turn.is_of(TurnKind::Requests));
        }
        turn.sent(TurnKind::Requests, true);
        assert!(turn.is_of(TurnKind::Responses));
    }
}
