// SPDX-License-Identifier: MIT OR Apache-2.0
//! The responder's expected PSN, and the classification of received PSNs. IBTA vol. 1 section 9.7.

use crate::psn::Psn;

/// The PSN that a responder expects.
#[derive(Debug)]
pub(super) struct ExpectedPsn {
    expected: Psn,
    /// PSNs accepted so far, saturating at 2^23: the range of duplicates.
    accepted: u32,
    /// A packet was refused since the last accepted one.
    has_refused: bool,
}

/// Position of a received PSN relative to the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PsnClass {
    Expected,
    /// Accepted before: a duplicate.
    Duplicate,
    /// Behind a gap.
    Ahead,
    /// Before the first PSN of this connection.
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

    pub(super) fn classify(&self, psn: Psn) -> PsnClass {
        match psn.since(self.expected) {
            0 => PsnClass::Expected,
            1.. => PsnClass::Ahead,
            behind if behind.unsigned_abs() <= self.accepted => PsnClass::Duplicate,
            _ => PsnClass::Stray,
        }
    }

    /// Accepts a request that takes `packets` PSNs.
    pub(super) fn accept(&mut self, packets: u32) {
        self.expected = self.expected.plus(packets);
        self.accepted = self.accepted.saturating_add(packets).min(HALF);
        self.has_refused = false;
    }

    /// Whether the expected packet was refused, or a gap reported, since the last accepted packet.
    pub(super) fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Records that the expected packet is missing or refused; returns whether this is the first time since the last
    /// accepted packet.
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
            [1, 0, Psn::MASK, Psn::MASK - 1, 2].map(|psn| order.classify(Psn::new(psn)));
        let again = PsnClass::Duplicate;
        assert_eq!(
            standings,
            [
                PsnClass::Expected,
                again,
                again,
                PsnClass::Stray,
                PsnClass::Ahead
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
