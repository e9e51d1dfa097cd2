// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which packet a responder waits for, and what it makes of others. IBTA vol. 1 section 9.7.

use crate::psn::Psn;

/// The packet number that a responder expects.
#[derive(Debug)]
pub(super) struct ExpectedPsn {
    expected: Psn,
    /// How many it has accepted, up to half of all numbers: so far back a packet can lie that comes again.
    accepted: u32,
    /// It has refused a packet since the last that it accepted.
    has_refused: bool,
}

/// How the number of a packet compares to the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PsnStanding {
    Next,
    /// It was accepted before.
    Again,
    /// Something is missing before it.
    Ahead,
    /// It is before the first of this connection.
    Stray,
}

impl ExpectedPsn {
    pub(super) fn new(first: Psn) -> Self {
        Self {
            expected: first,
            accepted: 0,
            has_refused: false,
        }
    }

    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    pub(super) fn standing(&self, psn: Psn) -> PsnStanding {
        match psn.since(self.expected) {
            0 => PsnStanding::Next,
            1.. => PsnStanding::Ahead,
            behind if behind.unsigned_abs() <= self.accepted => PsnStanding::Again,
            _ => PsnStanding::Stray,
        }
    }

    /// A request was carried out that has so many packet numbers.
    pub(super) fn accept(&mut self, packets: u32) {
        self.expected = self.expected.plus(packets);
        self.accepted = self.accepted.saturating_add(packets).min(HALF);
        self.has_refused = false;
    }

    /// Whether the expected packet was refused, or a gap was told, since the last that was accepted.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Notes that the expected packet is missing or refused; whether that is news since the last that was accepted.
    pub(super) fn refuse(&mut self) -> bool {
        !std::mem::replace(&mut self.has_refused, true)
    }
}

const HALF: u32 = 1 << 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_in_a_ring_of_24_bits() {
        let mut order = ExpectedPsn::new(Psn::new(Psn::MASK));
        order.accept(2);
        let standings =
            [1, 0, Psn::MASK, Psn::MASK - 1, 2].map(|psn| order.standing(Psn::new(psn)));
        let again = PsnStanding::Again;
        assert_eq!(
            standings,
            [
                PsnStanding::Next,
                again,
                again,
                PsnStanding::Stray,
                PsnStanding::Ahead
            ]
        );
    }

    #[test]
    fn a_gap_is_news_once() {
        let mut order = ExpectedPsn::new(Psn::new(0));
        assert!(order.refuse());
        assert!(!order.refuse());
        order.accept(1);
        assert!(order.refuse());
    }
}
