// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the responder's expected PSN, and classifies received PSNs. IBTA vol. 1 section 9.7.

use crate::psn::Psn;

/// The PSN that a responder expects.
#[derive(Debug)]
pub(super) struct ExpectedPsn {
    expected: Psn,
    /// Number of PSNs accepted so far, at most 2^23. This number of PSNs before the expected one are duplicates.
    accepted: u32,
    /// Whether the expected packet was refused, or a gap reported, since the last accepted packet.
    has_refused: bool,
}

/// Position of a received PSN relative to the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PsnClass {
    Expected,
    /// Accepted before: a duplicate.
    Duplicate,
    /// Behind the expected PSN: packets before it are missing.
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
    fn psn_classes_wrap_at_24_bits() {
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
    fn gap_is_refused_once_until_progress() {
        let mut order = ExpectedPsn::new(Psn::new(0));
        assert!(order.refuse());
        assert!(!order.refuse());
        order.accept(1);
        assert!(order.refuse());
    }
}
